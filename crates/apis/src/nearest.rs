//! The nearest known word to a mistyped one.

/// The candidate with the fewest edits (insert, delete, replace, swap of neighbours; letter case costs nothing), if it is
/// near enough to be meant: at most a third of the word's length, and at least one edit allowed. Ties: the first by text.
///
/// # Cost
/// Length of the word times the length of all candidates.
#[must_use]
pub fn nearest<S: AsRef<str>>(
    word: &str,
    candidates: impl IntoIterator<Item = S>,
) -> Option<String> {
    let allowed = (word.to_lowercase().chars().count() / 3).max(1);
    within(word, candidates, allowed)
}

/// The same with a given maximum number of edits.
#[must_use]
pub fn within<S: AsRef<str>>(
    word: &str,
    candidates: impl IntoIterator<Item = S>,
    allowed: usize,
) -> Option<String> {
    let folded = word.to_lowercase();
    let length = folded.chars().count();
    let mut best: Option<(usize, String)> = None;
    for candidate in candidates {
        let candidate = candidate.as_ref();
        let letters = candidate.to_lowercase();
        if letters.chars().count().abs_diff(length) > allowed {
            continue;
        }
        let edits = strsim::osa_distance(&folded, &letters);
        let better = best
            .as_ref()
            .is_none_or(|(known, text)| (edits, candidate) < (*known, text.as_str()));
        if edits <= allowed && better {
            best = Some((edits, candidate.to_owned()));
        }
    }
    best.map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant_and_nothing_else() {
        let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
        let cases = [
            ("Inn", Some("In")),
            ("in", Some("In")),
            ("Exist", Some("Exists")),
            ("DoesNotExists", Some("DoesNotExist")),
            ("Between", None),
            ("", None),
        ];
        for (word, want) in cases {
            assert_eq!(nearest(word, operators).as_deref(), want, "{word}");
        }
        assert_eq!(
            nearest("m5.lagre", ["m5.large", "m5.xlarge", "c5.large"]).as_deref(),
            Some("m5.large")
        );
        assert_eq!(
            nearest("spto", ["spot", "on-demand", "reserved"]).as_deref(),
            Some("spot")
        );
        assert_eq!(
            within("CLUSTER_NMAES", ["CLUSTER_NAME"], 2).as_deref(),
            Some("CLUSTER_NAME")
        );
        assert_eq!(within("CLUSTER_NMAES", ["CLUSTER_NAME"], 1), None);
    }
}
