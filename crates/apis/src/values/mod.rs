//! Exact value types: quantities, durations, schedules and disruption budgets, with the semantics of Kubernetes and Go; and
//! seeded random numbers.

mod budget;
mod cron;
mod duration;
mod fnv1a;
pub mod money;
mod price;
mod quantity;
mod quantity_text;
mod split_mix;
mod static_text;
#[cfg(test)]
mod tests;
mod time;

pub use budget::{
    Allowance, BudgetActivity, BudgetError, BudgetEvaluation, BudgetSet, BudgetWindow,
    CompiledBudget, RecurrenceError,
};
pub use cron::{CronFault, CronSchedule, ParseCronError};
pub use duration::{GoDuration, NillableDuration, ParseDurationError, ParseNillableDurationError};
pub use fnv1a::fnv1a;
pub use price::{ParsePriceChangeError, PriceChange};
pub use quantity::{Format, ParseQuantityError, Quantity};
pub use split_mix::SplitMix64;
pub use static_text::{StaticList, StaticText};
pub use time::{after, doubled, since, span_text, stated_time};
