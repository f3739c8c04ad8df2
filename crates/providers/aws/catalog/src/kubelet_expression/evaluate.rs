//! The value of an expression for an instance type.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Variables;
use super::parse::Node;

/// Why an expression has no number as its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// An integer is divided by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// The rest of a division by zero is asked for.
    #[error("modulus by zero")]
    ModulusByZero,
    /// The result of integers does not fit.
    #[error("integer overflow")]
    Overflow,
    /// The result is infinite, or no number at all.
    #[error("expression evaluated to a number that is not finite")]
    NotFinite,
    /// The result is something else.
    #[error("expression must evaluate to int or double, got {0}")]
    NoNumber(&'static str),
    /// An operator or function cannot take such values.
    #[error("no such overload: {0}")]
    NoOverload(String),
    /// A list has no such element.
    #[error("index out of bounds: {0}")]
    OutOfBounds(i64),
    /// A text is no number.
    #[error("cannot convert {0:?} to {1}")]
    NoConversion(Arc<str>, &'static str),
}

#[derive(Clone, Debug)]
enum Value {
    Int(i64),
    Double(f64),
    Bool(bool),
    Text(Arc<str>),
    List(Vec<Self>),
}

impl Value {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Int(_) => "int",
            Self::Double(_) => "double",
            Self::Bool(_) => "bool",
            Self::Text(_) => "string",
            Self::List(_) => "list",
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "CEL defines the conversion like this"
    )]
    const fn double(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Double(value) => Some(*value),
            _ => None,
        }
    }
}

type Evaluated = Result<Value, EvaluationError>;

/// The number that an expression stands for.
pub(super) fn number(root: &Node, of: &Variables) -> Result<i64, EvaluationError> {
    match value(root, of)? {
        Value::Int(value) => Ok(value),
        Value::Double(value) => truncated(value),
        other => Err(EvaluationError::NoNumber(other.kind())),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the range is checked before the cast"
)]
fn truncated(value: f64) -> Result<i64, EvaluationError> {
    if !value.is_finite() {
        return Err(EvaluationError::NotFinite);
    }
    if (-9.2e18..9.2e18).contains(&value) {
        Ok(value as i64)
    } else {
        Err(EvaluationError::Overflow)
    }
}

fn value(node: &Node, of: &Variables) -> Evaluated {
    match node {
        Node::Int(value) => Ok(Value::Int(*value)),
        Node::Double(value) => Ok(Value::Double(*value)),
        Node::Bool(value) => Ok(Value::Bool(*value)),
        Node::Text(text) => Ok(Value::Text(Arc::clone(text))),
        Node::List(items) => values(items, of).map(Value::List),
        Node::Variable(name) => Ok(match *name {
            "default_enis" => Value::Int(of.default_enis),
            "ips_per_eni" => Value::Int(of.ips_per_eni),
            "max_pods" => Value::Int(of.max_pods),
            "memory_mib" => Value::Int(of.memory_mib),
            "vcpus" => Value::Int(of.vcpus),
            _ => Value::Text(Arc::clone(&of.instance_type)),
        }),
        Node::Not(inner) => match value(inner, of)? {
            Value::Bool(value) => Ok(Value::Bool(!value)),
            other => Err(EvaluationError::NoOverload(format!("!{}", other.kind()))),
        },
        Node::Negative(inner) => match value(inner, of)? {
            Value::Int(value) => value
                .checked_neg()
                .map(Value::Int)
                .ok_or(EvaluationError::Overflow),
            Value::Double(value) => Ok(Value::Double(-value)),
            other => Err(EvaluationError::NoOverload(format!("-{}", other.kind()))),
        },
        Node::Binary("&&", left, right) => logical(value(left, of), value(right, of), false),
        Node::Binary("||", left, right) => logical(value(left, of), value(right, of), true),
        Node::Binary(operator, left, right) => {
            binary(operator, value(left, of)?, value(right, of)?)
        }
        Node::Index(list, index) => match (value(list, of)?, value(index, of)?) {
            (Value::List(items), Value::Int(at)) => usize::try_from(at)
                .ok()
                .and_then(|at| items.get(at).cloned())
                .ok_or(EvaluationError::OutOfBounds(at)),
            (list, index) => Err(no_overload("[]", &list, &index)),
        },
        Node::Choice(condition, yes, no) => match value(condition, of)? {
            Value::Bool(true) => value(yes, of),
            Value::Bool(false) => value(no, of),
            other => Err(EvaluationError::NoOverload(format!("{} ?:", other.kind()))),
        },
        Node::Call(name, arguments) => call(name, &values(arguments, of)?),
    }
}

fn values(nodes: &[Node], of: &Variables) -> Result<Vec<Value>, EvaluationError> {
    nodes.iter().map(|node| value(node, of)).collect()
}

fn no_overload(operator: &str, left: &Value, right: &Value) -> EvaluationError {
    EvaluationError::NoOverload(format!("{} {operator} {}", left.kind(), right.kind()))
}

/// `&&` and `||`: one side that decides is enough, even if the other has no value.
fn logical(left: Evaluated, right: Evaluated, deciding: bool) -> Evaluated {
    let decides = |side: &Evaluated| matches!(side, Ok(Value::Bool(value)) if *value == deciding);
    if decides(&left) || decides(&right) {
        return Ok(Value::Bool(deciding));
    }
    match (left?, right?) {
        (Value::Bool(_), Value::Bool(_)) => Ok(Value::Bool(!deciding)),
        (left, right) => Err(no_overload(
            if deciding { "||" } else { "&&" },
            &left,
            &right,
        )),
    }
}

fn binary(operator: &str, left: Value, right: Value) -> Evaluated {
    match operator {
        "==" => return Ok(Value::Bool(equal(&left, &right))),
        "!=" => return Ok(Value::Bool(!equal(&left, &right))),
        "in" => {
            return match &right {
                Value::List(items) => Ok(Value::Bool(items.iter().any(|item| equal(&left, item)))),
                _ => Err(no_overload(operator, &left, &right)),
            };
        }
        "<" | "<=" | ">" | ">=" => {
            let order = order(&left, &right).ok_or_else(|| no_overload(operator, &left, &right))?;
            return Ok(Value::Bool(match operator {
                "<" => order.is_some_and(Ordering::is_lt),
                "<=" => order.is_some_and(Ordering::is_le),
                ">" => order.is_some_and(Ordering::is_gt),
                _ => order.is_some_and(Ordering::is_ge),
            }));
        }
        _ => {}
    }
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => integers(operator, left, right).map(Value::Int),
        (Value::Double(left), Value::Double(right)) if operator != "%" => {
            Ok(Value::Double(match operator {
                "+" => left + right,
                "-" => left - right,
                "*" => left * right,
                _ => left / right,
            }))
        }
        (Value::Text(left), Value::Text(right)) if operator == "+" => {
            Ok(Value::Text(Arc::from(format!("{left}{right}"))))
        }
        (left, right) => Err(no_overload(operator, &left, &right)),
    }
}

fn integers(operator: &str, left: i64, right: i64) -> Result<i64, EvaluationError> {
    let result = match operator {
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        "/" if right == 0 => return Err(EvaluationError::DivisionByZero),
        "/" => left.checked_div(right),
        _ if right == 0 => return Err(EvaluationError::ModulusByZero),
        _ => left.checked_rem(right),
    };
    result.ok_or(EvaluationError::Overflow)
}

fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::List(left), Value::List(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(a, b)| equal(a, b))
        }
        _ => order(left, right).flatten() == Some(Ordering::Equal),
    }
}

/// How two values compare; the inner `None` is a number that is none, the outer values that do not compare.
fn order(left: &Value, right: &Value) -> Option<Option<Ordering>> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(Some(left.cmp(right))),
        (Value::Text(left), Value::Text(right)) => Some(Some(left.cmp(right))),
        (Value::Bool(left), Value::Bool(right)) => Some(Some(left.cmp(right))),
        _ => Some(left.double()?.partial_cmp(&right.double()?)),
    }
}

fn call(name: &str, arguments: &[Value]) -> Evaluated {
    let text = |of: &Value| match of {
        Value::Int(value) => Some(value.to_string()),
        Value::Double(value) => Some(value.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Text(value) => Some(value.to_string()),
        Value::List(_) => None,
    };
    let found = match (name, arguments) {
        ("max", [left, right]) => extreme(left, right, Ordering::Less),
        ("min", [left, right]) => extreme(left, right, Ordering::Greater),
        ("int", [Value::Double(value)]) => Some(Value::Int(truncated(*value)?)),
        ("int", [Value::Int(value)]) => Some(Value::Int(*value)),
        ("int", [Value::Text(value)]) => Some(Value::Int(converted(value, "int")?)),
        ("double", [Value::Text(value)]) => Some(Value::Double(converted(value, "double")?)),
        ("double", [value]) => value.double().map(Value::Double),
        ("string", [value]) => text(value).map(|text| Value::Text(Arc::from(text))),
        ("size", [Value::Text(value)]) => i64::try_from(value.chars().count()).ok().map(Value::Int),
        ("size", [Value::List(items)]) => i64::try_from(items.len()).ok().map(Value::Int),
        ("startsWith", [Value::Text(value), Value::Text(part)]) => {
            Some(Value::Bool(value.starts_with(&**part)))
        }
        ("endsWith", [Value::Text(value), Value::Text(part)]) => {
            Some(Value::Bool(value.ends_with(&**part)))
        }
        ("contains", [Value::Text(value), Value::Text(part)]) => {
            Some(Value::Bool(value.contains(&**part)))
        }
        _ => None,
    };
    found.ok_or_else(|| {
        let kinds: Vec<&str> = arguments.iter().map(Value::kind).collect();
        EvaluationError::NoOverload(format!("{name}({})", kinds.join(", ")))
    })
}

fn converted<T: std::str::FromStr>(
    text: &Arc<str>,
    kind: &'static str,
) -> Result<T, EvaluationError> {
    text.parse()
        .map_err(|_| EvaluationError::NoConversion(Arc::clone(text), kind))
}

/// The greater or the smaller of two numbers; of an integer and a fraction as a fraction.
fn extreme(left: &Value, right: &Value, other_if: Ordering) -> Option<Value> {
    let second = order(left, right)? == Some(other_if);
    let chosen = if second { right } else { left };
    match (left, right) {
        (Value::Int(_), Value::Int(_)) => Some(chosen.clone()),
        _ => chosen.double().map(Value::Double),
    }
}
