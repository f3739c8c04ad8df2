//! The spellings that Kubernetes prescribes: names of labels, quantities.

/// Longest prefix of a label key, and longest name or value.
const MAX_PREFIX: usize = 253;
const MAX_NAME: usize = 63;

/// Letters and digits at both ends, `-`, `_` and `.` between, of any length.
pub(super) fn is_word(text: &str) -> bool {
    let end = |at: Option<char>| at.is_some_and(|c| c.is_ascii_alphanumeric());
    end(text.chars().next())
        && end(text.chars().last())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// A word of at most 63 characters.
fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME && is_word(text)
}

/// A label value: empty, or a name.
pub(super) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// Whether a text is a label key: a name, with a DNS domain and a slash before it or not.
#[must_use]
pub fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => domain.len() <= MAX_PREFIX && is_domain(domain) && is_name(name),
        None => is_name(key),
    }
}

/// The same without bounds on the length: what the pattern in the definitions says.
pub(super) fn looks_qualified(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => is_domain(domain) && is_word(name),
        None => is_word(key),
    }
}

/// Lower-case DNS labels joined by dots.
fn is_domain(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.split('.').all(|label| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(inner)
    })
}

/// A name of an object: a DNS domain of at most 253 characters.
pub(super) fn is_object_name(text: &str) -> bool {
    text.len() <= MAX_PREFIX && is_domain(text)
}

/// Only ASCII digits, at least one.
pub(super) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Digits with a fraction or not: `1`, `1.`, `1.5`, `.5`.
fn is_number(text: &str) -> bool {
    match text.split_once('.') {
        None => is_digits(text),
        Some(("", fraction)) => is_digits(fraction),
        Some((whole, fraction)) => is_digits(whole) && (fraction.is_empty() || is_digits(fraction)),
    }
}

/// `1` or `1.5`.
pub(super) fn is_decimal(text: &str) -> bool {
    match text.split_once('.') {
        None => is_digits(text),
        Some((whole, fraction)) => is_digits(whole) && is_digits(fraction),
    }
}

/// `1`, `1.5` or `.5`, as the pattern of price changes takes them.
pub(super) fn is_amount(text: &str) -> bool {
    match text.split_once('.') {
        None => is_digits(text),
        Some((whole, fraction)) => (whole.is_empty() || is_digits(whole)) && is_digits(fraction),
    }
}

/// A quantity as the definitions' pattern has it.
pub(super) fn is_quantity(text: &str) -> bool {
    let text = unsigned(text);
    let at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let Some((number, suffix)) = text.split_at_checked(at) else {
        return false;
    };
    let known = matches!(
        suffix,
        "" | "Ki"
            | "Mi"
            | "Gi"
            | "Ti"
            | "Pi"
            | "Ei"
            | "n"
            | "u"
            | "m"
            | "k"
            | "M"
            | "G"
            | "T"
            | "P"
            | "E"
    );
    let exponent = || {
        suffix
            .strip_prefix(['e', 'E'])
            .is_some_and(|power| is_number(unsigned(power)))
    };
    is_number(number) && (known || exponent())
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['+', '-']).unwrap_or(text)
}

/// Numbers with units, one after the other, such as `1h30m`. `units` are the ones allowed.
pub(super) fn is_duration(text: &str, units: &[char]) -> bool {
    let mut digits = false;
    let mut complete = false;
    for c in text.chars() {
        if c.is_ascii_digit() {
            (digits, complete) = (true, false);
        } else if digits && units.contains(&c) {
            (digits, complete) = (false, true);
        } else {
            return false;
        }
    }
    complete
}
