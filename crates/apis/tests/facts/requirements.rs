//! Requirements, labels and taints against the answers of the reference implementation.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodSpec, Taint, Toleration};
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{
    Incompatible, Operator, Preferences, Requirement, Requirements, UnknownOperator,
    has_preferred_node_affinity,
};
use mortise_apis::{RequirementSpec, taints};
use serde_json::Value;

use super::facts::{check, read, same, table, text, texts};

/// A requirement as the cases write it: {key?, op, values?, min?}.
fn requirement(of: &Value) -> Result<Requirement, String> {
    let key = of["key"].as_str().unwrap_or("key");
    let operator: Operator = text(of, "op")?
        .parse()
        .map_err(|e: UnknownOperator| e.to_string())?;
    let min = of["min"]
        .as_u64()
        .map(u32::try_from)
        .transpose()
        .map_err(|e| e.to_string())?;
    Ok(Requirement::new(key, operator, texts(&of["values"])).with_min_values(min))
}

fn requirements(of: &Value) -> Result<Requirements, String> {
    of.as_array()
        .into_iter()
        .flatten()
        .map(requirement)
        .collect()
}

fn api(spec: &RequirementSpec) -> Value {
    let mut entry =
        serde_json::Map::from_iter([("op".to_owned(), Value::from(spec.operator.as_str()))]);
    if !spec.values().is_empty() {
        entry.insert("values".to_owned(), Value::from(spec.values().to_vec()));
    }
    if let Some(min) = spec.min_values {
        entry.insert("min".to_owned(), Value::from(min));
    }
    Value::from(entry)
}

fn same_requirement(ours: &Requirement, out: &Value) -> Result<(), String> {
    same("operator", ours.operator().as_str(), text(out, "operator")?)?;
    same(
        "values",
        ours.values().iter().map(ToString::to_string).collect(),
        texts(&out["values"]),
    )?;
    same("text", ours.to_string().as_str(), text(out, "string")?)?;
    same(
        "API",
        &Value::from_iter(ours.to_specs().iter().map(api)),
        &out["api"],
    )?;
    same(
        "minValues",
        ours.min_values().map(u64::from),
        out["min"].as_u64(),
    )?;
    if let Some(len) = out["len"].as_str() {
        same("len", ours.len().to_string().as_str(), len)?;
    }
    if let Some(any) = out["any"].as_str() {
        same("any", ours.any(7).unwrap_or_default().as_str(), any)?;
    }
    // What is written to the API must mean the same again, except for values excluded in addition to a bound.
    let again = mortise_apis::requirements::requirements_of(&ours.to_specs());
    let bounded = ours.at_least().is_some() || ours.at_most().is_some();
    if !bounded || ours.values().is_empty() {
        same("round trip", again.get(ours.key()), Some(ours))?;
    }
    Ok(())
}

fn same_has(ours: &Requirement, case: &Value) -> Result<(), String> {
    let admitted: Vec<String> = texts(&case["probes"])
        .into_iter()
        .filter(|probe| ours.has(probe))
        .collect();
    same("has", admitted, texts(&case["has"]))
}

#[test]
fn requirement_single() {
    check("requirement_single", |case| {
        let ours = requirement(&case["in"])?;
        same_requirement(&ours, &case["out"])?;
        same_has(&ours, case)
    });
}

#[test]
fn requirement_pair() {
    check("requirement_pair", |case| {
        let (a, b) = (requirement(&case["a"])?, requirement(&case["b"])?);
        same(
            "overlap",
            Some(a.has_intersection(&b)),
            case["hasIntersection"].as_bool(),
        )?;
        same_requirement(&a.intersection(&b), &case["out"])?;
        same("symmetry", a.intersection(&b), b.intersection(&a))
    });
}

#[test]
fn requirement_chain() {
    check("requirement_chain", |case| {
        let all = case["fold"]
            .as_array()
            .into_iter()
            .flatten()
            .map(requirement)
            .collect::<Result<Vec<_>, _>>()?;
        let folded = all
            .into_iter()
            .reduce(|a, b| a.intersection(&b))
            .ok_or("empty fold")?;
        same_requirement(&folded, &case["out"])?;
        same_has(&folded, case)
    });
}

fn same_verdict(what: &str, ours: Result<(), Incompatible>, theirs: &Value) -> Result<(), String> {
    let why = match (ours, theirs["ok"] == true) {
        (Ok(()), ok) => return same(what, true, ok),
        (Err(why), true) => return Err(format!("{what}: we say {why}, recorded ok")),
        (Err(why), false) => why,
    };
    let class = if why.undefined.is_empty() {
        "no-overlap"
    } else {
        "undefined-label"
    };
    same(what, class, text(theirs, "class")?)?;
    if !theirs["keys"].is_null() {
        let mut keys: Vec<String> = why
            .no_overlap
            .iter()
            .map(|clash| clash.key().to_owned())
            .collect();
        keys.sort();
        same("keys", keys, texts(&theirs["keys"]))?;
    }
    let ours = why.to_string();
    let alternatives = texts(&theirs["anyOfTexts"]);
    match theirs["text"].as_str() {
        Some(text) => same("text", ours.as_str(), text),
        None if alternatives.is_empty() || alternatives.contains(&ours) => Ok(()),
        None => Err(format!(
            "{what}: we say {ours:?}, recorded one of {alternatives:?}"
        )),
    }
}

#[test]
fn requirements_compat() {
    check("requirements_compat", |case| {
        let (a, b) = (requirements(&case["a"])?, requirements(&case["b"])?);
        for (what, known) in [
            ("compatible", WellKnown::none()),
            ("compatibleWellKnown", WellKnown::core()),
        ] {
            let verdict = a.compatible(&b, &known);
            same("short form", a.is_compatible(&b, &known), verdict.is_ok())?;
            same_verdict(what, verdict, &case[what])?;
        }
        let verdict = a.intersects(&b);
        same("short form", a.does_intersect(&b), verdict.is_ok())?;
        same_verdict("intersects", verdict, &case["intersects"])
    });
}

fn each(set: &Requirements) -> Vec<String> {
    let mut all: Vec<String> = set.iter().map(ToString::to_string).collect();
    all.sort();
    all
}

#[test]
fn requirements_string() {
    check("requirements_string", |case| {
        let set = requirements(&case["add"])?;
        same("each", each(&set), texts(&case["each"]))?;
        same("text", set.to_string().as_str(), text(case, "string")?)?;
        same(
            "has minValues",
            Some(set.has_min_values()),
            case["hasMinValues"].as_bool(),
        )
    });
}

#[test]
fn pod_requirements() {
    check("pod_requirements", |case| {
        let spec: PodSpec = read(&case["podSpec"])?;
        let of =
            |preferences| Requirements::from_pod(&spec, preferences).map_err(|e| e.to_string());
        let preferred = Some(has_preferred_node_affinity(&spec));
        same(
            "preferred",
            preferred,
            case["hasPreferredNodeAffinity"].as_bool(),
        )?;
        same("all", each(&of(Preferences::Respect)?), texts(&case["all"]))?;
        same(
            "strict",
            each(&of(Preferences::Ignore)?),
            texts(&case["strict"]),
        )
    });
}

#[test]
fn label_rules() {
    let known = WellKnown::core();
    check("label_rules", |case| {
        if let Some(expected) = case["nodeClassLabelKey"].as_str() {
            let key = labels::node_class_key(text(case, "group")?, text(case, "kind")?);
            return same("node class key", key.as_str(), expected);
        }
        let key = text(case, "key")?;
        if let Some(expected) = case["hasKnownValues"].as_bool() {
            let values = texts(&case["values"]);
            // Karpenter asks this of requirements on well-known keys; one without a table counts as having none.
            let any_known =
                |known: &[Arc<str>]| known.iter().any(|k| values.iter().any(|v| **v == **k));
            let ours = !known.contains(key) || known.known_values(key).is_some_and(any_known);
            return same("known values", ours, expected);
        }
        same(
            "restricted",
            Some(known.is_restricted(key)),
            case["restricted"].as_bool(),
        )?;
        same("domain", labels::domain(key), text(case, "domain")?)?;
        same(
            "normalized",
            labels::normalize(key),
            text(case, "normalized")?,
        )
    });
}

// === taints ===

#[test]
fn taint_toleration() {
    check("taint_toleration", |case| {
        let (taint, toleration): (Taint, Toleration) =
            (read(&case["taint"])?, read(&case["toleration"])?);
        same(
            "tolerated",
            Some(taints::tolerates(&toleration, &taint)),
            case["tolerated"].as_bool(),
        )
    });
}

#[test]
fn taints_multi() {
    check("taints_multi", |case| {
        if let Some(expected) = case["knownEphemeral"].as_bool() {
            return same(
                "ephemeral",
                taints::is_ephemeral(&read(&case["taint"])?),
                expected,
            );
        }
        let all: Vec<Taint> = read(&case["taints"])?;
        if let Some(more) = case.get("mergeWith") {
            let merged = taints::merge(&all, &read::<Vec<Taint>>(more)?);
            return same("merged", merged, read(&case["merged"])?);
        }
        let tolerations: Vec<Toleration> = read(&case["tolerations"])?;
        let errors: Vec<String> = taints::untolerated(&all, &tolerations)
            .map(taints::not_tolerated)
            .collect();
        same("ok", Some(errors.is_empty()), case["ok"].as_bool())?;
        same("errors", errors, texts(&case["errors"]))
    });
}

// === tables ===

#[test]
fn label_tables() {
    let recorded = table("label_tables");
    let names = |keys: Vec<&Arc<str>>| {
        keys.into_iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let core = WellKnown::core();
    assert_eq!(
        names(core.keys().collect()),
        texts(&recorded["wellKnownLabels"])
    );
    assert_eq!(
        names(core.domains().collect()),
        texts(&recorded["restrictedDomains"])
    );
    assert_eq!(texts(&recorded["restrictedLabels"]), [labels::HOSTNAME]);
    assert_eq!(
        recorded["nodePoolHashVersion"],
        labels::NODEPOOL_HASH_VERSION_VALUE
    );
    let aliases = recorded["normalizedLabels"].as_object().unwrap();
    assert!(
        aliases
            .iter()
            .all(|(alias, key)| labels::normalize(alias) == key),
        "{aliases:?}"
    );
    assert_eq!(
        read::<Taint>(&recorded["disruptedTaint"]),
        Ok(taints::disrupted())
    );
    assert_eq!(
        read::<Taint>(&recorded["unregisteredTaint"]),
        Ok(taints::unregistered())
    );
    let ephemeral: Vec<Taint> = read(&recorded["knownEphemeralTaints"]).unwrap();
    assert!(ephemeral.iter().all(taints::is_ephemeral));
    assert_eq!(
        texts(&recorded["knownEphemeralTaintKeyPrefixes"]),
        [labels::READINESS_TAINT_PREFIX]
    );
}
