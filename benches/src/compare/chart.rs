//! A bar chart as SVG, drawn with nothing but text.

use std::fmt::Write as _;

/// Bars of one group: the value of each series, with the least and the most that was measured.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) bars: Vec<Bar>,
}

/// One bar: the median, and the spread of all runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    pub(crate) value: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 80.0;
/// Left of the legend.
const MARGIN: f64 = 15.0;
/// Names in a row of the legend.
const NAMES: usize = 5;
/// One colour for each series, told apart also by those who see no red or green.
const COLOURS: [&str; 9] = [
    "#888888", "#0072b2", "#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#f0e442",
    "#000000",
];

/// Draws groups of bars; a thin line on each bar shows the spread of the runs.
pub(crate) fn bars(title: &str, unit: &str, series: &[&str], groups: &[Group]) -> String {
    let most = groups
        .iter()
        .flat_map(|group| &group.bars)
        .map(|bar| bar.most)
        .fold(0.0_f64, f64::max);
    let top = rounded_up(most);
    let height = HEIGHT - TOP - BOTTOM;
    let y = |value: f64| TOP + height - value / top * height;
    #[expect(clippy::cast_precision_loss, reason = "a few groups of a few bars")]
    let count = |number: usize| number as f64;
    let group_width = (WIDTH - LEFT - 10.0) / count(groups.len().max(1));
    let bar_width = group_width * 0.8 / count(series.len().max(1));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"18\" font-size=\"14\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        let line = y(value);
        push(
            &mut svg,
            format_args!(
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{line:.1}\" y2=\"{line:.1}\" stroke=\"#dddddd\"/>\n<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                WIDTH - 10.0,
                LEFT - 6.0,
                line + 4.0,
                number(value)
            ),
        );
    }
    push(
        &mut svg,
        format_args!(
            "<text x=\"{LEFT}\" y=\"36\" fill=\"#555555\">{}</text>\n",
            escaped(unit)
        ),
    );
    for (at, group) in groups.iter().enumerate() {
        let left = LEFT + group_width * (count(at) + 0.1);
        for (which, bar) in group.bars.iter().enumerate() {
            let x = left + bar_width * count(which);
            let colour = COLOURS[which % COLOURS.len()];
            let middle = x + bar_width / 2.0;
            push(
                &mut svg,
                format_args!(
                    "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>\n<line x1=\"{middle:.1}\" x2=\"{middle:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"black\"/>\n<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"10\">{}</text>\n",
                    y(bar.value),
                    (bar_width - 2.0).max(1.0),
                    bar.value / top * height,
                    y(bar.least),
                    y(bar.most),
                    y(bar.most) - 3.0,
                    number(bar.value)
                ),
            );
        }
        push(
            &mut svg,
            format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
                left + group_width * 0.4,
                HEIGHT - BOTTOM + 18.0,
                escaped(&group.name)
            ),
        );
    }
    for (which, name) in series.iter().enumerate() {
        let x = MARGIN + (WIDTH - MARGIN) / count(NAMES) * count(which % NAMES);
        let y = HEIGHT - 40.0 + 20.0 * count(which / NAMES);
        push(
            &mut svg,
            format_args!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n<text x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
                y,
                COLOURS[which % COLOURS.len()],
                x + 18.0,
                y + 10.0,
                escaped(name)
            ),
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn push(svg: &mut String, part: std::fmt::Arguments<'_>) {
    // A String takes everything.
    svg.write_fmt(part).ok();
}

/// The next 1, 2 or 5 times a power of ten; 1 for nothing.
fn rounded_up(value: f64) -> f64 {
    if value.is_nan() || value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps
        .into_iter()
        .find(|step| *step >= value)
        .unwrap_or(value)
}

fn number(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if value >= 1.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_holds_every_bar_and_name() {
        let bar = |value: f64| Bar {
            value,
            least: value - 1.0,
            most: value + 1.0,
        };
        let groups = [
            Group {
                name: "200 nodes".to_owned(),
                bars: vec![bar(440.0), bar(300.0)],
            },
            Group {
                name: "a < b".to_owned(),
                bars: vec![bar(380.0), bar(170.0)],
            },
        ];
        let svg = bars("rate", "pods/s", &["without", "with"], &groups);
        assert_eq!(
            svg.matches("<rect x=").count(),
            4 + 2,
            "bars and the legend"
        );
        assert!(
            svg.contains("a &lt; b") && svg.contains("200 nodes") && svg.contains(">500<"),
            "{svg}"
        );
        assert_eq!(rounded_up(441.0), 500.0);
        assert_eq!(rounded_up(0.0), 1.0);
    }
}
