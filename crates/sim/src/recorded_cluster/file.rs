//! The snapshot file: gzip of lines of JSON.
//!
//! ```text
//! {"mortiseSnapshot":1,"recordedBy":...,"takenAt":...,"settings":{...},...}     the first line
//! {"catalog":{"group":...,"kind":...,"name":...},"types":[...]}                 a node class
//! {"kind":"Pod","object":{...}}                                                 an object
//! {"end":{"objects":...,"catalogs":...}}                                        the last line
//! ```
//!
//! Invariant: a file without its last line is not read, so that a copy that was interrupted never looks like a smaller cluster.
//!
//! # Cost
//! 1 to 2 s for 100,000 pods, most of it parsing.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, BufWriter, IntoInnerError, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::NodeClassKey;
use mortise_apis::node_class::NodeClassKind;
use mortise_cloudprovider::InstanceType;
use mortise_planning::scheduling::{SchedulerConfig, SpreadDefaults};
use mortise_planning::settings::Settings;
use mortise_state::resource_kinds::{Object, ObjectKind, ResourceKind};
use serde::de::{DeserializeSeed, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::RecordedCluster;
use super::file_error::SnapshotFileError;

/// Version of the format. It increases when older programs could not read a file, or would read it wrongly.
pub const FORMAT_VERSION: u64 = 1;

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    mortise_snapshot: u64,
    recorded_by: String,
    taken_at: Timestamp,
    names_are_hashed: bool,
    settings: Settings,
    scheduler_config: SchedulerConfig,
    well_known: WellKnown,
    served: Vec<ServedKind>,
}

/// The part of the first line that every version has.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnyHeader {
    mortise_snapshot: u64,
    #[serde(default)]
    recorded_by: String,
}

#[derive(Serialize, Deserialize)]
struct ServedKind {
    group: String,
    kind: String,
}

#[derive(Serialize)]
struct CatalogLine<'a> {
    catalog: &'a NodeClassKey,
    types: &'a [InstanceType],
}

#[derive(Serialize)]
struct ObjectLine<'a> {
    kind: String,
    object: &'a Object,
}

#[derive(Serialize)]
struct EndLine {
    end: End,
}

/// What the file has.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct End {
    objects: usize,
    catalogs: usize,
}

impl RecordedCluster {
    /// Writes the file.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write(&self, output: impl Write) -> Result<(), SnapshotFileError> {
        // The encoder clears a buffer of 32 KiB for each write, however small.
        let encoder = GzEncoder::new(output, Compression::new(4));
        let mut lines = Lines(BufWriter::with_capacity(1 << 16, encoder));
        lines.write(&Header {
            mortise_snapshot: FORMAT_VERSION,
            recorded_by: self.recorded_by.clone(),
            taken_at: self.taken_at,
            names_are_hashed: self.names_are_hashed,
            settings: self.settings.clone(),
            scheduler_config: self.scheduler_config.clone(),
            well_known: self.well_known.clone(),
            served: self
                .served
                .iter()
                .map(|kind| ServedKind {
                    group: kind.group.to_owned(),
                    kind: kind.kind.to_owned(),
                })
                .collect(),
        })?;
        for (catalog, types) in &self.catalogs {
            lines.write(&CatalogLine { catalog, types })?;
        }
        for (key, object) in &self.objects {
            let kind = key.kind().to_string();
            lines.write(&ObjectLine { kind, object })?;
        }
        lines.write(&EndLine {
            end: End {
                objects: self.objects.len(),
                catalogs: self.catalogs.len(),
            },
        })?;
        let encoder = lines.0.into_inner().map_err(IntoInnerError::into_error)?;
        encoder.finish()?.flush()?;
        Ok(())
    }

    /// Reads a file. `known`: node classes of all providers of this program.
    ///
    /// # Errors
    /// It is something else, of another version, truncated, or damaged.
    pub fn read(input: impl Read, known: &[NodeClassKind]) -> Result<Self, SnapshotFileError> {
        let mut lines = BufReader::with_capacity(1 << 18, GzDecoder::new(input));
        let mut text = String::new();
        let first = lines.read_line(&mut text);
        let read = first.map_err(|error| SnapshotFileError::OtherFile(error.to_string()))?;
        if read == 0 {
            return Err(SnapshotFileError::OtherFile("it is empty".to_owned()));
        }
        let mut cluster = header(&text, known)?;
        let kinds = kinds(&cluster.served);
        for line in 2.. {
            text.clear();
            let truncated = || SnapshotFileError::Truncated { lines: line - 1 };
            match lines.read_line(&mut text) {
                Ok(0) => return Err(truncated()),
                Ok(_) if text.ends_with('\n') => {}
                Ok(_) => return Err(truncated()),
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    return Err(truncated());
                }
                Err(error) => {
                    let problem = error.to_string();
                    return Err(SnapshotFileError::Line { line, problem });
                }
            }
            let problem = |problem: String| SnapshotFileError::Line { line, problem };
            let mut deserializer = serde_json::Deserializer::from_str(&text);
            let parsed = AnyLine { kinds: &kinds }.deserialize(&mut deserializer);
            match parsed.map_err(|error| problem(error.to_string()))? {
                Line::Catalog(key, types) => drop(cluster.catalogs.insert(key, types)),
                Line::Object(object) => drop(cluster.objects.insert(object.key(), *object)),
                Line::End(end) => {
                    let has = End {
                        objects: cluster.objects.len(),
                        catalogs: cluster.catalogs.len(),
                    };
                    if end != has {
                        return Err(problem(format!(
                            "the file must have {} objects and {} catalogs, and has {} and {}",
                            end.objects, end.catalogs, has.objects, has.catalogs
                        )));
                    }
                    return Ok(cluster);
                }
            }
        }
        Err(SnapshotFileError::Truncated { lines: usize::MAX })
    }
}

/// A writer of lines.
struct Lines<W: Write>(BufWriter<GzEncoder<W>>);

impl<W: Write> Lines<W> {
    fn write(&mut self, line: &impl Serialize) -> Result<(), SnapshotFileError> {
        serde_json::to_writer(&mut self.0, line).map_err(std::io::Error::from)?;
        self.0.write_all(b"\n")?;
        Ok(())
    }
}

/// The cluster without objects of a file.
fn header(text: &str, known: &[NodeClassKind]) -> Result<RecordedCluster, SnapshotFileError> {
    let other = |error: serde_json::Error| SnapshotFileError::OtherFile(error.to_string());
    let AnyHeader {
        mortise_snapshot: found,
        recorded_by,
    } = serde_json::from_str(text).map_err(other)?;
    if found != FORMAT_VERSION {
        return Err(SnapshotFileError::OtherVersion { found, recorded_by });
    }
    let header: Header = serde_json::from_str(text).map_err(|error| SnapshotFileError::Line {
        line: 1,
        problem: error.to_string(),
    })?;
    let served = header.served.into_iter().map(|ServedKind { group, kind }| {
        let of = known
            .iter()
            .find(|each| each.group == group && each.kind == kind);
        of.copied().ok_or_else(|| {
            let known: Vec<&str> = known.iter().map(|each| each.kind).collect();
            SnapshotFileError::UnknownNodeClass {
                group,
                kind,
                known: known.join(", "),
            }
        })
    });
    let served: Vec<NodeClassKind> = served.collect::<Result<_, _>>()?;
    let spread_defaults =
        SpreadDefaults::from_config(&header.scheduler_config).map_err(|error| {
            SnapshotFileError::Line {
                line: 1,
                problem: format!("schedulerConfig: {error}"),
            }
        })?;
    Ok(RecordedCluster {
        taken_at: header.taken_at,
        recorded_by,
        settings: Settings {
            spread_defaults,
            ..header.settings
        },
        scheduler_config: header.scheduler_config,
        well_known: header.well_known,
        served,
        objects: BTreeMap::new(),
        catalogs: BTreeMap::new(),
        names_are_hashed: header.names_are_hashed,
    })
}

/// Kinds by the name that lines have.
fn kinds(served: &[NodeClassKind]) -> BTreeMap<String, ObjectKind> {
    ResourceKind::all(served)
        .into_iter()
        .map(|kind| (kind.api.unique_name().to_owned(), kind.index))
        .collect()
}

/// A line after the first.
enum Line {
    Catalog(NodeClassKey, Vec<InstanceType>),
    Object(Box<Object>),
    End(End),
}

/// Reads a line: its first field says what the rest is.
struct AnyLine<'a> {
    kinds: &'a BTreeMap<String, ObjectKind>,
}

impl<'de> DeserializeSeed<'de> for AnyLine<'_> {
    type Value = Line;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Line, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for AnyLine<'_> {
    type Value = Line;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a line of a snapshot file")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line, A::Error> {
        let first: Option<String> = map.next_key()?;
        match first.as_deref() {
            Some("kind") => {
                let name: String = map.next_value()?;
                let unknown = || A::Error::custom(format!("unknown kind {name:?}"));
                let kind = self.kinds.get(&name).ok_or_else(unknown)?;
                expect_key(&mut map, "object")?;
                let object = map.next_value_seed(ObjectOfKind(kind))?;
                Ok(Line::Object(Box::new(object)))
            }
            Some("catalog") => {
                let key: NodeClassKey = map.next_value()?;
                expect_key(&mut map, "types")?;
                Ok(Line::Catalog(key, map.next_value()?))
            }
            Some("end") => Ok(Line::End(map.next_value()?)),
            other => Err(A::Error::custom(format!(
                "begins with {other:?}; must be one of kind, catalog, end"
            ))),
        }
    }
}

fn expect_key<'de, A: MapAccess<'de>>(map: &mut A, expected: &str) -> Result<(), A::Error> {
    let found: Option<String> = map.next_key()?;
    if found.as_deref() == Some(expected) {
        return Ok(());
    }
    Err(A::Error::custom(format!(
        "has {found:?} where {expected} must be"
    )))
}

/// Reads an object as the watch of its kind does.
struct ObjectOfKind<'a>(&'a ObjectKind);

impl<'de> DeserializeSeed<'de> for ObjectOfKind<'_> {
    type Value = Object;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Object, D::Error> {
        self.0.deserialize(deserializer)
    }
}
