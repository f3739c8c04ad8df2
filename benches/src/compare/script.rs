//! What comes and goes when: the same for every way of asking, whatever becomes of it.

use mortise_apis::values::SplitMix64;

/// Short-lived pods live so long, in milliseconds.
const JOB_LIFE_MS: (u64, u64) = (8_000, 25_000);
/// They ask for so much CPU, in thousandths.
const JOB_CPU: (u64, u64) = (100, 600);
/// Pods of a service ask for so much.
const SERVICE_CPU: (u64, u64) = (3_000, 7_000);
const REPLICAS: (u64, u64) = (3, 6);
/// Short-lived pods are created at the full rate for this time after a service: its nodes become ready in this time.
const RUSH_MS: u64 = 4_000;
/// At other times they come at this part of it.
const CALM: u64 = 10;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A service is created.
    Up {
        service: u64,
        replicas: u64,
        cpu: u64,
    },
    /// A service goes.
    Down { service: u64 },
    /// A short-lived pod comes.
    Job { job: u64, cpu: u64 },
    /// It is over.
    Over { job: u64 },
}

/// Actions with the milliseconds at which they are due, in order.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) actions: Vec<(u64, Action)>,
}

impl Script {
    /// Services come in the first 60 % of the time; every second one goes after 30 % of it.
    pub(crate) fn new(services: u32, seconds: u32, rate: u32, seed: u64) -> Self {
        let mut dice = Dice(SplitMix64::new(seed));
        let length = u64::from(seconds) * 1_000;
        let services = u64::from(services);
        let mut actions = Vec::new();
        let mut rushes = Vec::new();
        for service in 0..services {
            let at = service * (length * 6 / 10) / services.max(1);
            let (replicas, cpu) = (dice.within(REPLICAS), dice.within(SERVICE_CPU));
            actions.push((
                at,
                Action::Up {
                    service,
                    replicas,
                    cpu,
                },
            ));
            rushes.push(at);
            if service % 2 == 0 {
                actions.push((at + length * 3 / 10, Action::Down { service }));
            }
        }
        let is_rush = |at: u64| {
            let mut rushes = rushes.iter();
            rushes.any(|from| (*from..from + RUSH_MS).contains(&at))
        };
        Self::with_jobs(actions, length, rate, &mut dice, is_rush)
    }

    /// Short-lived pods at one rate, and nothing else.
    pub(crate) fn steady(seconds: u32, rate: u32, seed: u64) -> Self {
        let length = u64::from(seconds) * 1_000;
        Self::with_jobs(
            Vec::new(),
            length,
            rate,
            &mut Dice(SplitMix64::new(seed)),
            |_| true,
        )
    }

    fn with_jobs(
        mut actions: Vec<(u64, Action)>,
        length: u64,
        rate: u32,
        dice: &mut Dice,
        is_rush: impl Fn(u64) -> bool,
    ) -> Self {
        // In steps of a tenth of a second: a number of pods that results in the rate.
        let rate = u64::from(rate);
        let mut missing = 0;
        let mut job = 0;
        for tick in 0..length / 100 {
            let at = tick * 100;
            missing += if is_rush(at) { rate * CALM } else { rate };
            while missing >= 10 * CALM {
                missing -= 10 * CALM;
                let at = at + dice.within((0, 99));
                let end = at + dice.within(JOB_LIFE_MS);
                let cpu = dice.within(JOB_CPU);
                actions.push((at, Action::Job { job, cpu }));
                actions.push((end, Action::Over { job }));
                job += 1;
            }
        }
        actions.sort_by_key(|(at, _)| *at);
        Self { actions }
    }
}

struct Dice(SplitMix64);

impl Dice {
    const fn within(&mut self, (least, most): (u64, u64)) -> u64 {
        least + self.0.below(most - least + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_script_at_the_wanted_rate() {
        let script = Script::new(4, 60, 100, 7);
        assert_eq!(script.actions, Script::new(4, 60, 100, 7).actions);
        assert_ne!(script.actions, Script::new(4, 60, 100, 8).actions);
        assert!(script.actions.is_sorted_by_key(|(at, _)| *at));
        let jobs = |from: u64, to: u64| {
            let all = script.actions.iter();
            all.filter(|(at, action)| {
                (from..to).contains(at) && matches!(action, Action::Job { .. })
            })
            .count()
        };
        assert_eq!(jobs(0, 4_000), 400, "a rush");
        assert!(
            (45..=55).contains(&jobs(4_000, 9_000)),
            "{}",
            jobs(4_000, 9_000)
        );
        let count = |wanted: fn(&Action) -> bool| {
            script
                .actions
                .iter()
                .filter(|(_, action)| wanted(action))
                .count()
        };
        assert_eq!(count(|action| matches!(action, Action::Up { .. })), 4);
        assert_eq!(count(|action| matches!(action, Action::Down { .. })), 2);
        assert_eq!(
            count(|action| matches!(action, Action::Job { .. })),
            count(|action| matches!(action, Action::Over { .. }))
        );
    }
}
