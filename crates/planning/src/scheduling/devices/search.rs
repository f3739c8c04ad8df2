//! Searches devices for ResourceClaims on one node.
//!
//! # Problem
//! Every request of every ResourceClaim gets devices that match, are free, are accessible from the node, and satisfy the
//! constraints of the ResourceClaim; or nothing is allocated.
//!
//! # Heuristic
//! Depth-first search with backtracking: requests in order, alternatives in order, devices in order. The first solution is
//! used. The number of steps is bounded, so equal inputs give equal results.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::claim_spec::{Alternative, CompiledClaimSpec, MOST_DEVICES};
use super::inventory::{DeviceAccess, DeviceInventory};
use super::usage::{Share, Usage, consumption, has_capacity};
use mortise_apis::k8s::devices::DeviceConstraint;
use mortise_apis::labels::WellKnown;
use mortise_apis::requirements::Requirements;

/// Devices that are tried before a search stops: some tens of milliseconds.
const MOST_STEPS: usize = 20_000;

/// Most devices of all ResourceClaims of a pod: each is a step of recursion.
const MOST_OF_A_POD: usize = 512;

/// The node that is searched.
pub(super) enum SearchNode<'m> {
    /// It exists, or its template is final: whether its labels satisfy requirements.
    Settled(&'m dyn Fn(&Requirements) -> bool),
    /// It may still be narrowed.
    Open {
        /// Its requirements so far.
        requirements: Requirements,
        /// Labels that need no definition.
        known: &'m WellKnown,
    },
}

/// Input of a search.
pub(super) struct SearchInput<'q, 'a> {
    /// Devices of the cluster.
    pub(super) stock: &'q DeviceInventory<'a>,
    /// Their usage.
    pub(super) used: &'q Usage,
    /// Those that the node may use, in the order in which they are tried.
    pub(super) visible: &'q [usize],
    /// Devices that come with the node.
    pub(super) brought: &'q DeviceInventory<'a>,
    /// Their usage.
    pub(super) brought_used: &'q Usage,
    /// Drivers that have published the node's devices already: those of its instance type are ignored.
    pub(super) published: &'q BTreeSet<&'a str>,
    /// Requested ResourceClaims, with their names.
    pub(super) wanted: &'q [(&'q str, &'q CompiledClaimSpec)],
    /// Also visits devices in use, so that the reason can state how many exist.
    pub(super) counting: bool,
}

/// Result of a search.
pub(super) struct SearchResult {
    /// Devices, by ResourceClaim.
    pub(super) shares: Vec<Vec<Share>>,
    /// Requirements of a node that may be narrowed.
    pub(super) requirements: Option<Requirements>,
}

/// Devices of a kind that the node may use, as shares.
type Candidates = Rc<Vec<Share>>;

/// A device that is allocated during the search.
struct TakenDevice {
    claim: usize,
    request: usize,
    alternative: usize,
    share: Share,
    before: Option<Requirements>,
}

struct Search<'q, 'a> {
    of: &'q SearchInput<'q, 'a>,
    node: SearchNode<'q>,
    /// Claim and request of each step.
    path: Vec<(usize, usize)>,
    candidates: BTreeMap<(usize, usize), Candidates>,
    taken: Vec<TakenDevice>,
    own: Usage,
    own_brought: Usage,
    steps: usize,
    /// The furthest step, and its blocker.
    furthest: (usize, String),
}

/// Finds devices for ResourceClaims on a node.
///
/// # Errors
/// There are none, or the input is invalid; the text states what is missing.
pub(super) fn search(
    of: &SearchInput<'_, '_>,
    node: SearchNode<'_>,
) -> Result<SearchResult, String> {
    let path = of
        .wanted
        .iter()
        .enumerate()
        .flat_map(|(claim, (_, wanted))| {
            let requests = 0..wanted.requests.len();
            requests.map(move |request| (claim, request))
        });
    let mut search = Search {
        of,
        node,
        path: path.collect(),
        candidates: BTreeMap::new(),
        taken: Vec::new(),
        own: Usage::default(),
        own_brought: Usage::default(),
        steps: 0,
        furthest: (0, String::new()),
    };
    if !search.request(0)? {
        return Err(search.furthest.1);
    }
    let mut shares: Vec<Vec<Share>> = of.wanted.iter().map(|_| Vec::new()).collect();
    for taken in search.taken {
        if let Some(of_claim) = shares.get_mut(taken.claim) {
            of_claim.push(taken.share);
        }
    }
    Ok(SearchResult {
        shares,
        requirements: match search.node {
            SearchNode::Open { requirements, .. } => Some(requirements),
            SearchNode::Settled(_) => None,
        },
    })
}

impl<'q, 'a> Search<'q, 'a> {
    fn alternative(&self, at: usize, alternative: usize) -> Option<(&'q Alternative, String)> {
        let (claim, request) = self.path.get(at).copied()?;
        let (name, wanted) = self.of.wanted.get(claim)?;
        let request = wanted.requests.get(request)?;
        let of = request.alternatives.get(alternative)?;
        Some((of, format!("claim {name:?} request {:?}", request.name)))
    }

    /// Satisfies the requests from this step on.
    fn request(&mut self, at: usize) -> Result<bool, String> {
        let Some((claim, request)) = self.path.get(at).copied() else {
            return Ok(true);
        };
        let wanted = self.of.wanted.get(claim).map(|(_, wanted)| wanted);
        let count = wanted
            .and_then(|wanted| wanted.requests.get(request))
            .map_or(0, |request| request.alternatives.len());
        for alternative in 0..count {
            let candidates = self.candidates(at, alternative)?;
            let Some((of, _)) = self.alternative(at, alternative) else {
                continue;
            };
            let found = if of.all {
                self.all(at, alternative, &candidates)?
            } else {
                self.some(at, alternative, &candidates, 0, of.count)?
            };
            if found {
                return Ok(true);
            }
            self.blame(at, alternative, &candidates);
        }
        Ok(false)
    }

    /// Allocates every matching device.
    fn all(&mut self, at: usize, alternative: usize, all: &[Share]) -> Result<bool, String> {
        let before = self.taken.len();
        let has_all = !all.is_empty()
            && all
                .iter()
                .all(|share| self.allocate(at, alternative, share));
        if has_all && self.request(at + 1)? {
            return Ok(true);
        }
        while self.taken.len() > before {
            self.give_back();
        }
        Ok(false)
    }

    /// Allocates a number of matching devices, from this one on.
    fn some(
        &mut self,
        at: usize,
        alternative: usize,
        all: &[Share],
        from: usize,
        count: usize,
    ) -> Result<bool, String> {
        if count == 0 {
            return self.request(at + 1);
        }
        if self.taken.len() >= MOST_OF_A_POD {
            return Err(format!(
                "the pod's claims ask for more than {MOST_OF_A_POD} devices"
            ));
        }
        for (next, share) in all.iter().enumerate().skip(from) {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return Err(format!(
                    "no devices found within {MOST_STEPS} steps of search"
                ));
            }
            if !self.allocate(at, alternative, share) {
                continue;
            }
            // A shareable device can be allocated again.
            let again = usize::from(share.consumed.is_empty());
            if self.some(at, alternative, all, next + again, count - 1)? {
                return Ok(true);
            }
            self.give_back();
        }
        Ok(false)
    }

    /// The devices that an alternative of a request matches, free or not.
    fn candidates(&mut self, at: usize, alternative: usize) -> Result<Candidates, String> {
        if let Some(known) = self.candidates.get(&(at, alternative)) {
            return Ok(Rc::clone(known));
        }
        let Some((of, place)) = self.alternative(at, alternative) else {
            return Ok(Rc::default());
        };
        let mut all = Vec::new();
        let cluster = self.of.visible.iter().map(|device| (false, *device));
        let brought = (0..self.of.brought.pieces.len()).map(|device| (true, device));
        for (is_brought, device) in cluster.chain(brought) {
            let stock = self.stock(is_brought);
            let Some(piece) = stock.pieces.get(device) else {
                continue;
            };
            let Some(pool) = stock.pools.get(piece.pool) else {
                continue;
            };
            if is_brought && self.of.published.contains(pool.driver) {
                continue;
            }
            let is_hopeless = !self.of.counting && !of.all && !of.admin;
            if is_hopeless && self.is_used_up(is_brought, device) {
                continue;
            }
            if of.all && (pool.is_invalid || !pool.is_complete) {
                let why = if pool.is_invalid {
                    "invalid (duplicate device names)"
                } else {
                    "incomplete (missing slices)"
                };
                return Err(format!(
                    "{place}: pool {}/{} is {why}",
                    pool.driver, pool.name
                ));
            }
            if pool.is_invalid
                || (!of.all && !of.admin && !of.tolerates(piece.device))
                || !of
                    .selects(pool.driver, piece.device)
                    .map_err(|why| format!("{place}: {why}"))?
            {
                continue;
            }
            let Some(consumed) = consumption(piece.device, &of.capacity) else {
                continue;
            };
            all.push(Share {
                is_brought,
                device,
                consumed,
                admin: of.admin,
            });
        }
        let all = Rc::new(all);
        self.candidates.insert((at, alternative), Rc::clone(&all));
        Ok(all)
    }

    const fn stock(&self, is_brought: bool) -> &'q DeviceInventory<'a> {
        if is_brought {
            self.of.brought
        } else {
            self.of.stock
        }
    }

    /// Whether another ResourceClaim has exclusive use of the device.
    fn is_used_up(&self, is_brought: bool, device: usize) -> bool {
        let used = if is_brought {
            self.of.brought_used
        } else {
            self.of.used
        };
        let piece = self.stock(is_brought).pieces.get(device);
        used.has(device)
            && piece.is_some_and(|piece| piece.device.allow_multiple_allocations != Some(true))
    }

    fn is_free(&self, share: &Share) -> bool {
        let used = if share.is_brought {
            [self.of.brought_used, &self.own_brought]
        } else {
            [self.of.used, &self.own]
        };
        has_capacity(self.stock(share.is_brought), used, share)
    }

    /// Allocates a device, if the previous allocations allow it.
    fn allocate(&mut self, at: usize, alternative: usize, share: &Share) -> bool {
        let Some((claim, request)) = self.path.get(at).copied() else {
            return false;
        };
        let Some((of, _)) = self.alternative(at, alternative) else {
            return false;
        };
        let stock = self.stock(share.is_brought);
        let Some(piece) = stock.pieces.get(share.device) else {
            return false;
        };
        let mine = self.taken.iter().filter(|taken| taken.claim == claim);
        if mine.count() >= MOST_DEVICES
            || !self.is_free(share)
            || (of.all && !of.admin && !of.tolerates(piece.device))
            || !self.agrees(claim, request, alternative, share)
        {
            return false;
        }
        let mut before = None;
        if let DeviceAccess::Labels(asked) = &piece.reach {
            match &mut self.node {
                SearchNode::Settled(suits) => {
                    if !suits(asked) {
                        return false;
                    }
                }
                SearchNode::Open {
                    requirements,
                    known,
                } => {
                    if !requirements.is_compatible(asked, known) {
                        return false;
                    }
                    before = Some(requirements.clone());
                    requirements.require_all(asked);
                }
            }
        }
        if share.is_brought {
            self.own_brought.add(stock, share);
        } else {
            self.own.add(stock, share);
        }
        self.taken.push(TakenDevice {
            claim,
            request,
            alternative,
            share: share.clone(),
            before,
        });
        true
    }

    fn give_back(&mut self) {
        let Some(taken) = self.taken.pop() else {
            return;
        };
        let stock = self.stock(taken.share.is_brought);
        if taken.share.is_brought {
            self.own_brought.remove(stock, &taken.share);
        } else {
            self.own.remove(stock, &taken.share);
        }
        if let (Some(before), SearchNode::Open { requirements, .. }) =
            (taken.before, &mut self.node)
        {
            *requirements = before;
        }
    }

    /// Whether a device satisfies the constraints of its ResourceClaim, together with the others.
    fn agrees(&self, claim: usize, request: usize, alternative: usize, share: &Share) -> bool {
        let Some((_, wanted)) = self.of.wanted.get(claim) else {
            return false;
        };
        wanted.constraints.iter().all(|constraint| {
            if !is_about(constraint, wanted, request, alternative) {
                return true;
            }
            let value = |of: &Share, name: &str| {
                self.stock(of.is_brought)
                    .attribute(of.device, name)
                    .cloned()
            };
            let others = || {
                let all = self.taken.iter().filter(move |taken| taken.claim == claim);
                all.filter(|taken| is_about(constraint, wanted, taken.request, taken.alternative))
            };
            let same = constraint.match_attribute.as_ref().is_none_or(|name| {
                value(share, name).is_some_and(|own| {
                    others().all(|other| value(&other.share, name).as_ref() == Some(&own))
                })
            });
            let distinct = constraint.distinct_attribute.as_ref().is_none_or(|name| {
                value(share, name).is_some_and(|own| {
                    others().all(|other| value(&other.share, name).as_ref() != Some(&own))
                })
            });
            same && distinct
        })
    }

    /// Records the blocker of a request, if the search never came further.
    fn blame(&mut self, at: usize, alternative: usize, candidates: &[Share]) {
        if at < self.furthest.0 || (at == self.furthest.0 && !self.furthest.1.is_empty()) {
            return;
        }
        let Some((of, place)) = self.alternative(at, alternative) else {
            return;
        };
        let class = &of.class;
        let free = candidates
            .iter()
            .filter(|share| self.is_free(share))
            .count();
        let asked = match of.count {
            _ if of.all => "all devices".to_owned(),
            1 => "1 device".to_owned(),
            count => format!("{count} devices"),
        };
        let what = match (candidates.len(), free) {
            (0, _) => "there is none that matches".to_owned(),
            (matching, 0) => format!("{matching} match, none is free"),
            (matching, free) => format!("{matching} match, {free} are free"),
        };
        let constraints = self
            .of
            .wanted
            .get(self.path.get(at).map_or(0, |(claim, _)| *claim));
        let together = match constraints {
            Some((_, wanted)) if free >= of.count && !wanted.constraints.is_empty() => {
                ", and not enough of them agree with the claim's constraints"
            }
            _ => "",
        };
        let text = format!("{place} asks for {asked} of class {class:?}: {what}{together}");
        self.furthest = (at, text);
    }
}

fn is_about(
    constraint: &DeviceConstraint,
    wanted: &CompiledClaimSpec,
    request: usize,
    alternative: usize,
) -> bool {
    let Some(request) = wanted.requests.get(request) else {
        return false;
    };
    let Some(alternative) = request.alternatives.get(alternative) else {
        return false;
    };
    constraint.requests.is_empty()
        || constraint.requests.iter().any(|name| {
            *name == request.name
                || name
                    .split_once('/')
                    .is_some_and(|(of, sub)| of == request.name && sub == alternative.name)
        })
}
