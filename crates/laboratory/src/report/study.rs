//! The part of a report about one experiment.

use super::chart::{chart, subject};
use super::grid::{self, Cell, Grid, Ratio, Row};
use super::page::{Block, Table, Text};
use super::text;
use crate::error::Result;
use crate::experiments::{Experiment, Figure, Kind};
use crate::raw::{Line, Skipped};

/// An experiment with its lines.
pub(super) struct Study {
    pub experiment: &'static Experiment,
    pub lines: Vec<Line>,
    pub skipped: Vec<Skipped>,
}

impl Study {
    /// Returns the blocks of the experiment.
    pub(super) fn blocks(&self) -> Result<Vec<Block>> {
        let it = self.experiment;
        let title = Block::Section(3, it.id.to_owned(), it.title.to_owned());
        let mut blocks = vec![title, Block::Text("", it.shows.to_owned())];
        if !it.answers.is_empty() {
            blocks.push(Block::Text("Published", it.answers.to_owned()));
        }
        if !it.aims.is_empty() {
            blocks.push(Block::Text("Aims, reached and missed", it.aims.to_owned()));
        }
        let command = format!("cargo xtask lab run --only {}", it.id);
        blocks.push(Block::Command("This one alone", command));
        blocks.extend(self.commands());
        if let Some(missing) = missing(&self.skipped) {
            blocks.push(Block::Text("Not measured", missing));
        }
        for (at, figure) in it.figures.iter().enumerate() {
            blocks.extend(self.figure(at + 1, figure)?);
        }
        Ok(blocks)
    }

    fn commands(&self) -> Option<Block> {
        let mut all: Vec<String> = Vec::new();
        for line in &self.lines {
            if !all.contains(&line.command) {
                all.push(line.command.clone());
            }
        }
        let summary = match all.len() {
            1 => "Its command".to_owned(),
            count => format!("Its {count} commands"),
        };
        (!all.is_empty()).then_some(Block::Commands(summary, all))
    }

    /// Returns the numbers of a figure.
    pub(super) fn grid(&self, figure: &Figure) -> Grid {
        grid::of(&self.lines, figure, self.experiment.baseline)
    }

    fn figure(&self, number: usize, figure: &Figure) -> Result<Vec<Block>> {
        let it = self.experiment;
        let grid = self.grid(figure);
        let title = format!("{}: {}", it.title, figure.axis);
        let Some(drawing) = chart(&self.lines, figure, &grid, &title)? else {
            let none = format!("No line of the run has numbers of \"{}\".", figure.axis);
            return Ok(vec![Block::Note(none)]);
        };
        let better = match figure.kind {
            Kind::Histogram => "further left is better".to_owned(),
            _ => format!("{} is better", figure.better.word()),
        };
        let caption = format!("{title}; {better}.");
        let axis = match (figure.kind, subject(&self.lines)) {
            (Kind::Curves, subject) if !subject.is_empty() => {
                format!("{}, by {subject}", figure.axis)
            }
            _ => figure.axis.to_owned(),
        };
        let mut blocks = vec![Block::Figure(format!("{}-{number}", it.id), drawing, caption)];
        if !grid.rows.is_empty() {
            blocks.push(Block::Table(self.table(&grid, &axis)));
            blocks.extend(self.note(&grid).map(Block::Note));
        }
        Ok(blocks)
    }

    fn table(&self, grid: &Grid, axis: &str) -> Table {
        let mut head = vec![axis.to_owned()];
        head.extend(grid.systems.iter().cloned());
        head.push("raw".to_owned());
        let rows = grid.rows.iter().map(|row| self.row(row)).collect();
        Table { head, rows }
    }

    fn row(&self, row: &Row) -> Vec<Text> {
        let mut cells = vec![Text::of(grid::shown(&row.label))];
        cells.extend(row.cells.iter().map(|cell| cell.as_ref().map_or_else(Text::default, number)));
        cells.push(raw(self.experiment.id));
        cells
    }

    /// Returns a note on the ratios of a table, if it needs one.
    fn note(&self, grid: &Grid) -> Option<String> {
        let baseline = self.experiment.baseline;
        let ratios = || {
            let cells = grid.rows.iter().flat_map(|row| row.cells.iter().flatten());
            cells.filter_map(|cell| cell.ratio)
        };
        if grid.baseline.is_none() {
            return Some(format!("No ratios: {baseline}, the baseline, was not measured."));
        }
        let mut note = match ratios().next() {
            Some(_) => format!("×: ratio to {baseline}."),
            None => return None,
        };
        if ratios().any(|it| it.interval.is_none()) {
            note += " A single round has no interval.";
        }
        if ratios().any(|it| !it.is_paired) {
            note += " †: no common round, so the ratio is that of the medians.";
        }
        Some(note)
    }
}

/// Returns the link to the raw file of an experiment.
pub(super) fn raw(id: &str) -> Text {
    Text { link: Some(format!("raw/{id}.jsonl")), ..Text::of("lines") }
}

/// Returns the systems that were not measured, and why.
pub(super) fn missing(skipped: &[Skipped]) -> Option<String> {
    let mut whys: Vec<(&str, Vec<&str>)> = Vec::new();
    for it in skipped {
        match whys.iter_mut().find(|(why, _)| *why == it.why) {
            Some((_, systems)) => systems.push(&it.system),
            None => whys.push((&it.why, vec![&it.system])),
        }
    }
    let each: Vec<String> =
        whys.iter().map(|(why, systems)| format!("{} ({why})", systems.join("; "))).collect();
    (!each.is_empty()).then(|| format!("{}.", each.join("; ")))
}

/// Returns a median with its spread and its ratio.
fn number(cell: &Cell) -> Text {
    let spread = &cell.spread;
    let mut small = Vec::new();
    let main = text::number(spread.median);
    let range = text::range(spread.low, spread.high);
    if spread.rounds > 1 && range != main {
        small.push(range);
    }
    small.extend(cell.ratio.as_ref().map(ratio));
    Text { small, ..Text::of(main) }
}

/// Returns a ratio with its interval.
pub(super) fn ratio(ratio: &Ratio) -> String {
    let mark = if ratio.is_paired { "" } else { " †" };
    let middle = text::ratio(ratio.middle);
    let interval = ratio.interval.map_or_else(String::new, |[low, high]| {
        let [low, high] = [low, high].map(text::ratio);
        if low == high { String::new() } else { format!(" ({low}–{high})") }
    });
    format!("× {middle}{interval}{mark}")
}
