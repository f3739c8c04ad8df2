//! The score of a disruption under the policy `Balanced`. Integers throughout.

use serde::Serialize;

/// Savings and disruption cost of a command for one NodePool, for the policy `Balanced`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct BalancedScore {
    /// Savings per hour; may be negative.
    pub savings: i64,
    /// Cost of the disruption.
    pub disruption: i64,
    /// Price of all nodes of the NodePool per hour.
    pub total_cost: i64,
    /// Cost of disrupting all nodes of the NodePool.
    pub total_disruption: i64,
}

/// The number `k` of the policy: a command is approved at half of the NodePool's average savings per disruption.
const K: i128 = 2;

impl BalancedScore {
    /// Whether the saved fraction of the NodePool's price, divided by the disrupted fraction of the NodePool, is at least
    /// `1 / k`.
    ///
    /// # Source
    /// karpenter-core 5.9; checked against recorded results.
    pub fn is_worth_it(self) -> bool {
        let Self {
            savings,
            disruption,
            total_cost,
            total_disruption,
        } = self;
        if savings <= 0 || total_cost <= 0 || total_disruption <= 0 {
            return false;
        }
        let gain = K
            .saturating_mul(i128::from(savings))
            .saturating_mul(i128::from(total_disruption));
        gain >= i128::from(total_cost).saturating_mul(i128::from(disruption))
    }

    /// Karpenter's text of an approval.
    pub fn approval(self) -> String {
        let score = self.score_percent();
        let share = |part: i64, of: i64| {
            let thousandths = i128::from(part).saturating_mul(1_000) / i128::from(of.max(1));
            format!("{}.{}%", thousandths / 10, thousandths % 10)
        };
        format!(
            "score {}.{:02} >= threshold 0.50 (k: {K}, savings {}, disruption {})",
            score / 100,
            score % 100,
            share(self.savings, self.total_cost),
            share(self.disruption, self.total_disruption)
        )
    }

    /// The score in hundredths, for users.
    pub fn score_percent(self) -> i64 {
        let below = i128::from(self.total_cost).saturating_mul(i128::from(self.disruption));
        if below <= 0 || self.savings <= 0 {
            return 0;
        }
        let above = i128::from(self.savings)
            .saturating_mul(i128::from(self.total_disruption))
            .saturating_mul(100);
        i64::try_from(above / below).unwrap_or(i64::MAX)
    }
}
