//! While nothing else changes, consolidation moves no pod back, and comes to an end.

use mortise_apis::labels;
use mortise_apis::requirements::Requirement;
use mortise_apis::values::SplitMix64;
use mortise_cloudprovider::InstanceType;
use mortise_sim::{Deployment, SimOptions, Simulation};

use crate::world::seeds::{Seeds, Steps, each_seed};
use crate::world::{minutes, quiet, template};

const SEEDS: Seeds = Seeds {
    variable: "MORTISE_CYCLE_SEEDS",
    usual: 12,
    test: "cycles",
};
/// Changes happen within these minutes.
const BUSY_MIN: u64 = 240;
/// What they led to is over. What savings will have paid for in the end may still move.
const SETTLED_MIN: i64 = 300;
const END_MIN: i64 = 900;

/// The types, and as many with twice the memory, at prices that differ by up to a fifth.
fn catalog(types: &[InstanceType], random: &mut SplitMix64) -> Vec<InstanceType> {
    let mut all = Vec::new();
    for (family, memory, percent) in [("t", 1, 100), ("r", 2, 130)] {
        for each in types {
            let mut new = each.clone();
            let name = format!("{family}{}", &each.name.trim_start_matches('t'));
            new.requirements
                .add(Requirement::is(labels::INSTANCE_TYPE, name.as_str()));
            new.name = name.as_str().into();
            new.capacity.memory *= memory;
            for offering in &mut new.offerings {
                let percent = percent * random.between(90, 110) / 100;
                if let Some(price) = &mut offering.price {
                    price.0 = price.0 * percent / 100;
                }
            }
            all.push(new);
        }
    }
    all
}

fn cluster(seed: u64, random: &mut SplitMix64) -> SimOptions {
    let mut options = quiet(seed);
    options.catalog = catalog(&options.catalog, random);
    let count = random.between(2, 6);
    options.deployments = (0..count)
        .map(|number| {
            let name = format!("w{number}");
            let cpu = format!("{}m", random.between(1, 12) * 250);
            let memory = format!("{}Mi", random.between(1, 16) * 512);
            let size = u32::try_from(random.between(1, 30)).unwrap();
            Deployment {
                template: template(&name, &cpu, &memory),
                name,
                low: size,
                high: size,
                period_s: 0,
                max_unavailable: (random.below(2) == 0).then_some(2),
            }
        })
        .collect();
    options
}

fn play(seed: u64, steps: &mut Steps) -> Vec<String> {
    let mut random = SplitMix64::new(seed);
    let options = cluster(seed, &mut random);
    let workloads = options.deployments.clone();
    let mut simulation = Simulation::new(options, mortise_deciders::all());
    let mut changes: Vec<u64> = (0..4).map(|_| random.below(BUSY_MIN)).collect();
    changes.sort_unstable();
    for minute in changes {
        let at = minutes(i64::try_from(minute).unwrap());
        let workload = &workloads[usize::try_from(random.below(workloads.len() as u64)).unwrap()];
        let size = u32::try_from(random.below(2 * u64::from(workload.high))).unwrap();
        let crashes = random.below(3) == 0;
        let said = || match crashes {
            true => format!("minute {minute}: the service is killed"),
            false => format!("minute {minute}: {} gets {size} pods", workload.name),
        };
        if steps.take(said) {
            simulation.run_until(at);
            if crashes {
                simulation.restart_engine(mortise_deciders::all());
            } else {
                simulation.scale(&workload.name, size);
            }
        }
    }
    simulation.run_until(minutes(SETTLED_MIN));
    let before = simulation.stats().evictions;
    simulation.run_until(minutes(END_MIN));
    let stats = simulation.stats();
    let pods = simulation.snapshot().pods.iter().count() as u64;
    let mut violations = stats.violations;
    let evictions = stats.evictions - before;
    if evictions > pods {
        violations.push(format!(
            "{evictions} evictions of {pods} pods although nothing changed"
        ));
    }
    violations
}

#[test]
fn consolidation_moves_no_pod_back_while_nothing_else_changes() {
    each_seed(&SEEDS, play);
}
