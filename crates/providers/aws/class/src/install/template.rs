//! Texts with placeholders `${Name}` for what is known only in the account. Each form of an installation has its own way to write them.

use serde_json::{Map, Value};

/// What a placeholder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placeholder {
    /// `aws`, `aws-cn`, ...
    Partition,
    /// Region of the cluster.
    Region,
    /// Number of the account.
    Account,
    /// Domain of the services, such as `amazonaws.com`.
    UrlSuffix,
    /// Name of the cluster.
    ClusterName,
    /// Issuer of service account tokens, without `https://`.
    OidcProvider,
}

impl Placeholder {
    /// All of them.
    pub(super) const ALL: [Self; 6] = [
        Self::Partition,
        Self::Region,
        Self::Account,
        Self::UrlSuffix,
        Self::ClusterName,
        Self::OidcProvider,
    ];

    /// How it is written in a template.
    pub(super) const fn mark(self) -> &'static str {
        match self {
            Self::Partition => "${Partition}",
            Self::Region => "${Region}",
            Self::Account => "${Account}",
            Self::UrlSuffix => "${UrlSuffix}",
            Self::ClusterName => "${ClusterName}",
            Self::OidcProvider => "${OidcProvider}",
        }
    }
}

/// A text with every placeholder replaced.
pub(super) fn fill(template: &str, value: impl Fn(Placeholder) -> String) -> String {
    let replaced = |text: String, each: Placeholder| {
        if text.contains(each.mark()) {
            text.replace(each.mark(), &value(each))
        } else {
            text
        }
    };
    Placeholder::ALL
        .into_iter()
        .fold(template.to_owned(), replaced)
}

/// A document with every placeholder replaced, in keys too: the names of some condition keys contain the cluster's.
pub(super) fn fill_document(document: &Value, value: &impl Fn(Placeholder) -> String) -> Value {
    match document {
        Value::String(text) => Value::String(fill(text, value)),
        Value::Array(items) => items
            .iter()
            .map(|each| fill_document(each, value))
            .collect(),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(key, each)| (fill(key, value), fill_document(each, value)))
                .collect::<Map<_, _>>(),
        ),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_and_values_are_filled() {
        let document =
            json!({ "a/${ClusterName}": ["${Region}-${Region}", 1, null], "b": "${Other}" });
        let filled = fill_document(&document, &|each| format!("<{each:?}>"));
        assert_eq!(
            filled,
            json!({ "a/<ClusterName>": ["<Region>-<Region>", 1, null], "b": "${Other}" })
        );
    }
}
