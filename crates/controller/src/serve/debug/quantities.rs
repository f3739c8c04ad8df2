//! Resource quantities for users and for the page.

use mortise_apis::resources::Resources;
use serde_json::{Map, Value};

/// Nonzero amounts: CPU in cores, memory and disks in bytes, everything else in whole units.
pub(super) fn json(amounts: &Resources) -> Value {
    let entries = amounts.iter().map(|(name, amount)| {
        let value = if name == "cpu" {
            cores(amount)
        } else {
            Value::from(amount)
        };
        (name.to_owned(), value)
    });
    Value::Object(entries.collect::<Map<_, _>>())
}

#[expect(clippy::cast_precision_loss, reason = "for display only")]
fn cores(milli: i64) -> Value {
    Value::from(milli as f64 / 1000.0)
}

/// Amounts in one short line.
pub(super) fn text(amounts: &Resources) -> String {
    let parts: Vec<String> = amounts
        .iter()
        .map(|(name, amount)| format!("{name}={}", one(name, amount)))
        .collect();
    if parts.is_empty() {
        "nothing".to_owned()
    } else {
        parts.join(" ")
    }
}

/// One amount with its unit.
pub(super) fn one(name: &str, amount: i64) -> String {
    const MI: i64 = 1 << 20;
    const GI: i64 = 1 << 30;
    let bytes = name == "memory" || name == "ephemeral-storage" || name.starts_with("hugepages-");
    match name {
        "cpu" if amount % 1000 == 0 => (amount / 1000).to_string(),
        "cpu" => format!("{amount}m"),
        _ if bytes && amount.abs() >= 10 * GI => format!("{}Gi", amount / GI),
        _ if bytes && amount.abs() >= MI => format!("{}Mi", amount / MI),
        _ => amount.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_formatted_with_units() {
        for (name, amount, want) in [
            ("cpu", 2000, "2"),
            ("cpu", 250, "250m"),
            ("memory", 512 << 20, "512Mi"),
            ("memory", 64 << 30, "64Gi"),
            ("pods", 110, "110"),
            ("memory", 5, "5"),
        ] {
            assert_eq!(one(name, amount), want);
        }
        assert_eq!(text(&Resources::default()), "nothing");
        let amounts = Resources::new(1500, 1 << 30).with("nvidia.com/gpu", 2);
        assert_eq!(text(&amounts), "cpu=1500m memory=1024Mi nvidia.com/gpu=2");
        assert_eq!(
            json(&amounts),
            serde_json::json!({ "cpu": 1.5, "memory": 1_073_741_824_i64, "nvidia.com/gpu": 2 })
        );
    }
}
