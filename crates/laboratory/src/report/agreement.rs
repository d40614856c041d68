//! How far the figures of two runs agree: each number of their reports, median and spread.
//!
//! [`crate::compare`] tests whether two runs differ, number by number of the raw lines. This asks
//! less and of everything that a report shows, also with three rounds: does the median of each run
//! lie within the spread of the other one?

use super::grid::{Cell, Grid};
use super::{Study, studies, text};
use crate::error::{LabError, Result};
use crate::experiments::Kind;
use crate::raw::Run;
use crate::sample::{Spread, median};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Options.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Folder of a run, with its raw files
    a: PathBuf,
    /// Folder of the other run
    b: PathBuf,
    /// List also the numbers that agree
    #[arg(long)]
    all: bool,
}

/// How two numbers lie to each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Verdict {
    /// The spreads have nothing in common.
    Apart,
    /// They overlap, and a median lies outside the other run's.
    Overlaps,
    /// A single round each, which have no spread.
    Single,
    /// Both medians lie within the spread of the other run.
    Agrees,
}

impl Verdict {
    fn of(a: Spread, b: Spread) -> Verdict {
        let holds = |spread: Spread, value: f64| (spread.low..=spread.high).contains(&value);
        let (all, none) =
            (holds(a, b.median) && holds(b, a.median), a.low > b.high || b.low > a.high);
        match (all, none) {
            (true, _) => Verdict::Agrees,
            _ if a.rounds == 1 && b.rounds == 1 => Verdict::Single,
            (_, true) => Verdict::Apart,
            _ => Verdict::Overlaps,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Verdict::Apart => "apart",
            Verdict::Overlaps => "overlap",
            Verdict::Single => "one round each",
            Verdict::Agrees => "agree",
        }
    }
}

/// A number of both reports.
struct Pair {
    /// Experiment, figure, row and system.
    names: [String; 4],
    cells: [Cell; 2],
    verdict: Verdict,
}

impl Pair {
    /// The second run to the first one.
    fn ratio(&self) -> f64 {
        let [a, b] = self.cells.map(|cell| cell.spread.median);
        b / a
    }

    /// The same of the ratios to the baseline, in which a faster machine cancels out.
    fn ratio_of_ratios(&self) -> Option<f64> {
        let [a, b] = self.cells.map(|cell| cell.ratio.map(|ratio| ratio.middle));
        Some(b? / a?)
    }

    fn row(&self) -> String {
        let [id, figure, label, system] = &self.names;
        let [a, b] = self.cells.map(|cell| {
            let Spread { low, median, high, .. } = cell.spread;
            format!("{} ({})", text::number(median), text::range(low, high))
        });
        let of_ratios = self.ratio_of_ratios().map_or_else(String::new, text::ratio);
        let words = [label, system, figure].map(|word| text::markdown(word));
        let [label, system, figure] = words;
        let (ratio, word) = (text::ratio(self.ratio()), self.verdict.word());
        let cells = [id, &label, &system, &figure, &a, &b, &ratio, &of_ratios, word];
        format!("| {} |\n", cells.join(" | "))
    }
}

/// Prints the table of two runs.
///
/// # Errors
/// A folder that holds no run; runs without a number in common.
pub(crate) fn run(args: &Args, out: &mut dyn std::io::Write) -> Result<()> {
    let pairs = pairs(&open(&args.a)?, &open(&args.b)?)?;
    if pairs.is_empty() {
        let remedy = "they have no number in common: they must be of the same size";
        return Err(LabError::failed("comparing", args.a.display(), remedy));
    }
    let text = table(&pairs, args.all);
    out.write_all(text.as_bytes()).map_err(|e| LabError::failed("printing", "the table", e))
}

fn open(folder: &Path) -> Result<Run> {
    match folder.is_dir() {
        true => Run::at(folder),
        false => Err(LabError::failed("run", folder.display(), "no such folder")),
    }
}

fn pairs(a: &Run, b: &Run) -> Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    for (of_a, of_b) in studies(a)?.iter().zip(&studies(b)?) {
        let [sizes_a, sizes_b] = [of_a, of_b].map(commands);
        if sizes_a.iter().any(|command| sizes_b.contains(command)) {
            pairs.extend(of_study(of_a, of_b));
        }
    }
    Ok(pairs)
}

/// The commands of a study: those of runs of different sizes have none in common.
fn commands(study: &Study) -> Vec<&str> {
    study.lines.iter().map(|line| &*line.command).collect()
}

fn of_study(a: &Study, b: &Study) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for figure in a.experiment.figures.iter().filter(|it| it.kind != Kind::Histogram) {
        let [grid_a, grid_b] = [a, b].map(|study| study.grid(figure));
        for row in &grid_a.rows {
            for (system, cell) in grid_a.systems.iter().zip(&row.cells) {
                let other = find(&grid_b, &row.label, system);
                let (Some(cell), Some(other)) = (*cell, other) else { continue };
                let id = a.experiment.id.to_owned();
                pairs.push(Pair {
                    names: [id, figure.axis.to_owned(), row.label.clone(), system.clone()],
                    cells: [cell, other],
                    verdict: Verdict::of(cell.spread, other.spread),
                });
            }
        }
    }
    pairs
}

fn find(grid: &Grid, label: &str, system: &str) -> Option<Cell> {
    let at = grid.systems.iter().position(|it| it == system)?;
    *grid.rows.iter().find(|row| row.label == label)?.cells.get(at)?
}

/// A line for each experiment, then the numbers that do not agree.
fn table(pairs: &[Pair], all: bool) -> String {
    let mut ids: Vec<&str> = pairs.iter().map(|pair| &*pair.names[0]).collect();
    ids.dedup();
    let mut text = String::from(
        "| experiment | numbers | agree | overlap | apart | one round each | second to first run, \
         median | and of ratios to the baseline | farthest of these |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for id in &ids {
        let own: Vec<&Pair> = pairs.iter().filter(|pair| pair.names[0] == *id).collect();
        text += &summary(id, &own);
    }
    text += &summary("all", &pairs.iter().collect::<Vec<_>>());
    let mut rest: Vec<&Pair> =
        pairs.iter().filter(|pair| all || pair.verdict != Verdict::Agrees).collect();
    // Those that are farthest from each other first, within an experiment.
    let place = |pair: &Pair| ids.iter().position(|id| *id == pair.names[0]);
    rest.sort_by(|a, b| {
        let key = |pair: &Pair| (place(pair), pair.verdict);
        key(a).cmp(&key(b)).then(far(b.ratio()).total_cmp(&far(a.ratio())))
    });
    if !rest.is_empty() {
        text += "\n| experiment | case | system | figure | first run | second run | ratio | of \
                 ratios | |\n| --- | --- | --- | --- | ---: | ---: | ---: | ---: | --- |\n";
    }
    rest.iter().for_each(|pair| text += &pair.row());
    text
}

fn summary(id: &str, pairs: &[&Pair]) -> String {
    let count = |verdict| pairs.iter().filter(|pair| pair.verdict == verdict).count();
    let ratios: Vec<f64> = finite(pairs.iter().map(|pair| pair.ratio()));
    let of_ratios = finite(pairs.iter().filter_map(|pair| pair.ratio_of_ratios()));
    let farthest = of_ratios.iter().copied().max_by(|a, b| far(*a).total_cmp(&far(*b)));
    let shown = |value: Option<f64>| value.map_or_else(String::new, text::ratio);
    let middle = |values: &[f64]| (!values.is_empty()).then(|| median(values));
    let mut line = format!("| {id} | {} |", pairs.len());
    for verdict in [Verdict::Agrees, Verdict::Overlaps, Verdict::Apart, Verdict::Single] {
        let _ = write!(line, " {} |", count(verdict));
    }
    let [ratio, of_ratio] = [middle(&ratios), middle(&of_ratios)].map(shown);
    let _ = writeln!(line, " {ratio} | {of_ratio} | {} |", shown(farthest));
    line
}

fn finite(values: impl Iterator<Item = f64>) -> Vec<f64> {
    values.filter(|value| value.is_finite()).collect()
}

/// Returns how far a ratio is from 1, in either direction.
fn far(ratio: f64) -> f64 {
    ratio.ln().abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_lie_within_the_other_spread_or_not() {
        let verdict = |a: &[f64], b: &[f64]| {
            Verdict::of(Spread::of(a).expect("values"), Spread::of(b).expect("values"))
        };
        assert_eq!(verdict(&[1.0, 2.0, 3.0], &[2.0, 2.5, 4.0]), Verdict::Agrees);
        assert_eq!(verdict(&[1.0, 2.0, 3.0], &[2.5, 3.5, 4.0]), Verdict::Overlaps);
        assert_eq!(verdict(&[1.0, 2.0, 3.0], &[3.5, 3.6, 4.0]), Verdict::Apart);
        assert_eq!(verdict(&[5.0], &[5.0]), Verdict::Agrees);
        assert_eq!(verdict(&[5.0], &[6.0]), Verdict::Single);
        assert_eq!(verdict(&[5.0], &[6.0, 7.0]), Verdict::Apart);
    }

    #[test]
    fn numbers_that_do_not_agree_are_listed() {
        let cell =
            |values: &[f64]| Cell { spread: Spread::of(values).expect("values"), ratio: None };
        let pair = |label: &str, a: &[f64], b: &[f64]| {
            let cells = [cell(a), cell(b)];
            Pair {
                names: ["x", "ms", label, "XFS"].map(str::to_owned),
                verdict: Verdict::of(cells[0].spread, cells[1].spread),
                cells,
            }
        };
        let pairs = [
            pair("same", &[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]),
            pair("near", &[1.0, 2.0, 3.0], &[4.0, 4.0, 4.0]),
            pair("far", &[1.0, 2.0, 3.0], &[8.0, 8.0, 8.0]),
        ];
        let text = table(&pairs, false);
        assert!(text.contains("\n| x | 3 | 1 | 0 | 2 | 0 | 2.00 |  |  |\n"), "{text}");
        let at = |word: &str| text.find(&format!("| x | {word} | XFS"));
        assert!(at("far") < at("near") && at("same").is_none(), "{text}");
        assert!(table(&pairs, true).contains("| x | same | XFS | ms | 2.00 (1.00–3.00) |"));
    }
}
