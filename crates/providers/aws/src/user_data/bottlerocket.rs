//! todo
use super::*;
pub(super) fn render(_i: &BootInputs<'_>) -> Result<String, UserDataError> { Err(UserDataError::NoServiceCidr) }
