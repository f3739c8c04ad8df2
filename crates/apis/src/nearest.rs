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

/// The same with at most so many edits.
#[must_use]
pub fn within<S: AsRef<str>>(
    word: &str,
    candidates: impl IntoIterator<Item = S>,
    allowed: usize,
) -> Option<String> {
    let folded: Vec<char> = word.to_lowercase().chars().collect();
    let mut best: Option<(usize, String)> = None;
    for candidate in candidates {
        let candidate = candidate.as_ref();
        let letters: Vec<char> = candidate.to_lowercase().chars().collect();
        if letters.len().abs_diff(folded.len()) > allowed {
            continue;
        }
        let edits = distance(&folded, &letters);
        let better = best
            .as_ref()
            .is_none_or(|(known, text)| (edits, candidate) < (*known, text.as_str()));
        if edits <= allowed && better {
            best = Some((edits, candidate.to_owned()));
        }
    }
    best.map(|(_, text)| text)
}

/// Optimal string alignment distance.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    let mut last: Option<char> = None;
    for (i, x) in a.iter().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(i + 1);
        for (j, y) in b.iter().enumerate() {
            let at =
                |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX - 1);
            let mut best = (at(&row, j) + usize::from(x != y))
                .min(at(&row, j + 1) + 1)
                .min(at(&next, j) + 1);
            let swapped = j > 0 && last == Some(*y) && b.get(j - 1) == Some(x);
            if swapped {
                best = best.min(at(&before, j - 1) + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
        last = Some(*x);
    }
    row.last().copied().unwrap_or(0)
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
