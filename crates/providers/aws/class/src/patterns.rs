//! The patterns of EC2NodeClass in words.

use mortise_apis::issues::{PatternDescription, describe};

/// The words for a pattern; `None` for one that is not of this kind.
pub(crate) fn description(pattern: &str) -> Option<PatternDescription> {
    match pattern {
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

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
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
    // Karpenter's pattern has holes here (18Ti and 19Ti are refused, a bare Ti is taken); they are the contract.
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
    fn ids_fit_anywhere_in_a_text() {
        let words = description("subnet-[0-9a-z]+").unwrap();
        for text in ["subnet-1", "xsubnet-a"] {
            assert!((words.fits)(text), "{text:?}");
        }
        for text in ["subnet-", "vpc-1", "subnet-A"] {
            assert!(!(words.fits)(text), "{text:?}");
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
