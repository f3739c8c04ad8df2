//! Launches: selection, launch templates, fleet requests, client tokens.

mod client_tokens;
mod error;
mod fleet_input;
mod fleet_request;
mod fleet_response;
mod launched;
mod launcher;
mod selection;
mod template;
mod template_data;
mod templates;

pub(crate) use self::launcher::Launcher;
