//! The table of rates in a README, between two markers.

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

const BEGIN: &str = "<!-- lab -->";
const END: &str = "<!-- end lab -->";

/// Rows: the experiment, and the first word of its case.
const ROWS: [(&str, &str); 7] = [
    ("names", "create"),
    ("names", "unlink"),
    ("names", "rename"),
    ("listing", "stat"),
    ("listing", "readdirplus"),
    ("small-files", "write-small"),
    ("small-files", "read-small"),
];

/// Replaces the table in the file.
pub(super) fn write(
    path: &Path,
    machine: Option<&Machine>,
    studies: &[Study],
    folder: &Path,
) -> Result<()> {
    let failed = |why: String| LabError::failed("writing", path.display(), why);
    let before = fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    let parts = before.split_once(BEGIN);
    let parts = parts.and_then(|(above, rest)| Some((above, rest.split_once(END)?.1)));
    let Some((above, below)) = parts else {
        return Err(failed(format!("it has no lines {BEGIN} and {END}")));
    };
    let content = content(machine, studies, &place(path, folder));
    let after = format!("{above}{BEGIN}\n{content}{END}{below}");
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

fn content(machine: Option<&Machine>, studies: &[Study], folder: &str) -> String {
    let rows: Vec<(&str, Vec<(String, Cell)>)> =
        ROWS.iter().filter_map(|(id, word)| Some((*word, row(studies, id, word)?))).collect();
    if rows.is_empty() {
        return "Nothing has been measured yet.\n".to_owned();
    }
    let is_used = |line: &&Line| rows.iter().any(|it| it.1.iter().any(|it| it.0 == line.system));
    let lines: Vec<Line> = studies
        .iter()
        .filter(|it| ROWS.iter().any(|(id, _)| *id == it.experiment.id))
        .flat_map(|it| it.lines.iter().filter(is_used).cloned())
        .collect();
    let systems = systems(&lines);
    let mut head = vec!["thousands a second".to_owned()];
    head.extend(systems.iter().cloned());
    let of = |(word, cells): &(&str, Vec<(String, Cell)>)| {
        let cell = |system: &String| {
            let cell = cells.iter().find(|it| it.0 == *system);
            cell.map_or_else(Text::default, |it| Text::of(text::number(it.1.spread.median)))
        };
        let mut row = vec![Text::of(*word)];
        row.extend(systems.iter().map(cell));
        row
    };
    let table = Table { head, rows: rows.iter().map(of).collect() };
    let counts = rows.iter().flat_map(|it| it.1.iter().map(|it| it.1.spread.rounds));
    let (few, many) = counts.fold((usize::MAX, 0), |(few, many), it| (few.min(it), many.max(it)));
    let rounds = if few == many { few.to_string() } else { format!("{few} to {many}") };
    let noun = if many == 1 { "round" } else { "rounds" };
    let machine = machine
        .map_or_else(String::new, |it| format!("Measured on {}: {}. ", it.date, it.describe()));
    format!(
        "{}Two threads, caches warm; medians of {rounds} {noun}.\n\n{}\nRaw files: \
         `{folder}`.\n",
        text::markdown(&machine),
        markdown::table(&table)
    )
}

/// Returns the rates of all systems in the case that begins with the word.
fn row(studies: &[Study], id: &str, word: &str) -> Option<Vec<(String, Cell)>> {
    let study = studies.iter().find(|it| it.experiment.id == id)?;
    let grid = grid_of(study, "ops_per_second")?;
    let first = |label: &str| label.split([' ', ',']).next() == Some(word);
    let row = grid.rows.iter().find(|row| first(&row.label))?;
    let cells = grid.systems.iter().zip(&row.cells);
    Some(cells.filter_map(|(system, cell)| Some((system.clone(), (*cell)?))).collect())
}
