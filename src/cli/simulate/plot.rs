//! Line plots over time, as SVG. All arithmetic is in integers, so that the same report is the same file.

use std::fmt::Write as _;

use super::{clock, dollars};

/// Size and margins in pixels.
const WIDTH: i64 = 880;
const HEIGHT: i64 = 200;
const LEFT: i64 = 58;
const RIGHT: i64 = 10;
const TOP: i64 = 10;
const BOTTOM: i64 = 22;
/// Most points of a line; more are drawn as the highest of their neighbours.
const MOST_POINTS: usize = 600;
/// With more events, they have no numbers.
const MOST_NUMBERS: usize = 30;
/// Most ticks of the time axis.
const MOST_TICKS: i64 = 10;
/// Distances of ticks of the time axis in minutes, up to a week.
const TICKS_MIN: [i64; 14] = [
    1, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440, 2_880, 4_320, 10_080,
];

/// What the values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Micro-dollars.
    Dollars,
    Count,
}

impl Unit {
    pub(super) fn text(self, value: i64) -> String {
        match self {
            Self::Dollars => format!("${}", dollars(value)),
            Self::Count => value.to_string(),
        }
    }

    /// The smallest distance of two ticks.
    const fn least_tick(self) -> i64 {
        match self {
            Self::Dollars => 10_000,
            Self::Count => 1,
        }
    }
}

/// A line of a plot: one value per minute.
pub(super) struct Line {
    /// CSS class, which gives it its colour.
    pub(super) class: String,
    pub(super) name: String,
    pub(super) values: Vec<i64>,
}

/// A plot. `events`: minutes with something in the timeline, which get numbers from 1 on.
pub(super) fn svg(title: &str, unit: Unit, lines: &[Line], events: &[i64]) -> String {
    let minutes = lines
        .iter()
        .map(|line| line.values.len())
        .max()
        .unwrap_or(0);
    let minutes = i64::try_from(minutes).unwrap_or(i64::MAX).max(1);
    let highest = lines.iter().flat_map(|line| &line.values).max();
    let tick = value_tick(*highest.unwrap_or(&0), unit);
    let top = (*highest.unwrap_or(&0))
        .max(1)
        .div_euclid(tick)
        .saturating_add(1)
        * tick;
    let x = |minute: i64| LEFT * 10 + (WIDTH - LEFT - RIGHT) * 10 * minute / minutes;
    let y = |value: i64| {
        let height = i128::from((HEIGHT - TOP - BOTTOM) * 10);
        let part = i128::from(value.max(0)) * height / i128::from(top);
        (HEIGHT - BOTTOM) * 10 - i64::try_from(part).unwrap_or(0)
    };
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title} over time\">\n"
    );
    let mut value = 0;
    while value <= top {
        let at = tenths(y(value));
        _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{LEFT} {at}H{}\"/><text class=\"tick\" x=\"{}\" y=\"{at}\" dy=\"4\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6,
            unit.text(value),
        );
        value += tick;
    }
    let step = minutes_per_tick(minutes);
    for minute in (0..=minutes).step_by(usize::try_from(step).unwrap_or(1)) {
        let text = clock(minute * 60);
        let text = text.strip_suffix(":00").unwrap_or(&text);
        _ = writeln!(
            out,
            "<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
            tenths(x(minute)),
            HEIGHT - 6,
        );
    }
    for (nth, minute) in events.iter().enumerate() {
        let at = tenths(x(*minute));
        _ = writeln!(
            out,
            "<path class=\"event\" d=\"M{at} {TOP}V{}\"/>",
            HEIGHT - BOTTOM
        );
        if events.len() <= MOST_NUMBERS {
            _ = writeln!(
                out,
                "<text class=\"number\" x=\"{at}\" dx=\"3\" y=\"{}\">{}</text>",
                TOP + 8,
                nth + 1,
            );
        }
    }
    for line in lines {
        let mut path = String::new();
        for (minute, value) in thinned(&line.values) {
            let command = if path.is_empty() { 'M' } else { 'L' };
            _ = write!(path, "{command}{} {}", tenths(x(minute)), tenths(y(value)));
        }
        _ = writeln!(
            out,
            "<path class=\"line {}\" d=\"{path}\"><title>{}</title></path>",
            line.class, line.name
        );
    }
    out.push_str("</svg>\n");
    out
}

/// The points that are drawn: minute and value.
fn thinned(values: &[i64]) -> Vec<(i64, i64)> {
    let bucket = values.len().div_ceil(MOST_POINTS).max(1);
    let mut points = Vec::new();
    for (nth, chunk) in values.chunks(bucket).enumerate() {
        let end = (nth * bucket + chunk.len()).cast_signed();
        let highest = chunk.iter().max().copied().unwrap_or(0);
        points.push((i64::try_from(end).unwrap_or(i64::MAX), highest));
    }
    points
}

/// The distance of ticks for values up to `highest`: 1, 2 or 5 times a power of ten, at most five of them.
fn value_tick(highest: i64, unit: Unit) -> i64 {
    let mut tick = unit.least_tick();
    loop {
        for times in [1, 2, 5] {
            if highest / (tick * times) < 5 {
                return tick * times;
            }
        }
        tick = tick.saturating_mul(10);
    }
}

fn minutes_per_tick(minutes: i64) -> i64 {
    let mut all = TICKS_MIN.into_iter();
    let weeks = 10_080 * (minutes / (10_080 * MOST_TICKS) + 1);
    all.find(|step| minutes / step <= MOST_TICKS)
        .unwrap_or(weeks)
}

/// A number of tenths.
fn tenths(value: i64) -> String {
    format!("{}.{}", value / 10, value % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for (highest, tick) in [
            (0, 1),
            (4, 1),
            (5, 2),
            (9, 2),
            (10, 5),
            (24, 5),
            (25, 10),
            (99, 20),
        ] {
            assert_eq!(value_tick(highest, Unit::Count), tick, "{highest}");
        }
        assert_eq!(value_tick(0, Unit::Dollars), 10_000);
        assert_eq!(value_tick(1_640_000, Unit::Dollars), 500_000);
        assert_eq!(value_tick(i64::MAX / 20, Unit::Count) % 10, 0);
        for (minutes, step) in [(5, 1), (60, 10), (360, 60), (1_440, 180), (10_080, 1_440)] {
            assert_eq!(minutes_per_tick(minutes), step, "{minutes}");
        }
        assert_eq!(minutes_per_tick(527_040), 10_080 * 6);
    }

    #[test]
    fn thinning_keeps_peaks_and_the_end() {
        let mut values = vec![1; 10_000];
        values[4_321] = 77;
        let points = thinned(&values);
        assert!(points.len() <= MOST_POINTS);
        assert_eq!(points.last(), Some(&(10_000, 1)));
        assert_eq!(points.iter().filter(|(_, value)| *value == 77).count(), 1);
        assert_eq!(thinned(&[3, 4]), [(1, 3), (2, 4)]);
        assert!(thinned(&[]).is_empty());
    }

    #[test]
    fn a_line_stays_within_its_plot() {
        let line = |values: &[i64]| Line {
            class: "c1".to_owned(),
            name: "mortise".to_owned(),
            values: values.to_vec(),
        };
        let drawn = svg("nodes", Unit::Count, &[line(&[0, 3, 10])], &[1]);
        assert!(
            drawn.contains("class=\"line c1\" d=\"M328.6 178.0L599.3 144.4L870.0 66.0\""),
            "{drawn}"
        );
        assert!(drawn.contains(">1</text>"), "{drawn}");
        for odd in [vec![], vec![line(&[])], vec![line(&[0, 0])]] {
            assert!(svg("nodes", Unit::Count, &odd, &[]).ends_with("</svg>\n"));
        }
    }
}
