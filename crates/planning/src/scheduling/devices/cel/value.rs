//! Values of expressions.

use std::borrow::Cow;
use std::cmp::Ordering;

use mortise_apis::k8s::devices::DeviceAttribute;
use mortise_apis::values::Quantity;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CelValue<'d> {
    /// Nothing.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A text.
    Text(Cow<'d, str>),
    /// Several values.
    List(Vec<Self>),
    /// An amount.
    Quantity(Quantity),
    /// A semantic version.
    Version(Version),
    /// A value, or none.
    Optional(Option<Box<Self>>),
    /// The device itself.
    Device,
    /// Its attributes, by domain.
    Attributes,
    /// Its capacities, by domain.
    Capacities,
    /// Its attributes of a domain.
    AttributesOf(Cow<'d, str>),
    /// Its capacities of a domain.
    CapacitiesOf(Cow<'d, str>),
}

impl<'d> CelValue<'d> {
    /// Its type, for error texts.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a truth value",
            Self::Int(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Quantity(_) => "a quantity",
            Self::Version(_) => "a version",
            Self::Optional(_) => "an optional value",
            Self::Device => "the device",
            Self::Attributes | Self::AttributesOf(_) => "attributes",
            Self::Capacities | Self::CapacitiesOf(_) => "capacities",
        }
    }

    /// The value of an attribute.
    pub(super) fn of_attribute(of: &'d DeviceAttribute) -> Result<Self, String> {
        if let Some(int) = of.int {
            return Ok(Self::Int(int));
        }
        if let Some(truth) = of.bool {
            return Ok(Self::Bool(truth));
        }
        if let Some(text) = &of.string {
            return Ok(Self::Text(Cow::Borrowed(text)));
        }
        let version = of
            .version
            .as_deref()
            .ok_or("an attribute without a value")?;
        Version::parse(version).map(Self::Version)
    }

    /// The order of two values.
    pub(super) fn order(&self, other: &Self) -> Result<Ordering, String> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Ok(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) => Ok(a.cmp(b)),
            (Self::Bool(a), Self::Bool(b)) => Ok(a.cmp(b)),
            _ => Err(format!(
                "cannot compare {} with {}",
                self.kind(),
                other.kind()
            )),
        }
    }
}

/// A semantic version. What comes after a `+` does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    /// The three numbers.
    pub(super) numbers: [u64; 3],
    /// What comes before the release; empty for the release.
    before: Vec<String>,
}

impl Version {
    /// Reads a version.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not a semantic version (like 1.2.3)");
        let core = text.split_once('+').map_or(text, |(core, _)| core);
        let (numbers, before) = match core.split_once('-') {
            Some((numbers, before)) => (numbers, before.split('.').map(str::to_owned).collect()),
            None => (core, Vec::new()),
        };
        let mut parts = numbers.split('.');
        let mut next = || -> Option<u64> {
            let part = parts.next()?;
            let plain = part.bytes().all(|byte| byte.is_ascii_digit());
            let short = part.len() == 1 || !part.starts_with('0');
            (plain && short).then(|| part.parse().ok()).flatten()
        };
        let (Some(major), Some(minor), Some(patch)) = (next(), next(), next()) else {
            return Err(bad());
        };
        if parts.next().is_some() || before.iter().any(String::is_empty) {
            return Err(bad());
        }
        Ok(Self {
            numbers: [major, minor, patch],
            before,
        })
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let part = |a: &String, b: &String| match (a.parse::<u64>(), b.parse::<u64>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => a.cmp(b),
        };
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.before.is_empty(), other.before.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => {
                    let both = self.before.iter().zip(&other.before);
                    let differing = both.map(|(a, b)| part(a, b)).find(|order| order.is_ne());
                    differing.unwrap_or_else(|| self.before.len().cmp(&other.before.len()))
                }
            }
        })
    }
}
