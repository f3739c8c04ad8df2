//! Pod selectors of services and controllers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::pods::Selector;
use mortise_apis::k8s::SelectingKind;
use mortise_apis::k8s::workload::PodSelector;
use mortise_apis::names::NamespacedName;

/// Labels that a Service or ReplicationController selects.
type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// Selectors of services and controllers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workloads {
    by_labels: BTreeMap<(SelectingKind, NamespacedName), Labels>,
    by_selector: BTreeMap<(SelectingKind, NamespacedName), Selector>,
}

impl Workloads {
    /// Adds an object.
    pub fn insert(
        &mut self,
        kind: SelectingKind,
        name: NamespacedName,
        selector: Option<&PodSelector>,
    ) {
        self.remove(kind, &name);
        match selector {
            None => {}
            Some(PodSelector::Labels(labels)) => {
                let shared = |(key, value): (&String, &String)| {
                    (Arc::from(key.as_str()), Arc::from(value.as_str()))
                };
                let labels = labels.iter().map(shared).collect();
                self.by_labels.insert((kind, name), labels);
            }
            Some(PodSelector::Expressions(selector)) => {
                self.by_selector
                    .insert((kind, name), Selector::new(selector));
            }
        }
    }

    /// Removes an object.
    pub fn remove(&mut self, kind: SelectingKind, name: &NamespacedName) {
        let key = (kind, name.clone());
        self.by_labels.remove(&key);
        self.by_selector.remove(&key);
    }

    /// The objects of a kind that have a selector.
    pub fn names(&self, kind: SelectingKind) -> impl Iterator<Item = &NamespacedName> {
        let names = self.by_labels.keys().chain(self.by_selector.keys());
        names.filter_map(move |(own, name)| (*own == kind).then_some(name))
    }

    /// The selector of the group that a pod belongs to: the labels of every Service that selects it and of its
    /// ReplicationController, and the selector of its ReplicaSet or StatefulSet. `None` if nothing selects it.
    ///
    /// `owner` is kind and name of the controlling owner; `labels` are sorted by key.
    #[must_use]
    pub fn selector_of(
        &self,
        namespace: &Arc<str>,
        labels: &[(Arc<str>, Arc<str>)],
        owner: Option<(&str, &Arc<str>)>,
    ) -> Option<Selector> {
        let has = |(key, value): (&Arc<str>, &Arc<str>)| {
            labels.iter().any(|(own, of)| own == key && of == value)
        };
        let mut all: Labels = BTreeMap::new();
        let services = self.by_labels.iter().filter(|((kind, name), asked)| {
            *kind == SelectingKind::Service && name.namespace == *namespace && asked.iter().all(has)
        });
        for (_, asked) in services {
            all.extend(asked.clone());
        }
        let mut selector: Option<Selector> = None;
        let kind = |kind: &&SelectingKind| {
            **kind != SelectingKind::Service && owner.is_some_and(|(owner, _)| owner == kind.kind())
        };
        if let Some(kind) = SelectingKind::ALL.iter().find(kind)
            && let Some((_, name)) = owner
        {
            let key = (
                *kind,
                NamespacedName::new(Arc::clone(namespace), Arc::clone(name)),
            );
            all.extend(self.by_labels.get(&key).cloned().unwrap_or_default());
            selector = self
                .by_selector
                .get(&key)
                .filter(|selector| **selector != Selector::default())
                .cloned();
        }
        for (key, value) in &all {
            selector = Some(selector.unwrap_or_default().and_label(key, value));
        }
        selector
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(selector: serde_json::Value) -> PodSelector {
        serde_json::from_value(selector).unwrap()
    }

    #[test]
    fn services_and_owner_together() {
        let mut all = Workloads::default();
        let name = |name: &str| NamespacedName::new("ns", name);
        let labels = |pairs: &[(&str, &str)]| -> Vec<(Arc<str>, Arc<str>)> {
            pairs
                .iter()
                .map(|(k, v)| ((*k).into(), (*v).into()))
                .collect()
        };
        all.insert(
            SelectingKind::Service,
            name("s"),
            Some(&selector(serde_json::json!({"app": "a"}))),
        );
        all.insert(
            SelectingKind::ReplicaSet,
            name("r"),
            Some(&selector(serde_json::json!({"matchLabels": {"hash": "1"}}))),
        );
        let own = labels(&[("app", "a"), ("hash", "1")]);
        let text = |owner: Option<(&str, &Arc<str>)>, own: &[(Arc<str>, Arc<str>)]| {
            all.selector_of(&"ns".into(), own, owner)
                .map(|selector| selector.to_string())
        };
        let owner: Arc<str> = "r".into();
        assert_eq!(
            text(Some(("ReplicaSet", &owner)), &own).as_deref(),
            Some("app in (a),hash in (1)")
        );
        assert_eq!(text(None, &own).as_deref(), Some("app in (a)"));
        assert_eq!(
            text(Some(("Job", &owner)), &labels(&[("app", "b")])),
            None,
            "nothing selects it"
        );
        all.remove(SelectingKind::Service, &name("s"));
        assert_eq!(all.names(SelectingKind::Service).count(), 0);
        assert_eq!(all.names(SelectingKind::ReplicaSet).count(), 1);
    }
}
