//! Recorded answers of the reference implementation, against which the pure parts are checked.
//!
//! `MORTISE_FACTS_DIR` names another directory with files of the same names.

use std::io::Read as _;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use serde_json::Value;

pub(crate) mod api;
mod instance_profile;
