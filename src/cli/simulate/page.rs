//! The page of a simulation: scores and plots in one HTML file that needs nothing else.

use std::fmt::Write as _;

use mortise_sim::ClusterMinute;

use super::column::PlayedColumn;
use super::plot::{Line, Unit, svg};
use super::scores::{notes, rows};
use crate::cli::score_table::clock;

const STYLE: &str = include_str!("page.css");

/// The page of what was played.
pub(super) fn html(played: &[PlayedColumn]) -> String {
    let Some(report) = played.first().and_then(PlayedColumn::first) else {
        return String::new();
    };
    let events: Vec<(i64, &str)> = report
        .samples
        .iter()
        .filter_map(|sample| Some((sample.seconds, sample.happened.as_deref()?)))
        .collect();
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
<title>mortise simulate</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>mortise simulate</h1>\n<p>{} of a simulated cluster from {}, seed {}. History {}.</p>\n",
        hours(report.totals.virtual_seconds),
        report.start,
        report.seed,
        report.history,
    );
    for note in notes(played).iter().filter(|note| !note.is_empty()) {
        _ = writeln!(out, "<p>{}.</p>", escaped(note));
    }
    table(&mut out, played);
    legend(&mut out, played);
    let at: Vec<i64> = events.iter().map(|(seconds, _)| seconds / 60).collect();
    if played.iter().any(|column| column.reports.len() > 1) {
        _ = writeln!(out, "<p>The plots are of seed {}.</p>", report.seed);
    }
    for (title, unit, value) in PLOTS {
        let mut lines: Vec<Line> = Vec::new();
        for (nth, column) in played.iter().enumerate() {
            let Some(report) = column.first() else {
                continue;
            };
            let minutes = report.minutes.iter();
            lines.push(Line {
                class: format!("c{}", nth % 4 + 1),
                name: column.name().to_owned(),
                values: minutes.clone().map(value).collect(),
            });
            // What pods need at least depends little on who runs the cluster.
            if unit == Unit::Dollars && nth == 0 {
                lines.push(Line {
                    class: "bound".to_owned(),
                    name: "at least".to_owned(),
                    values: minutes.map(|minute| minute.bound_micro_usd).collect(),
                });
            }
        }
        _ = write!(out, "<h2>{title}</h2>\n{}", svg(title, unit, &lines, &at));
    }
    if !events.is_empty() {
        out.push_str("<h2>What happens</h2>\n<ol>\n");
        for (seconds, text) in &events {
            _ = writeln!(
                out,
                "<li><time>{}</time> {}</li>",
                clock(*seconds),
                escaped(text)
            );
        }
        out.push_str("</ol>\n");
    }
    out.push_str("</body>\n</html>\n");
    out
}

type Value = fn(&ClusterMinute) -> i64;

const PLOTS: [(&str, Unit, Value); 4] = [
    ("Price per hour", Unit::Dollars, |minute| {
        minute.price_micro_usd
    }),
    ("Nodes", Unit::Count, |minute| minute.nodes.cast_signed()),
    ("Pods that wait for a node", Unit::Count, |minute| {
        minute.pods_waiting.cast_signed()
    }),
    ("Evictions since the start", Unit::Count, |minute| {
        minute.evictions.cast_signed()
    }),
];

/// The scores, one column per policy.
fn table(out: &mut String, played: &[PlayedColumn]) {
    out.push_str("<table>\n<tr><td></td>");
    for column in played {
        _ = write!(out, "<th scope=\"col\">{}</th>", column.name());
    }
    out.push_str("</tr>\n");
    for (words, values) in rows(played) {
        _ = write!(out, "<tr><th scope=\"row\">{words}</th>");
        for value in values {
            _ = write!(out, "<td>{value}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
}

fn legend(out: &mut String, played: &[PlayedColumn]) {
    out.push_str("<p class=\"legend\">");
    let names = played.iter().enumerate();
    let names = names.map(|(nth, column)| (format!("c{}", nth % 4 + 1), column.name()));
    for (class, name) in names.chain([("bound".to_owned(), "what pods need at least")]) {
        _ = write!(
            out,
            "<span><svg viewBox=\"0 0 28 8\" aria-hidden=\"true\"><path class=\"line {class}\" d=\"M0 4H28\"/></svg>{name}</span>"
        );
    }
    out.push_str("</p>\n");
}

fn hours(seconds: i64) -> String {
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match (hours, minutes) {
        (0, minutes) => format!("{minutes} minutes"),
        (1, 0) => "1 hour".to_owned(),
        (hours, 0) => format!("{hours} hours"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
