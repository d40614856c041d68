//! The ladder of crates in ARCHITECTURE.md: levels by hand, the rest from the crates themselves.
//!
//! The table stands between `<!-- ladder -->` and `<!-- end ladder -->`. Which level a crate is on
//! is a decision and so is written by hand; what it uses and what it is for are facts and so are
//! generated, and the check fails when they are stale.

use crate::repository::{Crate, Repository};
use std::path::Path;

/// The document.
pub const PATH: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- ladder -->\n";
const END: &str = "<!-- end ladder -->";

/// Crates by their short name, with their level.
pub struct Ladder {
    rows: Vec<(u32, String)>,
}

impl Ladder {
    /// Reads the table out of the document.
    pub fn parse(text: &str) -> Result<Ladder, String> {
        let (_, table, _) = split(text)?;
        let mut rows = Vec::new();
        for line in table.lines().filter(|line| line.starts_with('|')).skip(2) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [level, name, ..] = cells.as_slice() else {
                return Err(format!("{PATH}: no level and crate in '{line}'"));
            };
            let level = level.parse().map_err(|_| format!("{PATH}: '{level}' is no level"))?;
            rows.push((level, name.trim_matches('`').to_string()));
        }
        Ok(Ladder { rows })
    }

    /// The level of a crate.
    pub fn level(&self, name: &str) -> Option<u32> {
        self.rows.iter().find(|(_, n)| n == name).map(|(level, _)| *level)
    }

    /// Every crate that is listed.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|(_, name)| name.as_str())
    }

    /// The table, with what cargo says.
    pub fn render(&self, crates: &[Crate]) -> String {
        let mut text = String::from("| level | crate | uses | what it is |\n");
        text.push_str("| --- | --- | --- | --- |\n");
        for (level, name) in &self.rows {
            let row = crates.iter().find(|c| c.short_name() == *name);
            let uses = row.map_or(String::new(), |row| self.uses(row, crates));
            let what = row.map_or("", |row| row.description.as_str());
            text.push_str(&format!("| {level} | `{name}` | {uses} | {what} |\n"));
        }
        text
    }

    /// Returns the crates that a crate uses, lowest level first.
    fn uses(&self, row: &Crate, crates: &[Crate]) -> String {
        let used = crates.iter().filter(|c| row.uses.contains(&c.name));
        let mut names: Vec<String> = used.map(Crate::short_name).collect();
        names.sort_by_key(|name| (self.level(name), name.clone()));
        names.join(" ")
    }
}

/// Before the table, the table, after it.
fn split(text: &str) -> Result<(&str, &str, &str), String> {
    let begin = text.find(BEGIN).ok_or(format!("{PATH} has no line {}", BEGIN.trim_end()))?;
    let begin = begin + BEGIN.len();
    let len = text[begin..].find(END).ok_or(format!("{PATH} has no line {END}"))?;
    Ok((&text[..begin], &text[begin..begin + len], &text[begin + len..]))
}

/// Writes the table afresh: whether it was up to date, or, with `check`, an error message when it
/// is not.
pub fn refresh(repository: &Repository, check: bool) -> Result<Result<bool, String>, String> {
    let path = Path::new(PATH);
    let text = repository.read(path)?;
    let (before, table, after) = split(&text)?;
    let fresh = Ladder::parse(&text)?.render(&repository.crates()?);
    if fresh == table {
        return Ok(Ok(true));
    }
    if check {
        return Ok(Err(format!("{PATH}: the ladder is stale: run cargo xtask ladder")));
    }
    repository.write(path, &format!("{before}{fresh}{after}"))?;
    Ok(Ok(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_levels_and_fills_in_facts() {
        let text = "x\n<!-- ladder -->\n| level | crate |\n| --- | --- |\n| 0 | `base` |\n\
                    | 3 | `a` | old | old |\n<!-- end ladder -->\ny";
        let ladder = Ladder::parse(text).expect("parses");
        assert_eq!((ladder.level("base"), ladder.level("a")), (Some(0), Some(3)));
        let of = |name: &str, uses: &[&str]| Crate {
            name: format!("shoal-{name}"),
            description: format!("what {name} is"),
            folder: Path::new("crates").join(name),
            targets: Vec::new(),
            uses: uses.iter().map(|u| u.to_string()).collect(),
        };
        let table = ladder.render(&[of("a", &["shoal-base", "shoal-z"]), of("base", &[])]);
        assert!(
            table.ends_with("| 0 | `base` |  | what base is |\n| 3 | `a` | base | what a is |\n")
        );
        assert!(Ladder::parse("no table").is_err());
    }
}
