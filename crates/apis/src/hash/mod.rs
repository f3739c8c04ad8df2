//! Drift hashes: one number that changes when a template or a node class changes in a way that old nodes do not have.
//!
//! The numbers stand in annotations of running fleets. They must equal those of Karpenter 1.14 bit for bit, or taking
//! a fleet over would replace all of it. Versions: [`NODE_POOL_HASH_VERSION`], [`EC2_NODE_CLASS_HASH_VERSION`].
//!
//! # Source
//! The structure hash of the Go library hashstructure, format 2, with slices as sets and zero values left out, over
//! 64-bit FNV-1. Checked against recorded answers.

mod ec2nodeclass;
mod go_json;
mod nodepool;

pub use ec2nodeclass::resolved_ami_family;

/// Version of [`NodePool::hash`](crate::NodePool::hash).
pub const NODE_POOL_HASH_VERSION: &str = "v3";
/// Version of [`Ec2NodeClass::hash`](crate::Ec2NodeClass::hash).
pub const EC2_NODE_CLASS_HASH_VERSION: &str = "v6";

/// Hash of a text.
fn text(value: &str) -> u64 {
    fnv(value.as_bytes())
}

/// Hash of an optional pointer to a text: present but empty counts.
fn text_pointer(value: Option<&String>) -> Option<u64> {
    value.map(|value| text(value))
}

/// Hash of a text that is no pointer: empty means absent.
fn text_value(value: &str) -> Option<u64> {
    (!value.is_empty()).then(|| text(value))
}

fn int64(value: i64) -> u64 {
    fnv(&value.to_le_bytes())
}

fn int32(value: i32) -> u64 {
    fnv(&value.to_le_bytes())
}

/// Hash of an int32 that is no pointer: 0 means absent.
fn int32_value(value: i32) -> Option<u64> {
    (value != 0).then(|| int32(value))
}

fn boolean(value: bool) -> u64 {
    fnv(&[u8::from(value)])
}

/// Hash of a map of texts. The order of entries does not count.
fn map<'a>(entries: impl IntoIterator<Item = (&'a String, &'a String)>) -> u64 {
    seal(
        entries
            .into_iter()
            .fold(0, |hash, (key, value)| hash ^ pair(text(key), text(value))),
    )
}

/// Hash of a list. The order of items does not count, and two equal items cancel out.
fn list(items: impl IntoIterator<Item = u64>) -> u64 {
    items.into_iter().fold(0, |hash, item| hash ^ item)
}

/// Hash of a struct: start with the type's name, then add the fields in the order of their declaration.
struct Structure(u64);

impl Structure {
    fn new(type_name: &str) -> Self {
        Self(text(type_name))
    }

    /// Adds a field; `None` is a field that is not set and does not count.
    fn field(self, name: &str, value: Option<u64>) -> Self {
        match value {
            Some(value) => Self(seal(self.0 ^ pair(text(name), value))),
            None => self,
        }
    }

    const fn finish(self) -> u64 {
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
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(*byte)
    })
}
