//! No dead files: every `.rs` file is reached from a target of its crate by `mod` declarations.

use super::Problem;
use crate::repository::{Crate, Repository};
use crate::source::Source;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Checks all crates.
pub(super) fn check(
    repository: &Repository,
    crates: &[Crate],
    problems: &mut Vec<Problem>,
) -> Result<(), String> {
    let exists: BTreeSet<&Path> = repository.with_extension("rs").collect();
    let mut reached = BTreeSet::new();
    for root in crates.iter().flat_map(|c| &c.targets) {
        reach(repository, root, true, &exists, &mut reached)?;
    }
    for path in exists {
        if !reached.contains(path) {
            let message = "no target reaches this file: declare the module or remove the file";
            problems.push(Problem::new(path, 0, message));
        }
    }
    Ok(())
}

fn reach(
    repository: &Repository,
    path: &Path,
    is_root: bool,
    exists: &BTreeSet<&Path>,
    reached: &mut BTreeSet<PathBuf>,
) -> Result<(), String> {
    if !reached.insert(path.to_path_buf()) {
        return Ok(());
    }
    let source = Source::new(&repository.read(path)?);
    for (name, enclosing, line) in source.declared_modules() {
        for candidate in candidates(path, is_root, &source, &name, &enclosing, line) {
            if exists.contains(candidate.as_path()) {
                reach(repository, &candidate, false, exists, reached)?;
            }
        }
    }
    Ok(())
}

/// The files that a declaration may mean.
pub(super) fn candidates(
    path: &Path,
    is_root: bool,
    source: &Source,
    name: &str,
    enclosing: &[String],
    line: usize,
) -> Vec<PathBuf> {
    let folder = path.parent().unwrap_or(Path::new(""));
    // An attribute that names the file stands in the line above, or further up in other attributes.
    let above = source.text.lines().take(line).skip(line.saturating_sub(3));
    let named =
        above.filter_map(|text| text.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"));
    let mut found: Vec<PathBuf> = named.map(|file| folder.join(file)).collect();
    let mut base = folder.to_path_buf();
    if !is_root && !path.ends_with("mod.rs") {
        base.push(path.file_stem().unwrap_or_default());
    }
    base.extend(enclosing);
    found.push(base.join(format!("{name}.rs")));
    found.push(base.join(name).join("mod.rs"));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_means_the_files_that_rustc_would_look_for() {
        let source = Source::new("mod a;\n");
        let of = |path: &str, is_root, enclosing: &[&str]| {
            let enclosing: Vec<String> = enclosing.iter().map(|s| s.to_string()).collect();
            let found = candidates(Path::new(path), is_root, &source, "a", &enclosing, 1);
            found.iter().map(|p| p.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of("src/lib.rs", true, &[]), ["src/a.rs", "src/a/mod.rs"]);
        assert_eq!(of("src/x.rs", false, &[]), ["src/x/a.rs", "src/x/a/mod.rs"]);
        assert_eq!(of("src/x/mod.rs", false, &[]), ["src/x/a.rs", "src/x/a/mod.rs"]);
        assert_eq!(of("src/x.rs", false, &["y"]), ["src/x/y/a.rs", "src/x/y/a/mod.rs"]);
    }

    #[test]
    fn a_named_file_is_found() {
        let source = Source::new("#[path = \"other.rs\"]\nmod a;\n");
        let found = candidates(Path::new("src/lib.rs"), true, &source, "a", &[], 2);
        assert_eq!(found[0], Path::new("src/other.rs"));
    }
}
