//! Runs of many seeds. A seed that fails is shrunk to a small story: the steps that are enough to fail, and the command that plays them.

use std::collections::BTreeSet;

use mortise_sim::{on_all_processors, shrunk_list};

/// Most plays in which a failing seed is shrunk.
const MOST_PLAYS: usize = 150;
/// Steps that are played, by number, separated by commas; all others are left out.
const STEPS: &str = "MORTISE_STEPS";

/// Seeds of a test.
pub(crate) struct Seeds {
    /// Variable with another number of seeds, or the first and the last: `17-17`.
    pub(crate) variable: &'static str,
    /// How many without it.
    pub(crate) usual: u64,
    /// Its module.
    pub(crate) test: &'static str,
}

/// The steps of a play, counted as they come.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    kept: Option<BTreeSet<usize>>,
    count: usize,
    /// What was kept, with its number.
    story: Vec<(usize, String)>,
}

impl Steps {
    fn only(kept: &[usize]) -> Self {
        Self {
            kept: Some(kept.iter().copied().collect()),
            ..Self::default()
        }
    }

    /// Whether none is left out.
    pub(crate) const fn are_all(&self) -> bool {
        self.kept.is_none()
    }

    /// Whether the next step is played. Random numbers are to be drawn before, so that they do not depend on it.
    pub(crate) fn take(&mut self, text: impl FnOnce() -> String) -> bool {
        let number = self.count;
        self.count += 1;
        let is_kept = self.kept.as_ref().is_none_or(|kept| kept.contains(&number));
        if is_kept {
            self.story.push((number, text()));
        }
        is_kept
    }
}

/// Plays each seed; `play` returns the violations.
pub(crate) fn each_seed(seeds: &Seeds, play: impl Fn(u64, &mut Steps) -> Vec<String> + Sync) {
    let variable = std::env::var(seeds.variable).ok();
    let (first, last): (u64, u64) = match variable.as_deref().map(|text| text.split_once('-')) {
        Some(Some((first, last))) => (first.parse().unwrap(), last.parse().unwrap()),
        Some(None) => (1, variable.unwrap().parse().unwrap()),
        None => (1, seeds.usual),
    };
    let steps = std::env::var(STEPS).ok();
    let steps: Option<Vec<usize>> = steps.map(|text| {
        let numbers = text.split(',').filter(|number| !number.is_empty());
        numbers.map(|number| number.parse().unwrap()).collect()
    });
    let numbers: Vec<u64> = (first..=last).collect();
    let played = on_all_processors(&numbers, |seed| {
        let mut played = steps.as_deref().map_or_else(Steps::default, Steps::only);
        (*seed, play(*seed, &mut played))
    });
    let mut failed = played;
    failed.retain(|(_, violations)| !violations.is_empty());
    let Some((seed, violations)) = failed.first() else {
        return;
    };
    let all: Vec<String> = failed
        .iter()
        .map(|(seed, violations)| format!("seed {seed}: {}", violations.join("; ")))
        .collect();
    panic!(
        "{} of the seeds {first} to {last} failed:\n{}\n{}",
        failed.len(),
        all.join("\n"),
        small_story(seeds, *seed, violations, steps.as_deref(), &play),
    );
}

/// The steps with which a seed still fails, one per line, and the command that plays them.
fn small_story(
    seeds: &Seeds,
    seed: u64,
    violations: &[String],
    known: Option<&[usize]>,
    play: &impl Fn(u64, &mut Steps) -> Vec<String>,
) -> String {
    let count = {
        let mut steps = Steps::default();
        play(seed, &mut steps);
        steps.count
    };
    let all: Vec<usize> = known.map_or_else(|| (0..count).collect(), <[usize]>::to_vec);
    let mut plays = 0;
    let kept = shrunk_list(&all, &mut |kept| {
        plays += 1;
        plays <= MOST_PLAYS && !play(seed, &mut Steps::only(kept)).is_empty()
    });
    let mut steps = Steps::only(&kept);
    let last = play(seed, &mut steps);
    let lines = steps.story.iter();
    let lines: Vec<String> = lines
        .map(|(number, text)| format!("  {number}: {text}"))
        .collect();
    let numbers: Vec<String> = kept.iter().map(ToString::to_string).collect();
    format!(
        "seed {seed} fails with {} of {} steps:\n{}\n  then: {}\nplay it: {STEPS}={} {}={seed}-{seed} cargo test -p mortise-sim --test simulations {}::",
        kept.len(),
        all.len(),
        lines.join("\n"),
        if last.is_empty() { violations } else { &last }.join("; "),
        numbers.join(","),
        seeds.variable,
        seeds.test,
    )
}
