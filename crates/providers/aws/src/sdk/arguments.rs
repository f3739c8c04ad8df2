//! Arguments that several EC2 calls take.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{Filter, Tag};

/// One filter of a describe call.
pub(crate) fn filter<V: Into<String>>(
    name: impl Into<String>,
    values: impl IntoIterator<Item = V>,
) -> Filter {
    Filter::builder()
        .name(name)
        .set_values(Some(values.into_iter().map(Into::into).collect()))
        .build()
}

/// Filters for the tags of a selector term; the value `*` asks for the key only.
pub(crate) fn tag_filters(tags: &BTreeMap<String, String>) -> Vec<Filter> {
    let one = |(key, value): (&String, &String)| match value.as_str() {
        "*" => filter("tag-key", [key]),
        value => filter(format!("tag:{key}"), [value]),
    };
    tags.iter().map(one).collect()
}

/// Tags of what a call creates.
pub(crate) fn ec2_tags(tags: &BTreeMap<String, String>) -> Vec<Tag> {
    tags.iter()
        .map(|(key, value)| Tag::builder().key(key).value(value).build())
        .collect()
}
