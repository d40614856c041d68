//! The beginning of a report: the machine, how to read it, and the ratios of all experiments.

use super::chart::subject;
use super::grid::{self, Grid, is_ours};
use super::page::{Block, Table, Text};
use super::study::{Study, ratio, raw};
use super::text;
use crate::experiments::{Chapter, Kind};
use crate::machine::{BUSY, Machine};
use crate::raw::Line;

/// Most cases of one experiment in the summary.
const CASES: usize = 4;

/// Returns the blocks before the first experiment.
pub(super) fn blocks(machine: Option<&Machine>, studies: &[Study]) -> Vec<Block> {
    let lines: Vec<&Line> = studies.iter().flat_map(|it| &it.lines).collect();
    let mut blocks = vec![
        Block::Title("Shoal beside other filesystems".to_owned()),
        Block::Text(
            "",
            "Experiments on Shoal, a filesystem in Rust, and on the filesystems that Linux has, on \
             one machine and in one run. They repeat the measurements of published work, and add \
             those of a whole filesystem. Every number here is made of lines that a measured \
             program printed; the lines are in the folder raw. Other machines give other numbers: \
             compare the ratios, and run it yourself with cargo xtask lab run."
                .to_owned(),
        ),
    ];
    if let Some(machine) = machine {
        blocks.push(Block::Text("Date", machine.date.clone()));
        blocks.push(Block::Text("Machine", format!("{}.", machine.describe())));
    }
    if lines.is_empty() {
        blocks.push(Block::Text("", "Nothing has been measured yet.".to_owned()));
        return blocks;
    }
    blocks.push(Block::Text("Run", state(machine, &lines)));
    blocks.push(Block::Text("How to read it", reading()));
    blocks.push(Block::Section(2, "contents".to_owned(), "Contents".to_owned()));
    blocks.push(contents(studies));
    blocks.extend(summary(studies));
    blocks
}

fn reading() -> String {
    "The large number of a cell is the median of the rounds, the range below it is from the \
     smallest to the largest round. × is the ratio to the experiment's baseline: of each round \
     that both have, the ratio of the two values, and of these the median, with its interval of \
     95 % by the bootstrap (with two or three rounds, from the smallest to the largest; left \
     out where both ends look the same). Ratios whose interval has 1 in it show no difference. \
     Whiskers and bands in figures are the smallest and the largest round. How many files a \
     system had, and how many passes over them, is in its command: the library may have more, as \
     its calls take a tenth of the time, and a sample of some milliseconds says nothing."
        .to_owned()
}

/// Returns the size of the run and the state of the machine during it.
fn state(machine: Option<&Machine>, lines: &[&Line]) -> String {
    let mut counts: Vec<usize> = Vec::new();
    let key = |line: &Line| (line.system.clone(), line.command.clone());
    let mut rounds = std::collections::BTreeMap::<_, std::collections::BTreeSet<u32>>::new();
    for line in lines {
        rounds.entry(key(line)).or_default().insert(line.round);
    }
    counts.extend(rounds.values().map(std::collections::BTreeSet::len));
    let ends = |values: &[f64]| {
        let fold = |of: fn(f64, f64) -> f64| values.iter().copied().reduce(of);
        Some((fold(f64::min)?, fold(f64::max)?))
    };
    let (few, many) = (counts.iter().min().unwrap_or(&0), counts.iter().max().unwrap_or(&0));
    let rounds = match (few, many) {
        (few, many) if few != many => format!("{few} to {many} rounds"),
        (1, _) => "1 round".to_owned(),
        (few, _) => format!("{few} rounds"),
    };
    let size = machine.map_or_else(String::new, |it| format!("size {}, ", it.size));
    let mut state = format!("{size}{rounds} of each measurement, {} lines", lines.len());
    let loads: Vec<f64> = lines.iter().map(|it| it.now.load).collect();
    if let Some((low, high)) = ends(&loads) {
        state += &format!("; load before them {low:.1} to {high:.1}");
    }
    let mhz: Vec<f64> = lines.iter().map(|it| it.now.mhz).filter(|it| *it > 0.0).collect();
    if let Some((low, high)) = ends(&mhz) {
        let range = if high - low < 1.0 { String::new() } else { format!("{low:.0} to ") };
        state += &format!("; processors at {range}{high:.0} MHz");
    }
    let others: Vec<f64> = lines.iter().filter_map(|it| it.now.others).collect();
    if !others.is_empty() {
        let busy = others.iter().filter(|it| **it > BUSY).count();
        state += &format!("; {busy} of {} lines beside other programs", others.len());
    }
    state + "."
}

fn contents(studies: &[Study]) -> Block {
    let mut entries = vec![(2, "summary".to_owned(), "Summary".to_owned())];
    for chapter in Chapter::ALL {
        let mut within = studies.iter().filter(|it| it.experiment.chapter == chapter).peekable();
        if within.peek().is_some() {
            entries.push((2, anchor(chapter), chapter.title().to_owned()));
            entries.extend(
                within.map(|it| (3, it.experiment.id.to_owned(), it.experiment.title.to_owned())),
            );
        }
    }
    Block::Contents(entries)
}

/// Returns the anchor of a chapter.
pub(super) fn anchor(chapter: Chapter) -> String {
    format!("chapter-{}", chapter as u8 + 1)
}

/// Returns a table of the first figure of each experiment: Shoal and its ratio to the baseline.
fn summary(studies: &[Study]) -> Vec<Block> {
    let head = ["first figure of each", "Shoal, library", "Shoal, mount", "beside", "raw"];
    let mut rows = Vec::new();
    for study in studies {
        let Some(figure) = study.experiment.figures.first() else { continue };
        let grid = study.grid(figure);
        let unit = format!("{}; {} is better", figure.axis, figure.better.word());
        let is_curve = figure.kind == Kind::Curves;
        let skip = if is_curve { grid.rows.len().saturating_sub(1) } else { 0 };
        for at in (0..grid.rows.len()).skip(skip).take(CASES) {
            rows.extend(summary_row(study, &grid, at, &unit, is_curve));
        }
    }
    if rows.is_empty() {
        return Vec::new();
    }
    let head = head.map(str::to_owned).to_vec();
    let note = "The last case of a curve, the first four of another figure; the rest is below. In \
                the column of the library there are also settings and structures of Shoal, by \
                their names.";
    vec![
        Block::Section(2, "summary".to_owned(), "Summary".to_owned()),
        Block::Table(Table { head, rows }),
        Block::Note(note.to_owned()),
    ]
}

fn summary_row(
    study: &Study,
    grid: &Grid,
    at: usize,
    unit: &str,
    is_curve: bool,
) -> Option<Vec<Text>> {
    let row = grid.rows.get(at)?;
    let base = grid.baseline;
    let place = |name: &str| grid.systems.iter().position(|it| it == name);
    let is_there = |at: &usize| row.cells.get(*at).is_some_and(Option::is_some);
    let mount = place("Shoal, mount").filter(is_there);
    let other = || {
        let is_other = |(at, name): &(usize, &String)| {
            is_ours(name) && Some(*at) != base && Some(*at) != mount && is_there(at)
        };
        grid.systems.iter().enumerate().find(is_other).map(|(at, _)| at)
    };
    let library = place("Shoal, library").filter(is_there).or_else(other);
    library.or(mount)?;
    let cell = |at: Option<usize>, is_named: bool| {
        let Some((at, cell)) = at.and_then(|at| Some((at, row.cells.get(at)?.as_ref()?))) else {
            return Text::default();
        };
        let mut small: Vec<String> = cell.ratio.iter().map(ratio).collect();
        small.extend(is_named.then(|| grid.systems.get(at).cloned()).flatten());
        Text { small, ..Text::of(text::number(cell.spread.median)) }
    };
    let is_library = library == place("Shoal, library");
    let case = grid::shown(&row.label);
    let subject = if is_curve { subject(&study.lines) } else { "" };
    let case = match subject {
        "" => case,
        "round" => format!("round {case}"),
        subject => format!("{case} {subject}"),
    };
    let title = Text {
        main: format!("{}: {}", study.experiment.title, case),
        small: vec![unit.to_owned()],
        link: Some(format!("#{}", study.experiment.id)),
    };
    let beside = base.filter(|base| Some(*base) != library);
    Some(vec![
        title,
        cell(library, !is_library),
        cell(mount, false),
        cell(beside, true),
        raw(study.experiment.id),
    ])
}

/// Returns the experiments of which nothing was measured, and why.
pub(super) fn unmeasured(all: &[Study]) -> Vec<Block> {
    let empty = || all.iter().filter(|it| it.lines.is_empty());
    if empty().next().is_none() || empty().count() == all.len() {
        return Vec::new();
    }
    let mut blocks =
        vec![Block::Section(2, "not-measured".to_owned(), "Not measured in this run".to_owned())];
    for it in empty() {
        let why = super::study::missing(&it.skipped);
        let why = why.map_or_else(|| ".".to_owned(), |why| format!(": {why}"));
        blocks
            .push(Block::Text("", format!("{} ({}){why}", it.experiment.title, it.experiment.id)));
    }
    blocks
}

/// Returns the grid of a figure of an experiment by the name of its value.
pub(super) fn grid_of(study: &Study, value: &str) -> Option<Grid> {
    let figure = study.experiment.figures.iter().find(|it| it.value == value)?;
    Some(grid::of(&study.lines, figure, study.experiment.baseline))
}
