//! One text in memory for each label name and word that nodes of all types share.
//!
//! Problem: a region has some thousand types with some forty labels each. A text of its own for every one of them is most of what
//! a resolved node class weighs.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use mortise_apis::labels;
use mortise_aws_class::labels as key;

/// Names of labels in addition to the provider's well-known ones, and words that many types have as a value.
const MORE: [&str; 20] = [
    labels::ARCH,
    labels::ARCH_AMD64,
    labels::ARCH_ARM64,
    labels::CAPACITY_TYPE,
    labels::INSTANCE_TYPE,
    labels::OS,
    labels::OS_LINUX,
    labels::OS_WINDOWS,
    labels::TOPOLOGY_REGION,
    labels::TOPOLOGY_ZONE,
    labels::WINDOWS_BUILD,
    key::CAPACITY_BLOCK,
    "dedicated",
    "default",
    "false",
    "nitro",
    "on-demand",
    "reserved",
    "spot",
    "true",
];

static NAMES: LazyLock<BTreeMap<&'static str, Arc<str>>> = LazyLock::new(|| {
    let all = key::WELL_KNOWN.into_iter().chain(MORE);
    all.map(|name| (name, Arc::from(name))).collect()
});

/// The text, without an allocation if it is one that all types share.
pub(crate) fn shared(text: &str) -> Arc<str> {
    NAMES.get(text).map_or_else(|| Arc::from(text), Arc::clone)
}
