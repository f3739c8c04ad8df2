//! The patterns of the definitions in words: what is allowed, and an example to write.

use super::syntax::{
    is_amount, is_decimal, is_digits, is_duration, is_quantity, is_word, looks_qualified,
};
use crate::issues::{PatternDescription, describe};
use crate::node_class::NodeClassRegistry;
use crate::node_pool_policy;
use crate::schema::fields;
use crate::values::money::MicroUsd;

/// The words for a pattern; `None` for one that is not known here, which only the API server then checks. A test sees to it
/// that all patterns of the definitions are known.
pub(super) fn description(
    classes: &NodeClassRegistry,
    pattern: &str,
) -> Option<PatternDescription> {
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
        fields::CRON => describe(
            cron,
            "a cron expression: minute, hour, day of month, month and day of week in UTC, or @hourly, @daily, @weekly, @monthly, @annually",
            "0 9 * * 1-5",
        ),
        fields::HOURS_AND_MINUTES => {
            describe(window, "hours and minutes, such as 8h, 30m or 8h30m", "8h")
        }
        "^[^/]*$" => describe(
            |text| !text.contains('/'),
            "a group without a version",
            classes
                .default_kind()
                .map_or("karpenter.sh", |class| class.group),
        ),
        node_pool_policy::HOURLY_PRICE => describe(
            |text| MicroUsd::parse_dollars(text).is_some(),
            "a price in dollars per hour without a sign, with at most six decimals",
            "12.50",
        ),
        node_pool_policy::DOLLARS => describe(
            |text| MicroUsd::parse_dollars(text).is_some(),
            "an amount in dollars without a sign, with at most six decimals",
            "2000.00",
        ),
        node_pool_policy::DISCOUNT => describe(
            |text| node_pool_policy::hundredths_of_percent(text).is_some(),
            "a percentage below 100% with at most two decimals",
            "28%",
        ),
        node_pool_policy::UTILIZATION => {
            describe(utilization, "a percentage from 1% to 100%", "60%")
        }
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
        _ => classes.iter().find_map(|class| class.pattern(pattern)),
    }
}

fn nodes(text: &str) -> bool {
    match text.strip_suffix('%') {
        Some(percent) => percent == "100" || (is_digits(percent) && percent.len() <= 2),
        None => is_digits(text),
    }
}

fn utilization(text: &str) -> bool {
    let percent = text.strip_suffix('%').unwrap_or_default();
    let is_short = percent.len() <= 2 && !percent.starts_with('0');
    percent == "100" || (is_digits(percent) && is_short)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_fit_what_the_patterns_fit() {
        let cases: [(&str, &[&str], &[&str]); 11] = [
            (
                node_pool_policy::DISCOUNT,
                &["0%", "28%", "33.33%", "99.99%"],
                &["", "28", "100%", "-1%", "1.234%", "a%"],
            ),
            (
                node_pool_policy::DOLLARS,
                &["0", "2000.00", "999999999.999999"],
                &["", "2,000", "-1", "$1"],
            ),
            (
                node_pool_policy::HOURLY_PRICE,
                &["0", "12", "12.5", "0.000001", "999999999.999999"],
                &["", ".5", "1.", "-1", "1.0000001", "1000000000", "$1"],
            ),
            (
                node_pool_policy::UTILIZATION,
                &["1%", "60%", "99%", "100%"],
                &["", "%", "0%", "60", "101%", "060%", "5.5%"],
            ),
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
            let words = description(&NodeClassRegistry::default(), pattern).unwrap();
            for text in good {
                assert!((words.fits)(text), "{text:?} fits {pattern}");
            }
            for text in bad {
                assert!(!(words.fits)(text), "{text:?} does not fit {pattern}");
            }
        }
    }
}
