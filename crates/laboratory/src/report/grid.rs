//! The numbers of a figure: rows by systems, each a median with its spread and its ratio.

use super::text;
use crate::experiments::{Figure, Kind};
use crate::rank;
use crate::raw::Line;
use crate::sample::{Spread, median};
use serde_json::Value;
use std::collections::BTreeMap;

/// Order of the systems in figures and tables; others follow as they appear.
const ORDER: [&str; 21] = [
    "Shoal, library",
    "Shoal, session",
    "Shoal, default mount",
    "Shoal, mount",
    "Shoal, tools",
    "Shoal, off",
    "Shoal, shortcut",
    "Shoal, intents",
    "Shoal, needed",
    "Shoal, table",
    "Shoal, list",
    "shoal",
    "xarray",
    "needed",
    "tmpfs",
    "XFS",
    "XFS, parent pointers",
    "ext4",
    "ext4, orphan file",
    "btrfs",
    "rbtree",
];

/// Percentiles of a latency: name in the result, and in the report.
pub(super) const PERCENTILES: [(&str, &str); 5] =
    [("p50", "50 %"), ("p90", "90 %"), ("p99", "99 %"), ("p999", "99.9 %"), ("max", "longest")];

/// A ratio to the baseline.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Ratio {
    pub middle: f64,
    /// Of 95 %; none of a single round.
    pub interval: Option<[f64; 2]>,
    /// Made of rounds that both systems have.
    pub is_paired: bool,
}

/// Values of one system in one row, by round.
pub(super) type Rounds = BTreeMap<u32, f64>;

/// A number of a table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Cell {
    pub spread: Spread,
    /// None of the baseline itself, or without it.
    pub ratio: Option<Ratio>,
}

/// A row of a table.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Row {
    pub label: String,
    /// One for each system.
    pub cells: Vec<Option<Cell>>,
}

/// Numbers of a figure.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Grid {
    pub systems: Vec<String>,
    pub baseline: Option<usize>,
    pub rows: Vec<Row>,
}

/// Returns the systems of the lines, in their order.
pub(super) fn systems(lines: &[Line]) -> Vec<String> {
    let mut systems: Vec<String> = Vec::new();
    for line in lines {
        if !systems.contains(&line.system) {
            systems.push(line.system.clone());
        }
    }
    let place = |name: &str| match ORDER.iter().position(|it| *it == name) {
        Some(place) => place,
        None if is_ours(name) => 12,
        None => ORDER.len(),
    };
    systems.sort_by_key(|name| place(name));
    systems
}

/// Shoal in one of its settings, or a structure of it.
pub(super) fn is_ours(system: &str) -> bool {
    system.to_lowercase().starts_with("shoal") || matches!(system, "xarray" | "needed")
}

/// Returns the cases of the lines: by number, or as they appear.
pub(super) fn cases(lines: &[Line]) -> Vec<String> {
    let mut cases: Vec<String> = Vec::new();
    for line in lines {
        if !cases.contains(&line.case) {
            cases.push(line.case.clone());
        }
    }
    if cases.iter().all(|case| as_number(case).is_some()) {
        let key = |case: &String| as_number(case).unwrap_or(0.0);
        cases.sort_by(|a, b| key(a).total_cmp(&key(b)));
    }
    cases
}

/// Returns a case that is a number.
pub(super) fn as_number(case: &str) -> Option<f64> {
    case.trim().parse().ok().filter(|it: &f64| it.is_finite())
}

/// Returns a case as it is shown: a large number has commas.
pub(super) fn shown(case: &str) -> String {
    let whole = as_number(case).filter(|it| *it >= 10_000.0 && it.fract() == 0.0);
    whole.map_or_else(|| case.to_owned(), text::number)
}

/// Returns the values by round; of several lines in one round the median.
pub(super) fn rounds<'a>(
    lines: impl Iterator<Item = &'a Line>,
    value: impl Fn(&Line) -> Option<f64>,
) -> Rounds {
    let mut all: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for line in lines {
        if let Some(value) = value(line).filter(|it| it.is_finite()) {
            all.entry(line.round).or_default().push(value);
        }
    }
    all.into_iter().map(|(round, values)| (round, median(&values))).collect()
}

/// Returns the ratio to a baseline, if there is one.
pub(super) fn ratio(baseline: &Rounds, of: &Rounds) -> Option<Ratio> {
    let both = of.iter().filter_map(|(round, value)| Some(value / baseline.get(round)?));
    let both: Vec<f64> = both.collect();
    if both.iter().any(|it| !it.is_finite()) {
        return None;
    }
    let is_paired = !both.is_empty();
    let (middle, interval) = match both.len() {
        // As the bootstrap would: the median of three is the smallest in a quarter of resamples.
        1..=3 => {
            let spread = Spread::of(&both)?;
            (spread.median, [spread.low, spread.high])
        }
        0 => {
            let values = |of: &Rounds| -> Vec<f64> { of.values().copied().collect() };
            if baseline.is_empty() || of.is_empty() {
                return None;
            }
            rank::ratio(&values(baseline), &values(of))
        }
        count => rank::ratio(&vec![1.0; count], &both),
    };
    let is_finite = middle.is_finite() && interval.iter().all(|it| it.is_finite());
    let rounds = if is_paired { both.len() } else { baseline.len().min(of.len()) };
    is_finite.then_some(Ratio { middle, interval: (rounds > 1).then_some(interval), is_paired })
}

/// Takes a value of a line for a row.
type Take = Box<dyn Fn(&Line) -> Option<f64>>;

/// Returns the numbers of a figure.
pub(super) fn of(lines: &[Line], figure: &Figure, baseline: &str) -> Grid {
    let systems = systems(lines);
    let cases = cases(lines);
    let baseline = systems.iter().position(|it| it == baseline);
    let mut rows = Vec::new();
    for case in &cases {
        for (label, take) in takes(figure, case, cases.len() > 1) {
            let of = |system: &String| {
                let lines = lines.iter().filter(|it| it.case == *case && it.system == *system);
                rounds(lines, &take)
            };
            let all: Vec<Rounds> = systems.iter().map(of).collect();
            let base = baseline.and_then(|at| all.get(at));
            let cells = all.iter().enumerate().map(|(at, values)| {
                let spread = Spread::of(&values.values().copied().collect::<Vec<f64>>())?;
                let base = base.filter(|_| Some(at) != baseline);
                Some(Cell { spread, ratio: base.and_then(|base| ratio(base, values)) })
            });
            let cells: Vec<Option<Cell>> = cells.collect();
            if cells.iter().any(Option::is_some) {
                rows.push(Row { label, cells });
            }
        }
    }
    let is_shown =
        |at: usize| rows.iter().any(|row| row.cells.get(at).is_some_and(Option::is_some));
    let shown: Vec<usize> = (0..systems.len()).filter(|at| is_shown(*at)).collect();
    let rows = rows.iter().map(|row| {
        let cells = shown.iter().map(|at| row.cells.get(*at).copied().flatten()).collect();
        Row { label: row.label.clone(), cells }
    });
    let rows = rows.collect();
    Grid {
        baseline: baseline.and_then(|base| shown.iter().position(|at| *at == base)),
        systems: shown.iter().filter_map(|at| systems.get(*at).cloned()).collect(),
        rows,
    }
}

/// Returns the rows of a case: their labels, and the value of each.
fn takes(figure: &Figure, case: &str, is_one_of_many: bool) -> Vec<(String, Take)> {
    let (scale, value) = (figure.scale, figure.value);
    let label = |part: &str| match is_one_of_many {
        true => format!("{case}, {part}"),
        false => part.to_owned(),
    };
    match figure.kind {
        Kind::Bars | Kind::Curves => {
            let take = move |line: &Line| Some(line.figure(value)? * scale);
            vec![(case.to_owned(), Box::new(take) as Take)]
        }
        Kind::Percentiles => {
            let row = |(part, word): (&str, &str)| {
                let name = format!("{value}.{part}");
                let take = move |line: &Line| Some(line.figure(&name)? * scale);
                (label(word), Box::new(take) as Take)
            };
            let mean = [("mean", "mean")];
            PERCENTILES.into_iter().chain(mean).map(row).collect()
        }
        Kind::Millions => {
            let first = move |line: &Line| Some(numbers(line, value).first()? * scale);
            let last = move |line: &Line| Some(numbers(line, value).last()? * scale);
            let both = move |line: &Line| {
                let all = numbers(line, value);
                Some(all.last()? / all.first()?)
            };
            vec![
                (label("first million"), Box::new(first) as Take),
                (label("last million"), Box::new(last) as Take),
                (label("last over first (no unit)"), Box::new(both) as Take),
            ]
        }
        Kind::Histogram => Vec::new(),
    }
}

/// Returns an array of numbers of the result; one that is none ends it.
pub(super) fn numbers(line: &Line, name: &str) -> Vec<f64> {
    let array = line.result.get(name).and_then(Value::as_array);
    array.into_iter().flatten().map_while(Value::as_f64).collect()
}
