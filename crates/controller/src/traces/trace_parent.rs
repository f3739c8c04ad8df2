//! The trace of a caller, as the W3C's `traceparent` header names it.

use http::HeaderMap;

use super::span::{SpanId, TraceId};

/// Whose request this is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceParent {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
}

impl TraceParent {
    /// The caller's span, if the caller records it; `None` also for what cannot be read, as the W3C wants.
    pub(super) fn of_request(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get("traceparent")?.to_str().ok()?;
        let mut parts = text.split('-');
        let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
        let flags = parts.next().filter(|flags| flags.len() == 2)?;
        // Later versions may have more parts; 255 is none.
        let is_known = match version {
            "00" => parts.next().is_none(),
            "ff" => false,
            _ => version.len() == 2 && u8::from_str_radix(version, 16).is_ok(),
        };
        let is_sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        if !is_known || !is_sampled {
            return None;
        }
        Some(Self {
            trace: TraceId::from_hex(trace)?,
            span: SpanId::from_hex(span)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_caller_records_is_followed() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let span = "b7ad6b7169203331";
        let parent = TraceParent {
            trace: TraceId::from_hex(trace).unwrap(),
            span: SpanId::from_hex(span).unwrap(),
        };
        let table = [
            (format!("00-{trace}-{span}-01"), Some(parent)),
            (format!("00-{trace}-{span}-03"), Some(parent)),
            (format!("01-{trace}-{span}-01-more"), Some(parent)),
            (format!("00-{trace}-{span}-00"), None),
            (format!("00-{trace}-{span}-01-more"), None),
            (format!("ff-{trace}-{span}-01"), None),
            (format!("00-{trace}-{span}"), None),
            (format!("00-{trace}-{span}-1"), None),
            (format!("00-{}-{span}-01", "0".repeat(32)), None),
            (format!("00-{trace}-{}-01", "0".repeat(16)), None),
            (format!("00-{trace}+-{span}-01"), None),
            (format!("00-+{trace}-{span}-01"), None),
            ("x".to_owned(), None),
            (String::new(), None),
        ];
        for (text, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", text.parse().unwrap());
            assert_eq!(TraceParent::of_request(&headers), expected, "{text}");
        }
        assert_eq!(TraceParent::of_request(&HeaderMap::new()), None);
    }
}
