//! Kubelet settings that depend on the instance type: expressions of the Common Expression Language (CEL), as far as numbers of an
//! instance type can be computed with them. Pure.
//!
//! Invariant: an expression is parsed once, when the node class is read; evaluating it never fails for want of a name.
//!
//! # Source
//! The variables, the two functions that CEL does not have (`max`, `min`), and the texts of errors are those of Karpenter's AWS
//! provider 1.14. Macros (`has`, `all`, `exists`, `map`), regular expressions, timestamps and maps are left out: no number of an
//! instance type needs them.

mod evaluate;
mod parse;

use std::sync::Arc;

pub use self::evaluate::EvaluationError;
use self::parse::Node;

/// What an expression can ask of an instance type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variables {
    /// `instance_type`.
    pub instance_type: Arc<str>,
    /// `vcpus`.
    pub vcpus: i64,
    /// `memory_mib`, before anything takes from it.
    pub memory_mib: i64,
    /// `default_enis`: interfaces of the default network card.
    pub default_enis: i64,
    /// `ips_per_eni`: IPv4 addresses of an interface.
    pub ips_per_eni: i64,
    /// `max_pods`: of the image family in an expression for `maxPods`, else the result of that.
    pub max_pods: i64,
}

/// Longest text of an expression in bytes.
const LONGEST: usize = 2_000;

/// Names of the variables.
const NAMES: [&str; 6] = [
    "default_enis",
    "instance_type",
    "ips_per_eni",
    "max_pods",
    "memory_mib",
    "vcpus",
];

/// An expression that was understood.
#[derive(Clone, Debug)]
pub struct Expression {
    text: Arc<str>,
    root: Arc<Node>,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

/// Why a text is no expression: CEL's own words, with the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ERROR: <input>:1:{}: {problem}\n | {text}\n | {}^", .at + 1, ".".repeat(*.at))]
pub struct SyntaxError {
    problem: String,
    text: String,
    /// Characters before the place.
    at: usize,
}

impl Expression {
    /// Reads an expression.
    /// # Errors
    /// It is not well formed, or names something that there is not.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        if text.len() > LONGEST {
            return Err(SyntaxError {
                problem: format!("expression code point size exceeds limit: {LONGEST}"),
                text: String::new(),
                at: 0,
            });
        }
        Ok(Self {
            root: Arc::new(parse::parse(text)?),
            text: Arc::from(text),
        })
    }

    /// As it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its value for an instance type. A fraction is cut off.
    /// # Errors
    /// It has no value that is a number.
    pub fn number(&self, of: &Variables) -> Result<i64, EvaluationError> {
        evaluate::number(&self.root, of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn large() -> Variables {
        Variables {
            instance_type: Arc::from("m5.large"),
            vcpus: 2,
            memory_mib: 8192,
            default_enis: 3,
            ips_per_eni: 10,
            max_pods: 29,
        }
    }

    #[test]
    fn expressions_have_values() {
        for (text, expected) in [
            ("min(110, vcpus * 8)", 16),
            ("max(2, 2.5)", 2),
            ("min(110, default_enis * (ips_per_eni - 1) * 16 + 2)", 110),
            ("0 - 1", -1),
            ("-vcpus + 3", 1),
            ("7 / 2 * 2 + 7 % 2", 7),
            ("-7 / 2", -3),
            ("7.0 / 2.0", 3),
            ("memory_mib > 4096 ? 20 : 10", 20),
            ("vcpus == 2 && !(memory_mib < 100) ? 1 : 0", 1),
            ("false && 1 / 0 == 1 ? 1 : 2", 2),
            ("1 / 0 == 1 || true ? 1 : 2", 1),
            ("instance_type.startsWith('m5.') ? 58 : max_pods", 58),
            ("instance_type in ['m5.large', \"m5.xlarge\"] ? 1 : 0", 1),
            (
                "instance_type.endsWith('.metal') ? 1 : size(instance_type)",
                8,
            ),
            ("'a' + 'b' == 'ab' ? 1 : 0", 1),
            ("int(2.9) + int('40')", 42),
            ("int(double(vcpus) * 1.5)", 3),
            ("1 < 1.5 ? 1 : 0", 1),
            ("0x10 + 1", 17),
            ("[1, 2, 3][vcpus]", 3),
            ("1e3", 1000),
        ] {
            let expression = Expression::parse(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(expression.number(&large()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_said() {
        for (text, expected) in [
            ("1 / (vcpus - vcpus)", "division by zero"),
            ("1 % 0", "modulus by zero"),
            ("9223372036854775807 + 1", "integer overflow"),
            (
                "1.0 / 0.0",
                "expression evaluated to a number that is not finite",
            ),
            (
                "vcpus > 1",
                "expression must evaluate to int or double, got bool",
            ),
            ("1 + 1.0", "no such overload: int + double"),
            ("[1][1]", "index out of bounds: 1"),
            ("int('x')", "cannot convert \"x\" to int"),
        ] {
            let error = Expression::parse(text).unwrap().number(&large());
            assert_eq!(error.unwrap_err().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_expression_is_shown() {
        let error = |text: &str| Expression::parse(text).unwrap_err().to_string();
        assert_eq!(
            error("bogus_var * 1048576"),
            "ERROR: <input>:1:1: undeclared reference to 'bogus_var' (in container '')\n | bogus_var * 1048576\n | ^"
        );
        let expecting = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
        assert_eq!(
            error("min(110,"),
            format!(
                "ERROR: <input>:1:9: Syntax error: mismatched input '<EOF>' expecting {expecting}\n | min(110,\n | ........^"
            )
        );
        for text in ["", "1 +", "(1", "1 2", "'open", "f(1)", "1.x", "a.b", "#"] {
            assert!(Expression::parse(text).is_err(), "{text:?}");
        }
        let deep = "(".repeat(900) + "1" + &")".repeat(900);
        assert!(Expression::parse(&deep).is_err(), "no stack is used up");
        let long = "1".to_owned() + &"+1".repeat(201);
        assert!(Expression::parse(&long).is_err(), "nor by a long sum");
        let sum = "1".to_owned() + &"+1".repeat(200);
        assert_eq!(Expression::parse(&sum).unwrap().number(&large()), Ok(201));
    }
}
