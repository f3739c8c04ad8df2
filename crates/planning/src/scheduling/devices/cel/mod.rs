//! The part of the Common Expression Language that selects devices.
//!
//! An expression is parsed once ([`Program::parse`]) and evaluated for one device at a time. Unsupported parts (decimal
//! numbers, regular expressions, `map` and `filter`) are rejected by name when the expression is parsed, and never
//! misinterpreted.

mod eval;
mod parse;
mod value;

use mortise_apis::k8s::devices::Device;

/// A parsed expression.
#[derive(Debug)]
pub(super) struct Program {
    root: parse::Expr,
}

impl Program {
    /// Parses an expression.
    ///
    /// # Errors
    /// It is no expression, or uses an unsupported part; the text states what and where.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        Ok(Self {
            root: parse::parse(text)?,
        })
    }

    /// Whether it is true for a device of a driver.
    ///
    /// # Errors
    /// It reads what the device does not have, compares incomparable values, or is not boolean.
    pub(super) fn matches(&self, driver: &str, device: &Device) -> Result<bool, String> {
        eval::Scope::new(driver, device).truth(&self.root)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn device() -> Device {
        serde_json::from_value(json!({
            "name": "gpu-0",
            "attributes": {
                "model": { "string": "A100-40GB" },
                "gpu.example.com/index": { "int": 3 },
                "nvlink": { "bool": true },
                "driverVersion": { "version": "550.90.7-rc.1" },
                "resource.kubernetes.io/pcieRoot": { "string": "pci0000:00" },
            },
            "capacity": { "memory": { "value": "40Gi" }, "other.io/slots": { "value": "7" } },
        }))
        .unwrap()
    }

    #[track_caller]
    fn says(text: &str, want: &Result<bool, &str>) {
        let own =
            Program::parse(text).and_then(|program| program.matches("gpu.example.com", &device()));
        match (want, own) {
            (Ok(want), Ok(own)) => assert_eq!(*want, own, "{text}"),
            (Err(want), Err(own)) => assert!(own.contains(want), "{text}: {own}"),
            (want, own) => panic!("{text}: {own:?} instead of {want:?}"),
        }
    }

    #[test]
    fn devices_are_selected_by_what_they_are() {
        for (text, want) in [
            ("device.driver == \"gpu.example.com\"", true),
            ("device.driver == 'nic.example.com'", false),
            (
                "device.attributes[\"gpu.example.com\"].model == \"A100-40GB\"",
                true,
            ),
            (
                "device.attributes[\"gpu.example.com\"].index >= 3 && !(device.attributes[\"gpu.example.com\"].index > 3)",
                true,
            ),
            (
                "device.attributes['gpu.example.com'].index + 2 * 2 - 1 == 6",
                true,
            ),
            ("device.attributes['gpu.example.com'].nvlink", true),
            (
                "device.attributes['resource.kubernetes.io'].pcieRoot.startsWith('pci')",
                true,
            ),
            (
                "device.attributes['gpu.example.com']['model'].lowerAscii().contains('a100')",
                true,
            ),
            (
                "device.attributes['gpu.example.com'].model in ['H100', 'A100-40GB']",
                true,
            ),
            ("'model' in device.attributes['gpu.example.com']", true),
            ("'model' in device.attributes['nobody.io']", false),
            ("has(device.attributes['gpu.example.com'].cores)", false),
            (
                "has(device.attributes['gpu.example.com'].model) ? device.attributes['gpu.example.com'].index == 3 : false",
                true,
            ),
            (
                "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0",
                true,
            ),
            (
                "device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('40Gi'))",
                false,
            ),
            (
                "device.capacity['gpu.example.com'].memory.isLessThan(quantity('41Gi'))",
                true,
            ),
            ("device.capacity['other.io'].slots == quantity('7')", true),
            (
                "device.capacity['other.io'].slots.add(quantity('1')).asInteger() == 8",
                true,
            ),
            ("isQuantity('5x')", false),
        ] {
            says(text, &Ok(want));
        }
    }

    #[test]
    fn versions_lists_and_absent_values_are_evaluated() {
        for (text, want) in [
            (
                "device.attributes['gpu.example.com'].driverVersion.isGreaterThan(semver('550.54.0'))",
                true,
            ),
            (
                "device.attributes['gpu.example.com'].driverVersion.isLessThan(semver('550.90.7'))",
                true,
            ),
            (
                "device.attributes['gpu.example.com'].driverVersion.major() == 550",
                true,
            ),
            (
                "['A100', 'H100'].exists(m, device.attributes['gpu.example.com'].model.startsWith(m))",
                true,
            ),
            (
                "['A', 'H'].all(m, device.attributes['gpu.example.com'].model.startsWith(m))",
                false,
            ),
            (
                "cel.bind(gpu, device.attributes['gpu.example.com'], gpu.index == 3 && gpu.nvlink)",
                true,
            ),
            (
                "device.attributes['gpu.example.com'].?cores.orValue(0) == 0",
                true,
            ),
            (
                "device.attributes['gpu.example.com'].?index.orValue(0) == 3",
                true,
            ),
            // One side decides, regardless of the other.
            (
                "device.attributes['gpu.example.com'].cores == 1 || true",
                true,
            ),
            (
                "false && device.attributes['gpu.example.com'].cores == 1",
                false,
            ),
            // Values of different kinds are not equal.
            (
                "device.attributes['gpu.example.com'].index == 'three'",
                false,
            ),
            ("device.allowMultipleAllocations == false", true),
            (
                "size(device.attributes['gpu.example.com'].model) == 9 // a comment",
                true,
            ),
        ] {
            says(text, &Ok(want));
        }
    }

    #[test]
    fn faults_say_what_and_where() {
        for (text, want) in [
            (
                "device.attributes['gpu.example.com'].cores == 1",
                "no such key: cores",
            ),
            (
                "device.attributes['gpu.example.com'].model < 3",
                "cannot compare",
            ),
            ("device.driver", "not yes or no"),
            ("device.vendor == 'x'", "no such field: vendor"),
            ("node.name == 'x'", "undeclared reference to \"node\""),
            ("device.driver = 'x'", "unexpected '=' at 14"),
            ("device.driver == 'x", "text without an end at 17"),
            ("(true", "expected ')' at the end"),
            ("true true", "unexpected \"true\" at 5"),
            ("1.5 > 1", "decimal numbers are not supported"),
            (
                "device.driver.matches('gpu.*')",
                "matches() is not supported",
            ),
            (
                "quantity('5x').asInteger() == 5",
                "\"5x\" is not a quantity",
            ),
            ("9223372036854775807 + 1 == 0", "overflow"),
            ("", "expected an expression at the end"),
        ] {
            says(text, &Err(want));
        }
        for deep in ["(", "!", "-", "[", "device.driver == '' ? true : "] {
            says(&deep.repeat(5_000), &Err("too deep"));
        }
        let sum = format!("{}1 == 0", "1 + ".repeat(5_000));
        says(&sum, &Err("too deep"));
        says(&format!("device{}", ".a".repeat(5_000)), &Err("too deep"));
        says(&format!("device{}", "[0]".repeat(5_000)), &Err("too deep"));
        // Operands side by side add no depth.
        let one = "device.driver == 'gpu.example.com' && 1 + 1 == 2 && ";
        says(&format!("{}true", one.repeat(500)), &Ok(true));
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_an_answer(
            text in ".{0,60}",
            soup in proptest::collection::vec(proptest::sample::select(vec![
                "device", ".driver", ".attributes", ".capacity", "['gpu.example.com']", ".?index", "[?'x']", ".memory", "(", ")",
                "[", "]", "==", "&&", "||", "!", "-", "?", ":", "1", "'a'", "in", "has(", "quantity('1Gi')", ".compareTo(",
                "semver('1.2.3')", ".exists(x, x", "cel.bind(x, 1,", "x", "+", "%", "0", ",", "true", ".orValue(",
            ]), 0..14),
        ) {
            for text in [text, soup.join(" "), soup.concat()] {
                if let Ok(program) = Program::parse(&text) {
                    drop(program.matches("gpu.example.com", &device()));
                }
            }
        }
    }
}
