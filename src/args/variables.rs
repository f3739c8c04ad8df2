//! Misspelled environment variables, which would silently have no effect.
//!
//! Unknown names with a prefix of mortise are errors. Other names may belong to other programs: one that resembles a
//! known name causes a warning only.

use std::collections::BTreeSet;

use clap::Args as _;
use mortise_apis::nearest::{nearest, within};
use mortise_controller::FAILPOINT_VARIABLE;

use super::ServeArgs;

/// Prefix of the variables of mortise.
const OURS: &str = "MORTISE_";
/// Maximum edit distance at which a name counts as misspelled.
const NEAR: usize = 2;
/// Minimum length of a name that is compared; shorter ones resemble too many others.
const LONG_ENOUGH: usize = 8;

/// An unknown variable, and the known one that it resembles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisspelledVariable {
    /// Its name.
    pub name: String,
    /// The known name that was probably meant.
    pub meant: String,
}

/// Checks the names of all variables, and the values of those that Kubernetes sets for Services. Returns the ones that
/// are probably misspelled, ordered by name.
///
/// # Errors
/// Unknown variables with a prefix of mortise, each with the nearest known name; the text is for users.
pub fn check(
    all: impl IntoIterator<Item = (String, String)>,
) -> Result<Vec<MisspelledVariable>, String> {
    let known = known();
    let strangers: BTreeSet<String> = all
        .into_iter()
        .filter(|(name, value)| !known.contains(name) && !is_service_link(name, value))
        .map(|(name, _)| name)
        .collect();
    let (ours, others): (Vec<String>, Vec<String>) = strangers
        .into_iter()
        .partition(|name| name.starts_with(OURS));
    if !ours.is_empty() {
        let said = ours.iter().map(|name| {
            let hint = nearest(name, &known);
            let hint = hint.map(|name| format!("; did you mean {name}?"));
            format!(
                "{name}: unknown environment variable{}",
                hint.unwrap_or_default()
            )
        });
        return Err(said.collect::<Vec<_>>().join(", "));
    }
    let long = others
        .into_iter()
        .filter(|name| name.chars().count() >= LONG_ENOUGH);
    let doubtful = long.filter_map(|name| {
        let meant = within(&name, &known, NEAR)?;
        Some(MisspelledVariable { name, meant })
    });
    Ok(doubtful.collect())
}

/// Every variable that `mortise serve` reads.
fn known() -> BTreeSet<String> {
    let command = ServeArgs::augment_args(clap::Command::new("serve"));
    let of_flags = command.get_arguments().filter_map(|flag| flag.get_env());
    of_flags
        .filter_map(|name| name.to_str())
        .chain([FAILPOINT_VARIABLE])
        .map(str::to_owned)
        .collect()
}

/// Whether a kubelet set the variable for a Service of the namespace: a Service named `mortise` yields
/// `MORTISE_SERVICE_HOST`, `MORTISE_PORT=tcp://10.0.0.1:443`, `MORTISE_PORT_443_TCP_ADDR` and others.
fn is_service_link(name: &str, value: &str) -> bool {
    let of_port = name.rsplit_once("_PORT_").is_some_and(|(_, rest)| {
        let number = rest.split('_').next().unwrap_or_default();
        !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    });
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || (name.ends_with("_PORT") && value.contains("://"))
        || of_port
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_names(all: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        let all = all
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let doubtful = check(all)?.into_iter();
        Ok(doubtful.map(|each| (each.name, each.meant)).collect())
    }

    #[test]
    fn unknown_variables_of_mortise_are_rejected_with_the_nearest() {
        let said = check_names(&[
            ("MORTISE_PROVDER", "aws"),
            ("MORTISE_SOMETHING_ELSE_ENTIRELY", ""),
            ("MORTISE_PROVIDER", "aws"),
        ]);
        assert_eq!(
            said.unwrap_err(),
            "MORTISE_PROVDER: unknown environment variable; did you mean MORTISE_PROVIDER?, \
             MORTISE_SOMETHING_ELSE_ENTIRELY: unknown environment variable"
        );
    }

    #[test]
    fn known_service_and_foreign_variables_are_accepted() {
        let passes = [
            ("MORTISE_FAILPOINT", "before-launch"),
            ("MORTISE_HTTPS_PORT", "8443"),
            ("MORTISE_SERVICE_HOST", "10.0.0.1"),
            ("MORTISE_SERVICE_PORT", "443"),
            ("MORTISE_SERVICE_PORT_HTTPS", "443"),
            ("MORTISE_PORT", "tcp://10.0.0.1:443"),
            ("MORTISE_PORT_443_TCP", "tcp://10.0.0.1:443"),
            ("MORTISE_PORT_443_TCP_PROTO", "tcp"),
            ("MORTISE_PORT_443_TCP_PORT", "443"),
            ("MORTISE_PORT_443_TCP_ADDR", "10.0.0.1"),
            ("BATCH_IDLE_DURATION", "1s"),
            ("PATH", "/bin"),
            ("HOSTNAME", "mortise-0"),
            ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ];
        assert_eq!(check_names(&passes), Ok(Vec::new()));
        let refused = check_names(&[("MORTISE_PORT", "8443")]);
        assert!(refused.unwrap_err().contains("MORTISE_PORT"));
    }

    #[test]
    fn foreign_names_that_resemble_known_ones_cause_a_warning() {
        let doubtful = check_names(&[
            ("BATCH_MAX_DURATOIN", "5s"),
            ("CLUSTER_NAMES", "blue"),
            ("LOG_LVL", "debug"),
            ("FEATURE", ""),
        ]);
        let pair = |name: &str, meant: &str| (name.to_owned(), meant.to_owned());
        assert_eq!(
            doubtful,
            Ok(vec![
                pair("BATCH_MAX_DURATOIN", "BATCH_MAX_DURATION"),
                pair("CLUSTER_NAMES", "CLUSTER_NAME"),
            ])
        );
    }
}
