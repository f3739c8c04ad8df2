//! The CEL rules of EC2NodeClass, answered with what was written and what to write instead.

use std::collections::BTreeSet;

use mortise_apis::issues::{RuleCheck, RuleContext, either, empty, has};
use mortise_apis::nearest::nearest;
use serde_json::{Value, json};

use crate::spec::AMI_FAMILIES;

/// Who answers for a rule.
pub(crate) fn native_check(message: &str) -> Option<RuleCheck> {
    Some(match message {
        "role cannot be empty" => |at| empty(at, "KarpenterNodeRole-<cluster>"),
        "instanceProfile cannot be empty" => |at| empty(at, "<the name of the profile>"),
        "must specify exactly one of ['role', 'instanceProfile']" => identity,
        "must specify amiFamily if amiSelectorTerms does not contain an alias" => family_needed,
        "subnetSelectorTerms cannot be empty" | "securityGroupSelectorTerms cannot be empty" => {
            no_terms
        }
        "expected at least one, got none, ['tags', 'id']" => |at| one_of(at, &["tags", "id"]),
        "expected at least one, got none, ['tags', 'id', 'name']" => {
            |at| one_of(at, &["tags", "id", "name"])
        }
        "expected at least one, got none, ['tags', 'id', 'instanceMatchCriteria']" => {
            |at| one_of(at, &["tags", "id", "instanceMatchCriteria"])
        }
        "expected at least one, got none, ['tags', 'id', 'name', 'alias', 'ssmParameter']" => {
            |at| one_of(at, &["tags", "id", "name", "alias", "ssmParameter"])
        }
        "expected at least one, got none, ['name', 'id']" => placement_none,
        "'name' and 'id' are mutually exclusive" => placement_both,
        "'id' is mutually exclusive, cannot be set with a combination of other fields in a subnet selector term" => {
            |at| every(at, "id", &["tags"])
        }
        "'id' is mutually exclusive, cannot be set with a combination of other fields in a security group selector term" => {
            |at| every(at, "id", &["tags", "name"])
        }
        "'name' is mutually exclusive, cannot be set with a combination of other fields in a security group selector term" => {
            |at| every(at, "name", &["tags", "id"])
        }
        "'id' is mutually exclusive, cannot be set along with other fields in a capacity reservation selector term" => {
            reservation_ids
        }
        "'id' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms" => {
            |at| alone(at, "id", &["alias", "tags", "name", "owner"])
        }
        "'alias' is mutually exclusive, cannot be set with a combination of other fields in amiSelectorTerms" => {
            |at| alone(at, "alias", &["id", "tags", "name", "owner"])
        }
        "'alias' is mutually exclusive, cannot be set with a combination of other amiSelectorTerms" => {
            one_alias
        }
        "'alias' is improperly formatted, must match the format 'family@version'" => alias_form,
        "family is not supported, must be one of the following: 'al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025'" => {
            alias_family
        }
        "windows families may only specify version 'latest'" => windows_version,
        "empty tag keys or values aren't supported" => selector_tags,
        "empty tag keys aren't supported" => |at| tag(at, "", |key| key.is_empty()),
        "tag contains a restricted tag matching eks:eks-cluster-name" => |at| {
            tag(at, "eks:eks-cluster-name", |key| {
                key == "eks:eks-cluster-name"
            })
        },
        "tag contains a restricted tag matching kubernetes.io/cluster/" => |at| {
            tag(at, "kubernetes.io/cluster/", |key| {
                key.starts_with("kubernetes.io/cluster")
            })
        },
        "tag contains a restricted tag matching karpenter.sh/nodepool" => |at| {
            tag(at, "karpenter.sh/nodepool", |key| {
                key == "karpenter.sh/nodepool"
            })
        },
        "tag contains a restricted tag matching karpenter.sh/nodeclaim" => |at| {
            tag(at, "karpenter.sh/nodeclaim", |key| {
                key == "karpenter.sh/nodeclaim"
            })
        },
        "tag contains a restricted tag matching karpenter.k8s.aws/ec2nodeclass" => |at| {
            tag(at, "karpenter.k8s.aws/ec2nodeclass", |key| {
                key == "karpenter.k8s.aws/ec2nodeclass"
            })
        },
        "must have only one blockDeviceMappings with rootVolume" => root_volumes,
        "snapshotID or volumeSize must be defined" => volume,
        "snapshotID must be set when volumeInitializationRate is set" => initialization,
        "networkInterfaces must include a primary interface with interfaceType='interface'" => {
            primary_interface
        }
        "networkInterfaces must not have duplicate networkCardIndex and deviceIndex pairs, and can have at most one efa device per network card" => {
            interfaces
        }
        "at least one of tcpEstablishedTimeout, udpStreamTimeout, or udpTimeout must be set" => {
            tracking
        }
        _ if message.starts_with("if set, amiFamily must be '") => family_of_alias,
        _ => return None,
    })
}

fn identity(at: &mut RuleContext<'_>) {
    match (at.has("role"), at.has("instanceProfile")) {
        (true, true) => {
            let value = at.field("instanceProfile");
            at.fault(
                ".instanceProfile",
                value,
                "and role exclude each other: exactly one of them is allowed",
                "keep role to have profiles made, instanceProfile to bring your own",
            );
        }
        (false, false) => at.fault(
            ".role",
            &Value::Null,
            "but exactly one of role and instanceProfile is needed",
            "add role: KarpenterNodeRole-<cluster>",
        ),
        _ => {}
    }
}

/// The alias of the first term that has one.
fn alias(spec: &Value) -> Option<String> {
    spec.get("amiSelectorTerms")?
        .as_array()?
        .iter()
        .find_map(|term| term.get("alias")?.as_str().map(str::to_owned))
}

fn family_needed(at: &mut RuleContext<'_>) {
    if alias(at.value).is_none() && !at.has("amiFamily") {
        at.fault(
            ".amiFamily",
            &Value::Null,
            format!(
                "but required when no term of amiSelectorTerms has an alias; must be one of {}",
                AMI_FAMILIES.join(", ")
            ),
            "add amiFamily: AL2023 (the family of your image), or select by alias: al2023@latest",
        );
    }
}

fn family_of_alias(at: &mut RuleContext<'_>) {
    let Some(family) = at
        .rule
        .rsplit_once("self.amiFamily == '")
        .and_then(|(_, rest)| rest.split_once('\'').map(|(family, _)| family.to_owned()))
    else {
        return;
    };
    let given = at.field("amiFamily");
    let (Some(alias), Some(given_text)) = (alias(at.value), given.as_str()) else {
        return;
    };
    let of_alias = alias.split('@').next().unwrap_or_default();
    if of_alias == family.to_lowercase() && given_text != family && given_text != "Custom" {
        at.fault(
            ".amiFamily",
            given,
            format!("does not suit the alias {alias}: {family} or Custom is allowed"),
            format!("remove amiFamily (the alias determines it), or set {family}"),
        );
    }
}

fn no_terms(at: &mut RuleContext<'_>) {
    if at.value.as_array().is_some_and(Vec::is_empty) {
        let value = at.value;
        at.fault(
            "",
            value,
            "has no term, but at least one is needed",
            "add - tags: {karpenter.sh/discovery: <cluster>}",
        );
    }
}

fn one_of(at: &mut RuleContext<'_>, fields: &[&str]) {
    for (n, term) in at.items() {
        if !fields.iter().any(|field| has(term, field)) {
            at.fault(
                &format!("[{n}]"),
                term,
                format!(
                    "selects nothing: at least one of {} is needed",
                    fields.join(", ")
                ),
                format!("add {}, or take the term out", either(fields)),
            );
        }
    }
}

/// Karpenter's rule refuses only a list in which every term has both.
fn every(at: &mut RuleContext<'_>, field: &str, others: &[&str]) {
    let both = |term: &Value| has(term, field) && others.iter().any(|other| has(term, other));
    if at.items().next().is_none() || !at.items().all(|(_, term)| both(term)) {
        return;
    }
    for (n, term) in at.items() {
        exclusive(at, n, term, field, others);
    }
}

fn alone(at: &mut RuleContext<'_>, field: &str, others: &[&str]) {
    for (n, term) in at.items() {
        if has(term, field) {
            exclusive(at, n, term, field, others);
        }
    }
}

fn exclusive(at: &mut RuleContext<'_>, n: usize, term: &Value, field: &str, others: &[&str]) {
    let present: Vec<&str> = others
        .iter()
        .copied()
        .filter(|other| has(term, other))
        .collect();
    if !present.is_empty() {
        at.fault(
            &format!("[{n}].{field}"),
            term.get(field).unwrap_or(&Value::Null),
            format!(
                "stands with {}, but {field} is allowed only alone",
                present.join(", ")
            ),
            format!(
                "take {} out, or make a second term: terms are alternatives",
                present.join(", ")
            ),
        );
    }
}

/// The rule refuses an empty list too: all of its no terms have both.
fn reservation_ids(at: &mut RuleContext<'_>) {
    if at.value.as_array().is_some_and(Vec::is_empty) {
        let value = at.value;
        at.fault(
            "",
            value,
            "has no term: a list with terms is allowed, or none at all",
            "take capacityReservationSelectorTerms out",
        );
        return;
    }
    every(at, "id", &["tags", "ownerID", "instanceMatchCriteria"]);
}

fn one_alias(at: &mut RuleContext<'_>) {
    let aliased = at.items().find(|(_, term)| has(term, "alias"));
    if let Some((n, term)) = aliased.filter(|_| at.items().nth(1).is_some()) {
        at.fault(
            &format!("[{n}].alias"),
            term.get("alias").unwrap_or(&Value::Null),
            "may not be combined with other terms: a term with an alias must be the only one",
            "keep the alias alone, or select all images by id, name or tags",
        );
    }
}

fn alias_form(at: &mut RuleContext<'_>) {
    let Some(text) = at.value.as_str().map(str::to_owned) else {
        return;
    };
    let fits = text.split_once('@').is_some_and(|(family, version)| {
        !family.is_empty()
            && family.chars().all(|c| c.is_ascii_alphanumeric())
            && !version.is_empty()
    });
    if !fits {
        let family = text.split('@').next().filter(|family| !family.is_empty());
        at.fault(
            "",
            &json!(text),
            "is not family@version",
            format!(
                "write {}@latest, or pin a version",
                family.unwrap_or("al2023")
            ),
        );
    }
}

const ALIAS_FAMILIES: [&str; 6] = [
    "al2",
    "al2023",
    "bottlerocket",
    "windows2019",
    "windows2022",
    "windows2025",
];

fn alias_family(at: &mut RuleContext<'_>) {
    let value = at.value;
    let Some((family, version)) = value
        .as_str()
        // A text without @ is all family, as in the rule.
        .map(|text| text.split_once('@').unwrap_or((text, "latest")))
    else {
        return;
    };
    if !ALIAS_FAMILIES.contains(&family) {
        let near = nearest(family, ALIAS_FAMILIES);
        let fix = near.map_or_else(
            || "for other images use id, name or tags together with amiFamily".to_owned(),
            |near| format!("did you mean \"{near}@{version}\"?"),
        );
        at.fault(
            "",
            value,
            format!(
                "has a family that is not one of {}",
                ALIAS_FAMILIES.join(", ")
            ),
            fix,
        );
    }
}

fn windows_version(at: &mut RuleContext<'_>) {
    let value = at.value;
    if let Some((family, version)) = value.as_str().and_then(|text| text.split_once('@'))
        && family.starts_with("windows")
        && ALIAS_FAMILIES.contains(&family)
        && version.split('@').next() != Some("latest")
    {
        at.fault(
            "",
            value,
            "pins a version, but Windows families allow only latest",
            format!("write {family}@latest, or select an image by id"),
        );
    }
}

fn selector_tags(at: &mut RuleContext<'_>) {
    let value = at.value;
    for (key, value) in value.as_object().into_iter().flatten() {
        if key.is_empty() || value == "" {
            at.fault(
                &format!("[{key:?}]"),
                value,
                "has an empty key or value, but texts are needed on both sides",
                "write the tag's value, or \"*\" for any value",
            );
        }
    }
}

fn tag(at: &mut RuleContext<'_>, pattern: &str, restricted: fn(&str) -> bool) {
    for key in at.keys() {
        if restricted(key) {
            let value = at.field(key);
            let problem = if pattern.is_empty() {
                "has an empty key, but a text is needed".to_owned()
            } else {
                format!(
                    "is a tag that is set on every instance ({pattern}); any other key is allowed"
                )
            };
            at.fault(
                &at.below(key),
                value,
                problem,
                "take the tag out, or give it another key",
            );
        }
    }
}

fn placement_none(at: &mut RuleContext<'_>) {
    if !at.has("name") && !at.has("id") {
        let value = at.value;
        at.fault(
            "",
            value,
            "selects nothing: one of name, id is needed",
            "add name: <the group's name>, or take placementGroupSelector out",
        );
    }
}

fn placement_both(at: &mut RuleContext<'_>) {
    if at.has("name") && at.has("id") {
        let value = at.field("id");
        at.fault(
            ".id",
            value,
            "and name exclude each other: one of them is allowed",
            "keep one of the two",
        );
    }
}

fn root_volumes(at: &mut RuleContext<'_>) {
    let roots = at
        .items()
        .filter(|(_, each)| each.get("rootVolume") == Some(&Value::Bool(true)));
    for (n, mapping) in roots.skip(1) {
        at.fault(
            &format!("[{n}].rootVolume"),
            mapping.get("rootVolume").unwrap_or(&Value::Null),
            "marks a second root volume, but only one is allowed",
            "keep rootVolume: true on one mapping",
        );
    }
}

fn volume(at: &mut RuleContext<'_>) {
    if !at.has("snapshotID") && !at.has("volumeSize") {
        at.fault(
            ".volumeSize",
            &Value::Null,
            "but one of volumeSize and snapshotID is needed",
            "add volumeSize: 100Gi",
        );
    }
}

fn initialization(at: &mut RuleContext<'_>) {
    let snapshot = at
        .field("snapshotID")
        .as_str()
        .is_some_and(|id| !id.is_empty());
    if at.has("volumeInitializationRate") && !snapshot {
        let value = at.field("volumeInitializationRate");
        at.fault(
            ".volumeInitializationRate",
            value,
            "is about volumes made from a snapshot, and snapshotID is absent",
            "add snapshotID, or take volumeInitializationRate out",
        );
    }
}

fn index(interface: &Value, name: &str) -> i64 {
    interface.get(name).and_then(Value::as_i64).unwrap_or(-1)
}

fn primary_interface(at: &mut RuleContext<'_>) {
    let primary = |each: &Value| {
        index(each, "deviceIndex") == 0
            && index(each, "networkCardIndex") == 0
            && each.get("interfaceType") == Some(&json!("interface"))
    };
    if at.items().next().is_some() && !at.items().any(|(_, each)| primary(each)) {
        let value = at.value;
        at.fault(
            "",
            value,
            "has no primary interface: one with networkCardIndex 0, deviceIndex 0 and interfaceType interface is needed",
            "add - {networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}",
        );
    }
}

fn interfaces(at: &mut RuleContext<'_>) {
    let place = |each: &Value| (index(each, "networkCardIndex"), index(each, "deviceIndex"));
    let efa = |each: &Value| each.get("interfaceType") == Some(&json!("efa-only"));
    let (mut taken, mut with_efa) = (BTreeSet::new(), BTreeSet::new());
    for (n, each) in at.items() {
        let (card, device) = place(each);
        let again = !taken.insert((card, device));
        let second = efa(each) && !with_efa.insert(card);
        if again {
            at.fault(
                &format!("[{n}].deviceIndex"),
                &json!(device),
                format!(
                    "is duplicated on network card {card}: each pair of card and device must be unique"
                ),
                "give it the next free deviceIndex",
            );
        } else if second {
            at.fault(
                &format!("[{n}].interfaceType"),
                &json!("efa-only"),
                format!("is the second on network card {card}: one efa device a card is allowed"),
                "put it on another networkCardIndex, or make it an interface",
            );
        }
    }
}

fn tracking(at: &mut RuleContext<'_>) {
    let fields = ["tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout"];
    if !fields.iter().any(|field| at.has(field)) {
        let value = at.value;
        at.fault(
            "",
            value,
            format!(
                "sets nothing: at least one of {} is needed",
                fields.join(", ")
            ),
            "add udpTimeout: 30, or take connectionTracking out",
        );
    }
}
