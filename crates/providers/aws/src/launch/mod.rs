//! Launches: selection, launch templates, fleet requests, client tokens.

mod client_tokens;
mod error;
pub(crate) mod fleet_input;
mod fleet_request;
mod fleet_response;
mod launched;
mod launcher;
pub(crate) mod selection;
pub(crate) mod template;
mod template_data;
pub(crate) mod templates;

pub(crate) use self::launcher::Launcher;
