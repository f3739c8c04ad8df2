//! The tables that people read: medians of the runs.

use std::io::Write;

use anyhow::Result;

use super::{CompareResults, Way, median, provisioning, throughput};
use crate::report::Results;

/// What the project wants to hold of the middle rate, by number of nodes.
const WANTED: [(u32, f64); 2] = [(200, 80.0), (1_000, 70.0)];

impl Results for CompareResults {
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        let Self {
            kubernetes,
            settings,
            throughput,
            provisioning,
        } = self;
        writeln!(
            out,
            "control plane, mortise and this client share the test host; medians of runs, each way in turn"
        )?;
        writeln!(out, "Kubernetes {kubernetes}; {settings}")?;
        let mut sizes: Vec<u32> = throughput.iter().map(|row| row.nodes).collect();
        sizes.dedup();
        for nodes in sizes {
            let rows: Vec<_> = throughput.iter().filter(|row| row.nodes == nodes).collect();
            rates(out, nodes, &rows)?;
        }
        if !provisioning.is_empty() {
            launched(out, provisioning)?;
        }
        Ok(())
    }
}

fn rates(out: &mut dyn Write, nodes: u32, rows: &[&throughput::Row]) -> Result<()> {
    let of = |way: Way, figure: fn(&throughput::Row) -> f64| {
        median(
            rows.iter()
                .filter(|row| row.way == way)
                .map(|row| figure(row)),
        )
    };
    let pods = rows.first().map_or(0, |row| row.pods);
    writeln!(
        out,
        "\n{:<28}{:>10}{:>8}{:>10}{:>8}{:>12}{:>12}{:>9}{:>9}",
        format!("{pods} pods, {nodes} nodes"),
        "middle/s",
        "%",
        "all/s",
        "%",
        "sched cpu s",
        "mort. cpu s",
        "calls",
        "call ms"
    )?;
    let (middle, all) = (
        of(Way::Without, |row| row.middle_per_s),
        of(Way::Without, |row| row.all_per_s),
    );
    for way in Way::ALL {
        let own = of(way, |row| row.middle_per_s);
        let percent = own / middle * 100.0;
        let wanted = WANTED
            .iter()
            .find(|(size, _)| *size == nodes && way == Way::With);
        let verdict = match wanted {
            None => String::new(),
            Some((_, least)) if percent >= *least => format!("  (wanted: {least} %)"),
            Some((_, least)) => format!("  MISSED (wanted: {least} %)"),
        };
        let own_all = of(way, |row| row.all_per_s);
        writeln!(
            out,
            "{:<28}{own:>10.0}{percent:>8.0}{own_all:>10.0}{:>8.0}{:>12.2}{:>12.2}{:>9.0}{:>9.3}{verdict}",
            way.label(),
            own_all / all * 100.0,
            of(way, |row| row.scheduler_cpu_s),
            of(way, |row| row.mortise_cpu_s),
            of(way, |row| row.calls),
            of(way, |row| row.call_ms),
        )?;
    }
    Ok(())
}

fn launched(out: &mut dyn Write, rows: &[provisioning::Row]) -> Result<()> {
    writeln!(
        out,
        "\nservices come and go while short-lived pods arrive\n{:<18}{:>9}{:>7}{:>10}{:>8}{:>9}{:>8}{:>8}{:>10}{:>9}{:>10}{:>9}{:>9}{:>9}{:>8}",
        "",
        "launched",
        "empty",
        "redundant",
        "drained",
        "in drain",
        "evict.",
        "$/h",
        "DS > 30 s",
        "earlier",
        "landed %",
        "of",
        "p50 ms",
        "p99 ms",
        "late s"
    )?;
    #[expect(clippy::cast_precision_loss, reason = "counts of nodes and pods")]
    let count = |number: usize| number as f64;
    for way in Way::PROVISIONING {
        let own: Vec<_> = rows.iter().filter(|row| row.way == way).collect();
        let of =
            |figure: &dyn Fn(&provisioning::Row) -> f64| median(own.iter().map(|row| figure(row)));
        let (nominated, landed) = own.iter().fold((0, 0), |(nominated, landed), row| {
            (nominated + row.nominated, landed + row.landed)
        });
        writeln!(
            out,
            "{:<18}{:>9.1}{:>7.1}{:>10.1}{:>8.1}{:>9.1}{:>8.1}{:>8.3}{:>10.1}{:>9.1}{:>10.2}{:>9}{:>9.0}{:>9.0}{:>8.1}",
            way.label(),
            of(&|row| count(row.launched)),
            of(&|row| count(row.empty_on_arrival)),
            of(&|row| count(row.redundant)),
            of(&|row| count(row.drained)),
            of(&|row| count(row.bound_in_drain)),
            of(&|row| count(row.evictions)),
            of(&|row| row.dollars_per_hour),
            of(&|row| count(row.daemon_pods_late)),
            of(&|row| count(row.earlier)),
            count(landed) / count(nominated) * 100.0,
            nominated,
            of(&|row| row.wait.p50_ms),
            of(&|row| row.wait.p99_ms),
            of(&|row| row.late_s),
        )?;
    }
    Ok(())
}
