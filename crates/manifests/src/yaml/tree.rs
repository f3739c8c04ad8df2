//! A document as a tree with comments.

use serde_json::{Map, Value};

/// Comments of a field or an item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// A blank line precedes it.
    pub(crate) blank: bool,
    /// Lines above it, each with its `#`.
    pub(crate) before: Vec<String>,
    /// On the same line, with the spaces before it and its `#`.
    pub(crate) inline: Option<String>,
    /// Lines below it, before any line with less indentation.
    pub(crate) after: Vec<String>,
}

impl Notes {
    /// Every comment, in reading order, `below` being those of the described value.
    pub(crate) fn all(self, below: Vec<String>) -> Vec<String> {
        let inline = self.inline.map(|text| text.trim_start().to_owned());
        self.before
            .into_iter()
            .chain(inline)
            .chain(below)
            .chain(self.after)
            .collect()
    }
}

/// A string, a number, a boolean or null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scalar {
    /// The value.
    pub(crate) text: String,
    /// Quoted, or a block scalar: always a string.
    pub(crate) quoted: bool,
    /// As written in the source (with quotes), if it fits on one line.
    pub(crate) raw: Option<String>,
}

impl Scalar {
    /// A plain scalar, whatever its type.
    pub(crate) fn plain(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            quoted: false,
            raw: Some(text.to_owned()),
        }
    }

    /// A string; quoted if a parser could read it as another type.
    pub(crate) fn string(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            quoted: true,
            raw: None,
        }
    }
}

/// A value with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct YamlNode {
    /// What it is.
    pub(crate) content: NodeContent,
    /// Line in the source, counted from 1; 0 for an added value.
    pub(crate) line: usize,
}

/// Content of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeContent {
    /// One value.
    Scalar(Scalar),
    /// Fields in their order; `flow`: written in braces.
    Map {
        /// The fields.
        entries: Vec<MapEntry>,
        /// Braces on one line.
        flow: bool,
    },
    /// Items in their order; `flow`: written in brackets.
    List {
        /// The items.
        items: Vec<SequenceItem>,
        /// Brackets on one line.
        flow: bool,
    },
}

/// A field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapEntry {
    /// Its name.
    pub(crate) key: Scalar,
    /// Line of its name in the source, counted from 1; 0 for an added field.
    pub(crate) line: usize,
    /// Its value.
    pub(crate) value: YamlNode,
    /// Its comments.
    pub(crate) notes: Notes,
}

/// An item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SequenceItem {
    /// Its value.
    pub(crate) value: YamlNode,
    /// Its comments.
    pub(crate) notes: Notes,
}

impl MapEntry {
    /// A new field.
    pub(crate) fn new(key: &str, value: YamlNode) -> Self {
        Self {
            key: Scalar {
                text: key.to_owned(),
                quoted: false,
                raw: None,
            },
            line: 0,
            value,
            notes: Notes::default(),
        }
    }

    /// Every comment at the field and below it, in reading order.
    pub(crate) fn comments(self) -> Vec<String> {
        self.notes.all(self.value.comments())
    }
}

impl YamlNode {
    /// A new value.
    pub(crate) const fn new(content: NodeContent) -> Self {
        Self { content, line: 0 }
    }

    /// A string.
    pub(crate) fn string(text: &str) -> Self {
        Self::new(NodeContent::Scalar(Scalar::string(text)))
    }

    /// A plain scalar: a number, a boolean, a duration.
    pub(crate) fn plain(text: &str) -> Self {
        Self::new(NodeContent::Scalar(Scalar::plain(text)))
    }

    /// A map without fields.
    pub(crate) const fn map() -> Self {
        Self::new(NodeContent::Map {
            entries: Vec::new(),
            flow: false,
        })
    }

    /// A list of values.
    pub(crate) fn list(values: impl IntoIterator<Item = Self>) -> Self {
        let items = values.into_iter().map(|value| SequenceItem {
            value,
            notes: Notes::default(),
        });
        Self::new(NodeContent::List {
            items: items.collect(),
            flow: false,
        })
    }

    /// A list of strings, in brackets.
    pub(crate) fn texts<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> Self {
        let mut list = Self::list(texts.into_iter().map(|text| Self::string(text.as_ref())));
        if let NodeContent::List { flow, .. } = &mut list.content {
            *flow = true;
        }
        list
    }

    /// The same values without comments, fields in the order of the JSON text, except `apiVersion`, `kind` and `metadata`
    /// first.
    pub(crate) fn from_json(value: &Value) -> Self {
        match value {
            Value::Null => Self::plain("null"),
            Value::Bool(_) | Value::Number(_) => Self::plain(&value.to_string()),
            Value::String(text) => Self::string(text),
            Value::Array(items) => Self::list(items.iter().map(Self::from_json)),
            Value::Object(fields) => {
                let mut map = Self::map();
                let first = ["apiVersion", "kind", "metadata"];
                for name in first {
                    if let Some(value) = fields.get(name) {
                        map.set(name, Self::from_json(value));
                    }
                }
                for (name, value) in fields {
                    if !first.contains(&name.as_str()) {
                        map.set(name, Self::from_json(value));
                    }
                }
                map
            }
        }
    }

    /// The values alone. Plain scalars get the type that Kubernetes gives them.
    pub(crate) fn value(&self) -> Value {
        match &self.content {
            NodeContent::Scalar(scalar) => scalar_value(scalar),
            NodeContent::Map { entries, .. } => Value::Object(
                entries
                    .iter()
                    .map(|entry| (entry.key.text.clone(), entry.value.value()))
                    .collect::<Map<_, _>>(),
            ),
            NodeContent::List { items, .. } => {
                items.iter().map(|item| item.value.value()).collect()
            }
        }
    }

    /// The text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.content {
            NodeContent::Scalar(scalar) if !is_null(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// Null: no value, or an explicit null.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(&self.content, NodeContent::Scalar(scalar) if is_null(scalar))
    }

    /// The fields of a map; empty for other values.
    pub(crate) fn entries(&self) -> &[MapEntry] {
        match &self.content {
            NodeContent::Map { entries, .. } => entries,
            _ => &[],
        }
    }

    /// The fields of a map, mutable.
    pub(crate) fn entries_mut(&mut self) -> Option<&mut Vec<MapEntry>> {
        match &mut self.content {
            NodeContent::Map { entries, .. } => Some(entries),
            _ => None,
        }
    }

    /// The items of a list; empty for other values.
    pub(crate) fn items(&self) -> &[SequenceItem] {
        match &self.content {
            NodeContent::List { items, .. } => items,
            _ => &[],
        }
    }

    /// The items of a list, mutable.
    pub(crate) fn items_mut(&mut self) -> Option<&mut Vec<SequenceItem>> {
        match &mut self.content {
            NodeContent::List { items, .. } => Some(items),
            _ => None,
        }
    }

    /// The value of a field.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entries()
            .iter()
            .find(|entry| entry.key.text == key)
            .map(|entry| &entry.value)
    }

    /// The value of a field, mutable.
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        self.entry_mut(key).map(|entry| &mut entry.value)
    }

    /// A field, mutable.
    pub(crate) fn entry_mut(&mut self, key: &str) -> Option<&mut MapEntry> {
        self.entries_mut()?
            .iter_mut()
            .find(|entry| entry.key.text == key)
    }

    /// The value at a path of fields.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The value at a path of fields, mutable.
    pub(crate) fn at_mut(&mut self, path: &[&str]) -> Option<&mut Self> {
        path.iter().try_fold(self, |node, key| node.get_mut(key))
    }

    /// The value at a path of fields; missing maps on the path are created. A value on the path that is not a map is replaced:
    /// check first.
    pub(crate) fn make(&mut self, path: &[&str]) -> &mut Self {
        match path.split_first() {
            None => self,
            Some((key, rest)) => self.field(key).make(rest),
        }
    }

    fn field(&mut self, key: &str) -> &mut Self {
        if self.entries_mut().is_none() {
            self.content = Self::map().content;
        }
        match self.content {
            NodeContent::Map {
                ref mut entries, ..
            } => {
                let known = entries.iter().position(|entry| entry.key.text == key);
                let place = known.unwrap_or_else(|| {
                    entries.push(MapEntry::new(key, Self::map()));
                    entries.len() - 1
                });
                &mut entries[place].value
            }
            _ => self,
        }
    }

    /// Removes a field, with its comments.
    pub(crate) fn remove(&mut self, key: &str) -> Option<MapEntry> {
        let entries = self.entries_mut()?;
        let place = entries.iter().position(|entry| entry.key.text == key)?;
        Some(entries.remove(place))
    }

    /// Sets a field: in place if it exists (its comments stay), otherwise at the end.
    pub(crate) fn set(&mut self, key: &str, value: Self) {
        match self.entry_mut(key) {
            Some(entry) => entry.value = value,
            None => self.push(MapEntry::new(key, value)),
        }
    }

    /// Adds a field at the end; of an existing field the value is replaced and the comments are joined.
    pub(crate) fn push(&mut self, entry: MapEntry) {
        if self.is_nothing() {
            self.content = Self::map().content;
        }
        let Some(entries) = self.entries_mut() else {
            return;
        };
        match entries
            .iter_mut()
            .find(|known| known.key.text == entry.key.text)
        {
            Some(known) => {
                known.notes.before.extend(entry.notes.all(Vec::new()));
                known.value = entry.value;
            }
            None => entries.push(entry),
        }
    }

    /// Every comment below, in reading order.
    pub(crate) fn comments(self) -> Vec<String> {
        match self.content {
            NodeContent::Scalar(_) => Vec::new(),
            NodeContent::Map { entries, .. } => {
                entries.into_iter().flat_map(MapEntry::comments).collect()
            }
            NodeContent::List { items, .. } => items
                .into_iter()
                .flat_map(|SequenceItem { value, notes }| notes.all(value.comments()))
                .collect(),
        }
    }
}

fn is_null(scalar: &Scalar) -> bool {
    !scalar.quoted && matches!(scalar.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
}

/// Type of a plain scalar: `yes` and `no` are booleans, as for the tools of Kubernetes.
pub(crate) fn scalar_value(scalar: &Scalar) -> Value {
    if scalar.quoted {
        return Value::from(scalar.text.as_str());
    }
    if is_null(scalar) {
        return Value::Null;
    }
    match scalar.text.as_str() {
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => true.into(),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => false.into(),
        text => {
            let number = text
                .parse::<i64>()
                .map(Value::from)
                .ok()
                .filter(|_| !text.starts_with('+'));
            let float = || {
                let digits = text.contains(|letter: char| letter.is_ascii_digit());
                let parsed: Option<serde_json::Number> = serde_json::from_str(text).ok();
                parsed.filter(|_| digits).map(Value::Number)
            };
            number.or_else(float).unwrap_or_else(|| text.into())
        }
    }
}
