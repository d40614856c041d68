//! Layers: a crate uses only crates of lower levels, as the ladder in ARCHITECTURE.md orders them.
//!
//! Folders alone never kept layers apart, in any codebase we looked at; crates do, because the
//! compiler refuses what is not declared, and this rule refuses what must not be declared.

use super::Problem;
use crate::ladder::{Ladder, PATH};
use crate::repository::{Crate, Repository};
use std::path::Path;

/// Checks that the ladder names every crate once, and that all of them keep to it.
pub(super) fn check(
    repository: &Repository,
    crates: &[Crate],
    problems: &mut Vec<Problem>,
) -> Result<(), String> {
    let ladder = Ladder::parse(&repository.read(Path::new(PATH))?)?;
    check_against(&ladder, crates, problems);
    Ok(())
}

fn check_against(ladder: &Ladder, crates: &[Crate], problems: &mut Vec<Problem>) {
    for name in ladder.names() {
        if !crates.iter().any(|c| c.short_name() == name) {
            let message = format!("the ladder names a crate that there is not: {name}");
            problems.push(Problem::new(Path::new(PATH), 0, message));
        }
    }
    for user in crates {
        let manifest = user.folder.join("Cargo.toml");
        let Some(level) = ladder.level(&user.short_name()) else {
            let message = format!("{PATH} has no level for this crate: add a row to its ladder");
            problems.push(Problem::new(&manifest, 0, message));
            continue;
        };
        for used in crates.iter().filter(|c| user.uses.contains(&c.name)) {
            let below = ladder.level(&used.short_name());
            if below.is_some_and(|below| below >= level) {
                let (used, below) = (used.short_name(), below.unwrap_or(0));
                let message = format!("level {level} uses {used} of level {below}: not lower");
                problems.push(Problem::new(&manifest, 0, message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(name: &str, uses: &[&str]) -> Crate {
        Crate {
            name: format!("shoal-{name}"),
            description: String::new(),
            folder: Path::new("crates").join(name),
            targets: Vec::new(),
            uses: uses.iter().map(|u| format!("shoal-{u}")).collect(),
        }
    }

    #[test]
    fn only_downwards() {
        let text = "<!-- ladder -->\n| level | crate | uses | what |\n| --- | --- | --- | --- |\n\
                    | 0 | `base` | | |\n| 1 | `a` | | |\n| 1 | `b` | | |\n<!-- end ladder -->\n";
        let ladder = Ladder::parse(text).expect("parses");
        let run = |crates: &[Crate]| {
            let mut problems = Vec::new();
            check_against(&ladder, crates, &mut problems);
            problems.len()
        };
        let base = || crate_of("base", &[]);
        assert_eq!(run(&[base(), crate_of("a", &["base"]), crate_of("b", &["base"])]), 0);
        assert_eq!(run(&[base(), crate_of("a", &["b"]), crate_of("b", &[])]), 1, "same level");
        assert_eq!(run(&[crate_of("base", &["a"]), crate_of("a", &[]), crate_of("b", &[])]), 1);
        assert_eq!(run(&[base(), crate_of("a", &[])]), 1, "b is only in the ladder");
        let unknown = [base(), crate_of("a", &[]), crate_of("b", &[]), crate_of("c", &[])];
        assert_eq!(run(&unknown), 1, "c has no level");
    }
}
