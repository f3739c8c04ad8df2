//! Numbers that a provider reports about its own facts.

/// What a gauge measures. Closed: the controller has a metric for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GaugeName {
    /// Age of the prices in use, in seconds. Labels `capacity_type` and `source`.
    PriceAge,
    /// Instance types that are sold and have no known on-demand price. No labels.
    UnpricedInstanceTypes,
}

impl GaugeName {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::PriceAge, Self::UnpricedInstanceTypes];

    /// Labels that each number of this gauge has.
    #[must_use]
    pub const fn labels(self) -> &'static [&'static str] {
        match self {
            Self::PriceAge => &["capacity_type", "source"],
            Self::UnpricedInstanceTypes => &[],
        }
    }
}

/// A number at the time of the question.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderGauge {
    /// What it measures.
    pub name: GaugeName,
    /// The labels of [`GaugeName::labels`], in that order, with values from closed sets.
    pub labels: Vec<(&'static str, &'static str)>,
    /// The number. Nothing is decided by it.
    pub value: f64,
}
