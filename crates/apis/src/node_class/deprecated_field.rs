//! A field that is gone or that people write into the wrong place.

/// When a row holds.
#[derive(Clone, Copy, Debug)]
pub enum DeprecationCondition {
    /// The field is there.
    There,
    /// The field is this text.
    Is(&'static str),
}

/// What to write instead of a field.
#[derive(Clone, Copy, Debug)]
pub struct DeprecatedField {
    /// Kinds of objects in which it stands.
    pub kinds: &'static [&'static str],
    /// JSON pointer; `*` for each item of a list.
    pub pointer: &'static str,
    /// When the row holds.
    pub when: DeprecationCondition,
    /// What to write instead; `{}` is the value.
    pub instead: &'static str,
}

impl DeprecatedField {
    /// A row that holds whenever the field is there.
    #[must_use]
    pub const fn new(
        kinds: &'static [&'static str],
        pointer: &'static str,
        instead: &'static str,
    ) -> Self {
        Self {
            kinds,
            pointer,
            when: DeprecationCondition::There,
            instead,
        }
    }

    /// A row that holds where the field is this text.
    #[must_use]
    pub const fn with_text(
        kinds: &'static [&'static str],
        pointer: &'static str,
        text: &'static str,
        instead: &'static str,
    ) -> Self {
        Self {
            kinds,
            pointer,
            when: DeprecationCondition::Is(text),
            instead,
        }
    }
}
