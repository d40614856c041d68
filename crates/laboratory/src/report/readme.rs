//! The tables of rates and of programs in a README, each between two markers.

use super::grid::{Cell, systems};
use super::head::grid_of;
use super::markdown;
use super::page::{Table, Text};
use super::study::Study;
use super::text;
use crate::error::{LabError, Result};
use crate::machine::Machine;
use crate::raw::Line;
use std::fs;
use std::path::{Path, PathBuf};

/// A table, between two lines of the file.
struct Wanted {
    begin: &'static str,
    end: &'static str,
    /// Head of the first column.
    unit: &'static str,
    /// Name of the number in the results.
    value: &'static str,
    /// The experiment of each row, and the first word of its case; "": all its cases.
    rows: &'static [(&'static str, &'static str)],
    /// The system whose ratio to the experiment's baseline is shown, too.
    compared: &'static str,
    note: &'static str,
}

const TABLES: [Wanted; 2] = [
    Wanted {
        begin: "<!-- lab -->",
        end: "<!-- end lab -->",
        unit: "thousands a second",
        value: "ops_per_second",
        rows: &[
            ("names", "create"),
            ("names", "unlink"),
            ("names", "rename"),
            ("listing", "stat"),
            ("listing", "readdirplus"),
            ("small-files", "write-small"),
            ("small-files", "read-small"),
        ],
        compared: "",
        note: "Two threads, caches warm",
    },
    Wanted {
        begin: "<!-- lab programs -->",
        end: "<!-- end lab programs -->",
        unit: "milliseconds",
        value: "seconds",
        rows: &[("programs", "")],
        compared: "Shoal, default mount",
        note: "In brackets the ratio to the time on XFS in the same round",
    },
];

/// Replaces the tables in the file of which the run has lines. One of which it has none says so
/// only if the run has none of the others either.
pub(super) fn write(
    path: &Path,
    machine: Option<&Machine>,
    studies: &[Study],
    folder: &Path,
) -> Result<()> {
    let failed = |why: String| LabError::failed("writing", path.display(), why);
    let before = fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    if !TABLES.iter().any(|table| before.contains(table.begin)) {
        let [first, second] = TABLES.map(|table| table.begin);
        return Err(failed(format!("it has neither a line {first} nor {second}")));
    }
    let is_empty = TABLES.iter().all(|table| table.is_empty(studies));
    let mut after = before.clone();
    for table in TABLES.iter().filter(|table| is_empty || !table.is_empty(studies)) {
        let Some((above, rest)) = after.split_once(table.begin) else { continue };
        let Some((_, below)) = rest.split_once(table.end) else {
            return Err(failed(format!("it has no line {}", table.end)));
        };
        let content = table.content(machine, studies, &place(path, folder));
        after = format!("{above}{}\n{content}{}{below}", table.begin, table.end);
    }
    if after == before {
        return Ok(());
    }
    fs::write(path, after).map_err(|e| failed(e.to_string()))
}

/// Returns the raw files' folder as the file names it: below the file's own folder, or only by
/// its name, since no document has a path of one machine.
fn place(path: &Path, folder: &Path) -> String {
    let whole = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path));
    let (path, folder) = (whole(path), whole(folder));
    let below = path.parent().and_then(|parent| folder.strip_prefix(parent).ok());
    let name = || folder.file_name().map(PathBuf::from);
    let named = below.map(PathBuf::from).or_else(name).unwrap_or_default();
    named.display().to_string()
}

/// A row: its name, and the systems that have it.
type Row = (String, Vec<(String, Cell)>);

impl Wanted {
    fn is_empty(&self, studies: &[Study]) -> bool {
        self.rows(studies).is_empty()
    }

    fn rows(&self, studies: &[Study]) -> Vec<Row> {
        self.rows.iter().flat_map(|(id, word)| self.rows_of(studies, id, word)).collect()
    }

    /// Returns the numbers of all systems in the case that begins with the word.
    fn rows_of(&self, studies: &[Study], id: &str, word: &str) -> Vec<Row> {
        let study = studies.iter().find(|it| it.experiment.id == id);
        let Some(grid) = study.and_then(|study| grid_of(study, self.value)) else {
            return Vec::new();
        };
        let first = |label: &str| label.split([' ', ',']).next() == Some(word);
        let rows = grid.rows.iter().filter(|row| word.is_empty() || first(&row.label));
        let of = |row: &super::grid::Row| {
            let cells = grid.systems.iter().zip(&row.cells);
            let cells = cells.filter_map(|(system, cell)| Some((system.clone(), (*cell)?)));
            let name = if word.is_empty() { &*row.label } else { word };
            (name.to_owned(), cells.collect())
        };
        let most = if word.is_empty() { usize::MAX } else { 1 };
        rows.take(most).map(of).collect()
    }

    fn content(&self, machine: Option<&Machine>, studies: &[Study], folder: &str) -> String {
        let rows = self.rows(studies);
        if rows.is_empty() {
            return "Nothing has been measured yet.\n".to_owned();
        }
        let is_used =
            |line: &&Line| rows.iter().any(|it| it.1.iter().any(|it| it.0 == line.system));
        let lines: Vec<Line> = studies
            .iter()
            .filter(|it| self.rows.iter().any(|(id, _)| *id == it.experiment.id))
            .flat_map(|it| it.lines.iter().filter(is_used).cloned())
            .collect();
        let systems = systems(&lines);
        let mut head = vec![self.unit.to_owned()];
        head.extend(systems.iter().cloned());
        let of = |(name, cells): &Row| {
            let cell = |system: &String| {
                let cell = cells.iter().find(|it| it.0 == *system);
                cell.map_or_else(Text::default, |it| Text::of(self.shown(system, &it.1)))
            };
            let mut row = vec![Text::of(name.clone())];
            row.extend(systems.iter().map(cell));
            row
        };
        let table = Table { head, rows: rows.iter().map(of).collect() };
        let counts = rows.iter().flat_map(|it| it.1.iter().map(|it| it.1.spread.rounds));
        let (few, many) =
            counts.fold((usize::MAX, 0), |(few, many), it| (few.min(it), many.max(it)));
        let rounds = if few == many { few.to_string() } else { format!("{few} to {many}") };
        let noun = if many == 1 { "round" } else { "rounds" };
        let machine = machine
            .map_or_else(String::new, |it| format!("Measured on {}: {}. ", it.date, it.describe()));
        format!(
            "{}{}; medians of {rounds} {noun}.\n\n{}\nRaw files: `{folder}`.\n",
            text::markdown(&machine),
            self.note,
            markdown::table(&table)
        )
    }

    fn shown(&self, system: &str, cell: &Cell) -> String {
        let number = text::number(cell.spread.median);
        match cell.ratio.filter(|_| system == self.compared) {
            Some(ratio) => format!("{number} ({:.2})", ratio.middle),
            None => number,
        }
    }
}
