//! Values and resources (and, in the module next to it, requirements, labels and taints) against the answers of the reference implementation.
//!
//! Every recorded case is compared; `MORTISE_FACTS_DIR` points the same comparison at another folder.

mod facts;
#[path = "facts/requirements.rs"]
mod requirements;

use std::collections::BTreeMap;

use facts::{check, read, same, text, texts};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use mortise_apis::resources::{Limits, Resources};
use mortise_apis::values::{
    BudgetSet, CompiledBudget, Format, GoDuration, NillableDuration, PriceChange, Quantity,
};
use serde_json::Value;

// === quantities ===

/// `12.340` as nano-units.
fn decimal_nanos(text: &str) -> Result<i128, String> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction:0<9}");
    digits.parse().map_err(|error| format!("{text}: {error}"))
}

#[test]
fn quantity() {
    check("quantity", |case| {
        let input = text(case, "in")?;
        let parsed = Quantity::parse(input);
        if case["error"] == true {
            return parsed.map_or(Ok(()), |q| Err(format!("accepted as {q}")));
        }
        let quantity = parsed.map_err(|error| error.to_string())?;
        let format = match quantity.format() {
            Format::DecimalSi => "DecimalSI",
            Format::BinarySi => "BinarySI",
            Format::DecimalExponent => "DecimalExponent",
        };
        same("format", format, text(case, "format")?)?;
        same(
            "sign",
            i64::from(quantity.signum()),
            case["sign"].as_i64().unwrap_or_default(),
        )?;
        same("zero", quantity.is_zero(), case["isZero"] == true)?;
        // Go wraps or gives 0 where 64 bits do not suffice; the README of the cases frees us from that.
        let overflow = case["overflow"] == true;
        let exact = decimal_nanos(text(case, "asDec")?);
        match &exact {
            Ok(exact) => {
                same("amount", quantity.nanos(), *exact)?;
                let float = case["float"].as_f64().ok_or("float")?;
                let ours = quantity.nanos() as f64 / 1e9;
                if (ours - float).abs() > float.abs() * 1e-12 {
                    return Err(format!("float: we say {ours}, recorded {float}"));
                }
            }
            // More than 128 bits of nano-units saturate.
            Err(_) if overflow => same("saturated", quantity.nanos().abs(), i128::MAX)?,
            Err(error) => return Err(error.clone()),
        }
        let huge = exact.map_or(true, |nanos| {
            nanos.abs() >= 1_000_i128 * 1_000_000_000_000_000_000 * 1_000_000_000
        });
        if !(overflow && huge && quantity.format() != Format::BinarySi) {
            same("text", quantity.to_string().as_str(), text(case, "string")?)?;
        }
        if !overflow {
            same(
                "value",
                quantity.value().to_string().as_str(),
                text(case, "value")?,
            )?;
            same(
                "milli",
                quantity.milli().to_string().as_str(),
                text(case, "milli")?,
            )?;
        }
        if let Some(int64) = case["int64"].as_str() {
            same("int64", quantity.value().to_string().as_str(), int64)?;
        }
        Ok(())
    });
}

#[test]
fn quantity_arith() {
    check("quantity_arith", |case| {
        let b = Quantity::parse(text(case, "b")?).map_err(|e| e.to_string())?;
        let Some(a) = case["a"].as_str() else {
            return same(
                "sum",
                (Quantity::ZERO + b).to_string().as_str(),
                text(case, "sum")?,
            );
        };
        let a = Quantity::parse(a).map_err(|e| e.to_string())?;
        same("sum", (&a + &b).to_string().as_str(), text(case, "sum")?)?;
        same(
            "difference",
            (&a - &b).to_string().as_str(),
            text(case, "diff")?,
        )?;
        same("order", Some(a.cmp(&b) as i64), case["cmp"].as_i64())?;
        same("equal", Some(a == b), case["equal"].as_bool())
    });
}

#[test]
fn quantity_json() {
    check("quantity_json", |case| {
        let parsed: Result<Quantity, String> = read(&case["json"]);
        if case["error"] == true {
            return parsed.map_or(Ok(()), |q| Err(format!("accepted as {q}")));
        }
        let quantity = parsed?;
        let again = serde_json::to_value(&quantity).map_err(|e| e.to_string())?;
        same("again", &again, &case["again"])?;
        same(
            "after adding zero",
            (quantity + Quantity::ZERO).to_string().as_str(),
            text(case, "afterAddingZero")?,
        )
    });
}

// === resources ===

type List = BTreeMap<String, ApiQuantity>;

/// A result of ours next to a recorded list; the latter may have zeros and more resources than we keep.
fn same_resources(what: &str, ours: &Resources, list: &List, theirs: &Value) -> Result<(), String> {
    let recorded = Resources::from_api(&read::<List>(theirs)?).map_err(|e| e.to_string())?;
    let mut ours = ours.clone();
    // Go's subtraction and minimum have only the keys of one side; ours have all.
    for name in list.keys() {
        if theirs.get(name).is_none() {
            ours.set(name, 0);
        }
    }
    same(what, &ours, &recorded)
}

#[test]
fn resource_lists() {
    check("resource_lists", |case| {
        let (a_list, b_list): (List, List) = (read(&case["a"])?, read(&case["b"])?);
        let a = Resources::from_api(&a_list).map_err(|e| e.to_string())?;
        let b = Resources::from_api(&b_list).map_err(|e| e.to_string())?;
        same_resources("merge", &a.add(&b), &List::new(), &case["merge"])?;
        same_resources("subtract", &a.sub(&b), &b_list, &case["subtract"])?;
        same("fits", Some(a.fits_in(&b)), case["aFitsInB"].as_bool())?;
        let all: List = a_list
            .iter()
            .chain(&b_list)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        same_resources("min", &a.min(&b), &all, &case["min"])?;
        // Where one side lacks a resource, Go takes the other side's amount, even a negative one.
        let only = |x: &List, y: &List, name: &str| x.contains_key(name) && !y.contains_key(name);
        let mut max = a.max(&b);
        for name in all.keys() {
            if only(&a_list, &b_list, name) {
                max.set(name, a.get(name));
            } else if only(&b_list, &a_list, name) {
                max.set(name, b.get(name));
            }
        }
        same_resources("max", &max, &List::new(), &case["max"])
    });
}

#[test]
fn limits_exceeded() {
    check("limits_exceeded", |case| {
        let limits =
            Limits::from_api(&read::<List>(&case["limits"])?).map_err(|e| e.to_string())?;
        let usage =
            Resources::from_api(&read::<List>(&case["usage"])?).map_err(|e| e.to_string())?;
        let listed = read::<List>(&case["usage"])?;
        let named = listed.keys().map(|name| (name.as_str(), usage.get(name)));
        same(
            "exceeded",
            Some(limits.exceeded_by(named).is_some()),
            case["exceeded"].as_bool(),
        )
    });
}

#[test]
fn price_adjust() {
    check("price_adjust", |case| {
        let change = PriceChange::parse(text(case, "change")?);
        if case["panic"] == true {
            return change.map_or(Ok(()), |change| Err(format!("accepted as {change}")));
        }
        let change = change.map_err(|e| e.to_string())?;
        same("text", PriceChange::parse(&change.to_string()), Ok(change))?;
        // Ours are whole millionths of a dollar, so the recorded float is rounded to one, half a millionth either way.
        let micros = |member: &str| case[member].as_f64().map(|dollars| dollars * 1e6);
        let price = micros("price").ok_or("price")?.round() as i64;
        let (ours, theirs) = (change.apply(price), micros("adjusted").ok_or("adjusted")?);
        if (ours as f64 - theirs).abs() > 0.5 + 1e-6 {
            return Err(format!("we say {ours} millionths, recorded {theirs}"));
        }
        Ok(())
    });
}

// === durations and budgets ===

#[test]
fn duration() {
    check("duration", |case| {
        let never = &case["unsetNillableJson"];
        if let Some(json) = never.as_str() {
            return same(
                "unset",
                serde_json::to_string(&NillableDuration::never())
                    .unwrap()
                    .as_str(),
                json,
            );
        }
        let Some(input) = case["in"].as_str() else {
            let nanos = text(case, "ns")?.parse().map_err(|_| "ns".to_owned())?;
            return same(
                "text",
                GoDuration::from_nanos(nanos).to_string().as_str(),
                text(case, "string")?,
            );
        };
        let json = Value::from(input);
        let (go, meta) = (&case["goDuration"], &case["metaDuration"]);
        let parsed = GoDuration::parse(input);
        if go["error"] == true {
            same("error", parsed.is_err(), true)?;
        } else {
            let duration = parsed.map_err(|e| e.to_string())?;
            same(
                "nanoseconds",
                duration.as_nanos().to_string().as_str(),
                text(go, "ns")?,
            )?;
            same("text", duration.to_string().as_str(), text(go, "string")?)?;
        }
        let parsed: Result<GoDuration, String> = read(&json);
        if meta["error"] == true {
            same("meta error", parsed.is_err(), true)?;
        } else {
            same(
                "meta",
                serde_json::to_string(&parsed?).unwrap().as_str(),
                text(meta, "json")?,
            )?;
        }
        let nillable = &case["nillable"];
        let parsed: Result<NillableDuration, String> = read(&json);
        if nillable["error"] == true {
            return same("nillable error", parsed.is_err(), true);
        }
        let parsed = parsed?;
        same(
            "nillable",
            serde_json::to_string(&parsed).unwrap().as_str(),
            text(nillable, "json")?,
        )?;
        same("never", parsed.is_never(), nillable["never"] == true)?;
        let nanos = parsed.duration().map(|d| d.as_nanos().to_string());
        same(
            "nillable nanoseconds",
            nanos.as_deref(),
            nillable["ns"].as_str(),
        )
    });
}

fn now(case: &Value) -> Result<Timestamp, String> {
    text(case, "now")?
        .parse()
        .map_err(|error: jiff::Error| error.to_string())
}

fn budget(of: &Value) -> Result<CompiledBudget, String> {
    let duration = of["duration"]
        .as_str()
        .map(GoDuration::parse)
        .transpose()
        .map_err(|e| e.to_string())?;
    let reasons = of.get("reasons").filter(|r| !r.is_null()).map(texts);
    let nodes = of["nodes"].as_str().unwrap_or("10%");
    Ok(CompiledBudget::new(
        nodes,
        of["schedule"].as_str(),
        duration,
        reasons.as_ref().map(|r| r.iter().map(String::as_str)),
    ))
}

#[test]
fn budget_active() {
    check("budget_active", |case| {
        match (budget(case)?.is_active(now(case)?), case["error"] == true) {
            (Ok(active), false) => same("active", Some(active), case["active"].as_bool()),
            (Ok(_), true) => Err("no error".to_owned()),
            (Err(_), true) => Ok(()),
            (Err(error), false) => Err(error.to_string()),
        }
    });
}

#[test]
fn budget_allowed() {
    /// The largest 32-bit number stands for no limit.
    const UNLIMITED: i64 = i32::MAX as i64;
    check("budget_allowed", |case| {
        let budgets: BudgetSet = case["budgets"]
            .as_array()
            .into_iter()
            .flatten()
            .map(budget)
            .collect::<Result<_, _>>()?;
        let nodes = case["nodes"].as_i64().ok_or("nodes")?;
        let verdict = budgets.evaluate(now(case)?, nodes, text(case, "reason")?);
        let number = |allowed: Option<i64>| Some(allowed.unwrap_or(UNLIMITED).min(UNLIMITED));
        same(
            "error",
            Some(!verdict.errors.is_empty()),
            case["error"].as_bool(),
        )?;
        same("allowed", number(verdict.allowed), case["allowed"].as_i64())?;
        same(
            "allowed or zero",
            number(verdict.allowed_or_zero()),
            case["allowedOrZero"].as_i64(),
        )
    });
}
