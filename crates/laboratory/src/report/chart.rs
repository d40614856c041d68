//! The chart of a figure, by its kind.

use super::bars::bars;
use super::canvas::Drawing;
use super::colour;
use super::grid::{self, Grid, PERCENTILES, Rounds, as_number, numbers};
use super::lines::{Panel, Series, panels};
use super::text;
use crate::error::Result;
use crate::experiments::{Figure, Kind};
use crate::raw::Line;
use crate::sample::Spread;
use serde_json::Value;

/// Draws a figure; none if no line has its numbers.
pub(super) fn chart(
    lines: &[Line],
    figure: &Figure,
    grid: &Grid,
    title: &str,
) -> Result<Option<Drawing>> {
    if figure.kind == Kind::Bars {
        return if grid.rows.is_empty() {
            Ok(None)
        } else {
            bars(grid, title, figure.axis).map(Some)
        };
    }
    let names = grid::systems(lines);
    let slots = colour::assign(&names);
    let all: Vec<(String, u8)> = names.into_iter().zip(slots).collect();
    let cases = grid::cases(lines);
    let of_cases = |panel: &dyn Fn(&[&Line]) -> Panel| -> Vec<Panel> {
        let of = |case: &String| {
            let within: Vec<&Line> = lines.iter().filter(|it| it.case == *case).collect();
            let name = if cases.len() > 1 { case.clone() } else { String::new() };
            Panel { name, ..panel(&within) }
        };
        cases.iter().map(of).collect()
    };
    let mut drawn = match figure.kind {
        Kind::Curves => vec![curves(lines, &cases, figure, &all)],
        Kind::Percentiles => of_cases(&|lines| percentiles(lines, figure, &all)),
        Kind::Millions => of_cases(&|lines| millions(lines, figure, &all)),
        Kind::Bars | Kind::Histogram => of_cases(&|lines| histogram(lines, figure, &all)),
    };
    for panel in &mut drawn {
        panel.series.retain(|it| !it.points.is_empty());
    }
    drawn.retain(|it| !it.series.is_empty());
    let is_drawn = |it: &&(String, u8)| {
        drawn.iter().any(|p| p.series.iter().any(|series| series.name == it.0))
    };
    let shown: Vec<(String, u8)> = all.iter().filter(is_drawn).cloned().collect();
    if drawn.is_empty() { Ok(None) } else { panels(title, &shown, &drawn).map(Some) }
}

fn spread(rounds: &Rounds) -> Option<Spread> {
    Spread::of(&rounds.values().copied().collect::<Vec<f64>>())
}

/// Returns the series of all systems, from the points of each.
fn series(all: &[(String, u8)], points: impl Fn(&str) -> Vec<(f64, Spread)>) -> Vec<Series> {
    let of = |(name, slot): &(String, u8)| Series {
        name: name.clone(),
        slot: *slot,
        points: points(name),
    };
    all.iter().map(of).collect()
}

fn curves(lines: &[Line], cases: &[String], figure: &Figure, all: &[(String, u8)]) -> Panel {
    let are_numbers = cases.iter().all(|case| as_number(case).is_some());
    let place = |at: usize, case: &str| match as_number(case) {
        Some(number) if are_numbers => number,
        _ => at as f64,
    };
    let points = |name: &str| {
        let point = |(at, case): (usize, &String)| {
            let lines = lines.iter().filter(|it| it.case == *case && it.system == name);
            let rounds =
                grid::rounds(lines, |line| Some(line.figure(figure.value)? * figure.scale));
            Some((place(at, case), spread(&rounds)?))
        };
        cases.iter().enumerate().filter_map(point).collect()
    };
    let name = |case: &String| as_number(case).map_or_else(|| case.clone(), text::tick);
    let marks = cases.iter().enumerate().map(|(at, case)| (place(at, case), name(case)));
    let axis_below = subject(lines);
    Panel {
        name: String::new(),
        series: series(all, points),
        axis: figure.axis.to_owned(),
        axis_below: axis_below.to_owned(),
        marks: Some(marks.collect()).filter(|_| cases.len() <= 12),
        log_over: [if axis_below == "round" { f64::INFINITY } else { 20.0 }, 30.0],
    }
}

/// Returns the name of the numbers that the cases are, as the results or the commands tell.
pub(super) fn subject(lines: &[Line]) -> &'static str {
    let is = |name: &str, more: f64| {
        lines.iter().all(|line| {
            line.figure(name).is_some_and(|it| as_number(&line.case) == Some(it + more))
        })
    };
    let in_command = |option: &str| {
        lines.iter().all(|line| {
            let words: Vec<&str> = line.command.split_whitespace().collect();
            words.windows(2).any(|pair| pair[0] == option && pair[1] == line.case)
        })
    };
    if is("round", 1.0) || is("round", 0.0) {
        "round"
    } else if is("files", 0.0) || is("cached_files", 0.0) || in_command("--files") {
        "files"
    } else if in_command("--threads") || is("threads", 0.0) {
        "threads"
    } else if lines.iter().all(|line| line.command.contains("fs-mark")) {
        "files"
    } else if lines.iter().any(|line| line.command.contains("--rounds")) {
        "round"
    } else {
        ""
    }
}

/// Percentiles lie so that each nine has the same width; the longest call is a step further.
fn percentiles(lines: &[&Line], figure: &Figure, all: &[(String, u8)]) -> Panel {
    let place = |at: usize| if at == 0 { 2_f64.log10() } else { at as f64 };
    let points = |name: &str| {
        let point = |(at, (part, _)): (usize, (&str, &str))| {
            let lines = lines.iter().copied().filter(|it| it.system == name);
            let value = format!("{}.{part}", figure.value);
            let rounds = grid::rounds(lines, |line| Some(line.figure(&value)? * figure.scale));
            Some((place(at), spread(&rounds)?))
        };
        PERCENTILES.into_iter().enumerate().filter_map(point).collect()
    };
    let marks =
        PERCENTILES.iter().enumerate().map(|(at, (_, word))| (place(at), (*word).to_owned()));
    Panel {
        name: String::new(),
        series: series(all, points),
        axis: figure.axis.to_owned(),
        axis_below: "percentile of the calls".to_owned(),
        marks: Some(marks.collect()),
        // Latencies are always on a logarithmic axis.
        log_over: [f64::INFINITY, 1.0],
    }
}

fn millions(lines: &[&Line], figure: &Figure, all: &[(String, u8)]) -> Panel {
    let points = |name: &str| {
        let lines = || lines.iter().copied().filter(|it| it.system == name);
        let count = lines().map(|line| numbers(line, figure.value).len()).max().unwrap_or(0);
        let point = |at: usize| {
            let value =
                |line: &Line| Some(numbers(line, figure.value).get(at).copied()? * figure.scale);
            Some(((at + 1) as f64, spread(&grid::rounds(lines(), value))?))
        };
        (0..count).filter_map(point).collect()
    };
    Panel {
        name: String::new(),
        series: series(all, points),
        axis: figure.axis.to_owned(),
        axis_below: "millions of files made so far".to_owned(),
        marks: None,
        log_over: [f64::INFINITY, 30.0],
    }
}

/// The share of the calls in each class of durations, at the upper bound of the class. A line
/// ends before a class in which no call was.
fn histogram(lines: &[&Line], figure: &Figure, all: &[(String, u8)]) -> Panel {
    let points = |name: &str| -> Vec<(f64, Spread)> {
        let lines = || lines.iter().copied().filter(|it| it.system == name);
        let mut bounds: Vec<f64> =
            lines().flat_map(|line| classes(line, figure.value)).map(|class| class[1]).collect();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        let point = |bound: &f64| {
            let rounds = grid::rounds(lines(), |line| {
                let all = classes(line, figure.value);
                let count: f64 = all.iter().map(|class| class[2]).sum();
                let within = all.iter().filter(|class| class[1] == *bound).map(|class| class[2]);
                (count > 0.0).then(|| within.sum::<f64>() / count * 100.0)
            });
            Some((bound * figure.scale, spread(&rounds)?))
        };
        bounds.iter().filter_map(point).collect()
    };
    let parts = |whole: Series| -> Vec<Series> {
        let parts = whole.points.split(|(_, it)| it.median <= 0.0);
        let part = |points: &[(f64, Spread)]| Series { points: points.to_vec(), ..whole.clone() };
        parts.map(part).collect()
    };
    Panel {
        name: String::new(),
        series: series(all, points).into_iter().flat_map(parts).collect(),
        axis: "% of the calls".to_owned(),
        axis_below: format!("{}, at most", figure.axis),
        marks: None,
        log_over: [20.0, 30.0],
    }
}

/// Returns the classes of a histogram: lower bound, upper bound, calls.
fn classes(line: &Line, name: &str) -> Vec<[f64; 3]> {
    let array = line.result.get(name).and_then(Value::as_array);
    let class = |it: &Value| {
        let part = |at: usize| it.get(at).and_then(Value::as_f64);
        Some([part(0)?, part(1)?, part(2)?])
    };
    array.into_iter().flatten().filter_map(class).collect()
}
