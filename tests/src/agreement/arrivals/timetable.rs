//! What arrives when.

use mortise_apis::labels;
use mortise_apis::values::SplitMix64;
use serde_json::{Value, json};

use super::kind::{Kind, ZONES};
use crate::agreement::Advice;

/// Minimum number of pods of a random timetable.
const PODS: u64 = 90;
/// Longest pause between two pods of a wave, in milliseconds; each wave draws one of them.
const PAUSES_MS: [u64; 5] = [0, 100, 350, 1_000, 2_000];
/// Time until nodes register, in whole seconds as in their class, from and to; each group of nodes draws one row.
const BOOTS_S: [(u64, u64); 5] = [(0, 0), (1, 3), (4, 9), (0, 20), (20, 29)];
/// From a Node's registration until it is ready, in milliseconds: each node takes a time of its own between these.
pub(super) const READY_MS: (u64, u64) = (100, 1_000);
/// Label of a timetable's nodes; its value is the name of the run.
const SITE: &str = "mortise.test/site";

/// Nodes of a separate NodePool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeGroup {
    /// From the launch until the Node appears, in seconds.
    pub boot_s: u64,
    /// Zones in which they can be had.
    pub zones: Vec<&'static str>,
    /// Instance types by their CPUs; none: all types.
    pub sizes: Vec<&'static str>,
}

/// A Deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct App {
    /// Name, and value of the pods' label `app`.
    pub name: String,
    /// What its pods ask of each other.
    pub kind: Kind,
    /// The pods' specification, except the constraints to the timetable's nodes.
    pub spec: Value,
}

/// A Deployment gets one more pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Milliseconds after the start.
    pub at_ms: u64,
    /// Which Deployment, by its index.
    pub app: usize,
}

/// Deployments, and when each gets its next pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Timetable {
    /// Part of every name; a valid name of a namespace.
    pub name: String,
    /// How it is drawn again: arguments of `mortise-bench agreement --arrivals`.
    pub arguments: String,
    /// NodePools of the nodes.
    pub node_groups: Vec<NodeGroup>,
    /// Whether the nodes have a taint that only these pods tolerate.
    pub tainted: bool,
    /// The Deployments.
    pub apps: Vec<App>,
    /// Arrivals in order.
    pub steps: Vec<Step>,
}

/// Timetables on which pods once stayed pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Known {
    /// Two pods, required anti-affinity by host name, no requests; the second comes 100 ms after the first.
    HostAntiAffinityPair,
    /// The same; the second comes 1 to 5 s after the first, when a node for that is starting.
    LateHostAntiAffinityPair,
    /// Eight Deployments of four (host anti-affinity, zone spread, host spread, zone affinity), a pod at a time, 0 to 0.35 s
    /// apart, nodes register after 4 s.
    EightDeployments,
}

impl Known {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Self::HostAntiAffinityPair,
        Self::LateHostAntiAffinityPair,
        Self::EightDeployments,
    ];

    /// As on the command line.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::HostAntiAffinityPair => "host-anti-affinity-pair",
            Self::LateHostAntiAffinityPair => "late-host-anti-affinity-pair",
            Self::EightDeployments => "eight-deployments",
        }
    }
}

impl Timetable {
    /// Draws timetable `number` of a seed.
    #[must_use]
    pub fn draw(seed: u64, number: u64) -> Self {
        let rng = &mut SplitMix64::new(seed.wrapping_mul(0x9E6C_63D0_876A_68EE) ^ number);
        let node_groups = node_groups(rng);
        let mut apps: Vec<App> = Vec::new();
        let mut sizes: Vec<u64> = Vec::new();
        while sizes.iter().sum::<u64>() < PODS {
            let kinds = Kind::ALL.len() as u64;
            let kind = Kind::ALL[index(rng.below(kinds))];
            // The target of an affinity term must not itself wait for another pod.
            let others = apps.iter().filter(|app| app.kind != Kind::AffinityToOther);
            let others: Vec<&str> = others.map(|app| app.name.as_str()).collect();
            let kind = if kind == Kind::AffinityToOther && others.is_empty() {
                Kind::ZoneAffinity
            } else {
                kind
            };
            let other = others.get(index(rng.below(others.len() as u64)));
            let other = other.map(|name| (*name).to_owned()).unwrap_or_default();
            let name = format!("app-{}", apps.len());
            apps.push(app(name, kind, &other, amounts(rng), rng));
            sizes.push(2 + rng.below(kind.most() - 1));
        }
        Self {
            name: format!("t{number}"),
            arguments: format!("--seed {seed} --first {number} --scenarios 1"),
            tainted: rng.chance(500),
            steps: waves(&sizes, &node_groups, rng),
            node_groups,
            apps,
        }
    }

    /// A known one; rounds differ by what is left to chance in it.
    #[must_use]
    pub fn known(known: Known, seed: u64, round: u64) -> Self {
        let salt = 0x51_7C_C1 + known as u64;
        let rng =
            &mut SplitMix64::new(seed.wrapping_mul(0x9E6C_63D0_876A_68EE) ^ (salt << 32) ^ round);
        let one = |boot_s| NodeGroup {
            boot_s,
            zones: ZONES.to_vec(),
            sizes: Vec::new(),
        };
        let pair = |second: u64, rng: &mut SplitMix64| {
            let apps = vec![app(
                "pair".to_owned(),
                Kind::HostAntiAffinity,
                "",
                None,
                rng,
            )];
            let step = |at_ms| Step { at_ms, app: 0 };
            (apps, vec![step(0), step(second)])
        };
        let (short, boot_s, (apps, steps)) = match known {
            Known::HostAntiAffinityPair => ("pair", 1, pair(100, rng)),
            Known::LateHostAntiAffinityPair => {
                let second = 1_000 + rng.below(4_001);
                ("late", 4, pair(second, rng))
            }
            Known::EightDeployments => {
                let kinds = [
                    Kind::HostAntiAffinity,
                    Kind::ZoneSpread,
                    Kind::HostSpread,
                    Kind::ZoneAffinity,
                ];
                let twice = kinds.iter().chain(&kinds).enumerate();
                let apps: Vec<App> = twice
                    .map(|(at, kind)| app(format!("app-{at}"), *kind, "", Some((250, 256)), rng))
                    .collect();
                let order = shuffled(&[4; 8], rng);
                let mut at_ms = 0;
                let steps = order.into_iter().map(|app| {
                    let step = Step { at_ms, app };
                    at_ms += rng.below(351);
                    step
                });
                ("eight", 4, (apps, steps.collect()))
            }
        };
        Self {
            name: format!("{short}{round}"),
            arguments: format!(
                "--known {} --seed {seed} --first {round} --repeat 1",
                known.label()
            ),
            node_groups: vec![one(boot_s)],
            tainted: false,
            apps,
            steps,
        }
    }

    /// Pods at the end.
    #[must_use]
    pub const fn pods(&self) -> usize {
        self.steps.len()
    }

    /// Pods of a Deployment at the end.
    #[must_use]
    pub fn pods_of(&self, app: usize) -> usize {
        self.steps.iter().filter(|step| step.app == app).count()
    }

    /// Maximum time until one of its nodes is ready, in milliseconds.
    #[must_use]
    pub fn longest_boot_ms(&self) -> u64 {
        let boots = self.node_groups.iter().map(|each| each.boot_s);
        boots.max().unwrap_or(0) * 1_000 + READY_MS.1
    }

    /// The command that plays it again.
    #[must_use]
    pub fn replay(&self, advice: Advice) -> String {
        format!(
            "mortise-bench agreement --arrivals --advice {} {}",
            advice.argument(),
            self.arguments
        )
    }

    /// Names of the NodePools and node classes of a play.
    pub(super) fn pools(&self, site: &str) -> Vec<String> {
        (0..self.node_groups.len())
            .map(|at| format!("{site}-{at}"))
            .collect()
    }

    /// Node classes, NodePools and Deployments of 0 pods of a play; `site` is its namespace and part of all names.
    pub(super) fn objects(&self, site: &str) -> Vec<Value> {
        let mut all = Vec::new();
        for (name, group) in self.pools(site).iter().zip(&self.node_groups) {
            all.push(json!({
                "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": name},
                "spec": {"nodeRegistrationDelay": format!("{}s", group.boot_s)},
            }));
            all.push(self.pool(site, name, group));
        }
        for app in &self.apps {
            all.push(self.deployment(site, app));
        }
        all
    }

    fn pool(&self, site: &str, name: &str, group: &NodeGroup) -> Value {
        let one_of =
            |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
        let mut requirements = vec![
            one_of(labels::OS, &["linux"]),
            one_of(labels::ARCH, &["amd64"]),
            one_of(labels::TOPOLOGY_ZONE, &group.zones),
            one_of(labels::CAPACITY_TYPE, &["spot", "on-demand"]),
        ];
        if !group.sizes.is_empty() {
            requirements.push(one_of(labels::INSTANCE_TYPE, &group.sizes));
        }
        let taints = if self.tainted {
            json!([{"key": SITE, "value": site, "effect": "NoSchedule"}])
        } else {
            json!([])
        };
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {
                "template": {
                    "metadata": {"labels": {SITE: site}},
                    "spec": {
                        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": name},
                        "requirements": requirements, "taints": taints, "expireAfter": "Never",
                    },
                },
                "disruption": {"consolidateAfter": "Never"},
            },
        })
    }

    fn deployment(&self, site: &str, app: &App) -> Value {
        let mut spec = app.spec.clone();
        spec["nodeSelector"] = json!({SITE: site});
        if self.tainted {
            spec["tolerations"] = json!([{"key": SITE, "value": site, "effect": "NoSchedule"}]);
        }
        let own = json!({"app": app.name});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": app.name, "namespace": site},
            "spec": {
                "replicas": 0, "selector": {"matchLabels": own},
                "template": {"metadata": {"labels": own}, "spec": spec},
            },
        })
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// NodePools of the nodes: one group in all zones, or two groups in two zones each that differ in their time to boot.
fn node_groups(rng: &mut SplitMix64) -> Vec<NodeGroup> {
    let sizes = [
        vec!["c-2x-amd64-linux"],
        vec!["c-4x-amd64-linux", "m-4x-amd64-linux"],
        Vec::new(),
    ];
    let sizes = sizes.get(index(rng.below(3))).cloned().unwrap_or_default();
    let mut group = |zones: &[&'static str]| {
        let (from, to) = BOOTS_S[index(rng.below(BOOTS_S.len() as u64))];
        NodeGroup {
            boot_s: from + rng.below(to - from + 1),
            zones: zones.to_vec(),
            sizes: sizes.clone(),
        }
    };
    let (first, second) = ZONES.split_at(2);
    let both = [group(first), group(second)];
    if rng.chance(500) {
        return both.to_vec();
    }
    let [mut one, _] = both;
    one.zones = ZONES.to_vec();
    vec![one]
}

/// CPU in thousandths and memory in MiB, or no requests.
fn amounts(rng: &mut SplitMix64) -> Option<(u64, u64)> {
    [
        None,
        Some((100, 64)),
        Some((250, 256)),
        Some((500, 512)),
        Some((1_500, 1_024)),
    ][index(rng.below(5))]
}

fn app(
    name: String,
    kind: Kind,
    other: &str,
    asks: Option<(u64, u64)>,
    rng: &mut SplitMix64,
) -> App {
    let requests = asks.map_or_else(
        || json!({}),
        |(cpu, memory)| json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}),
    );
    let mut spec = json!({
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "registry.test/main", "resources": {"requests": requests}}],
    });
    kind.write(&mut spec, &name, other, rng);
    App { name, kind, spec }
}

/// Each index as often as its number says, in random order.
fn shuffled(counts: &[u64], rng: &mut SplitMix64) -> Vec<usize> {
    let all = counts.iter().enumerate();
    let mut order: Vec<usize> = all
        .flat_map(|(app, count)| std::iter::repeat_n(app, index(*count)))
        .collect();
    for at in (1..order.len()).rev() {
        order.swap(at, index(rng.below(at as u64 + 1)));
    }
    order
}

/// Arrivals in two to five waves. The next one begins while nodes of the previous one boot, or after that.
fn waves(counts: &[u64], node_groups: &[NodeGroup], rng: &mut SplitMix64) -> Vec<Step> {
    let order = shuffled(counts, rng);
    let boots = node_groups.iter().map(|each| each.boot_s * 1_000);
    let boot = boots.max().unwrap_or(0);
    let waves = 2 + index(rng.below(4));
    let mut steps = Vec::new();
    let mut at_ms = 0;
    for wave in order.chunks(order.len().div_ceil(waves)) {
        let longest = PAUSES_MS[index(rng.below(PAUSES_MS.len() as u64))];
        for app in wave {
            steps.push(Step { at_ms, app: *app });
            at_ms += rng.below(longest + 1);
        }
        at_ms += rng.below(boot.min(12_000) + 3_000);
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_gives_one_timetable() {
        assert_eq!(Timetable::draw(7, 3), Timetable::draw(7, 3));
        assert_ne!(Timetable::draw(7, 3), Timetable::draw(7, 4));
        for known in Known::ALL {
            let of = |round| Timetable::known(known, 7, round);
            assert_eq!(of(1), of(1));
        }
    }

    #[test]
    fn timetables_use_every_kind_and_keep_their_bounds() {
        let (mut kinds, mut pods, mut last) = (BTreeSet::new(), 0, 0);
        let (mut fast, mut slow) = (false, false);
        for number in 0..200 {
            let all = Timetable::draw(1, number);
            kinds.extend(all.apps.iter().map(|app| app.kind));
            pods += all.pods();
            for each in &all.node_groups {
                assert!((0..=29).contains(&each.boot_s), "{}", each.boot_s);
                fast |= each.boot_s == 0;
                slow |= each.boot_s > 20;
            }
            let zones: usize = all.node_groups.iter().map(|each| each.zones.len()).sum();
            assert_eq!(zones, ZONES.len(), "every zone can be had");
            assert!(all.steps.is_sorted_by_key(|step| step.at_ms));
            last = last.max(all.steps.last().map_or(0, |step| step.at_ms));
            for (at, app) in all.apps.iter().enumerate() {
                assert!((2..=app.kind.most()).contains(&(all.pods_of(at) as u64)));
            }
        }
        assert_eq!(kinds.len(), Kind::ALL.len(), "{kinds:?}");
        assert!((18_000..=21_000).contains(&pods), "{pods}");
        assert!(fast && slow);
        assert!(last < 240_000, "{last}");
    }

    #[test]
    fn known_timetables_are_as_they_were_seen() {
        let pair = Timetable::known(Known::HostAntiAffinityPair, 1, 0);
        assert_eq!(
            pair.steps.iter().map(|step| step.at_ms).collect::<Vec<_>>(),
            [0, 100]
        );
        let eight = Timetable::known(Known::EightDeployments, 1, 0);
        assert_eq!((eight.apps.len(), eight.pods()), (8, 32));
        assert_eq!(eight.longest_boot_ms(), 5_000);
        assert!((0..8).all(|app| eight.pods_of(app) == 4));
        let apart = eight
            .steps
            .windows(2)
            .map(|two| two[1].at_ms - two[0].at_ms);
        assert!(apart.max().is_some_and(|most| most <= 350));
    }
}
