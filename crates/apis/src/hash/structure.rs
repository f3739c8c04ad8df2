//! The hash of a structure, from which drift hashes are made.
//!
//! # Source
//! The structure hash of the Go library hashstructure, format 2, with slices as sets and zero values left out, over
//! 64-bit FNV-1. Checked against recorded answers.

/// Hash of a text.
#[must_use]
pub fn text(value: &str) -> u64 {
    fnv(value.as_bytes())
}

/// Hash of an optional pointer to a text: present but empty counts.
#[must_use]
pub fn text_pointer(value: Option<&String>) -> Option<u64> {
    value.map(|value| text(value))
}

/// Hash of a text that is no pointer: empty means absent.
#[must_use]
pub fn text_value(value: &str) -> Option<u64> {
    (!value.is_empty()).then(|| text(value))
}

/// Hash of an int64.
#[must_use]
pub fn int64(value: i64) -> u64 {
    fnv(&value.to_le_bytes())
}

/// Hash of an int32.
#[must_use]
pub fn int32(value: i32) -> u64 {
    fnv(&value.to_le_bytes())
}

/// Hash of an int32 that is no pointer: 0 means absent.
#[must_use]
pub fn int32_value(value: i32) -> Option<u64> {
    (value != 0).then(|| int32(value))
}

/// Hash of a truth value.
#[must_use]
pub fn boolean(value: bool) -> u64 {
    fnv(&[u8::from(value)])
}

/// Hash of a map of texts. The order of entries does not count.
#[must_use]
pub fn map<'a>(entries: impl IntoIterator<Item = (&'a String, &'a String)>) -> u64 {
    seal(
        entries
            .into_iter()
            .fold(0, |hash, (key, value)| hash ^ pair(text(key), text(value))),
    )
}

/// Hash of a list. The order of items does not count, and two equal items cancel out.
#[must_use]
pub fn list(items: impl IntoIterator<Item = u64>) -> u64 {
    items.into_iter().fold(0, |hash, item| hash ^ item)
}

/// Hash of a struct: start with the type's name, then add the fields in the order of their declaration.
#[derive(Debug)]
#[must_use]
pub struct Structure(u64);

impl Structure {
    /// A struct with the name of this type, without fields.
    pub fn new(type_name: &str) -> Self {
        Self(text(type_name))
    }

    /// Adds a field; `None` is a field that is not set and does not count.
    pub fn field(self, name: &str, value: Option<u64>) -> Self {
        match value {
            Some(value) => Self(seal(self.0 ^ pair(text(name), value))),
            None => self,
        }
    }

    /// The hash.
    #[must_use]
    pub const fn finish(self) -> u64 {
        self.0
    }
}

fn pair(first: u64, second: u64) -> u64 {
    let mut bytes = [0; 16];
    let (left, right) = bytes.split_at_mut(8);
    left.copy_from_slice(&first.to_le_bytes());
    right.copy_from_slice(&second.to_le_bytes());
    fnv(&bytes)
}

fn seal(hash: u64) -> u64 {
    fnv(&hash.to_le_bytes())
}

/// 64-bit FNV-1: multiply first, then mix in the byte (FNV-1a does it the other way round).
#[must_use]
pub fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(*byte)
    })
}
