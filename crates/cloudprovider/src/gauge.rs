//! Numbers that a provider reports about its own facts.

/// What a gauge measures. Closed: the controller has a metric for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GaugeName {
    /// Age of the prices in use, in seconds. Labels `capacity_type` and `source`.
    PriceAge,
    /// Instance types that are sold and have no known on-demand price. No labels.
    UnpricedInstanceTypes,
    /// Capacity that the cloud refused lately and is not asked for now. Labels `capacity_type` (`any` for what concerns all of them) and
    /// `cause`.
    UnavailableCapacity,
    /// Calls that may be sent at once before the cloud's limit is reached. Label `limit`.
    CallTokens,
    /// Calls that wait for the cloud's limit. Label `limit`.
    CallsWaiting,
}

impl GaugeName {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::PriceAge,
        Self::UnpricedInstanceTypes,
        Self::UnavailableCapacity,
        Self::CallTokens,
        Self::CallsWaiting,
    ];

    /// Labels that each number of this gauge has.
    #[must_use]
    pub const fn labels(self) -> &'static [&'static str] {
        match self {
            Self::PriceAge => &["capacity_type", "source"],
            Self::UnpricedInstanceTypes => &[],
            Self::UnavailableCapacity => &["capacity_type", "cause"],
            Self::CallTokens | Self::CallsWaiting => &["limit"],
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
