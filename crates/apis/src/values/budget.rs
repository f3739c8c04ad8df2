//! Disruption budgets: how many nodes of a pool may be on their way out at one time.

use jiff::{SignedDuration, Timestamp};

use super::{CronSchedule, GoDuration, ParseCronError};

/// How many nodes a budget allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Allowance {
    /// A number of nodes.
    Nodes(i64),
    /// A percentage of the nodes of the NodePool; may exceed 100.
    Percent(i64),
}

/// Why a budget cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// `nodes` is neither a number nor a percentage.
    #[error("budget nodes {0:?}: must be a whole number or a percentage such as 10%")]
    Nodes(String),
    /// The schedule cannot be read.
    #[error("budget: {0}")]
    Schedule(#[from] ParseCronError),
    /// A duration without a schedule has no start.
    #[error(
        "budget duration {0} has no schedule: set both, or neither for a budget that always holds"
    )]
    DurationAlone(GoDuration),
}

impl Allowance {
    /// Reads `5` or `10%`.
    ///
    /// # Errors
    /// The text is neither.
    pub fn parse(text: &str) -> Result<Self, BudgetError> {
        let percent = || {
            text.strip_suffix('%')
                .and_then(|number| number.parse().ok())
                .map(Self::Percent)
        };
        text.parse()
            .ok()
            .map(Self::Nodes)
            .or_else(percent)
            .ok_or_else(|| BudgetError::Nodes(text.to_owned()))
    }

    /// The number of allowed disruptions for this number of nodes; a percentage is rounded up.
    #[must_use]
    pub fn allowed(self, nodes: i64) -> i64 {
        match self {
            Self::Nodes(count) => count,
            Self::Percent(percent) => {
                let product = i128::from(percent) * i128::from(nodes);
                let up = product.div_euclid(100) + i128::from(product.rem_euclid(100) != 0);
                i64::try_from(up).unwrap_or(if up < 0 { i64::MIN } else { i64::MAX })
            }
        }
    }
}

/// Maximum number of windows that are searched for a gap between them.
const WINDOWS: usize = 300;

/// How often a budget is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetActivity {
    /// At all times.
    Always,
    /// At some times.
    Sometimes,
    /// At no time.
    Never,
}

/// When a budget is active: for some time after each fire time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetWindow {
    /// When it begins.
    pub schedule: CronSchedule,
    /// How long it lasts.
    pub duration: GoDuration,
}

/// Why a schedule and a duration are no times that come again and again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecurrenceError {
    /// The schedule cannot be read.
    #[error("{0}")]
    Schedule(#[from] ParseCronError),
    /// There is no such day, or the schedule is counted from no time (`@every`).
    #[error("{0:?} has no times of its own; write five fields in UTC, such as \"0 7 * * mon-fri\"")]
    NoTimes(String),
    /// The duration cannot be read, or is no time at all.
    #[error("{0:?} is not a duration above zero; write for example 11h")]
    Duration(String),
}

impl BudgetWindow {
    /// A window that begins at times of its own, and lasts.
    ///
    /// # Errors
    /// Schedule or duration cannot be read, or it would never be active.
    pub fn recurring(schedule: &str, duration: &str) -> Result<Self, RecurrenceError> {
        let cron = CronSchedule::parse(schedule)?;
        if !cron.has_times() {
            return Err(RecurrenceError::NoTimes(schedule.to_owned()));
        }
        let span = GoDuration::parse(duration).ok();
        let span = span.filter(|span| span.as_nanos() > 0);
        Ok(Self {
            schedule: cron,
            duration: span.ok_or_else(|| RecurrenceError::Duration(duration.to_owned()))?,
        })
    }

    /// Whether a fire time lies in the `duration` up to `now` (the start excluded, `now` included).
    #[must_use]
    pub fn is_active(&self, now: Timestamp) -> bool {
        let Ok(start) = now.checked_sub(jiff::SignedDuration::from(self.duration)) else {
            return true; // longer than time itself
        };
        // A schedule that never fires (30 February) counts as active: Karpenter compares with the zero time. For a budget this
        // is the safe side.
        self.schedule.next(start).is_none_or(|hit| hit <= now)
    }

    /// When it begins or ends next after a time; `None` without times of its own. It may begin while it is active, and end when it
    /// begins again.
    ///
    /// # Cost
    /// Two evaluations of the schedule.
    #[must_use]
    pub fn changes_after(&self, now: Timestamp) -> Option<Timestamp> {
        let begin = self
            .schedule
            .next(now)
            .filter(|_| !self.schedule.is_relative())?;
        let running = self.schedule.prev(now);
        let end = running
            .and_then(|at| at.checked_add(SignedDuration::from(self.duration)).ok())
            .filter(|end| *end > now);
        Some(end.map_or(begin, |end| end.min(begin)))
    }

    /// How often it is active: always, where each window lasts until the next begins. Looks at the next 300 windows.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> BudgetActivity {
        let constant = |active| {
            if active {
                BudgetActivity::Always
            } else {
                BudgetActivity::Never
            }
        };
        let Some(mut begin) = self.schedule.next(now) else {
            return constant(self.is_active(now));
        };
        if self.schedule.is_relative() {
            return constant(self.is_active(now));
        }
        let duration = SignedDuration::from(self.duration);
        if duration <= SignedDuration::ZERO {
            return BudgetActivity::Never;
        }
        for _ in 0..WINDOWS {
            match self.schedule.next(begin) {
                Some(next) if next.duration_since(begin) <= duration => begin = next,
                _ => return BudgetActivity::Sometimes,
            }
        }
        BudgetActivity::Always
    }

    /// When it is active between two times, the end excluded: sorted, disjoint and not adjacent.
    ///
    /// # Cost
    /// One evaluation of the schedule for each fire time in between.
    #[must_use]
    pub fn spans(&self, from: Timestamp, until: Timestamp) -> Vec<(Timestamp, Timestamp)> {
        if self.schedule.is_relative() || self.schedule.next(from).is_none() {
            return if self.is_active(from) && from < until {
                vec![(from, until)]
            } else {
                Vec::new()
            };
        }
        let duration = SignedDuration::from(self.duration);
        let end_of = |begin: Timestamp| begin.checked_add(duration).unwrap_or(Timestamp::MAX);
        let running = self.schedule.prev(from).filter(|at| end_of(*at) > from);
        let mut next = running.or_else(|| self.schedule.next(from));
        let mut spans: Vec<(Timestamp, Timestamp)> = Vec::new();
        while let Some(at) = next.filter(|at| *at < until) {
            let (begin, end) = (at.max(from), end_of(at).min(until));
            match spans.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ if begin < end => spans.push((begin, end)),
                _ => {}
            }
            next = self.schedule.next(at);
        }
        spans
    }
}

/// One budget of a NodePool.
///
/// # Shape
/// Without a window it is always active; without reasons it applies to every reason, with an empty list to none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledBudget {
    nodes: Result<Allowance, BudgetError>,
    window: Result<Option<BudgetWindow>, BudgetError>,
    reasons: Option<Vec<Box<str>>>,
}

impl CompiledBudget {
    /// Compiles a budget from its API fields. Invalid fields are kept and reported when the budget is evaluated, because one
    /// invalid budget must not hide the others.
    #[must_use]
    pub fn new<'a>(
        nodes: &str,
        schedule: Option<&str>,
        duration: Option<GoDuration>,
        reasons: Option<impl IntoIterator<Item = &'a str>>,
    ) -> Self {
        let window = match (schedule, duration) {
            (None, None) => Ok(None),
            (None, Some(duration)) => Err(BudgetError::DurationAlone(duration)),
            (Some(schedule), duration) => CronSchedule::parse(schedule)
                .map(|schedule| {
                    Some(BudgetWindow {
                        schedule,
                        duration: duration.unwrap_or_default(),
                    })
                })
                .map_err(BudgetError::from),
        };
        let reasons = reasons.map(|reasons| reasons.into_iter().map(Box::from).collect());
        Self {
            nodes: Allowance::parse(nodes),
            window,
            reasons,
        }
    }

    /// When it is active; `None` for always.
    ///
    /// # Errors
    /// Schedule and duration are invalid.
    pub fn window(&self) -> Result<Option<&BudgetWindow>, &BudgetError> {
        self.window.as_ref().map(Option::as_ref)
    }

    /// Its limit while it is active.
    ///
    /// # Errors
    /// The amount is invalid.
    pub fn allowance(&self) -> Result<Allowance, &BudgetError> {
        self.nodes.as_ref().copied()
    }

    /// Whether the budget is active at a time.
    ///
    /// # Errors
    /// Schedule and duration are invalid.
    pub fn is_active(&self, now: Timestamp) -> Result<bool, BudgetError> {
        match &self.window {
            Ok(window) => Ok(window.as_ref().is_none_or(|window| window.is_active(now))),
            Err(error) => Err(error.clone()),
        }
    }

    /// How many of the pool's nodes it allows at a time; `None` when it does not limit because it is not active.
    ///
    /// # Errors
    /// The budget cannot be used; an unreadable `nodes` only shows while the budget is active.
    pub fn allowed(&self, now: Timestamp, nodes: i64) -> Result<Option<i64>, BudgetError> {
        if !self.is_active(now)? {
            return Ok(None);
        }
        self.nodes
            .clone()
            .map(|allowance| Some(allowance.allowed(nodes)))
    }

    /// Whether the budget is about a disruption reason.
    #[must_use]
    pub fn covers(&self, reason: &str) -> bool {
        self.reasons
            .as_ref()
            .is_none_or(|reasons| reasons.iter().any(|listed| listed.as_ref() == reason))
    }

    /// What is wrong with the budget, whether it shows now or not.
    #[must_use]
    pub fn error(&self) -> Option<&BudgetError> {
        self.window
            .as_ref()
            .err()
            .or_else(|| self.nodes.as_ref().err())
    }
}

/// Evaluation of the budgets of a NodePool at one time for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetEvaluation {
    /// The smallest number any budget for the reason allows; `None` means no limit. A budget in error allows 0.
    pub allowed: Option<i64>,
    /// Invalid budgets, regardless of their reasons.
    pub errors: Vec<BudgetError>,
}

impl BudgetEvaluation {
    /// The number to act on: 0 when any budget is in error; `None` means no limit.
    #[must_use]
    pub fn allowed_or_zero(&self) -> Option<i64> {
        if self.errors.is_empty() {
            self.allowed
        } else {
            Some(0)
        }
    }
}

/// The budgets of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetSet(Vec<CompiledBudget>);

impl BudgetSet {
    /// The budgets in the order of the API.
    pub fn iter(&self) -> impl Iterator<Item = &CompiledBudget> {
        self.0.iter()
    }

    /// Evaluates the budgets at a time for a reason, with this number of nodes in the NodePool.
    #[must_use]
    pub fn evaluate(&self, now: Timestamp, nodes: i64, reason: &str) -> BudgetEvaluation {
        let mut verdict = BudgetEvaluation::default();
        for budget in &self.0 {
            let allowed = budget.allowed(now, nodes).unwrap_or_else(|error| {
                verdict.errors.push(error);
                Some(0)
            });
            if let Some(allowed) = allowed.filter(|_| budget.covers(reason)) {
                verdict.allowed = Some(verdict.allowed.map_or(allowed, |least| least.min(allowed)));
            }
        }
        verdict
    }
}

impl FromIterator<CompiledBudget> for BudgetSet {
    fn from_iter<T: IntoIterator<Item = CompiledBudget>>(iter: T) -> Self {
        Self(iter.into_iter().collect())
    }
}
