//! Parses text into a tree with comments.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};

use super::tree::{MapEntry, NodeContent, Notes, Scalar, SequenceItem, YamlNode};

/// Maximum number of nodes to which aliases expand: a few lines of YAML can name billions.
const MAX_NODES: usize = 200_000;

/// Indentation of a document, if it can be detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    /// Spaces per level.
    pub(crate) indent: usize,
    /// Items of a list are indented one level more than its field.
    pub(crate) lists_indented: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            indent: 2,
            lists_indented: true,
        }
    }
}

/// A parsed document.
#[derive(Clone, Debug)]
pub(crate) struct ParsedDocument {
    /// Values and comments; `None` for an empty document.
    pub(crate) root: Option<YamlNode>,
    /// Indentation.
    pub(crate) style: Style,
    /// Comments of an empty document, or at its end.
    pub(crate) trailing: Vec<String>,
    /// Aliases were expanded.
    pub(crate) aliases: bool,
}

/// Parses one document. Lines are counted from `first_line`.
///
/// # Errors
/// The text is not YAML; with the line.
pub(crate) fn read(text: &str, first_line: usize) -> Result<ParsedDocument, (usize, String)> {
    let mut events = Vec::new();
    let mut comments = Vec::new();
    for event in Parser::new_from_str(text) {
        match event {
            Ok((Event::Comment(body, _), span)) => comments.push(Comment {
                line: span.start.line(),
                column: span.start.col(),
                text: format!("#{}", body.trim_end()),
            }),
            Ok((Event::StreamStart | Event::StreamEnd, _)) => {}
            Ok((Event::DocumentStart(..) | Event::DocumentEnd, _)) => {}
            Ok(event) => events.push(event),
            Err(error) => {
                return Err((error.marker().line() + first_line - 1, error.info()));
            }
        }
    }
    let mut builder = Builder {
        text,
        lines: text.lines().collect(),
        events: events.into_iter().peekable(),
        offset: first_line - 1,
        anchors: BTreeMap::new(),
        slots: Vec::new(),
        path: Vec::new(),
        aliases: false,
        nodes: 0,
    };
    let root = builder.node()?;
    let style = builder.style();
    let Builder {
        slots,
        lines,
        aliases,
        ..
    } = builder;
    let mut root = root;
    let mut trailing = Vec::new();
    if let Some(root) = &mut root {
        for slot in &slots {
            if blank_above(&lines, slot.line)
                && let Some(notes) = notes_at(root, &slot.path)
            {
                notes.blank = true;
            }
        }
        attach(root, &slots, &lines, comments, &mut trailing);
    } else {
        trailing.extend(comments.into_iter().map(|comment| comment.text));
    }
    Ok(ParsedDocument {
        root,
        style,
        trailing,
        aliases,
    })
}

struct Comment {
    line: usize,
    column: usize,
    text: String,
}

/// A field or an item, to which comments can belong.
struct CommentSlot {
    line: usize,
    column: usize,
    path: Vec<usize>,
    /// It begins its line.
    leads: bool,
    /// It is in brackets or braces.
    flow: bool,
}

/// Whether the line above a line is empty.
fn blank_above(lines: &[&str], line: usize) -> bool {
    line >= 2
        && lines
            .get(line - 2)
            .is_some_and(|text| text.trim().is_empty())
}

fn attach(
    root: &mut YamlNode,
    slots: &[CommentSlot],
    lines: &[&str],
    comments: Vec<Comment>,
    trailing: &mut Vec<String>,
) {
    for comment in comments {
        let on_line =
            |slot: &&CommentSlot| slot.line == comment.line && slot.column < comment.column;
        // Next to brackets it belongs to the field, not to the last value in them.
        let same_line = slots
            .iter()
            .rfind(|slot| on_line(slot) && !slot.flow)
            .or_else(|| slots.iter().rfind(on_line));
        if let Some(slot) = same_line {
            if let Some(notes) = notes_at(root, &slot.path) {
                let line = lines.get(comment.line - 1).map_or("", |line| line);
                let left: String = line.chars().take(comment.column).collect();
                let gap = left.chars().count() - left.trim_end().chars().count();
                match notes.inline {
                    None => notes.inline = Some(format!("{}{}", " ".repeat(gap), comment.text)),
                    Some(_) => notes.before.push(comment.text),
                }
            }
            continue;
        }
        let next = slots.iter().find(|slot| slot.line > comment.line);
        let fits_next = next.is_some_and(|next| comment.column <= next.column);
        let owner = if fits_next {
            next
        } else {
            // Indented more than what follows: it ends the previous block, as a field of the same depth would.
            slots
                .iter()
                .rfind(|slot| slot.line <= comment.line && slot.column <= comment.column)
                .or(next)
        };
        match owner.and_then(|slot| Some((slot, notes_at(root, &slot.path)?))) {
            Some((slot, notes)) if slot.line > comment.line => {
                let blank = blank_above(lines, comment.line);
                if notes.before.is_empty() {
                    notes.blank = blank;
                } else if blank {
                    notes.before.push(String::new());
                }
                notes.before.push(comment.text);
                // The next thing below is the field itself, after a blank line.
                if comment.line + 2 == slot.line && blank_above(lines, slot.line) {
                    notes.before.push(String::new());
                }
            }
            Some((_, notes)) => notes.after.push(comment.text),
            None => trailing.push(comment.text),
        }
    }
}

fn notes_at<'a>(root: &'a mut YamlNode, path: &[usize]) -> Option<&'a mut Notes> {
    let (first, rest) = path.split_first()?;
    let (value, notes) = match &mut root.content {
        NodeContent::Map { entries, .. } => {
            let entry = entries.get_mut(*first)?;
            (&mut entry.value, &mut entry.notes)
        }
        NodeContent::List { items, .. } => {
            let item = items.get_mut(*first)?;
            (&mut item.value, &mut item.notes)
        }
        NodeContent::Scalar(_) => return None,
    };
    if rest.is_empty() {
        Some(notes)
    } else {
        notes_at(value, rest)
    }
}

struct Builder<'a, I: Iterator<Item = (Event<'a>, Span)>> {
    text: &'a str,
    lines: Vec<&'a str>,
    events: std::iter::Peekable<I>,
    offset: usize,
    anchors: BTreeMap<usize, YamlNode>,
    slots: Vec<CommentSlot>,
    path: Vec<usize>,
    aliases: bool,
    nodes: usize,
}

impl<'a, I: Iterator<Item = (Event<'a>, Span)>> Builder<'a, I> {
    fn node(&mut self) -> Result<Option<YamlNode>, (usize, String)> {
        let Some((event, span)) = self.events.next() else {
            return Ok(None);
        };
        let line = span.start.line() + self.offset;
        self.nodes += 1;
        let (content, anchor) = match event {
            Event::Scalar(value, style, anchor, tag) => {
                // A scalar with a tag of its own, or none of the schema's, is a string.
                let tagged = tag.is_some_and(|tag| {
                    !["int", "float", "bool", "null"]
                        .iter()
                        .any(|name| tag.is_yaml_core_schema_tag(name))
                });
                let quoted = style != ScalarStyle::Plain || tagged;
                let raw = span
                    .slice(self.text)
                    .filter(|raw| !raw.contains('\n') && !tagged)
                    .filter(|_| !matches!(style, ScalarStyle::Literal | ScalarStyle::Folded))
                    .map(str::to_owned);
                (
                    NodeContent::Scalar(Scalar {
                        text: value.into_owned(),
                        quoted,
                        raw,
                    }),
                    anchor,
                )
            }
            Event::SequenceStart(style, anchor, _) => {
                (self.list(style == StructureStyle::Flow)?, anchor)
            }
            Event::MappingStart(style, anchor, _) => {
                (self.map(style == StructureStyle::Flow)?, anchor)
            }
            Event::Alias(id) => {
                self.aliases = true;
                let node = self.anchors.get(&id).cloned();
                let node = node.ok_or_else(|| (line, "alias inside its own value".to_owned()))?;
                self.nodes += size(&node);
                if self.nodes > MAX_NODES {
                    return Err((line, "aliases that write out to too much".to_owned()));
                }
                (node.content, 0)
            }
            other => return Err((line, format!("a value was expected, not {other:?}"))),
        };
        let node = YamlNode { content, line };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(Some(node))
    }

    fn slot(&mut self, index: usize, line: usize, column: usize, flow: bool) {
        self.path.push(index);
        let before = self.lines.get(line.wrapping_sub(1)).map_or("", |text| text);
        let leads = before.chars().take(column).all(char::is_whitespace);
        self.slots.push(CommentSlot {
            line,
            column,
            path: self.path.clone(),
            leads,
            flow,
        });
    }

    fn map(&mut self, flow: bool) -> Result<NodeContent, (usize, String)> {
        let mut entries: Vec<MapEntry> = Vec::new();
        loop {
            match self.events.peek() {
                Some((Event::MappingEnd, _)) | None => {
                    self.events.next();
                    break;
                }
                Some((_, span)) => {
                    let (line, column) = (span.start.line(), span.start.col());
                    self.slot(entries.len(), line, column, flow);
                    let key = match self.node()? {
                        Some(YamlNode {
                            content: NodeContent::Scalar(key),
                            ..
                        }) => key,
                        _ => {
                            return Err((
                                line + self.offset,
                                "a field whose name is a map or a list".to_owned(),
                            ));
                        }
                    };
                    if entries.iter().any(|entry| entry.key.text == key.text) && key.text != "<<" {
                        return Err((
                            line + self.offset,
                            format!("the field {:?} stands here twice", key.text),
                        ));
                    }
                    let value = self.node()?.unwrap_or_else(|| YamlNode::plain(""));
                    self.path.pop();
                    entries.push(MapEntry {
                        key,
                        line: line + self.offset,
                        value,
                        notes: Notes::default(),
                    });
                }
            }
        }
        merge(&mut entries);
        Ok(NodeContent::Map { entries, flow })
    }

    fn list(&mut self, flow: bool) -> Result<NodeContent, (usize, String)> {
        let mut items = Vec::new();
        loop {
            match self.events.peek() {
                Some((Event::SequenceEnd, _)) | None => {
                    self.events.next();
                    break;
                }
                Some((_, span)) => {
                    let (line, column) = (span.start.line(), span.start.col());
                    let text = self.lines.get(line - 1).map_or("", |text| text);
                    let before: String = text.chars().take(column).collect();
                    let dash = before.rfind('-').filter(|_| !flow);
                    self.slot(items.len(), line, dash.unwrap_or(column), flow);
                    let value = self.node()?.unwrap_or_else(|| YamlNode::plain(""));
                    self.path.pop();
                    items.push(SequenceItem {
                        value,
                        notes: Notes::default(),
                    });
                }
            }
        }
        Ok(NodeContent::List { items, flow })
    }

    /// From the first field of a field, and the first item of a field.
    fn style(&self) -> Style {
        let mut style = Style::default();
        let leading = || self.slots.iter().filter(|slot| slot.leads);
        let parent = |slot: &CommentSlot| {
            let (_, path) = slot.path.split_last()?;
            leading().find(|other| other.path == path)
        };
        let is_item = |slot: &CommentSlot| {
            let line = self.lines.get(slot.line - 1).map_or("", |text| text);
            line.trim_start().starts_with("- ") || line.trim() == "-"
        };
        if let Some(width) = leading()
            .filter(|slot| !is_item(slot))
            .find_map(|slot| slot.column.checked_sub(parent(slot)?.column))
        {
            style.indent = width.clamp(1, 8);
        }
        if let Some(width) = leading()
            .filter(|slot| is_item(slot))
            .find_map(|slot| slot.column.checked_sub(parent(slot)?.column))
        {
            style.lists_indented = width > 0;
        }
        style
    }
}

fn size(node: &YamlNode) -> usize {
    match &node.content {
        NodeContent::Scalar(_) => 1,
        NodeContent::Map { entries, .. } => {
            1 + entries.iter().map(|each| size(&each.value)).sum::<usize>()
        }
        NodeContent::List { items, .. } => {
            1 + items.iter().map(|each| size(&each.value)).sum::<usize>()
        }
    }
}

/// Expands `<<`: fields of the named maps that are missing. One that names no map is an ordinary field.
fn merge(entries: &mut Vec<MapEntry>) {
    let names_maps = |entry: &MapEntry| {
        let is_map = |node: &YamlNode| matches!(node.content, NodeContent::Map { .. });
        let of_list = |node: &YamlNode| {
            !node.items().is_empty() && node.items().iter().all(|item| is_map(&item.value))
        };
        entry.key.text == "<<"
            && !entry.key.quoted
            && (is_map(&entry.value) || of_list(&entry.value))
    };
    while let Some(place) = entries.iter().position(names_maps) {
        let merged = entries.remove(place);
        let sources: Vec<YamlNode> = match merged.value.content {
            NodeContent::List { items, .. } => items.into_iter().map(|item| item.value).collect(),
            content => vec![YamlNode { content, line: 0 }],
        };
        let mut place = place;
        for entry in sources.iter().flat_map(YamlNode::entries) {
            if !entries.iter().any(|known| known.key.text == entry.key.text) {
                entries.insert(place, entry.clone());
                place += 1;
            }
        }
    }
}
