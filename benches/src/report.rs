//! One shape for every command: arguments, results, report.
//!
//! A [`Benchmark`] is the arguments of a command; it measures and returns its [`Results`]. [`run`] adds where, from which source
//! and from which inputs they were measured, and writes the [`Report`]: a text table, or JSON with `--json`, and the recorded
//! file in `benches/results/`. What goes on meanwhile is said on standard error.

use std::io::Write;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::Value;

use crate::output::Output;
use crate::test_host::{TestHost, commit};

/// Paths of everything that goes into the program, relative to this crate.
pub(crate) const PROGRAM: &[&str] = &[
    "../Cargo.toml",
    "../Cargo.lock",
    "../src",
    "../crates",
    "../webhooks",
    "src",
];

/// Paths of everything that goes into a plan of the solver, relative to this crate.
pub(crate) const SOLVER: &[&str] = &["../crates", "src"];

/// Arguments of a command. Serialized, they are the inputs of its report.
pub(crate) trait Benchmark: Serialize {
    /// Name of the command and of the file with its recorded results.
    const NAME: &'static str;
    /// Paths that the figures depend on, relative to this crate.
    const SOURCES: &'static [&'static str];
    /// What it measures.
    type Results: Results;

    /// Where the report goes.
    fn output(&self) -> &Output;

    /// What fixes everything that is drawn; `None` where nothing is.
    fn seed(&self) -> Option<u64>;

    /// All of it is measured, in the sizes of the recorded results.
    fn is_complete(&self) -> bool;

    /// Measures.
    ///
    /// # Errors
    /// Inputs that cannot be read, or a process that failed.
    fn measure(&self) -> Result<Self::Results>;

    /// What follows from the results once they are reported, for instance that a rule is broken.
    ///
    /// # Errors
    /// The results are not what they must be.
    fn conclude(&self, _results: &Self::Results) -> Result<()> {
        Ok(())
    }
}

/// Whether a figure is at most what is wanted, in a word.
pub(crate) fn verdict(is: f64, wanted: f64) -> &'static str {
    if is <= wanted { "held" } else { "missed" }
}

/// What a command measured.
pub(crate) trait Results: Serialize {
    /// The table that people read.
    ///
    /// # Errors
    /// It cannot be written.
    fn write_table(&self, out: &mut dyn Write) -> Result<()>;
}

/// Results, and what they belong to.
#[derive(Debug, Serialize)]
struct Report<'a, I, R> {
    command: &'static str,
    /// Commit of the source, with `+` when files differ from it; empty outside a checkout.
    commit: String,
    seed: Option<u64>,
    inputs: &'a I,
    test_host: TestHost,
    #[serde(flatten)]
    results: &'a R,
}

/// Runs a command.
pub(crate) fn run<B: Benchmark>(benchmark: &B) -> Result<()> {
    // The load and the source are those before the measurement.
    let (test_host, commit) = (TestHost::here(), commit(B::SOURCES));
    let results = benchmark.measure()?;
    let report = Report {
        command: B::NAME,
        commit,
        seed: benchmark.seed(),
        inputs: benchmark,
        test_host,
        results: &results,
    };
    let output = benchmark.output();
    if !output.json {
        report.write_text(&mut std::io::stdout().lock())?;
    }
    output.keep(B::NAME, &report, benchmark.is_complete())?;
    benchmark.conclude(&results)
}

impl<I: Serialize, R: Results> Report<'_, I, R> {
    fn write_text(&self, out: &mut dyn Write) -> Result<()> {
        let Self {
            command,
            commit,
            seed,
            inputs,
            test_host,
            results,
        } = self;
        let seed = seed.map_or_else(String::new, |seed| format!("; seed {seed}"));
        let inputs = in_words(&serde_json::to_value(inputs)?);
        writeln!(out, "{command}: commit {commit}{seed}{inputs}")?;
        test_host.write_line(out)?;
        results.write_table(out)
    }
}

/// Inputs as `; name value, value`. What was not given is left out.
fn in_words(inputs: &Value) -> String {
    let word = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let fields = inputs.as_object().into_iter().flatten();
    let words = fields.map(|(name, value)| match value {
        Value::Null | Value::Bool(false) => String::new(),
        Value::Bool(true) => format!("; {name}"),
        Value::Array(values) if values.is_empty() => String::new(),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(word).collect();
            format!("; {name} {}", values.join(", "))
        }
        value => format!("; {name} {}", word(value)),
    });
    words.collect()
}

/// One line about what goes on, on standard error.
pub(crate) fn progress(line: &str) {
    // A closed standard error must not stop a measurement.
    writeln!(std::io::stderr(), "mortise-bench: {line}").ok();
}

/// Runs a measurement that talks to other programs.
///
/// # Errors
/// The runtime does not start, or the measurement fails.
pub(crate) fn block_on<T>(measurement: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the async runtime does not start")?;
    runtime.block_on(Box::pin(measurement))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Figures;

    impl Serialize for Figures {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serde_json::json!({ "rows": [1, 2] }).serialize(serializer)
        }
    }

    impl Results for Figures {
        fn write_table(&self, out: &mut dyn Write) -> Result<()> {
            Ok(writeln!(out, "1 2")?)
        }
    }

    #[test]
    fn both_forms_say_what_the_results_belong_to() {
        let inputs = serde_json::json!({ "runs": 5, "only": [], "sizes": [1, 2], "full": true, "from": null });
        let report = Report {
            command: "schedule",
            commit: "abc+".to_owned(),
            seed: Some(42),
            inputs: &inputs,
            test_host: TestHost::here(),
            results: &Figures,
        };
        let json = serde_json::to_value(&report).unwrap();
        for (field, value) in [
            ("command", serde_json::json!("schedule")),
            ("commit", serde_json::json!("abc+")),
            ("seed", serde_json::json!(42)),
            ("inputs", inputs.clone()),
            ("rows", serde_json::json!([1, 2])),
        ] {
            assert_eq!(json[field], value, "{field}");
        }
        assert!(json["test_host"]["processors"].is_number());
        let mut text = Vec::new();
        report.write_text(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "schedule: commit abc+; seed 42; full; runs 5; sizes 1, 2"
        );
        assert!(lines[1].starts_with("test host "), "{text}");
        assert_eq!(lines.last(), Some(&"1 2"));
    }
}
