//! Usage of devices and of their capacities.

use std::collections::BTreeMap;

use super::inventory::{DeviceInventory, Nanos, amount};
use mortise_apis::k8s::devices::{CapacityRequestPolicy, Device};

/// A device, or a part of one, that is allocated.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Share {
    /// Whether it comes with the node; otherwise it is published in the cluster.
    pub(super) is_brought: bool,
    /// Index in its inventory.
    pub(super) device: usize,
    /// Used capacities, if the device is shareable.
    pub(super) consumed: Vec<(String, Nanos)>,
    /// For administration: it uses nothing.
    pub(super) admin: bool,
}

/// Usage of an inventory.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    /// By device: how many claims have it.
    taken: BTreeMap<usize, usize>,
    /// By device and capacity.
    consumed: BTreeMap<(usize, String), Nanos>,
    /// By pool, counter set and counter.
    counted: BTreeMap<(usize, String, String), Nanos>,
}

impl Usage {
    /// Counts a share.
    pub(super) fn add(&mut self, stock: &DeviceInventory<'_>, share: &Share) {
        let Some(piece) = stock.pieces.get(share.device).filter(|_| !share.admin) else {
            return;
        };
        let taken = self.taken.entry(share.device).or_default();
        *taken += 1;
        if *taken == 1 {
            for (set, counter, own) in draws(piece.device) {
                let key = (piece.pool, set.to_owned(), counter.to_owned());
                *self.counted.entry(key).or_default() += own;
            }
        }
        for (name, own) in &share.consumed {
            *self
                .consumed
                .entry((share.device, name.clone()))
                .or_default() += *own;
        }
    }

    /// Removes a share that was counted.
    pub(super) fn remove(&mut self, stock: &DeviceInventory<'_>, share: &Share) {
        let Some(piece) = stock.pieces.get(share.device).filter(|_| !share.admin) else {
            return;
        };
        let left = self.taken.get_mut(&share.device).map_or(0, |taken| {
            *taken = taken.saturating_sub(1);
            *taken
        });
        if left == 0 {
            self.taken.remove(&share.device);
            for (set, counter, own) in draws(piece.device) {
                let key = (piece.pool, set.to_owned(), counter.to_owned());
                *self.counted.entry(key).or_default() -= own;
            }
        }
        for (name, own) in &share.consumed {
            *self
                .consumed
                .entry((share.device, name.clone()))
                .or_default() -= *own;
        }
    }

    /// Whether some claim has the device.
    pub(super) fn has(&self, device: usize) -> bool {
        self.taken.contains_key(&device)
    }
}

/// What a device uses of the counters of its pool, by set and counter.
fn draws(device: &Device) -> impl Iterator<Item = (&str, &str, Nanos)> {
    device.consumes_counters.iter().flat_map(|set| {
        let own = set.counters.iter();
        own.map(|(name, counter)| {
            (
                set.counter_set.as_str(),
                name.as_str(),
                amount(&counter.value),
            )
        })
    })
}

/// Whether a share is still available next to this usage.
pub(super) fn has_capacity(stock: &DeviceInventory<'_>, used: [&Usage; 2], share: &Share) -> bool {
    if share.admin {
        return true;
    }
    let Some(piece) = stock.pieces.get(share.device) else {
        return false;
    };
    let is_taken = used.iter().any(|used| used.has(share.device));
    let is_shared = piece.device.allow_multiple_allocations == Some(true);
    if is_taken && !is_shared {
        return false;
    }
    let fits = |(name, own): &(String, Nanos)| {
        let key = (share.device, name.clone());
        let of = used.iter().filter_map(|used| used.consumed.get(&key));
        let all = of.fold(*own, |sum, each| sum.saturating_add(*each));
        let capacity = piece.device.capacity.get(name);
        capacity.is_some_and(|capacity| all <= amount(&capacity.value))
    };
    if is_shared && !share.consumed.iter().all(fits) {
        return false;
    }
    if is_taken {
        return true;
    }
    let mut counters = draws(piece.device);
    counters.all(|(set, counter, own)| {
        let key = (piece.pool, set.to_owned(), counter.to_owned());
        let of = used.iter().filter_map(|used| used.counted.get(&key));
        let all = of.fold(own, |sum, each| sum.saturating_add(*each));
        let limit = stock
            .pools
            .get(piece.pool)
            .and_then(|pool| pool.counters.get(&(set, counter)));
        limit.is_some_and(|limit| all <= *limit)
    })
}

/// How much of a device's capacities a request uses; `None` when the device has less, or its policy does not allow the
/// amounts.
pub(super) fn consumption(
    device: &Device,
    asked: &[(String, Nanos)],
) -> Option<Vec<(String, Nanos)>> {
    for (name, own) in asked {
        let capacity = device.capacity.get(name)?;
        if *own > amount(&capacity.value) {
            return None;
        }
    }
    if device.allow_multiple_allocations != Some(true) {
        return Some(Vec::new());
    }
    let each = device.capacity.iter().map(|(name, capacity)| {
        let own = asked
            .iter()
            .find(|(asked, _)| asked == name)
            .map(|(_, own)| own);
        let policy = capacity.request_policy.as_ref();
        let whole = amount(&capacity.value);
        let taken = match (own, policy) {
            (Some(own), Some(policy)) => rounded(*own, policy)?,
            (Some(own), None) => *own,
            (None, Some(policy)) => policy.default.as_ref().map_or(whole, amount),
            (None, None) => whole,
        };
        Some((name.clone(), taken))
    });
    each.collect()
}

/// An amount rounded up by the policy; `None` when it allows none that is large enough.
fn rounded(own: Nanos, policy: &CapacityRequestPolicy) -> Option<Nanos> {
    if !policy.valid_values.is_empty() {
        let valid = policy.valid_values.iter().map(amount);
        return valid.filter(|valid| *valid >= own).min();
    }
    let Some(range) = &policy.valid_range else {
        return Some(own);
    };
    let least = amount(&range.min);
    let mut taken = own.max(least);
    if let Some(step) = range.step.as_ref().map(amount).filter(|step| *step > 0) {
        // The next whole step above the least.
        let over = (taken - least) % step;
        if over > 0 {
            taken = taken.saturating_add(step - over);
        }
    }
    let most = range.max.as_ref().map(amount);
    most.is_none_or(|most| taken <= most).then_some(taken)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn taken(policy: serde_json::Value, asked: Option<&str>, want: Option<&str>) {
        let nanos = |text: &str| {
            let text = k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.to_owned());
            amount(&text)
        };
        let device: Device = serde_json::from_value(json!({
            "name": "d",
            "allowMultipleAllocations": true,
            "capacity": { "memory": { "value": "16Gi", "requestPolicy": policy } },
        }))
        .unwrap();
        let asked: Vec<_> = asked
            .map(|text| ("memory".to_owned(), nanos(text)))
            .into_iter()
            .collect();
        let own = consumption(&device, &asked);
        let want = want.map(|text| vec![("memory".to_owned(), nanos(text))]);
        assert_eq!(own, want);
    }

    #[test]
    fn policies_round_up_or_refuse() {
        taken(json!(null), Some("3Gi"), Some("3Gi"));
        taken(json!(null), None, Some("16Gi"));
        taken(json!(null), Some("17Gi"), None);
        let values = || json!({ "default": "4Gi", "validValues": ["4Gi", "8Gi"] });
        taken(values(), None, Some("4Gi"));
        taken(values(), Some("5Gi"), Some("8Gi"));
        taken(values(), Some("9Gi"), None);
        let range = || json!({ "default": "2Gi", "validRange": { "min": "2Gi", "max": "8Gi", "step": "2Gi" } });
        taken(range(), None, Some("2Gi"));
        taken(range(), Some("1Gi"), Some("2Gi"));
        taken(range(), Some("5Gi"), Some("6Gi"));
        taken(range(), Some("6Gi"), Some("6Gi"));
        taken(range(), Some("9Gi"), None);
    }
}
