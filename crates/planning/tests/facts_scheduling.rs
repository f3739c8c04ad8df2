//! Whole scheduling passes against those of the reference implementation.
//!
//! Each record is a cluster, built here through the index, and the reference's plan for it. A pass agrees when pods are
//! divided in the same way between existing nodes, new nodes and errors, and each new node has the same pool,
//! requirements, requests and instance types. Where the reference gives several answers, any of them will do, and so does
//! one with the same numbers and no higher price.
//!
//! The comparison is with the pass as Karpenter fills nodes (`repack: 0`). Each record is then solved once more with
//! repacking, which must place the same pods at no higher price, and on more nodes only at a lower one.
//!
//! The table printed is the score per tag. Floors keep it from getting worse unseen. A plan that is better, or differs for a
//! reason that has a name ([`Known`]), is counted apart.
//!
//! `MORTISE_FACTS_DIR` points the same comparison at another folder;
//! `MORTISE_FACTS_SHOW` names a tag or an id whose differences are shown.

#![expect(clippy::print_stdout, reason = "the table is the output of the test")]

use std::collections::{BTreeMap, BTreeSet};

use crate::recorded::{Catalogs, World, lines, requirements, resources, tags, world};
use mortise_apis::labels;
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_planning::scheduling::{
    LaunchPlan, PlannedClaim, REPACK, SolveOptions, SolveReport, solve,
};
use serde_json::Value;

/// A plan reduced to what is compared.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone)]
struct Reduced {
    claims: Vec<Claim>,
    existing: BTreeMap<String, String>,
    errors: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone)]
struct Claim {
    pods: Vec<String>,
    pool: String,
    requirements: String,
    requests: String,
    types: Vec<String>,
}

fn claim_requirements(of: &Requirements, class_names: &BTreeMap<String, String>) -> String {
    let mut all = of.clone();
    for simulated in [labels::REGISTERED, labels::INITIALIZED, labels::HOSTNAME] {
        all.remove(simulated);
    }
    let renamed: Vec<Requirement> = all
        .iter()
        .filter_map(|each| {
            let own = each
                .values()
                .first()
                .and_then(|value| class_names.get(&**value))?;
            Some(Requirement::new(each.key(), Operator::In, [own.as_str()]))
        })
        .collect();
    renamed.into_iter().for_each(|each| all.replace(each));
    // The text of a requirement shows five values at most: print all of them.
    let text = |each: &Requirement| {
        let bounds = [
            each.at_least(),
            each.at_most(),
            each.min_values().map(i64::from),
        ];
        format!(
            "{} {} {:?} {bounds:?}",
            each.key(),
            each.operator(),
            each.values()
        )
    };
    all.iter().map(text).collect::<Vec<_>>().join("; ")
}

/// Requests as text. A fraction of a byte is rounded up per container here and once per sum there, so the last digits of
/// memory do not count.
fn rounded(requests: &Resources) -> String {
    let mut requests = requests.clone();
    requests.memory >>= 7;
    requests.to_string()
}

fn ours(world: &World, plan: &LaunchPlan, report: &SolveReport, cut: bool) -> Reduced {
    let claim = |claim: &PlannedClaim| {
        let mut pods: Vec<String> = claim.pods.iter().map(|pod| pod.key.to_string()).collect();
        pods.sort();
        let mut types: Vec<String> = claim
            .instance_types
            .iter()
            .map(ToString::to_string)
            .collect();
        types.sort();
        Claim {
            pods,
            pool: claim.pool.to_string(),
            requirements: claim_requirements(&claim.requirements, &world.class_names),
            requests: rounded(&claim.requests),
            types: if cut { Vec::new() } else { types },
        }
    };
    let mut claims: Vec<Claim> = plan.claims.iter().map(claim).collect();
    claims.sort();
    let node = |key: &str| {
        world
            .snapshot
            .nodes
            .get(key)
            .map(|node| node.name().to_owned())
            .unwrap_or_default()
    };
    let placed = plan
        .placements
        .iter()
        .map(|each| (each.pod.key.to_string(), node(&each.node)));
    let errors = report
        .unplaced
        .iter()
        .flat_map(|each| &each.pods)
        .map(|(pod, _)| pod.to_string());
    Reduced {
        claims,
        existing: placed.collect(),
        errors: errors.collect(),
    }
}

fn theirs(answer: &Value, cut: bool) -> Result<Reduced, String> {
    let texts = |value: &Value| -> Vec<String> {
        let mut all: Vec<String> = value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        all.sort();
        all
    };
    let mut claims = Vec::new();
    for each in answer["newNodeClaims"].as_array().into_iter().flatten() {
        claims.push(Claim {
            pods: texts(&each["pods"]),
            pool: each["nodePool"].as_str().ok_or("nodePool")?.to_owned(),
            requirements: claim_requirements(
                &requirements(&each["requirements"])?,
                &BTreeMap::new(),
            ),
            requests: rounded(&resources(&each["requests"])?),
            types: if cut {
                Vec::new()
            } else {
                texts(&each["instanceTypes"])
            },
        });
    }
    claims.sort();
    let existing = answer["existingNodes"].as_object().into_iter().flatten();
    let errors = answer["podErrors"].as_object().into_iter().flatten();
    Ok(Reduced {
        claims,
        existing: existing
            .map(|(pod, node)| (pod.clone(), node.as_str().unwrap_or_default().to_owned()))
            .collect(),
        errors: errors.map(|(pod, _)| pod.clone()).collect(),
    })
}

/// How well a pass agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agreement {
    /// The same plan.
    Same,
    /// The reference has several plans, and ours is as good.
    AsGood,
    /// Fewer pods without a place, or as many on no more nodes at a lower price.
    Better,
    /// Different for a reason that has a name.
    Known,
    /// Pods are divided in the same way; requirements, requests or types differ.
    SamePlaces,
    /// Another plan.
    Different,
}

/// Why a plan may differ from the reference's, as far as the record itself shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    /// The reference makes more nodes of a pool than its `nodes` limit allows.
    NodeLimit,
    /// The reference counts a spread constraint again, without the pods of the same pass, for a pod that gave up its dislike
    /// of `PreferNoSchedule` taints.
    SoftTaintRecount,
    /// The catalogue has several types of one name, which cannot be told apart in a claim.
    SameNameTypes,
    /// With more than twelve new nodes the order among equals is that of an unstable sort.
    UnstableSort,
    /// Claims of ephemeral volumes were renamed while recording, so that the pod's claim is not there.
    RenamedClaim,
    /// A spread constraint or pod affinity picks another of several equal domains: the plan costs as much and places as many,
    /// or divides pods in the same way.
    EqualDomains,
    /// The reference looks at one of the emptiest domains only, and skips a pod for which limits leave no type there. We go on
    /// to the next domain; then what is left of the limits goes to that pod.
    NextDomain,
}

fn known(record: &Value, own: &Reduced, answers: &[&Value], price: i64) -> Option<Known> {
    let claims = || {
        record["answer"]["newNodeClaims"]
            .as_array()
            .into_iter()
            .flatten()
    };
    let limits = record["derived"]["remainingLimits"].as_object();
    let over = limits.into_iter().flatten().any(|(pool, left)| {
        let made = claims()
            .filter(|claim| claim["nodePool"] == *pool.as_str())
            .count();
        let left = left["nodes"]
            .as_str()
            .and_then(|left| left.parse::<usize>().ok());
        left.is_some_and(|left| made > left)
    });
    if over {
        return Some(Known::NodeLimit);
    }
    let has = |feature: &str| {
        let all = record["features"].as_array().into_iter().flatten();
        all.into_iter().any(|each| each == feature)
    };
    let relaxed = record["answer"]["relaxed"].as_object();
    let tolerated = relaxed.into_iter().flatten();
    let mut tolerated = tolerated.filter(|(_, what)| what["preferNoScheduleTolerated"] == true);
    if has("topologySpread") && tolerated.next().is_some() {
        return Some(Known::SoftTaintRecount);
    }
    let mut twice = claims().map(|claim| {
        let types = claim["instanceTypes"].as_array();
        let names: BTreeSet<_> = types.into_iter().flatten().map(Value::to_string).collect();
        types.map_or(0, Vec::len) > names.len()
    });
    if twice.any(|twice| twice) {
        return Some(Known::SameNameTypes);
    }
    if claims().count() > 12 && is_as_good(own, price, &record["answer"]) {
        return Some(Known::UnstableSort);
    }
    let pods = record["objects"]["pods"].as_array().into_iter().flatten();
    let mut ephemeral = pods.flat_map(|pod| {
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let own = volumes.filter(|volume| volume["ephemeral"].is_object());
        own.map(move |volume| (&pod["metadata"]["name"], &volume["name"]))
    });
    let missing = |(pod, volume): (&Value, &Value)| {
        let name = format!(
            "{}-{}",
            pod.as_str().unwrap_or_default(),
            volume.as_str().unwrap_or_default()
        );
        let mut all = record["objects"]["persistentVolumeClaims"]
            .as_array()
            .into_iter()
            .flatten();
        all.all(|claim| claim["metadata"]["name"] != *name)
    };
    if !record["objects"]["persistentVolumeClaims"].is_null() && ephemeral.any(missing) {
        return Some(Known::RenamedClaim);
    }
    let same_places =
        |answer: &&Value| theirs(answer, true).is_ok_and(|want| partition(own) == partition(&want));
    let picks = has("topologySpread") || has("podAffinity");
    if picks && record["stable"] != true && answers.iter().any(same_places) {
        return Some(Known::EqualDomains);
    }
    if has("topologySpread") && answers.iter().any(|answer| is_as_good(own, price, answer)) {
        return Some(Known::EqualDomains);
    }
    let refused = record["answer"]["podErrors"].as_object();
    let mut for_limits = refused
        .into_iter()
        .flatten()
        .filter(|(_, why)| why["class"] == "limits");
    if has("topologySpread") && for_limits.any(|(pod, _)| !own.errors.contains(pod)) {
        return Some(Known::NextDomain);
    }
    None
}

/// Fewer pods without a place than in every answer of the reference, or as many at a lower price on no more nodes.
fn is_better(own: &Reduced, price: i64, answers: &[&Value]) -> bool {
    answers.iter().all(|answer| {
        let summary = &answer["summary"];
        let number = |key: &str| {
            let number = summary[key].as_u64().unwrap_or(0);
            usize::try_from(number).unwrap_or(usize::MAX)
        };
        let theirs = (summary["sumOfCheapestPrices"].as_f64().unwrap_or(0.0) * 1e6) as i64;
        let slack = 1 + i64::try_from(own.claims.len()).unwrap_or(0);
        own.errors.len() < number("podErrors")
            || (own.errors.len() == number("podErrors")
                && own.claims.len() <= number("newNodeClaims")
                && price + slack < theirs)
    })
}

/// Repacking places the same pods at no higher price, and on more nodes only at a lower one.
fn check_repacked(world: &World, plan: &LaunchPlan, report: &SolveReport) -> Result<bool, String> {
    let options = SolveOptions {
        repack: REPACK,
        ..world.options.clone()
    };
    let (packed, packed_report) = solve(world.now, &world.snapshot, &options, &|| false);
    let pods = |plan: &LaunchPlan| -> BTreeSet<String> {
        let pods = plan.claims.iter().flat_map(|claim| &claim.pods);
        pods.map(|pod| pod.key.to_string()).collect()
    };
    if pods(plan) != pods(&packed) || report.unplaced.len() != packed_report.unplaced.len() {
        return Err("repacking lost pods".to_owned());
    }
    if plan.placements != packed.placements {
        return Err("repacking moved pods of existing nodes".to_owned());
    }
    match (plan.price(), packed.price()) {
        (Some(before), Some(after)) if after > before => Err(format!(
            "repacking costs more: {after:?} instead of {before:?}"
        )),
        (before, after) if after == before && packed.claims.len() > plan.claims.len() => {
            Err("repacking needs more nodes".to_owned())
        }
        (before, after) => Ok(after < before),
    }
}

/// Claims by pool and pods, pods on existing nodes, pods without a place.
type Partition<'a> = (
    BTreeSet<(&'a str, &'a [String])>,
    &'a BTreeMap<String, String>,
    &'a BTreeSet<String>,
);

fn partition(of: &Reduced) -> Partition<'_> {
    (
        of.claims
            .iter()
            .map(|claim| (claim.pool.as_str(), claim.pods.as_slice()))
            .collect(),
        &of.existing,
        &of.errors,
    )
}

/// Same numbers, and not more expensive by more than rounding to millionths explains.
fn is_as_good(own: &Reduced, price: i64, answer: &Value) -> bool {
    let summary = &answer["summary"];
    let number = |key: &str, own: usize| summary[key].as_u64() == u64::try_from(own).ok();
    let theirs = (summary["sumOfCheapestPrices"].as_f64().unwrap_or(0.0) * 1e6) as i64;
    number("newNodeClaims", own.claims.len())
        && number("podErrors", own.errors.len())
        && number("podsOnExisting", own.existing.len())
        && price <= theirs + 1 + i64::try_from(own.claims.len()).unwrap_or(0)
}

/// How many messages of pods that both refuse are the same, and of how many. Placeholders of host names are numbered
/// differently, and the counts of host names are listed in another order.
fn texts(record: &Value, report: &SolveReport) -> (usize, usize) {
    let plain = |text: &str| -> String {
        let no_counts = text.split("(counts = ").enumerate().map(|(at, part)| {
            match part.split_once("podDomains") {
                Some((_, rest)) if at > 0 => rest,
                _ => part,
            }
        });
        let no_counts: String = no_counts.collect();
        let no_number = no_counts.split("hostname-placeholder-");
        no_number
            .map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()))
            .collect()
    };
    let sentences =
        |text: &str| -> BTreeSet<String> { plain(text).split("; ").map(str::to_owned).collect() };
    let show = std::env::var("MORTISE_FACTS_SHOW").is_ok_and(|show| show == "texts");
    let (mut same, mut all) = (0, 0);
    for each in &report.unplaced {
        for (pod, _) in &each.pods {
            let Some(theirs) = record["answer"]["podErrors"][pod.to_string()]["error"].as_str()
            else {
                continue;
            };
            let equal = sentences(theirs) == sentences(&each.message);
            (same, all) = (same + usize::from(equal), all + 1);
            if show && !equal {
                println!(
                    "{} {pod}\n  ours   {}\n  theirs {theirs}",
                    record["id"], each.message
                );
            }
        }
    }
    (same, all)
}

fn compare(
    record: &Value,
    catalogs: &mut Catalogs,
    show: bool,
    messages: &mut (usize, usize),
    named: &mut BTreeMap<Known, usize>,
    cheaper: &mut usize,
) -> Result<Agreement, String> {
    let world = world(record, catalogs)?;
    let (plan, report) = solve(world.now, &world.snapshot, &world.options, &|| false);
    *cheaper += usize::from(check_repacked(&world, &plan, &report)?);
    let cut = record["answer"]["cutToMaxInstanceTypes"] == true
        || record["answer"]["newNodeClaims"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|claim| !claim["cutToMaxInstanceTypes"].is_null());
    if record["answer"]["noNodePools"] == true {
        // Every pod stays pending.
        let nothing = plan.claims.is_empty();
        return Ok(if nothing {
            Agreement::Same
        } else {
            Agreement::Different
        });
    }
    let (same, all) = texts(record, &report);
    (messages.0, messages.1) = (messages.0 + same, messages.1 + all);
    let own = ours(&world, &plan, &report, cut);
    let answers: Vec<&Value> = std::iter::once(&record["answer"])
        .chain(record["otherAnswers"].as_array().into_iter().flatten())
        .collect();
    let mut best = Agreement::Different;
    for answer in &answers {
        let want = theirs(answer, cut)?;
        if own == want {
            return Ok(Agreement::Same);
        }
        if partition(&own) == partition(&want) {
            best = Agreement::SamePlaces;
        }
    }
    let price = plan.price().map_or(0, |price| price.0);
    if record["stable"] != true && answers.iter().any(|answer| is_as_good(&own, price, answer)) {
        best = Agreement::AsGood;
    } else if is_better(&own, price, &answers) {
        best = Agreement::Better;
    } else if let Some(why) = known(record, &own, &answers, price) {
        *named.entry(why).or_default() += 1;
        best = Agreement::Known;
    }
    if show && best != Agreement::AsGood {
        println!(
            "--- {} {:?} {best:?} stable={}",
            record["id"], record["features"], record["stable"]
        );
        let want = theirs(answers[0], cut)?;
        let differing = |one: &Reduced, other: &Reduced, who: &str| {
            for claim in one
                .claims
                .iter()
                .filter(|claim| !other.claims.contains(claim))
            {
                println!("{who}: {claim:?}");
            }
            for (pod, node) in one
                .existing
                .iter()
                .filter(|(pod, node)| other.existing.get(*pod) != Some(node))
            {
                println!("{who}: {pod} on {node}");
            }
            println!(
                "{who}: errors {:?}",
                one.errors.difference(&other.errors).collect::<Vec<_>>()
            );
        };
        differing(&own, &want, "ours  ");
        differing(&want, &own, "theirs");
        println!("their errors {:#}", record["answer"]["podErrors"]);
        for each in &report.unplaced {
            println!("our error {:?}: {}", each.pods, each.message);
        }
        println!(
            "ignored {:?}, theirs {}",
            report.ignored, record["batch"]["ignored"]
        );
    }
    Ok(best)
}

#[test]
fn scheduling_passes() {
    let mut catalogs = Catalogs::read();
    let show = std::env::var("MORTISE_FACTS_SHOW").unwrap_or_default();
    let (mut total, mut agree) = (0, 0);
    let mut failed = Vec::new();
    let mut messages = (0, 0);
    let (mut named, mut cheaper) = (BTreeMap::new(), 0);
    println!(
        "{:<20} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}",
        "tag", "records", "same", "as good", "better", "known", "places", "differ"
    );
    for tag in tags() {
        let records = lines(&tag);
        let mut count = [0_usize; 6];
        for record in &records {
            let id = record["id"].as_str().unwrap_or_default();
            let agreement = compare(
                record,
                &mut catalogs,
                show == tag || show == id,
                &mut messages,
                &mut named,
                &mut cheaper,
            )
            .unwrap_or_else(|error| panic!("{tag} {id}: {error}"));
            count[agreement as usize] += 1;
            if matches!(agreement, Agreement::SamePlaces | Agreement::Different) {
                failed.push(format!("{tag} {id}"));
            }
        }
        println!(
            "{tag:<20} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}",
            records.len(),
            count[0],
            count[1],
            count[2],
            count[3],
            count[4],
            count[5]
        );
        total += records.len();
        let good: usize = count.iter().take(4).sum();
        agree += good;
    }
    println!(
        "messages of refused pods: {} of {} the same",
        messages.0, messages.1
    );
    println!("different for a named reason: {named:?}");
    println!("cheaper after repacking: {cheaper} of {total}, more expensive none");
    println!("facts/scheduling: {agree} passed, {} failed", total - agree);
    assert!(total > 0, "no records");
    assert!(failed.is_empty(), "other plans: {failed:?}");
}
