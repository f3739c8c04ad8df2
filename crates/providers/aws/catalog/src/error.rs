//! What can be wrong with a catalog: the file, the place in it, and what was asked of it.

use std::fmt;

/// Why a catalog gives no instance types. The text names file, place, field, value, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ec2CatalogError {
    /// The file cannot be read or unpacked.
    #[error("instance type catalog {file}: {message}")]
    Unreadable {
        /// File as given.
        file: String,
        /// What the system said.
        message: String,
    },
    /// A line is not a JSON object.
    #[error("instance type catalog {file}, line {line}, column {column}: {message}")]
    Syntax {
        /// File as given.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What was expected.
        message: String,
    },
    /// A field is missing, unknown, or of the wrong kind.
    #[error("instance type catalog {file}, line {line}{}, field `{field}`: {message}", OfType(.instance_type))]
    Field {
        /// File as given.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Instance type of the line, when its name could be read.
        instance_type: Option<String>,
        /// Path of the field in the line, such as `gpus[0].count`.
        field: String,
        /// What is wrong, with the value found and what is allowed.
        message: String,
    },
    /// The catalog knows no zone of the region.
    #[error(
        "instance type catalog {file}: no zones are known for region {region:?}; known: {known}"
    )]
    UnknownRegion {
        /// File as given.
        file: String,
        /// Region asked for.
        region: String,
        /// Regions that it knows, joined by commas.
        known: String,
    },
    /// The region has no such zone.
    #[error("instance type catalog {file}: zone {zone:?} is not in region {region}; its zones: {known}{}", DidYouMean(.nearest))]
    UnknownZone {
        /// File as given.
        file: String,
        /// Region asked for.
        region: String,
        /// Zone asked for.
        zone: String,
        /// Zones that the region has, joined by commas.
        known: String,
        /// The most similar zone name, when one is similar.
        nearest: Option<String>,
    },
}

struct OfType<'a>(&'a Option<String>);

impl fmt::Display for OfType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .as_ref()
            .map_or(Ok(()), |name| write!(f, ", type {name:?}"))
    }
}

struct DidYouMean<'a>(&'a Option<String>);

impl fmt::Display for DidYouMean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .as_ref()
            .map_or(Ok(()), |name| write!(f, "; did you mean {name:?}?"))
    }
}
