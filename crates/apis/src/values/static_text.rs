//! Texts of a program's own tables that are read back from a file: they have the type of constants, so each is kept once, for good.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Most texts that are kept. Tables of a program have some dozens; a damaged file could have any number.
const MOST: usize = 4_096;
/// Longest text that is kept, in bytes.
const LONGEST: usize = 512;

/// A constant, as it is read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticText(pub &'static str);

impl<'de> Deserialize<'de> for StaticText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        static_text(&text).map(Self).map_err(D::Error::custom)
    }
}

/// A list of constants, as it is read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticList(pub &'static [&'static str]);

impl<'de> Deserialize<'de> for StaticList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        static_list(&texts).map(Self).map_err(D::Error::custom)
    }
}

static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// The text as a constant.
///
/// # Errors
/// It is longer than 512 bytes, or there are 4,096 others: no program has written that.
fn static_text(text: &str) -> Result<&'static str, String> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = known.get(text) {
        return Ok(kept);
    }
    if text.len() > LONGEST {
        return Err(format!(
            "a constant of {} bytes; at most {LONGEST} are allowed",
            text.len()
        ));
    }
    if known.len() >= MOST {
        return Err(format!(
            "{text:?} is one more than {MOST} different constants"
        ));
    }
    let kept: &'static str = Box::leak(text.to_owned().into_boxed_str());
    known.insert(kept);
    Ok(kept)
}

static LISTS: Mutex<BTreeSet<&'static [&'static str]>> = Mutex::new(BTreeSet::new());

/// The list as a constant.
///
/// # Errors
/// Those of [`static_text`], for a text or for the list.
fn static_list(texts: &[String]) -> Result<&'static [&'static str], String> {
    let list: Vec<&'static str> = texts
        .iter()
        .map(|text| static_text(text))
        .collect::<Result<_, _>>()?;
    let mut known = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = known.get(list.as_slice()) {
        return Ok(kept);
    }
    if known.len() >= MOST {
        return Err(format!("{list:?} is one more than {MOST} different lists"));
    }
    let kept: &'static [&'static str] = Box::leak(list.into_boxed_slice());
    known.insert(kept);
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once() {
        let first = static_text("a constant of a test").map(str::as_ptr);
        assert_eq!(first, static_text("a constant of a test").map(str::as_ptr));
        assert_eq!(static_text("other"), Ok("other"));
        assert!(static_text(&"x".repeat(LONGEST + 1)).is_err());
        let list = ["a".to_owned(), "b".to_owned()];
        assert_eq!(static_list(&list), Ok(&["a", "b"][..]));
        let pointer = static_list(&list).map(<[_]>::as_ptr);
        assert_eq!(pointer, static_list(&list).map(<[_]>::as_ptr));
    }
}
