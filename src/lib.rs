//! The composition root of mortise: the only place that names the controller and the providers together.

pub mod args;
pub mod cli;
mod providers;
