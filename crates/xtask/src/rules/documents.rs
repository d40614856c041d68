//! Documents name files and items that exist: prose beside code rots unless something looks.
//!
//! | in a code span | must be |
//! | --- | --- |
//! | `crates/a/src/b.rs`, `docs/c.md`: a path from the root | a file or folder |
//! | `b.rs`, `a/src/b.rs`: the end of a path of Rust | that of a file |
//! | `b.rs::item`, `b.rs::Type::item` | declared or re-exported in that file |
//! | in the index of `ARCHITECTURE.md`, a file of Rust | a path from the root, with an item |
//! | `cargo test -p NAME --test PROGRAM -- MODULE::` | a program of tests, and a module of it |

use super::Problem;
use crate::repository::Repository;
use crate::source::Source;
use std::path::{Component, Path, PathBuf};

/// Prefixes of paths in documents that are checked.
const OURS: &[&str] = &["crates/", "docs/", "scripts/", ".ci/", "packaging/"];

/// The document with the index, and the heading of the index.
const INDEX: (&str, &str) = ("ARCHITECTURE.md", "## Where is");

/// Checks every Markdown file.
pub(super) fn check(repository: &Repository, problems: &mut Vec<Problem>) -> Result<(), String> {
    let exists = |path: &Path| repository.root().join(path).exists();
    for path in repository.with_extension("md") {
        let mut in_index = false;
        for (number, line) in repository.read(path)?.lines().enumerate() {
            let mut report = |message| problems.push(Problem::new(path, number + 1, message));
            if line.starts_with("## ") {
                in_index = path == Path::new(INDEX.0) && line.starts_with(INDEX.1);
            }
            for named in paths_in(line, path).into_iter().filter(|named| !exists(named)) {
                report(format!("{} is named but does not exist", named.display()));
            }
            for command in line.split('`').skip(1).step_by(2) {
                if let Some(gone) = gone_tests(repository, command) {
                    report(format!("`{command}` runs nothing: {gone} does not exist"));
                }
            }
            for place in rust_in(line) {
                if in_index && (place.item.is_none() || !place.file.starts_with("crates/")) {
                    let file = place.file;
                    let remedy = "write `crates/PATH/FILE.rs::ITEM`";
                    report(format!("the index names {file} without path or item: {remedy}"));
                }
                if let Some(message) = fault(repository, &place)? {
                    report(message);
                }
            }
        }
    }
    Ok(())
}

/// A file of Rust in a code span, with an item of it.
#[derive(PartialEq, Eq, Debug)]
struct Place<'a> {
    file: &'a str,
    item: Option<&'a str>,
}

/// The files of Rust that a line names.
fn rust_in(line: &str) -> Vec<Place<'_>> {
    let mut found = Vec::new();
    for word in words(line).filter(|word| !is_pattern(word)) {
        let (file, rest) = match word.split_once(".rs") {
            Some((stem, rest)) if !stem.is_empty() => (&word[..stem.len() + 3], rest),
            _ => continue,
        };
        if rest.is_empty() || rest.starts_with(':') {
            found.push(Place { file, item: rest.strip_prefix("::") });
        }
    }
    found
}

/// Returns the fault of a place, if it is not there.
fn fault(repository: &Repository, place: &Place<'_>) -> Result<Option<String>, String> {
    let Place { file, item } = *place;
    let mut files = repository.with_extension("rs").filter(|path| path.ends_with(file)).peekable();
    if files.peek().is_none() {
        return Ok(Some(format!("{file} is named but does not exist")));
    }
    let Some(item) = item else { return Ok(None) };
    for path in files {
        let source = Source::new(&repository.read(path)?);
        if item.split("::").all(|name| declares(&source, name)) {
            return Ok(None);
        }
    }
    Ok(Some(format!("{file} has no `{item}`: name an item that it declares or re-exports")))
}

/// Returns the program or module of a command that runs tests, if it is gone.
fn gone_tests(repository: &Repository, command: &str) -> Option<String> {
    let command = &command[command.find("cargo test -p ")?..];
    let mut words = command.split_whitespace().skip(3);
    let package = words.next()?;
    let folder = Path::new("crates").join(package.strip_prefix("shoal-").unwrap_or(package));
    let (mut places, mut gone) = (Vec::new(), None);
    while let Some(word) = words.next() {
        match word {
            "--lib" => places.push(folder.join("src")),
            "--test" => {
                let program = folder.join("tests").join(words.next()?);
                let is_there = repository.has(&program.with_extension("rs"));
                gone = gone.or((!is_there && !repository.has(&program.join("main.rs")))
                    .then(|| program.display().to_string()));
                places.push(program);
            }
            filter if filter.contains("::") && !places.is_empty() => {
                let module = filter.split("::").next().unwrap_or_default();
                let is_in = |path: &Path| {
                    places.iter().any(|place| path.starts_with(place))
                        && path
                            .components()
                            .any(|part| Path::new(&part).file_stem() == Some(module.as_ref()))
                };
                let is_there = repository.with_extension("rs").any(is_in);
                gone = gone.or((!is_there).then(|| format!("the module {module}")));
            }
            _ => {}
        }
    }
    gone
}

/// Returns whether a file declares an item, implements a type, or re-exports either.
fn declares(source: &Source, name: &str) -> bool {
    let items = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "macro_rules!"];
    source.words(name).any(|at| {
        let before = source.code[..at].trim_end();
        let statement = &before[before.rfind([';', '}']).map_or(0, |end| end + 1)..];
        let is_re_exported = statement.contains("pub") && statement.contains(" use ");
        let is_implemented = statement.trim_start().starts_with("impl") && !statement.contains('{');
        items.iter().any(|item| before.ends_with(item)) || is_re_exported || is_implemented
    })
}

/// The first words of the code spans of a line.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans.map(|code| code.split(char::is_whitespace).next().unwrap_or_default())
}

fn is_pattern(word: &str) -> bool {
    word.contains(['*', '<', '{', '$', '…'])
}

/// The paths that a line names: in backticks from the root, in links from the document's folder.
fn paths_in(line: &str, document: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for word in words(line).filter(|word| !is_pattern(word)) {
        let word = word.split(':').next().unwrap_or_default();
        // Files of Rust have a rule of their own.
        if OURS.iter().any(|start| word.starts_with(start)) && !word.ends_with(".rs") {
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
        let line = "see `docs/a.md:12`, `cargo test`, `crates/<name>/x`, [d](../e.md#f), \
                    [g](https://h/i), `scripts/j.sh --k`, `crates/a/src/b.rs`";
        let found = paths_in(line, Path::new("docs/z.md"));
        let expected = ["docs/a.md", "scripts/j.sh", "e.md"].map(PathBuf::from);
        assert_eq!(found, expected);
    }

    #[test]
    fn files_of_rust_are_found_with_their_items() {
        let line = "`a/src/b.rs`, `c.rs:12`, `d.rs::E::f`, `cargo test`, `*.rs`, `f.rsx`";
        let place = |file, item| Place { file, item };
        let expected =
            [place("a/src/b.rs", None), place("c.rs", None), place("d.rs", Some("E::f"))];
        assert_eq!(rust_in(line), expected);
    }

    #[test]
    fn items_are_declared_implemented_or_re_exported() {
        let source = Source::new(
            "//! Of a.\nmod b;\npub use c::{D, e};\npub use f::G;\nuse h::I;\n\
             struct J { k: u8 }\nimpl<T> L<T> { fn m(&self) { n(); } }\n\
             macro_rules! o { () => {} }\nconst P: u8 = 0;\n",
        );
        for name in ["b", "D", "e", "G", "J", "L", "m", "o", "P"] {
            assert!(declares(&source, name), "{name}");
        }
        for name in ["a", "I", "k", "n"] {
            assert!(!declares(&source, name), "{name}");
        }
    }

    #[test]
    fn what_is_gone_is_reported() {
        let repository = Repository::find().expect("a checkout");
        let fault = |file, item| fault(&repository, &Place { file, item }).expect("reads");
        assert_eq!(fault("rules/documents.rs", Some("fault")), None);
        assert_eq!(fault("xtask/src/source.rs", Some("Source::words")), None);
        assert!(fault("rules/documents.rs", Some("gone")).is_some_and(|it| it.contains("`gone`")));
        assert!(fault("rules/gone.rs", None).is_some_and(|it| it.contains("not exist")));
        let gone = |command| gone_tests(&repository, command);
        assert_eq!(gone("A=1 cargo test -p shoal-cli --test it -- guide:: rm::"), None);
        assert_eq!(gone("cargo test -p shoal-engine --test it --lib holds -- inherited::"), None);
        assert_eq!(gone("cargo test -p shoal-cli --test it"), None);
        let module = gone("cargo test -p shoal-cli --test it -- rm:: gone::");
        assert_eq!(module.as_deref(), Some("the module gone"));
        let program = gone("cargo test -p shoal-cli --test gone");
        assert_eq!(program.as_deref(), Some("crates/cli/tests/gone"));
    }
}
