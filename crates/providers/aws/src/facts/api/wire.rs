//! How calls and their answers are written on the wire, for every protocol that the provider's services speak. The table
//! `shapes.json.gz` has the names; `shapes.py` writes it.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::LazyLock;

use base64::Engine as _;
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::{Map, Number, Value, json};

/// Why a call fails, as a case records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// The service answers with a code.
    Service { code: String, message: String },
    /// The call does not get through.
    Transport(String),
}

/// A call as the API's documentation writes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiCall {
    /// Such as `DescribeSubnets`.
    pub(crate) op: String,
    /// Arguments by their names in the API. `UserData` is decoded.
    pub(crate) input: Value,
}

#[derive(Debug, Deserialize)]
struct Service {
    protocol: String,
    operations: BTreeMap<String, Operation>,
    shapes: BTreeMap<String, Shape>,
}

#[derive(Debug, Deserialize)]
struct Operation {
    #[serde(rename = "in")]
    input: String,
    out: Option<String>,
    uri: String,
    wrapper: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Shape {
    /// Member -> shape, name in a request, name in a response, place outside of the body.
    members: Option<BTreeMap<String, Vec<String>>>,
    list: Option<String>,
    item: Option<String>,
    flat: bool,
    map: Option<String>,
    scalar: Option<String>,
}

static SERVICES: LazyLock<BTreeMap<String, Service>> = LazyLock::new(|| {
    let mut text = String::new();
    GzDecoder::new(&include_bytes!("shapes.json.gz")[..])
        .read_to_string(&mut text)
        .unwrap();
    serde_json::from_str(&text).unwrap()
});

fn service_of(op: &str) -> (&'static Service, &'static Operation) {
    SERVICES
        .values()
        .find_map(|service| Some((service, service.operations.get(op)?)))
        .unwrap_or_else(|| panic!("{op} is not in shapes.py"))
}

/// Reads a request: its target header if it has one, its path, and its body.
pub(crate) fn read(target: Option<&str>, uri: &str, body: &[u8]) -> ApiCall {
    if let Some(target) = target {
        let op = target.rsplit('.').next().unwrap_or_default().to_owned();
        let input = serde_json::from_slice(body).unwrap_or_else(|_| json!({}));
        return ApiCall { op, input };
    }
    if body.is_empty() {
        return read_path(uri);
    }
    let text = std::str::from_utf8(body).unwrap();
    let mut fields: BTreeMap<String, String> = text
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (unescape(key), unescape(value)))
        .collect();
    let op = fields.remove("Action").unwrap_or_default();
    fields.remove("Version");
    let (service, operation) = service_of(&op);
    let input = read_fields(service, &operation.input, "", &fields).unwrap_or_else(|| json!({}));
    ApiCall { op, input }
}

/// A call whose argument is the rest of its path.
fn read_path(uri: &str) -> ApiCall {
    let path = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let path = path
        .find('/')
        .map_or("/", |at| path.get(at..).unwrap_or("/"));
    for service in SERVICES
        .values()
        .filter(|each| each.protocol == "rest-json")
    {
        for (op, operation) in &service.operations {
            let Some((before, after)) = operation.uri.split_once('{') else {
                continue;
            };
            if let Some(rest) = path.strip_prefix(before) {
                let name = after.trim_end_matches('}');
                let rest = unescape(rest.split('?').next().unwrap_or_default());
                return ApiCall {
                    op: op.clone(),
                    input: json!({ name: rest }),
                };
            }
        }
    }
    panic!("no operation has the path {path}")
}

fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next().unwrap_or(b'0'), rest.next().unwrap_or(b'0')];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            other => other,
        });
    }
    String::from_utf8(bytes).unwrap()
}

/// The value of a shape whose fields begin with `prefix`; `None` when there is none.
fn read_fields(
    service: &Service,
    shape: &str,
    prefix: &str,
    fields: &BTreeMap<String, String>,
) -> Option<Value> {
    let described = &service.shapes[shape];
    let at = |name: &str| match prefix {
        "" => name.to_owned(),
        prefix => format!("{prefix}.{name}"),
    };
    if let Some(members) = &described.members {
        let any = fields
            .range(at("")..)
            .next()
            .is_some_and(|(key, _)| prefix.is_empty() || key.starts_with(&format!("{prefix}.")));
        let found: Map<String, Value> = members
            .iter()
            .filter_map(|(name, row)| {
                let value = read_fields(service, &row[0], &at(&row[1]), fields)?;
                Some((name.clone(), value))
            })
            .collect();
        return (any || !found.is_empty()).then_some(Value::Object(found));
    }
    if let Some(item) = &described.list {
        let is_flat = described.flat || service.protocol == "ec2";
        let start = if is_flat {
            prefix.to_owned()
        } else {
            at(described.item.as_deref().unwrap_or("member"))
        };
        let items: Vec<Value> = (1..)
            .map_while(|index| read_fields(service, item, &format!("{start}.{index}"), fields))
            .collect();
        return (!items.is_empty()).then_some(Value::Array(items));
    }
    let text = fields.get(prefix)?;
    Some(match described.scalar.as_deref() {
        Some("boolean") => Value::Bool(text == "true"),
        Some("integer" | "long") => json!(text.parse::<i64>().unwrap()),
        Some("double" | "float") => Value::Number(Number::from_f64(text.parse().unwrap()).unwrap()),
        _ if prefix.ends_with("UserData") => Value::String(decoded(text)),
        _ => Value::String(text.clone()),
    })
}

fn decoded(text: &str) -> String {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text);
    bytes.map_or_else(
        |_| text.to_owned(),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

/// An answer: status and body.
pub(crate) fn write(op: &str, answer: &Result<Value, (String, String)>) -> (u16, String) {
    let (service, operation) = service_of(op);
    match answer {
        Err((code, message)) => (400, write_error(&service.protocol, code, message)),
        Ok(value) => (200, write_output(service, op, operation, value)),
    }
}

fn write_error(protocol: &str, code: &str, message: &str) -> String {
    let (code, message) = (escape(code), escape(message));
    match protocol {
        "ec2" => format!(
            "<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors><RequestID>r</RequestID></Response>"
        ),
        "query" => format!(
            "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error><RequestId>r</RequestId></ErrorResponse>"
        ),
        _ => json!({ "__type": code, "code": code, "message": message }).to_string(),
    }
}

fn write_output(service: &Service, op: &str, operation: &Operation, value: &Value) -> String {
    let Some(out) = &operation.out else {
        return format!("<{op}Response><return>true</return></{op}Response>");
    };
    match service.protocol.as_str() {
        "ec2" | "query" => {
            let mut body = String::new();
            write_xml(service, out, value, &mut body);
            match &operation.wrapper {
                Some(wrapper) => {
                    format!("<{op}Response><{wrapper}>{body}</{wrapper}></{op}Response>")
                }
                None => format!("<{op}Response><requestId>r</requestId>{body}</{op}Response>"),
            }
        }
        _ => write_json(service, out, value).to_string(),
    }
}

/// Contents of an element of a shape.
fn write_xml(service: &Service, shape: &str, value: &Value, out: &mut String) {
    let described = &service.shapes[shape];
    if let (Some(members), Value::Object(fields)) = (&described.members, value) {
        for (name, value) in fields {
            let Some(row) = members.get(name) else {
                panic!("{shape} has no member {name}");
            };
            if value.is_null() {
                continue;
            }
            let (inner, tag) = (&service.shapes[&row[0]], &row[2]);
            if let (Some(item), true, Value::Array(items)) = (&inner.list, inner.flat, value) {
                for each in items {
                    element(service, item, tag, each, out);
                }
            } else {
                element(service, &row[0], tag, value, out);
            }
        }
        return;
    }
    if let (Some(item), Value::Array(items)) = (&described.list, value) {
        let tag = described.item.as_deref().unwrap_or("member");
        for each in items {
            element(service, item, tag, each, out);
        }
        return;
    }
    match value {
        Value::String(text) => out.push_str(&escape(text)),
        other => out.push_str(&other.to_string()),
    }
}

fn element(service: &Service, shape: &str, tag: &str, value: &Value, out: &mut String) {
    out.push_str(&format!("<{tag}>"));
    write_xml(service, shape, value, out);
    out.push_str(&format!("</{tag}>"));
}

/// JSON names members as the API does, except where a model says otherwise; times are seconds.
fn write_json(service: &Service, shape: &str, value: &Value) -> Value {
    let described = &service.shapes[shape];
    if let (Some(members), Value::Object(fields)) = (&described.members, value) {
        let written = fields.iter().map(|(name, value)| {
            let row = members
                .iter()
                .find(|(member, _)| member.eq_ignore_ascii_case(name))
                .map(|(_, row)| row)
                .unwrap_or_else(|| panic!("{shape} has no member {name}"));
            (row[2].clone(), write_json(service, &row[0], value))
        });
        return Value::Object(written.collect());
    }
    if let (Some(item), Value::Array(items)) = (&described.list, value) {
        return Value::Array(
            items
                .iter()
                .map(|each| write_json(service, item, each))
                .collect(),
        );
    }
    if let (Some(item), Value::Object(fields)) = (&described.map, value) {
        let written = fields
            .iter()
            .map(|(key, value)| (key.clone(), write_json(service, item, value)));
        return Value::Object(written.collect());
    }
    match (described.scalar.as_deref(), value) {
        (Some("timestamp"), Value::String(text)) => text
            .parse::<jiff::Timestamp>()
            .map_or_else(|_| value.clone(), |time| json!(time.as_second())),
        _ => value.clone(),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
