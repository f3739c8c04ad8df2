//! Evaluates expressions for one device.

use std::borrow::Cow;
use std::sync::Arc;

use super::parse::{CelOperator, Expr};
use super::value::{CelValue, Version};
use mortise_apis::k8s::devices::Device;
use mortise_apis::values::Quantity;

/// A device, and the variables that are bound.
pub(super) struct Scope<'d> {
    driver: &'d str,
    device: &'d Device,
    bound: Vec<(Arc<str>, CelValue<'d>)>,
}

/// A name with its domain; one without is of the driver's domain.
fn split<'n>(name: &'n str, driver: &'n str) -> (&'n str, &'n str) {
    name.split_once('/').unwrap_or((driver, name))
}

fn quantity(text: &str) -> Result<Quantity, String> {
    Quantity::parse(text).map_err(|_| format!("{text:?} is not a quantity"))
}

impl<'d> Scope<'d> {
    /// Nothing is bound.
    pub(super) const fn new(driver: &'d str, device: &'d Device) -> Self {
        Self {
            driver,
            device,
            bound: Vec::new(),
        }
    }

    /// Whether an expression is true.
    pub(super) fn truth(&mut self, of: &Expr) -> Result<bool, String> {
        match self.value(of)? {
            CelValue::Bool(truth) => Ok(truth),
            other => Err(format!("the result is {}, not yes or no", other.kind())),
        }
    }

    fn value(&mut self, of: &Expr) -> Result<CelValue<'d>, String> {
        match of {
            Expr::Null => Ok(CelValue::Null),
            Expr::Bool(truth) => Ok(CelValue::Bool(*truth)),
            Expr::Int(number) => Ok(CelValue::Int(*number)),
            Expr::Text(text) => Ok(CelValue::Text(Cow::Owned(text.to_string()))),
            Expr::Name(name) => self.variable(name),
            Expr::Field(on, name, optional) => {
                let on = self.value(on)?;
                self.looked_up(&on, name, *optional)
            }
            Expr::Index(on, index, optional) => {
                let (on, index) = (self.value(on)?, self.value(index)?);
                match (&on, &index) {
                    (CelValue::List(all), CelValue::Int(at)) => usize::try_from(*at)
                        .ok()
                        .and_then(|at| all.get(at).cloned())
                        .ok_or_else(|| format!("index {at} out of bounds")),
                    (_, CelValue::Text(key)) => self.looked_up(&on, key, *optional),
                    _ => Err(format!("{} has no entry for {}", on.kind(), index.kind())),
                }
            }
            Expr::Call(on, name, arguments) => self.call(on.as_deref(), name, arguments),
            Expr::List(all) => {
                let all: Result<_, _> = all.iter().map(|each| self.value(each)).collect();
                Ok(CelValue::List(all?))
            }
            Expr::Not(of) => Ok(CelValue::Bool(!self.truth(of)?)),
            Expr::Minus(of) => match self.value(of)? {
                CelValue::Int(number) => number
                    .checked_neg()
                    .map(CelValue::Int)
                    .ok_or_else(|| "integer overflow".to_owned()),
                other => Err(format!("{} has no negative", other.kind())),
            },
            Expr::Several(all, of) => self.several(*all, of),
            Expr::Two(left, operator, right) => self.two(left, *operator, right),
            Expr::Choice(parts) => {
                let [condition, yes, no] = &**parts;
                let chosen = if self.truth(condition)? { yes } else { no };
                self.value(chosen)
            }
        }
    }

    fn variable(&self, name: &str) -> Result<CelValue<'d>, String> {
        let bound = self.bound.iter().rev().find(|(own, _)| **own == *name);
        if let Some((_, value)) = bound {
            return Ok(value.clone());
        }
        if name == "device" {
            return Ok(CelValue::Device);
        }
        Err(format!("undeclared reference to {name:?}"))
    }

    /// A field or an entry of a map.
    fn looked_up(
        &self,
        on: &CelValue<'d>,
        key: &str,
        optional: bool,
    ) -> Result<CelValue<'d>, String> {
        let on = match on {
            CelValue::Optional(None) => return Ok(CelValue::Optional(None)),
            CelValue::Optional(Some(inner)) => {
                let found = self.looked_up(inner, key, true)?;
                return Ok(found);
            }
            plain => plain,
        };
        let found = match on {
            CelValue::Device => Some(match key {
                "driver" => CelValue::Text(Cow::Borrowed(self.driver)),
                "attributes" => CelValue::Attributes,
                "capacity" => CelValue::Capacities,
                "allowMultipleAllocations" => {
                    CelValue::Bool(self.device.allow_multiple_allocations == Some(true))
                }
                _ => return Err(format!("no such field: {key}")),
            }),
            CelValue::Attributes => Some(CelValue::AttributesOf(Cow::Owned(key.to_owned()))),
            CelValue::Capacities => Some(CelValue::CapacitiesOf(Cow::Owned(key.to_owned()))),
            CelValue::AttributesOf(domain) => {
                let mut all = self.device.attributes.iter();
                let own = all.find(|(name, _)| split(name, self.driver) == (domain, key));
                own.map(|(_, value)| CelValue::of_attribute(value))
                    .transpose()?
            }
            CelValue::CapacitiesOf(domain) => {
                let mut all = self.device.capacity.iter();
                let own = all.find(|(name, _)| split(name, self.driver) == (domain, key));
                own.map(|(_, value)| quantity(&value.value.0).map(CelValue::Quantity))
                    .transpose()?
            }
            other => return Err(format!("{} has no field {key}", other.kind())),
        };
        match found {
            found if optional => Ok(CelValue::Optional(found.map(Box::new))),
            Some(found) => Ok(found),
            None => Err(format!("no such key: {key}")),
        }
    }

    fn contains(&self, map: &CelValue<'d>, key: &CelValue<'d>) -> Result<bool, String> {
        let in_domain = |name: &str| split(name, self.driver).0.to_owned();
        match (map, key) {
            (CelValue::List(all), key) => Ok(all.contains(key)),
            (CelValue::AttributesOf(_) | CelValue::CapacitiesOf(_), CelValue::Text(key)) => {
                let found = self.looked_up(map, key, true)?;
                Ok(found != CelValue::Optional(None))
            }
            (CelValue::Attributes, CelValue::Text(key)) => {
                let mut all = self.device.attributes.keys();
                Ok(all.any(|name| in_domain(name) == **key))
            }
            (CelValue::Capacities, CelValue::Text(key)) => {
                let mut all = self.device.capacity.keys();
                Ok(all.any(|name| in_domain(name) == **key))
            }
            (map, key) => Err(format!("cannot look for {} in {}", key.kind(), map.kind())),
        }
    }

    /// Whether all operands are true, or any. A deciding operand decides even if others fail.
    fn several(&mut self, all: bool, of: &[Expr]) -> Result<CelValue<'d>, String> {
        let mut fault = None;
        for each in of {
            match self.truth(each) {
                Ok(truth) if truth != all => return Ok(CelValue::Bool(truth)),
                Ok(_) => {}
                Err(why) => fault = fault.or(Some(why)),
            }
        }
        fault.map_or(Ok(CelValue::Bool(all)), Err)
    }

    fn two(
        &mut self,
        left: &Expr,
        operator: CelOperator,
        right: &Expr,
    ) -> Result<CelValue<'d>, String> {
        let (a, b) = (self.value(left)?, self.value(right)?);
        match operator {
            CelOperator::Equal => Ok(CelValue::Bool(a == b)),
            CelOperator::Unequal => Ok(CelValue::Bool(a != b)),
            CelOperator::Less => Ok(CelValue::Bool(a.order(&b)?.is_lt())),
            CelOperator::AtMost => Ok(CelValue::Bool(a.order(&b)?.is_le())),
            CelOperator::Greater => Ok(CelValue::Bool(a.order(&b)?.is_gt())),
            CelOperator::AtLeast => Ok(CelValue::Bool(a.order(&b)?.is_ge())),
            CelOperator::In => self.contains(&b, &a).map(CelValue::Bool),
            CelOperator::Plus
            | CelOperator::Minus
            | CelOperator::Times
            | CelOperator::Over
            | CelOperator::Modulo => calculate(&a, operator, &b),
        }
    }

    fn call(
        &mut self,
        on: Option<&Expr>,
        name: &Arc<str>,
        arguments: &[Expr],
    ) -> Result<CelValue<'d>, String> {
        match (on, &**name, arguments) {
            (None, "has", [Expr::Field(on, key, _)]) => {
                let on = self.value(on)?;
                let found = self.looked_up(&on, key, true)?;
                return Ok(CelValue::Bool(found != CelValue::Optional(None)));
            }
            (Some(Expr::Name(space)), "bind", [Expr::Name(name), value, body])
                if **space == *"cel" =>
            {
                let value = self.value(value)?;
                return self.with(name, value, body);
            }
            (Some(on), "all" | "exists" | "exists_one", [Expr::Name(each), body]) => {
                return self.quantified(on, name, each, body);
            }
            (Some(on), "orValue", [otherwise]) => {
                return match self.value(on)? {
                    CelValue::Optional(Some(value)) => Ok(*value),
                    CelValue::Optional(None) => self.value(otherwise),
                    other => Err(format!("{} is not optional", other.kind())),
                };
            }
            _ => {}
        }
        let on = on.map(|on| self.value(on)).transpose()?;
        let arguments: Result<Vec<_>, _> = arguments.iter().map(|each| self.value(each)).collect();
        apply(on.as_ref(), name, &arguments?)
    }

    fn with(
        &mut self,
        name: &Arc<str>,
        value: CelValue<'d>,
        body: &Expr,
    ) -> Result<CelValue<'d>, String> {
        self.bound.push((Arc::clone(name), value));
        let found = self.value(body);
        self.bound.pop();
        found
    }

    fn quantified(
        &mut self,
        on: &Expr,
        what: &str,
        each: &Arc<str>,
        body: &Expr,
    ) -> Result<CelValue<'d>, String> {
        let all = match self.value(on)? {
            CelValue::List(all) => all,
            other => return Err(format!("{what}() of {} is not supported", other.kind())),
        };
        let (mut yes, mut no, mut fault) = (0, 0, None);
        for value in all {
            match self.with(each, value, body) {
                Ok(CelValue::Bool(true)) => yes += 1,
                Ok(CelValue::Bool(false)) => no += 1,
                Ok(other) => fault = Some(format!("{} is not yes or no", other.kind())),
                Err(why) => fault = Some(why),
            }
        }
        match (what, fault) {
            ("exists", _) if yes > 0 => Ok(CelValue::Bool(true)),
            ("all", _) if no > 0 => Ok(CelValue::Bool(false)),
            (_, Some(fault)) => Err(fault),
            ("exists_one", None) => Ok(CelValue::Bool(yes == 1)),
            ("all", None) => Ok(CelValue::Bool(true)),
            (_, None) => Ok(CelValue::Bool(false)),
        }
    }
}

fn calculate<'d>(
    a: &CelValue<'d>,
    operator: CelOperator,
    b: &CelValue<'d>,
) -> Result<CelValue<'d>, String> {
    if let (CelValue::Text(a), CelOperator::Plus, CelValue::Text(b)) = (a, operator, b) {
        return Ok(CelValue::Text(Cow::Owned(format!("{a}{b}"))));
    }
    let (CelValue::Int(x), CelValue::Int(y)) = (a, b) else {
        return Err(format!(
            "cannot calculate with {} and {}",
            a.kind(),
            b.kind()
        ));
    };
    let result = match operator {
        CelOperator::Plus => x.checked_add(*y),
        CelOperator::Minus => x.checked_sub(*y),
        CelOperator::Times => x.checked_mul(*y),
        _ if *y == 0 => return Err("division by zero".to_owned()),
        CelOperator::Over => x.checked_div(*y),
        _ => x.checked_rem(*y),
    };
    result
        .map(CelValue::Int)
        .ok_or_else(|| "integer overflow".to_owned())
}

/// Functions with evaluated arguments.
fn apply<'d>(
    on: Option<&CelValue<'d>>,
    name: &str,
    arguments: &[CelValue<'d>],
) -> Result<CelValue<'d>, String> {
    use CelValue::{Bool, Int, Optional, Text};
    let order = |order: std::cmp::Ordering| match name {
        "isGreaterThan" => Bool(order.is_gt()),
        "isLessThan" => Bool(order.is_lt()),
        _ => Int(i64::from(order as i8)),
    };
    match (on, name, arguments) {
        (None, "quantity", [Text(text)]) => quantity(text).map(CelValue::Quantity),
        (None, "isQuantity", [Text(text)]) => Ok(Bool(Quantity::parse(text).is_ok())),
        (None, "semver", [Text(text)]) => Version::parse(text).map(CelValue::Version),
        (None, "isSemver", [Text(text)]) => Ok(Bool(Version::parse(text).is_ok())),
        (None, "string", [Int(number)]) => Ok(Text(Cow::Owned(number.to_string()))),
        (None, "string", [Text(text)]) => Ok(Text(text.clone())),
        (None, "int", [Int(number)]) => Ok(Int(*number)),
        (None, "int", [Text(text)]) => text
            .parse()
            .map(Int)
            .map_err(|_| format!("{text:?} is not a number")),
        (None, "size", [of]) | (Some(of), "size", []) => size(of),
        (
            Some(CelValue::Quantity(a)),
            "isGreaterThan" | "isLessThan" | "compareTo",
            [CelValue::Quantity(b)],
        ) => Ok(order(a.cmp(b))),
        (
            Some(CelValue::Version(a)),
            "isGreaterThan" | "isLessThan" | "compareTo",
            [CelValue::Version(b)],
        ) => Ok(order(a.cmp(b))),
        (Some(CelValue::Quantity(a)), "add" | "sub", [b]) => {
            let b = match b {
                CelValue::Quantity(b) => b.clone(),
                Int(number) => Quantity::from_units(*number),
                other => return Err(format!("cannot {name} {}", other.kind())),
            };
            let sum = if name == "add" {
                a.clone() + b
            } else {
                a.clone() - b
            };
            Ok(CelValue::Quantity(sum))
        }
        (Some(CelValue::Quantity(of)), "sign", []) => Ok(Int(of.signum().into())),
        (Some(CelValue::Quantity(of)), "isInteger", []) => Ok(Bool(is_whole(of))),
        (Some(CelValue::Quantity(of)), "asInteger", []) if is_whole(of) => Ok(Int(of.value())),
        (Some(CelValue::Version(of)), "major" | "minor" | "patch", []) => {
            let at = ["major", "minor", "patch"]
                .iter()
                .position(|part| *part == name);
            let number = at.and_then(|at| of.numbers.get(at)).copied();
            Ok(Int(
                i64::try_from(number.unwrap_or_default()).unwrap_or(i64::MAX)
            ))
        }
        (Some(Text(text)), "startsWith", [Text(part)]) => Ok(Bool(text.starts_with(&**part))),
        (Some(Text(text)), "endsWith", [Text(part)]) => Ok(Bool(text.ends_with(&**part))),
        (Some(Text(text)), "contains", [Text(part)]) => Ok(Bool(text.contains(&**part))),
        (Some(Text(text)), "lowerAscii", []) => Ok(Text(Cow::Owned(text.to_ascii_lowercase()))),
        (Some(Text(text)), "upperAscii", []) => Ok(Text(Cow::Owned(text.to_ascii_uppercase()))),
        (Some(Text(text)), "trim", []) => Ok(Text(Cow::Owned(text.trim().to_owned()))),
        (Some(Text(text)), "replace", [Text(old), Text(new)]) => {
            Ok(Text(Cow::Owned(text.replace(&**old, new))))
        }
        (Some(Optional(of)), "hasValue", []) => Ok(Bool(of.is_some())),
        (Some(Optional(Some(of))), "value", []) => Ok((**of).clone()),
        (on, _, _) => {
            let on = on.map_or_else(String::new, |on| format!(" on {}", on.kind()));
            let kinds: Vec<&str> = arguments.iter().map(CelValue::kind).collect();
            Err(format!("no {name}({}){on}", kinds.join(", ")))
        }
    }
}

const fn is_whole(of: &Quantity) -> bool {
    of.nanos() % 1_000_000_000 == 0
}

fn size<'d>(of: &CelValue<'d>) -> Result<CelValue<'d>, String> {
    let size = match of {
        CelValue::Text(text) => text.chars().count(),
        CelValue::List(all) => all.len(),
        other => return Err(format!("{} has no size", other.kind())),
    };
    Ok(CelValue::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}
