//! Which request of a batch launched an instance, and of how many. Pure.
//!
//! A batch is usually one request. A process that ends between a request for some of its NodeClaims and the write that gives the
//! others another token leaves NodeClaims with a token that EC2 knows. The tag says whether all instances of that request are visible:
//! only then have the others none, and need another request.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::instances::InstanceRecord;
use crate::tags;

/// A request of a batch; the text is the value of a tag: `0/3` is the first request, for three instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchRequest {
    /// How many requests of the batch were answered before.
    pub(crate) index: u32,
    /// How many instances it asked for.
    pub(crate) count: usize,
}

impl fmt::Display for BatchRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.index, self.count)
    }
}

/// The value of the tag is not of ours.
#[derive(Debug)]
pub(crate) struct NotARequest;

impl FromStr for BatchRequest {
    type Err = NotARequest;

    fn from_str(text: &str) -> Result<Self, NotARequest> {
        let (index, count) = text.split_once('/').ok_or(NotARequest)?;
        Ok(Self {
            index: index.parse().map_err(|_| NotARequest)?,
            count: count.parse().map_err(|_| NotARequest)?,
        })
    }
}

/// How many requests of a batch EC2 has answered for sure, given the instances of it that are visible: those up to the last one that any
/// instance shows, and that one too if all of its instances are there.
pub(crate) fn answered(instances: &[InstanceRecord]) -> u32 {
    let requests = instances.iter().filter_map(|each| {
        let request = each.described.tags.get(tags::LAUNCH_REQUEST)?;
        request.parse::<BatchRequest>().ok()
    });
    let mut visible: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for request in requests {
        visible.entry(request.index).or_insert((0, request.count)).0 += 1;
    }
    let latest = visible.last_key_value();
    latest.map_or(0, |(index, (there, count))| {
        index.saturating_add(u32::from(there >= count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::tests::instance;

    #[test]
    fn the_tag_goes_both_ways() {
        let request = BatchRequest {
            index: 1,
            count: 40,
        };
        assert_eq!(request.to_string(), "1/40");
        assert_eq!("1/40".parse::<BatchRequest>().ok(), Some(request));
        for text in ["", "1", "1/", "/1", "a/1", "1/-1", "1/2/3"] {
            assert!(text.parse::<BatchRequest>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_request_is_answered_when_all_of_its_instances_are_visible() {
        let after = |requests: &[&str]| {
            let of = |request: &&str| instance("i-1", &[(tags::LAUNCH_REQUEST, request)]);
            let instances: Vec<_> = requests.iter().map(of).collect();
            answered(&instances)
        };
        assert_eq!(after(&[]), 0);
        assert_eq!(after(&["0/2"]), 0, "the other one may become visible");
        assert_eq!(after(&["0/2", "0/2"]), 1);
        assert_eq!(after(&["0/1", "1/2"]), 1);
        assert_eq!(after(&["1/2", "0/1", "1/2"]), 2);
        assert_eq!(after(&["2/1"]), 3, "the earlier ones gave none");
        assert_eq!(after(&["ours"]), 0, "of an earlier version");
        assert_eq!(answered(&[instance("i-1", &[])]), 0);
    }
}
