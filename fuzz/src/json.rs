//! Mutations of JSON that stay valid JSON: random changes of bytes are rarely accepted by a parser.

use mortise_apis::values::SplitMix64;
use serde_json::{Map, Number, Value};

struct Dice(SplitMix64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.below(end.max(1) as u64)).unwrap_or(0)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }
}

/// Texts that are difficult for parsers of the fields.
const TEXTS: &[&str] = &[
    "",
    "0",
    "-1",
    "1",
    "4",
    "100%",
    "0%",
    "101%",
    "30d",
    "720h",
    "1h30m",
    "Never",
    "0s",
    "-5m",
    "1Gi",
    "1e3",
    "0.5",
    "-0",
    "9223372036854775808",
    "* * * * *",
    "@daily",
    "0 0 31 2 *",
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
    "Gt",
    "Lt",
    "Gte",
    "amd64",
    "spot",
    "on-demand",
    "us-east-1a",
    "m5.large",
    "karpenter.sh/capacity-type",
    "topology.kubernetes.io/zone",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/hostname",
    "CREATE",
    "UPDATE",
    "DELETE",
    "WhenEmpty",
    "default",
    "karpenter.k8s.aws/instance-cpu",
    "{{ .Values.x }}",
    "\u{0}",
    "a\nb",
    "\u{fffd}\u{10ffff}",
    "web-0",
    "NoSchedule",
    "karpenter.sh/v1",
    "karpenter.sh/v1beta1",
    "karpenter.k8s.aws/v1",
    "karpenter.k8s.aws/v1beta1",
];

fn value(dice: &mut Dice) -> Value {
    match dice.below(12) {
        0 => Value::Null,
        1 => Value::Bool(true),
        2 => Value::Array(Vec::new()),
        3 => Value::Object(Map::new()),
        4 => Number::from_f64(0.5).map_or(Value::Null, Value::Number),
        5 => Value::from(i64::MIN),
        6 => Value::from(u64::MAX),
        7 => Value::from(dice.0.between(-100, 899)),
        _ => Value::from(dice.pick(TEXTS).copied().unwrap_or_default()),
    }
}

/// Number of values in a value, including itself.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// The `n`th value, in the order of the text.
fn nth(value: &mut Value, mut n: usize) -> Option<&mut Value> {
    if n == 0 {
        return Some(value);
    }
    n -= 1;
    let children: Box<dyn Iterator<Item = &mut Value>> = match value {
        Value::Array(items) => Box::new(items.iter_mut()),
        Value::Object(fields) => Box::new(fields.values_mut()),
        _ => return None,
    };
    for child in children {
        let size = count(child);
        if n < size {
            return nth(child, n);
        }
        n -= size;
    }
    None
}

fn change(root: &mut Value, dice: &mut Dice) {
    let size = count(root);
    let other = nth(root, dice.below(size)).map(|value| value.clone());
    let at = dice.below(size);
    let Some(target) = nth(root, at) else { return };
    match (dice.below(6), target) {
        (0, Value::Object(fields)) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            if let Some(key) = dice.pick(&keys) {
                fields.remove(key);
            }
        }
        (1, Value::Object(fields)) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            if let Some(moved) = dice.pick(&keys).and_then(|key| fields.remove(key)) {
                let key = dice.pick(TEXTS).copied().unwrap_or_default();
                fields.insert(key.to_owned(), moved);
            }
        }
        (0, Value::Array(items)) if !items.is_empty() => {
            let gone = dice.below(items.len());
            items.remove(gone);
        }
        (1, Value::Array(items)) => {
            let again = dice.pick(items).cloned();
            items.extend(again);
        }
        // A value from another position of the same document, which often has a matching type.
        (2, target) => *target = other.unwrap_or_default(),
        (3, target @ Value::String(_)) => {
            *target = Value::from(dice.pick(TEXTS).copied().unwrap_or_default());
        }
        (_, target) => *target = value(dice),
    }
}

/// A mutation of this JSON; `None` if it is not JSON.
#[must_use]
pub fn mutated(input: &[u8], seed: u32) -> Option<Vec<u8>> {
    let mut root: Value = serde_json::from_slice(input).ok()?;
    let mut dice = Dice(SplitMix64::new(seed.into()));
    for _ in 0..=dice.below(3) {
        change(&mut root, &mut dice);
    }
    serde_json::to_vec(&root).ok()
}
