//! Scores of the same scenario under several policies, side by side.

use mortise_sim::Scores;

use super::{clock, dollars};

/// Width of the words, and of each policy.
const WORDS: usize = 34;
const COLUMN: usize = 14;

/// One line per score, one column per policy.
pub(super) fn side_by_side(policies: &[(&str, &Scores)]) -> Vec<String> {
    let line = |words: &str, values: Vec<String>| {
        let values = values.iter().map(|value| format!("{value:>COLUMN$}"));
        format!("{words:<WORDS$}{}", values.collect::<String>())
    };
    let of = |words: &str, value: fn(&Scores) -> String| {
        let values = policies.iter().map(|(_, scores)| value(scores));
        line(words, values.collect())
    };
    let names = policies.iter().map(|(name, _)| (*name).to_owned());
    vec![
        line("", names.collect()),
        of("spent", |each| {
            format!("${}", dollars(each.spent_micro_usd))
        }),
        of("above what pods need at least", Scores::above_bound),
        of("pods waited: half", |each| clock(each.pending_s.p50)),
        of("pods waited: 99 in 100", |each| clock(each.pending_s.p99)),
        of("pods waited: longest", |each| clock(each.pending_s.most)),
        of("evictions", |each| each.evictions.to_string()),
        of("of one workload at most", |each| {
            each.most_moves().to_string()
        }),
        of("nodes launched", |each| each.nodes_launched.to_string()),
        of("nodes at a time at most", |each| {
            each.most_nodes.to_string()
        }),
        of("terminated nodes lived: half", |each| {
            clock(each.lifetime_min.p50 * 60)
        }),
        of("hours of nodes without pods", |each| {
            let tenths = each.empty_node_minutes / 6;
            format!("{}.{}", tenths / 10, tenths % 10)
        }),
        of("violated invariants", |each| each.violations.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_sim::Percentiles;

    #[test]
    fn each_policy_has_a_column() {
        let scores = |spent_micro_usd| Scores {
            spent_micro_usd,
            bound_micro_usd: 8_000_000,
            pending_s: Percentiles {
                p50: 31,
                p99: 75,
                most: 3_700,
            },
            empty_node_minutes: 95,
            ..Scores::default()
        };
        let (a, b) = (scores(10_000_000), scores(12_345_678));
        let lines = side_by_side(&[("mortise", &a), ("karpenter", &b)]);
        let has = |text: &str| lines.iter().any(|line| line == text);
        assert!(has(
            "spent                                     $10.00        $12.35"
        ));
        assert!(has(
            "above what pods need at least             25.0 %        54.3 %"
        ));
        assert!(has(
            "pods waited: longest                     1:01:40       1:01:40"
        ));
        assert!(has(
            "hours of nodes without pods                  1.5           1.5"
        ));
    }
}
