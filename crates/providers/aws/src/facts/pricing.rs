//! Recorded updates and look-ups of prices.
//!
//! A look-up does not say what was known before it: that is the last recorded state of its session. Where the file has a gap between
//! the two, an update may be in it, and the built-in tables of several regions are candidates too.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use jiff::civil::Date;
use mortise_apis::values::money::MicroUsd;
use mortise_aws_catalog::{Currency, PriceTable};
use serde_json::Value;

use super::api::{self, REGION};
use super::replay::{Case, Difference, Replay, load, score};
use super::{cases, read};
use crate::failure::FailureKind;
use crate::offerings::on_demand_prices::OnDemandPrices;
use crate::offerings::price_list::{AmountByType, PriceError};
use crate::offerings::prices::{PriceView, Prices};
use crate::offerings::spot_prices::SpotByType;
use crate::sdk::AwsClients;

/// Built-in tables that the look-ups were made on.
static BUILT_IN: LazyLock<[Known; 4]> = LazyLock::new(|| {
    let regions = ["us-east-1", "us-gov-east-1", "us-gov-west-1", "cn-north-1"];
    regions.map(|region| Known {
        on_demand: OnDemandPrices::at_start(region, None)
            .unwrap()
            .all()
            .clone(),
        spot: None,
    })
});

/// Clients for look-ups, which call nothing.
static IDLE: LazyLock<Arc<AwsClients>> = LazyLock::new(|| {
    let replay = Arc::new(Replay::of(&Case {
        calls: Vec::new(),
        ..load("pricing.jsonl").swap_remove(0)
    }));
    Arc::new(api::clients(replay))
});

/// Prices at a time, as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    on_demand: AmountByType,
    /// `None` before the first update.
    spot: Option<SpotByType>,
}

/// What is built in, before differences.
static BASE: LazyLock<AmountByType> = LazyLock::new(|| {
    let base: Value = serde_json::from_str(&read("table_pricing_base.json")).unwrap();
    amounts(&base["onDemand"]).unwrap()
});

fn amount(value: &Value) -> Option<MicroUsd> {
    MicroUsd::from_dollars(value.as_f64()?)
}

/// A recorded table; `None` when only its size is recorded.
fn amounts(table: &Value) -> Option<AmountByType> {
    let entries = table.as_object()?.iter();
    entries
        .map(|(name, value)| Some((Arc::from(&**name), amount(value)?)))
        .collect()
}

/// The prices that a `pricing` field describes; `None` when it only counts them.
fn known(pricing: &Value) -> Option<Known> {
    let given = |field: &str| pricing.get(field).filter(|value| !value.is_null());
    let mut on_demand = match given("onDemandAll") {
        Some(all) => amounts(all)?,
        None => BASE.clone(),
    };
    if let Some(set) = given("onDemandSet") {
        on_demand.extend(amounts(set)?);
    }
    if let Some(removed) = given("onDemandRemoved") {
        for name in removed.as_array()? {
            on_demand.remove(name.as_str()?);
        }
    }
    let mut spot = SpotByType::new();
    for field in ["spotAll", "spotSet"] {
        let Some(table) = given(field) else { continue };
        for (name, each) in table.as_object()? {
            let zones = amounts(&each["zones"])?;
            if !zones.is_empty() {
                spot.insert(Arc::from(&**name), zones);
            }
        }
    }
    let updated = pricing["spotPricingUpdated"] == true;
    Some(Known {
        on_demand,
        spot: updated.then_some(spot),
    })
}

/// Where a case is in its file.
#[derive(Debug)]
struct Position {
    suite: String,
    session: String,
    step: u64,
    /// The prices before it, and after it.
    states: [Option<Known>; 2],
}

static POSITIONS: LazyLock<BTreeMap<String, Position>> = LazyLock::new(|| {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = cases("pricing.jsonl").into_iter().map(|(_, case)| {
        let before = case["given"].get("pricing").and_then(known);
        let after = case["expect"]["after"].get("pricing").and_then(known);
        let position = Position {
            suite: text(&case["suite"]),
            session: text(&case["session"]),
            step: case["step"].as_u64().unwrap(),
            states: [before.clone(), after.or(before)],
        };
        (text(&case["id"]), position)
    });
    all.collect()
});

/// The states that a look-up may have read, the likeliest first; and whether the first is the only one.
fn candidates(case: &Case) -> (Vec<&'static Known>, bool) {
    let here = &POSITIONS[&case.id];
    let mut earlier: Vec<&Position> = POSITIONS
        .values()
        .filter(|each| each.suite == here.suite && each.step < here.step)
        .collect();
    earlier.sort_by_key(|each| std::cmp::Reverse(each.step));
    let with_state = earlier.iter().find(|each| each.states[1].is_some());
    let is_certain = with_state.is_some_and(|last| {
        let gap = here.step - last.step - 1;
        let between = earlier.iter().filter(|each| each.step > last.step);
        last.session == here.session && between.count() as u64 == gap
    });
    let recorded = with_state.and_then(|last| last.states[1].as_ref());
    (recorded.into_iter().chain(&*BUILT_IN).collect(), is_certain)
}

/// The provider's prices with these in it, answered by the recording.
fn prices(known: Known, clients: Arc<AwsClients>, isolated: bool) -> Prices {
    let table = PriceTable {
        region: Arc::from(REGION),
        currency: Currency::of_region(REGION),
        as_of: Date::constant(2026, 7, 20),
        by_type: known.on_demand,
    };
    let prices = Prices::with(clients, isolated, OnDemandPrices::embedded(table));
    match known.spot {
        Some(spot) => prices.with_spot(spot),
        None => prices,
    }
}

fn now_known(view: &PriceView) -> Known {
    Known {
        on_demand: view.all_on_demand().clone(),
        spot: view.all_spot().cloned(),
    }
}

fn update(case: &Case) -> Result<(), Difference> {
    let Some(before) = known(&case.given["pricing"]) else {
        return Err("the state before is not recorded".into());
    };
    // The region is not recorded. An update that calls nothing was made where there is no price list.
    let isolated = case.given["pricing"]["isolatedVPC"] == true || case.calls.is_empty();
    let replay = Arc::new(Replay::of(case));
    let old_spot = before.spot.clone().unwrap_or_default();
    let clients = Arc::new(api::clients(Arc::clone(&replay) as Arc<_>));
    let prices = prices(before.clone(), clients, isolated);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let results: Vec<Result<(), PriceError>> = runtime.block_on(async {
        match &*case.op {
            "pricing.UpdateOnDemandPricing" => vec![prices.update_on_demand().await],
            "pricing.UpdateSpotPricing" => vec![prices.update_spot().await],
            _ => vec![prices.update_on_demand().await, prices.update_spot().await],
        }
    });
    replay.settled()?;
    let errors: Vec<&PriceError> = results
        .iter()
        .filter_map(|each| each.as_ref().err())
        .collect();
    same_errors(&errors, case.expect.get("error"))?;
    let after = match case.expect["after"].get("pricing") {
        Some(after) => known(after).ok_or("the state after is not recorded")?,
        None => before,
    };
    let ours = now_known(&prices.view());
    if ours == after {
        return Ok(());
    }
    if ours == without_free_spot(&after) {
        return Err(Difference::Meant(
            "a spot price of zero is no price: nothing is free",
        ));
    }
    if ours == without_gone_spot(&after, &ours, &old_spot) {
        return Err(Difference::Meant(
            "a zone that the newest spot prices do not name sells no spot instance of the type",
        ));
    }
    Err(format!("ours {:?}, recorded {:?}", short(&ours), short(&after)).into())
}

/// What differs from the built-in prices.
fn short(known: &Known) -> (AmountByType, Option<&SpotByType>) {
    let own = known.on_demand.iter();
    let own = own.filter(|(name, amount)| BASE.get(*name) != Some(*amount));
    let own = own.map(|(name, amount)| (Arc::clone(name), *amount));
    (own.collect(), known.spot.as_ref())
}

/// The same errors: texts of our own kind as they are, others by the service's code.
fn same_errors(ours: &[&PriceError], recorded: Option<&Value>) -> Result<(), String> {
    let Some(recorded) = recorded else {
        return match ours.first() {
            None => Ok(()),
            Some(error) => Err(format!("{error}; no error is recorded")),
        };
    };
    let message = recorded["message"].as_str().unwrap_or_default();
    let code = recorded["aws"]["code"].as_str().unwrap_or_default();
    for error in ours {
        let same = match error {
            PriceError::Call(failure) if code.is_empty() => {
                failure.kind == FailureKind::Unreachable
            }
            PriceError::Call(failure) => failure.code == code,
            other => message.contains(&other.to_string()),
        };
        if !same {
            return Err(format!("ours {error}, recorded {recorded}"));
        }
    }
    if ours.is_empty() {
        return Err(format!("no error; recorded {recorded}"));
    }
    Ok(())
}

/// The same without spot prices of zero.
fn without_free_spot(known: &Known) -> Known {
    let mut known = known.clone();
    for zones in known.spot.iter_mut().flat_map(SpotByType::values_mut) {
        zones.retain(|_, price| price.0 > 0);
    }
    let spot = known.spot.iter_mut();
    spot.for_each(|spot| spot.retain(|_, zones| !zones.is_empty()));
    known
}

/// The same without spot prices that are only those of before.
fn without_gone_spot(known: &Known, ours: &Known, before: &SpotByType) -> Known {
    let mut known = known.clone();
    let find = |all: &SpotByType, name: &str, zone: &str| Some(*all.get(name)?.get(zone)?);
    for spot in known.spot.iter_mut() {
        for (name, zones) in spot.iter_mut() {
            zones.retain(|zone, price| {
                let is_ours = ours.spot.as_ref();
                let is_ours = is_ours.is_some_and(|ours| find(ours, name, zone).is_some());
                is_ours || find(before, name, zone) != Some(*price)
            });
        }
        spot.retain(|_, zones| !zones.is_empty());
    }
    known
}

/// What the operation answers on these prices.
fn look_up(case: &Case, known: &Known) -> Value {
    let view = prices(known.clone(), Arc::clone(&IDLE), false).view();
    let args = &case.given["args"];
    let name = args["instanceType"].as_str().unwrap_or_default();
    let price = match &*case.op {
        "pricing.InstanceTypes" => {
            return view
                .all_on_demand()
                .keys()
                .map(|name| Value::from(&**name))
                .collect();
        }
        "pricing.OnDemandPrice" => view.on_demand(name),
        _ => view.spot(name, args["zone"].as_str().unwrap_or_default()),
    };
    Value::from(vec![
        Value::from(price.map_or(0, |price| price.0)),
        Value::from(price.is_some()),
    ])
}

/// The recorded answer in our units.
fn recorded(case: &Case) -> Value {
    let result = &case.expect["result"];
    match result.as_array().map(Vec::as_slice) {
        Some([price, Value::Bool(is_known)]) => Value::from(vec![
            Value::from(amount(price).unwrap().0),
            Value::from(*is_known),
        ]),
        Some(names) => {
            let mut names = names.to_vec();
            names.sort_by_key(Value::to_string);
            Value::from(names)
        }
        None => result.clone(),
    }
}

fn read_prices(case: &Case) -> Result<(), Difference> {
    let wanted = recorded(case);
    let (states, is_certain) = candidates(case);
    let mut answers = states.into_iter().map(|known| look_up(case, known));
    if is_certain {
        let ours = answers.next();
        return match ours {
            Some(ours) if ours == wanted => Ok(()),
            ours => Err(format!("ours {ours:?}, recorded {wanted}").into()),
        };
    }
    if answers.any(|ours| ours == wanted) {
        return Ok(());
    }
    Err(Difference::Meant(
        "the update whose prices it reads is not in the file",
    ))
}

#[test]
fn prices_are_read_and_kept_as_recorded() {
    score("pricing.jsonl", |case| match &*case.op {
        "pricing.OnDemandPrice" | "pricing.SpotPrice" | "pricing.InstanceTypes" => {
            read_prices(case)
        }
        _ => update(case),
    });
}

/// The recording started in us-west-2 with the prices of us-east-1; asked to assume those, so do we.
#[test]
fn assumed_prices_are_those_that_the_recording_started_with() {
    let assumed = OnDemandPrices::at_start(REGION, Some("us-east-1")).unwrap();
    assert_eq!(assumed.all(), &*BASE);
}
