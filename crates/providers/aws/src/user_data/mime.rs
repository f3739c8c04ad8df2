//! MIME archives: the format in which cloud-init takes several parts of boot data.

use super::UserDataError;

/// Boundary of the archives we write.
const BOUNDARY: &str = "//";

/// Content type of a shell script.
pub(super) const SHELL: &str = "text/x-shellscript; charset=\"us-ascii\"";

/// Header that says how a part's text is encoded.
const ENCODING: &str = "Content-Transfer-Encoding";
const CONTENT_TYPE: &str = "Content-Type";

/// One part of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MimePart {
    /// Header lines, sorted by name; lines of one name in their order.
    pub(super) headers: Vec<(String, String)>,
    /// The part's text.
    pub(super) body: String,
}

impl MimePart {
    /// A part with nothing but a content type.
    pub(super) fn new(content_type: &str, body: impl Into<String>) -> Self {
        Self {
            headers: vec![(CONTENT_TYPE.to_owned(), content_type.to_owned())],
            body: body.into(),
        }
    }

    /// Drops all headers but the content type, which may be empty.
    pub(super) fn bare(self) -> Self {
        let content_type = header(&self.headers, CONTENT_TYPE).unwrap_or_default();
        Self::new(content_type, self.body)
    }
}

/// Whether boot data claims to be an archive.
pub(super) fn is_archive(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with("MIME-Version:") || text.starts_with("Content-Type:")
}

fn invalid(message: &str) -> UserDataError {
    UserDataError::Invalid(format!("it begins like a MIME archive, but {message}"))
}

/// The archive's parts. Quoted-printable ones are decoded.
/// # Errors
/// It is no message, or not of several parts.
pub(super) fn read(text: &str) -> Result<Vec<MimePart>, UserDataError> {
    let text = text.replace('\r', "");
    let (head, body) = text
        .split_once("\n\n")
        .ok_or_else(|| invalid("no blank line follows its headers"))?;
    let headers = headers(head)?;
    let content_type = header(&headers, CONTENT_TYPE)
        .ok_or_else(|| invalid("its headers have no Content-Type"))?;
    if !content_type.to_ascii_lowercase().starts_with("multipart/") {
        return Err(invalid(&format!(
            "its Content-Type {content_type:?} is not multipart"
        )));
    }
    let boundary = parameter(content_type, "boundary")
        .ok_or_else(|| invalid("its Content-Type has no boundary"))?;
    let marker = format!("--{boundary}");
    let mut parts = Vec::new();
    let mut current: Option<Vec<&str>> = None;
    for line in body.split('\n') {
        let found = line
            .strip_prefix(&*marker)
            .map(|rest| rest.trim_end_matches([' ', '\t']))
            .filter(|rest| rest.is_empty() || *rest == "--");
        match (found, current.as_mut()) {
            (Some(rest), _) => {
                if let Some(lines) = current.take() {
                    parts.push(part(&lines.join("\n"))?);
                }
                if rest == "--" {
                    return Ok(parts);
                }
                current = Some(Vec::new());
            }
            (None, Some(lines)) => lines.push(line),
            (None, None) => {} // text before the first part is for people
        }
    }
    Err(invalid(&format!("its last line \"{marker}--\" is missing")))
}

fn part(text: &str) -> Result<MimePart, UserDataError> {
    let (head, body) = match text.strip_prefix('\n') {
        Some(body) => ("", body),
        None => text.split_once("\n\n").unwrap_or((text, "")),
    };
    let mut headers = headers(head)?;
    let mut body = body.to_owned();
    let encoding = header(&headers, ENCODING).unwrap_or_default();
    if encoding.eq_ignore_ascii_case("quoted-printable") {
        body = quoted_printable(&body)?;
        headers.retain(|(name, _)| name != ENCODING);
    }
    Ok(MimePart { headers, body })
}

/// Header lines as name and value; names in the usual case (`Mime-Version`). A line that begins with a space continues the one before.
fn headers(text: &str) -> Result<Vec<(String, String)>, UserDataError> {
    if text.starts_with([' ', '\t']) {
        return Err(invalid("its first header line begins with a space"));
    }
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        match lines.last_mut() {
            Some(last) if line.starts_with([' ', '\t']) => {
                last.push(' ');
                last.push_str(line.trim());
            }
            _ => lines.push(line.trim_end().to_owned()),
        }
    }
    let mut headers = Vec::new();
    for line in &lines {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| invalid(&format!("header line {line:?} has no colon")))?;
        if !name.is_empty() {
            headers.push((usual_case(name), value.trim_start().to_owned()));
        }
    }
    headers.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(headers)
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let mut headers = headers.iter();
    headers
        .find(|(found, _)| found == name)
        .map(|(_, value)| &**value)
}

/// A name with a capital after each dash; one that is no name stays as it is.
fn usual_case(name: &str) -> String {
    if !name.bytes().all(is_token) {
        return name.to_owned();
    }
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| {
            first.to_ascii_uppercase().to_string() + &letters.as_str().to_ascii_lowercase()
        })
    };
    name.split('-').map(word).collect::<Vec<_>>().join("-")
}

/// Whether a byte may be in a header name or an unquoted parameter.
/// # Source
/// RFC 2045, section 5.1.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&byte)
}

/// A parameter of a header value; `None` when it is missing or cannot be read.
fn parameter(value: &str, name: &str) -> Option<String> {
    let (_, mut rest) = value.split_once(';')?;
    loop {
        let (key, after) = rest.trim_start().split_once('=')?;
        let (found, after) = parameter_value(after)?;
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(found).filter(|text| !text.is_empty());
        }
        rest = after.trim_start().strip_prefix(';')?;
    }
}

/// The value at the start of the text, in quotes or without, and what follows it.
fn parameter_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.bytes().take_while(|byte| is_token(*byte)).count();
        let (value, rest) = text.split_at_checked(end)?;
        let ends = rest.trim_start();
        return (ends.is_empty() || ends.starts_with(';')).then(|| (value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, quoted.get(at + 1..)?)),
            '\\' => value.push(letters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

/// Decodes quoted-printable text.
/// # Errors
/// An escape is none, or the result is no text.
fn quoted_printable(text: &str) -> Result<String, UserDataError> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'=' {
            bytes.push(*byte);
            continue;
        }
        if let Some(next) = rest.strip_prefix(b"\n") {
            rest = next; // the line goes on
            continue;
        }
        let digits = rest.split_at_checked(2);
        let decoded = digits.and_then(|(digits, _)| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 16).ok()
        });
        let escape = decoded.zip(digits);
        let (decoded, (_, after)) =
            escape.ok_or_else(|| invalid("a quoted-printable part has an escape that is none"))?;
        bytes.push(decoded);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| invalid("a quoted-printable part is not UTF-8"))
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
    fn unusual_headers_are_read() {
        let text = "X-Mailer: mine\nContent-Type: MULTIPART/mixed;\n charset=utf-8; Boundary=\"a\\\"b\"\n\nfor people\n--a\"b \nContent-Transfer-Encoding: quoted-printable\nX-A: 2\nX-A: 1\n\ngr=C3=BC=\nn\n--a\"b\n\nplain\n--a\"b--\nrest";
        let [first, second] = &read(text).unwrap()[..] else {
            panic!("two parts")
        };
        assert_eq!(first.body, "grün");
        let names: Vec<_> = first
            .headers
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(names, ["X-A=2", "X-A=1"]);
        assert_eq!(second.clone().bare(), MimePart::new("", "plain"));
        let none = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B--\n";
        assert_eq!(read(none).unwrap(), []);
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
            error("Content-Type: text/plain\n\nx"),
            "spec.userData: it begins like a MIME archive, but its Content-Type \"text/plain\" is not multipart"
        );
        assert_eq!(
            error("Content-Type: multipart/mixed; boundary=a/b\n\nx"),
            "spec.userData: it begins like a MIME archive, but its Content-Type has no boundary"
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
