//! mortise: the pure core.

pub mod apis;
pub mod labels;
pub mod requirements;
pub mod resources;
pub mod taints;
pub mod values;
