//! Module order: the root file of a crate lists its modules bottom-up, and a module uses only those
//! above it. In deeper directories the modules of one parent must not use each other in a circle.
//!
//! A reader can then begin with the first module, and know that nothing in it depends on what
//! follows. rustfmt sorts adjacent `mod` lines: a blank line divides groups, which it leaves in
//! their order.

use super::Problem;
use super::graph::{Graph, ModulePath, Use};
use crate::repository::{Crate, Repository};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Checks all crates.
pub(super) fn check(repository: &Repository, crates: &[Crate], problems: &mut Vec<Problem>) {
    let roots =
        crates.iter().flat_map(|c| c.targets.iter().map(|root| (c.folder.join("src"), root)));
    for (_, root) in roots.filter(|(src, root)| root.starts_with(src)) {
        check_crate(root, &|path| repository.read(path).ok(), problems);
    }
}

fn check_crate(root: &Path, read: &dyn Fn(&Path) -> Option<String>, problems: &mut Vec<Problem>) {
    let graph = Graph::read(root, read);
    let uses = graph.uses();
    let name = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let order = graph.children(&[]);
    let place = |module: &str| order.iter().position(|other| other == module);
    for used in uses.iter().filter(|used| used.parent.is_empty()) {
        let message = match &used.to {
            None => format!(
                "{} uses {}, which {name} defines: move it to a module that can be listed above",
                used.from, used.item
            ),
            Some(to) if place(to) < place(&used.from) => continue,
            Some(to) if uses.iter().any(|back| is_use(back, &[], to, &used.from)) => {
                format!("{} and {to} use each other: move what both need to one of them", used.from)
            }
            Some(to) => format!(
                "{} uses {to}, which {name} lists below it: a module uses only those above it",
                used.from
            ),
        };
        problems.push(Problem::new(&used.file, used.line, message));
    }
    for parent in graph.parents().filter(|parent| !parent.is_empty()) {
        check_circles(parent, &uses, problems);
    }
}

fn is_use(used: &Use, parent: &[String], from: &str, to: &str) -> bool {
    used.parent == parent && used.from == from && used.to.as_deref() == Some(to)
}

/// Reports each use that is part of a circle among the modules of one parent.
fn check_circles(parent: &ModulePath, uses: &BTreeSet<Use>, problems: &mut Vec<Problem>) {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let among: Vec<(&Use, &str)> = uses
        .iter()
        .filter(|used| used.parent == *parent)
        .filter_map(|used| Some((used, used.to.as_deref()?)))
        .collect();
    for (used, to) in &among {
        next.entry(&used.from).or_default().insert(to);
    }
    for (used, to) in among {
        if let Some(way) = way_between(&next, to, &used.from) {
            let circle = format!("{} uses {}", used.from, way.join(", which uses "));
            let message = format!("a circle in {}: {circle}", parent.join("::"));
            problems.push(Problem::new(&used.file, used.line, message));
        }
    }
}

/// A shortest way along the uses, with both ends.
fn way_between<'a>(
    next: &BTreeMap<&'a str, BTreeSet<&'a str>>,
    from: &'a str,
    to: &str,
) -> Option<Vec<&'a str>> {
    let mut ways = vec![vec![from]];
    let mut seen = BTreeSet::from([from]);
    let mut at = 0;
    while let Some(way) = ways.get(at).cloned() {
        let last = *way.last()?;
        if last == to {
            return Some(way);
        }
        for name in next.get(last).into_iter().flatten().filter(|name| seen.insert(**name)) {
            ways.push(way.iter().chain([name]).copied().collect());
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a crate of these files and returns the problems.
    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        let mut problems = Vec::new();
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| text.to_string())
        };
        check_crate(Path::new("lib.rs"), &read, &mut problems);
        problems.sort();
        problems.dedup();
        problems.iter().map(ToString::to_string).collect()
    }

    const BELOW: &str = "which lib.rs lists below it: a module uses only those above it";

    #[test]
    fn a_module_uses_only_those_above_it() {
        let lib = ("lib.rs", "mod low;\n\nmod high;\n");
        let right = ("high.rs", "use crate::low::Low;\nfn f() { super::low::g() }\n");
        assert_eq!(problems(&[lib, ("low.rs", ""), right]), [""; 0]);
        for wrong in [
            "\nuse crate::high::High;\n",
            "\nuse super::high;\n",
            "\nuse crate::{high::{self, High as Other}};\n",
            "\nfn f() { crate::high::g() }\n",
            "\nmod inner { use super::super::high::g; }\n",
            "\npub(in crate::high) fn f() { ($crate::high::g)() }\n",
        ] {
            let line = wrong.lines().position(|text| text.contains("high")).expect("named") + 1;
            let message = format!("low.rs:{line}: low uses high, {BELOW}");
            assert_eq!(problems(&[lib, ("low.rs", wrong), ("high.rs", "")]), [message], "{wrong}");
        }
        for right in [
            "// use crate::high::High;\nconst A: &str = \"crate::high\";\n",
            "use other::high::High;\nuse crate::low::Own;\npub(in crate::high) struct Low;\n",
            "#[cfg(test)]\nuse crate::high::High;\n",
            "#[cfg(test)]\nmod tests { use crate::high::High; }\n",
            "#[cfg(all(test, loom))]\nmod model { use super::super::high; }\n",
        ] {
            assert_eq!(problems(&[lib, ("low.rs", right), ("high.rs", "")]), [""; 0], "{right}");
        }
    }

    #[test]
    fn files_of_a_directory_belong_to_its_module_and_tests_are_exempt() {
        let lib = ("lib.rs", "mod low;\n\nmod high;\n");
        let low = ("low/mod.rs", "mod deep;\n#[cfg(test)]\nmod world;\nmod tests;\n");
        let upwards = "use crate::high::High;\n";
        let test = [("low/world.rs", upwards), ("low/tests.rs", upwards), ("high.rs", "")];
        let deep = ("low/deep.rs", upwards);
        let message = format!("low/deep.rs:1: low uses high, {BELOW}");
        assert_eq!(problems(&[&[lib, low, deep][..], &test].concat()), [message]);
        let deep = ("low/deep.rs", "use super::tests;\nuse super::super::low::X;\n");
        assert_eq!(problems(&[&[lib, low, deep][..], &test].concat()), [""; 0]);
    }

    #[test]
    fn modules_that_use_each_other_are_said_to() {
        let lib = ("lib.rs", "mod a;\nmod b;\n");
        let found =
            problems(&[lib, ("a.rs", "use crate::b::B;\n"), ("b.rs", "use super::a::A;\n")]);
        let message = "a.rs:1: a and b use each other: move what both need to one of them";
        assert_eq!(found, [message], "b may use a");
    }

    #[test]
    fn names_of_the_root_are_followed_to_their_modules() {
        let low = ("low.rs", "use crate::Name;\n");
        let high = ("high.rs", "pub struct Name;\n");
        for lib in [
            "mod low;\n\nmod high;\npub use high::Name;\n",
            "mod low;\n\nmod high;\npub use crate::high::{Other, Inner as Name};\n",
            "mod low;\n\nmod high;\npub use low::*;\npub use high::*;\n",
        ] {
            let message = format!("low.rs:1: low uses high, {BELOW}");
            assert_eq!(problems(&[("lib.rs", lib), low, high]), [message], "{lib}");
        }
        let lib = ("lib.rs", "mod low;\n\nmod high;\npub use other::Name;\n");
        assert_eq!(problems(&[lib, low, high]), [""; 0], "of another crate");
        let lib = ("lib.rs", "mod low;\n\nmod high;\npub struct Name;\n");
        let message = "low.rs:1: low uses Name, which lib.rs defines: move it to a module that can \
                       be listed above";
        assert_eq!(problems(&[lib, low, high]), [message]);
        let lib = ("lib.rs", "mod low;\n\nmod high;\n");
        let high = ("high.rs", "#[macro_export]\nmacro_rules! Name { () => {} }\n");
        let message = format!("low.rs:1: low uses high, {BELOW}");
        assert_eq!(problems(&[lib, low, high]), [message], "a macro");
    }

    #[test]
    fn circles_in_a_directory() {
        let lib = ("lib.rs", "mod top;\n");
        let parent = ("top/mod.rs", "mod a;\nmod b;\nmod c;\npub use c::C;\n");
        let files = |a, b, c| [lib, parent, ("top/a.rs", a), ("top/b.rs", b), ("top/c.rs", c)];
        let (to_b, to_c, to_a) = ("use super::b::B;\n", "use super::C;\n", "use crate::top::a;\n");
        assert_eq!(problems(&files(to_b, to_c, "use super::Parent;\n")), [""; 0]);
        let found = problems(&files(to_b, to_c, to_a));
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0], "top/a.rs:1: a circle in top: a uses b, which uses c, which uses a");
    }
}
