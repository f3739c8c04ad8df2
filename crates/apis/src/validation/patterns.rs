//! The patterns of the definitions in words: what is allowed, and an example to write.

use super::syntax::{
    is_amount, is_decimal, is_digits, is_duration, is_quantity, is_word, looks_qualified,
};
use crate::schema::fields;

/// A pattern that people can read.
pub(super) struct PatternDescription {
    /// Whether a text fits.
    pub(super) fits: fn(&str) -> bool,
    /// What is allowed, to follow "is not".
    pub(super) allowed: &'static str,
    /// A text that fits, for most who get here.
    pub(super) example: &'static str,
}

const fn describe(
    fits: fn(&str) -> bool,
    allowed: &'static str,
    example: &'static str,
) -> Option<PatternDescription> {
    Some(PatternDescription {
        fits,
        allowed,
        example,
    })
}

/// The words for a pattern; `None` for one that is not known here, which only the API server then checks. A test sees to it
/// that all patterns of the definitions are known.
pub(super) fn description(pattern: &str) -> Option<PatternDescription> {
    match pattern {
        fields::QUALIFIED_NAME => describe(
            looks_qualified,
            "a qualified name: letters, digits, '-', '_' and '.', with a lower-case domain and '/' before it or not",
            "example.com/team",
        ),
        fields::LABEL_VALUE => describe(
            |text| text.is_empty() || is_word(text),
            "a label value: letters, digits, '-', '_' and '.', letters or digits at both ends",
            "team-a",
        ),
        fields::QUANTITY => describe(
            is_quantity,
            "a quantity: a number with a unit such as m, k, M, G, Ki, Mi, Gi or none",
            "100Gi",
        ),
        fields::DURATION => describe(
            |text| is_duration(text, &['s', 'm', 'h']),
            "a duration of whole hours (h), minutes (m) and seconds (s)",
            "30m",
        ),
        fields::DURATION_OR_NEVER => describe(
            |text| text == "Never" || is_duration(text, &['s', 'm', 'h']),
            "a duration of whole hours (h), minutes (m) and seconds (s), or Never",
            "720h",
        ),
        "^((100|[0-9]{1,2})%|[0-9]+)$" => describe(
            nodes,
            "a number of nodes, or a percentage from 0% to 100%",
            "10%",
        ),
        r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$" => {
            describe(
                cron,
                "a cron expression: minute, hour, day of month, month and day of week in UTC, or @hourly, @daily, @weekly, @monthly, @annually",
                "0 9 * * 1-5",
            )
        }
        "^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$" => {
            describe(window, "hours and minutes, such as 8h, 30m or 8h30m", "8h")
        }
        "^[^/]*$" => describe(
            |text| !text.contains('/'),
            "a group without a version",
            "karpenter.k8s.aws",
        ),
        r"^\d+(\.\d+)?$" => describe(
            is_decimal,
            "a price in dollars per hour without a sign",
            "0.096",
        ),
        r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$" => describe(
            adjustment,
            "an amount or a percentage with a sign, down to -100%",
            "-10%",
        ),
        "subnet-[0-9a-z]+" => describe(
            |text| contains_id(text, "subnet-"),
            "a subnet id",
            "subnet-0123456789abcdef0",
        ),
        "sg-[0-9a-z]+" => describe(
            |text| contains_id(text, "sg-"),
            "a security group id",
            "sg-0123456789abcdef0",
        ),
        "ami-[0-9a-z]+" => describe(
            |text| contains_id(text, "ami-"),
            "an image id",
            "ami-0123456789abcdef0",
        ),
        "^cr-[0-9a-z]+$" => describe(
            |text| is_id(text, "cr-"),
            "a capacity reservation id",
            "cr-0123456789abcdef0",
        ),
        "^pg-[0-9a-z]+$" => describe(
            |text| is_id(text, "pg-"),
            "a placement group id",
            "pg-0123456789abcdef0",
        ),
        "^[0-9]{12}$" => describe(
            |text| text.len() == 12 && is_digits(text),
            "an AWS account: twelve digits",
            "\"012345678901\" (in quotes)",
        ),
        _ if pattern.contains("59000)Gi") => describe(
            volume_size,
            "a volume size from 1Gi to 59000Gi (58Ti) or from 1G to 64000G (64T)",
            "100Gi",
        ),
        _ => None,
    }
}

fn nodes(text: &str) -> bool {
    match text.strip_suffix('%') {
        Some(percent) => percent == "100" || (is_digits(percent) && percent.len() <= 2),
        None => is_digits(text),
    }
}

/// The macros need only stand at the beginning, and the fields only at the end: the pattern's own looseness.
fn cron(text: &str) -> bool {
    let macros = [
        "@annually",
        "@yearly",
        "@monthly",
        "@weekly",
        "@daily",
        "@midnight",
        "@hourly",
    ];
    macros.iter().any(|each| text.starts_with(each)) || five_fields(text)
}

/// Some five non-empty parts with white space between. A part may hold white space too.
fn five_fields(text: &str) -> bool {
    let mut parts = 0;
    let mut open = false;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        if open && c.is_whitespace() && parts < 5 && characters.peek().is_some() {
            open = false;
        } else if !open {
            (open, parts) = (true, parts + 1);
        }
    }
    parts >= 5
}

fn window(text: &str) -> bool {
    let plain = |text: &str| {
        let parts: Vec<&str> = text.split_inclusive(['h', 'm']).collect();
        let part = |text: &str, unit: char| text.strip_suffix(unit).is_some_and(is_digits);
        match parts.as_slice() {
            [one] => part(one, 'h') || part(one, 'm'),
            [hours, minutes] => part(hours, 'h') && part(minutes, 'm'),
            _ => false,
        }
    };
    plain(text) || text.strip_suffix("0s").is_some_and(plain)
}

fn adjustment(text: &str) -> bool {
    let (plus, rest) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return false,
    };
    match rest.strip_suffix('%') {
        Some(percent) if plus => is_amount(percent),
        Some(percent) => {
            let whole = percent.split('.').next().unwrap_or_default();
            percent == "100" || (is_decimal(percent) && whole.len() <= 2)
        }
        None => is_amount(rest),
    }
}

/// The pattern is not anchored: an id anywhere in the text will do.
fn contains_id(text: &str, prefix: &str) -> bool {
    text.match_indices(prefix)
        .any(|(at, _)| text.get(at + prefix.len()..).is_some_and(starts_as_id))
}

fn starts_as_id(text: &str) -> bool {
    text.chars()
        .next()
        .is_some_and(|c| c.is_ascii_digit() || c.is_ascii_lowercase())
}

fn is_id(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| {
        !rest.is_empty()
            && rest
                .chars()
                .all(|c| c.is_ascii_digit() || c.is_ascii_lowercase())
    })
}

fn volume_size(text: &str) -> bool {
    let within = |digits: &str, most: u32| {
        is_digits(digits)
            && !digits.starts_with('0')
            && digits.parse::<u32>().is_ok_and(|size| size <= most)
    };
    if let Some(size) = text.strip_suffix("Gi") {
        return within(size, 59_000);
    }
    if let Some(size) = text.strip_suffix('G') {
        return within(size, 64_000);
    }
    // Upstream's pattern has holes here (18Ti and 19Ti are refused, a bare Ti is taken); they are the contract.
    if let Some(size) = text.strip_suffix("Ti") {
        let two = |first: char, second: char| {
            ('1'..='5').contains(&first) && ('0'..='7').contains(&second)
        };
        let mut digits = size.chars();
        return match (digits.next(), digits.next(), digits.next()) {
            (None, ..) => true,
            (Some(only), None, _) => ('1'..='9').contains(&only),
            (Some(first), Some(second), None) => two(first, second) || size == "58",
            _ => false,
        };
    }
    text.strip_suffix('T')
        .is_some_and(|size| size.is_empty() || within(size, 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_fit_what_the_patterns_fit() {
        let cases: [(&str, &[&str], &[&str]); 8] = [
            (
                "^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$",
                &["8h", "30m", "8h30m", "20m0s", "1h0s", "1h5m0s"],
                &["", "8", "8h30", "30m8h", "8h0m30s", "s", "0s"],
            ),
            (
                r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$",
                &["+0.5", "-.5", "+10%", "+1000%", "-99.9%", "-100%", "-7"],
                &["0.5", "10%", "-101%", "-100.5%", "+", "+%", "--1"],
            ),
            (
                fields::QUANTITY,
                &["1", "+3", "5.", ".5", "1e+3", "100Gi", "1E", "12e3", "-1"],
                &["", "1 Gi", "1GiB", "Gi", "1e", "."],
            ),
            (
                fields::DURATION_OR_NEVER,
                &["Never", "1h30m", "0s", "10s5h"],
                &["never", "1.5h", "30", "h", "1d", "FooNever", "-1s", ""],
            ),
            (
                "subnet-[0-9a-z]+",
                &["subnet-1", "xsubnet-a"],
                &["subnet-", "vpc-1", "subnet-A"],
            ),
            (
                "^((100|[0-9]{1,2})%|[0-9]+)$",
                &["0", "1000", "0%", "99%", "100%"],
                &["101%", "-1", "%", "1.5", "1000%"],
            ),
            (
                r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$",
                &["@daily", "@dailyx", "* * * * *", "0 9 * * mon-fri"],
                &["*", "* * * * ", "@never", ""],
            ),
            (
                fields::QUALIFIED_NAME,
                &["a", "A", "a.b/C", "x_y"],
                &["", "a/", "/a", "A.b/c", "a/b/c", "-a", "a-"],
            ),
        ];
        for (pattern, good, bad) in cases {
            let words = description(pattern).unwrap();
            for text in good {
                assert!((words.fits)(text), "{text:?} fits {pattern}");
            }
            for text in bad {
                assert!(!(words.fits)(text), "{text:?} does not fit {pattern}");
            }
        }
    }

    #[test]
    fn sizes_have_the_holes_of_the_pattern() {
        for good in [
            "1Gi", "59000Gi", "1G", "64000G", "1Ti", "17Ti", "58Ti", "Ti", "T", "64T",
        ] {
            assert!(volume_size(good), "{good}");
        }
        for bad in [
            "0", "0Gi", "59001Gi", "64001G", "18Ti", "59Ti", "65T", "10", "1Mi", "01Gi",
        ] {
            assert!(!volume_size(bad), "{bad}");
        }
    }
}
