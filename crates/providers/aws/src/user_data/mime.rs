//! MIME archives: the format in which cloud-init takes several parts of boot data.

use super::UserDataError;

/// Boundary of the archives we write.
const BOUNDARY: &str = "//";

/// Content type of a shell script.
pub(super) const SHELL: &str = "text/x-shellscript; charset=\"us-ascii\"";

/// One part of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MimePart {
    /// Header lines, sorted by name, `Content-Type` among them.
    pub(super) headers: Vec<(String, String)>,
    /// The part's text.
    pub(super) body: String,
}

impl MimePart {
    /// A part with nothing but a content type.
    pub(super) fn new(content_type: &str, body: impl Into<String>) -> Self {
        Self {
            headers: vec![("Content-Type".to_owned(), content_type.to_owned())],
            body: body.into(),
        }
    }

    /// Drops all headers but the content type.
    pub(super) fn bare(mut self) -> Self {
        self.headers.retain(|(name, _)| name == "Content-Type");
        self
    }
}

/// Whether boot data is an archive already.
pub(super) fn is_archive(text: &str) -> bool {
    text.starts_with("MIME-Version:") || text.starts_with("Content-Type:")
}

/// The archive's parts.
/// # Errors
/// There is no boundary, or no part.
pub(super) fn read(text: &str) -> Result<Vec<MimePart>, UserDataError> {
    let invalid = |message: &str| {
        UserDataError::Invalid(format!("it begins like a MIME archive, but {message}"))
    };
    let text = text.replace('\r', "");
    let (head, body) = text
        .split_once("\n\n")
        .ok_or_else(|| invalid("no blank line follows its headers"))?;
    let content_type = headers(head)
        .into_iter()
        .find(|(name, _)| name == "Content-Type");
    let content_type = content_type
        .ok_or_else(|| invalid("its headers have no Content-Type"))?
        .1;
    let boundary = parameter(&content_type, "boundary")
        .ok_or_else(|| invalid("its Content-Type has no boundary"))?;
    let marker = format!("--{boundary}");
    let mut parts = Vec::new();
    let mut current: Option<Vec<&str>> = None;
    let mut closed = false;
    for line in body.split('\n') {
        let found = line
            .strip_prefix(&*marker)
            .map(str::trim_end)
            .filter(|rest| rest.is_empty() || *rest == "--");
        match (found, current.as_mut()) {
            (Some(rest), _) => {
                parts.extend(current.take().map(|lines| part(&lines.join("\n"))));
                if rest == "--" {
                    closed = true;
                    break;
                }
                current = Some(Vec::new());
            }
            (None, Some(lines)) => lines.push(line),
            (None, None) => {} // text before the first part is for people
        }
    }
    if !closed {
        return Err(invalid(&format!("its last line \"{marker}--\" is missing")));
    }
    if parts.is_empty() {
        Err(invalid("it has no parts"))
    } else {
        Ok(parts)
    }
}

fn part(text: &str) -> MimePart {
    match text.split_once("\n\n") {
        Some((head, body)) => MimePart {
            headers: headers(head),
            body: body.to_owned(),
        },
        None => match text.strip_prefix('\n') {
            Some(body) => MimePart {
                headers: Vec::new(),
                body: body.to_owned(),
            },
            None => MimePart {
                headers: headers(text),
                body: String::new(),
            },
        },
    }
}

/// Header lines as name and value; names in the usual case (`Mime-Version`). Sorted.
fn headers(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut headers: Vec<_> = lines
        .map(|(name, value)| (usual_case(name.trim()), value.trim().to_owned()))
        .collect();
    headers.sort();
    headers
}

fn usual_case(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| {
            first.to_ascii_uppercase().to_string() + &letters.as_str().to_ascii_lowercase()
        })
    };
    name.split('-').map(word).collect::<Vec<_>>().join("-")
}

/// A parameter of a header value, without its quotes.
fn parameter(value: &str, name: &str) -> Option<String> {
    let mut parameters = value
        .split(';')
        .skip(1)
        .filter_map(|each| each.trim().split_once('='));
    let found = parameters.find(|(key, _)| key.trim().eq_ignore_ascii_case(name))?;
    Some(found.1.trim().trim_matches('"').to_owned()).filter(|text| !text.is_empty())
}

/// Writes an archive.
pub(super) fn write(parts: &[MimePart]) -> String {
    let mut text =
        format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{BOUNDARY}\"\n");
    for part in parts {
        text.push_str(&format!("\n--{BOUNDARY}\n"));
        for (name, value) in &part.headers {
            text.push_str(&format!("{name}: {value}\n"));
        }
        text.push('\n');
        text.push_str(&part.body.replace('\r', ""));
    }
    text.push_str(&format!("\n--{BOUNDARY}--\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let parts = vec![
            MimePart::new(SHELL, "#!/bin/sh\necho 1\n"),
            MimePart::new("text/cloud-config", "a: b"),
        ];
        assert_eq!(read(&write(&parts)).unwrap(), parts);
    }

    #[test]
    fn broken_archives_are_named() {
        let error = |text: &str| read(text).unwrap_err().to_string();
        assert_eq!(
            error("MIME-Version: 1.0"),
            "spec.userData: it begins like a MIME archive, but no blank line follows its headers"
        );
        assert_eq!(
            error("MIME-Version: 1.0\n\nx"),
            "spec.userData: it begins like a MIME archive, but its headers have no Content-Type"
        );
        assert_eq!(
            error("Content-Type: multipart/mixed\n\nx"),
            "spec.userData: it begins like a MIME archive, but its Content-Type has no boundary"
        );
        assert_eq!(
            error("Content-Type: multipart/mixed; boundary=\"B\"\n\n--B\nA: b\n\nx"),
            "spec.userData: it begins like a MIME archive, but its last line \"--B--\" is missing"
        );
    }
}
