//! Documents name files that exist: prose beside code rots unless something looks.

use super::Problem;
use crate::repository::Repository;
use std::path::{Component, Path, PathBuf};

/// Prefixes of paths in documents that are checked.
const OURS: &[&str] = &["crates/", "docs/", "scripts/", ".ci/"];

/// Checks every Markdown file.
pub(super) fn check(repository: &Repository, problems: &mut Vec<Problem>) -> Result<(), String> {
    let exists = |path: &Path| repository.root().join(path).exists();
    for path in repository.with_extension("md") {
        for (number, line) in repository.read(path)?.lines().enumerate() {
            for named in paths_in(line, path) {
                if !exists(&named) {
                    let message = format!("{} is named but does not exist", named.display());
                    problems.push(Problem::new(path, number + 1, message));
                }
            }
        }
    }
    Ok(())
}

/// The paths that a line names: in backticks from the root, in links from the document's folder.
fn paths_in(line: &str, document: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for code in line.split('`').skip(1).step_by(2) {
        let word = code.split(|c: char| c.is_whitespace() || c == ':').next().unwrap_or_default();
        let pattern = word.contains(['*', '<', '{', '$', '…']);
        if OURS.iter().any(|start| word.starts_with(start)) && !pattern {
            found.push(PathBuf::from(word));
        }
    }
    for link in line.split("](").skip(1) {
        let Some((target, _)) = link.split_once(')') else { continue };
        let target = target.split('#').next().unwrap_or_default();
        if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        found.push(normal(&document.parent().unwrap_or(Path::new("")).join(target)));
    }
    found
}

/// Without `..`, so that a link is a place in the repository.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_code_and_links() {
        let line = "see `crates/a/src/b.rs:12`, `cargo test`, `crates/<name>/x`, [d](../e.md#f), \
                    [g](https://h/i), `scripts/j.sh --k`";
        let found = paths_in(line, Path::new("docs/z.md"));
        let expected = ["crates/a/src/b.rs", "scripts/j.sh", "e.md"].map(PathBuf::from);
        assert_eq!(found, expected);
    }
}
