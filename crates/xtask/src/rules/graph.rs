//! The modules of a crate and the uses between them, read from `mod` and `use` declarations and
//! from paths that begin with `crate`, `super` or `self`. Code of tests is left out.
//!
//! A path is followed through the names that a module takes from others by `use`: `crate::Name` is
//! a use of the module that defines `Name`, if the root file re-exports it.

use super::modules::candidates;
use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Names of the modules around a place, from the root of the crate.
pub(super) type ModulePath = Vec<String>;

/// Re-exports that one path is followed through, at most: two modules may re-export each other.
const REEXPORTS: usize = 16;

/// The modules of one crate.
#[derive(Default)]
pub(super) struct Graph {
    modules: BTreeMap<ModulePath, Module>,
    /// Macros for the whole crate, with the module that defines each.
    macros: BTreeMap<String, ModulePath>,
}

/// A module, in a file of its own or inside another one.
#[derive(Default)]
struct Module {
    /// Names of its modules, in the order of their declarations.
    children: Vec<String>,
    /// Names taken from elsewhere, and their places; no place for one in another crate.
    imports: BTreeMap<String, Option<ModulePath>>,
    /// Modules of the crate from which all names are taken.
    globs: Vec<ModulePath>,
    /// Paths into the crate that its code names.
    named: Vec<Named>,
    /// Its file's code.
    code: String,
}

/// A path that code names.
struct Named {
    file: PathBuf,
    line: usize,
    path: ModulePath,
}

/// One module's use of another one, both in the same parent.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Use {
    pub parent: ModulePath,
    pub from: String,
    /// Name of the used module; nothing for an item that the parent itself defines.
    pub to: Option<String>,
    /// Last name of the path.
    pub item: String,
    pub file: PathBuf,
    pub line: usize,
}

impl Graph {
    /// Reads a crate from its root file. `read` returns the text of a file, if it exists.
    pub(super) fn read(root: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Graph {
        let mut graph = Graph::default();
        graph.add_file(root, true, &Vec::new(), read);
        graph
    }

    /// The modules that a module declares, in their order.
    pub(super) fn children(&self, of: &[String]) -> &[String] {
        self.modules.get(of).map_or(&[], |module| &module.children)
    }

    /// All modules that have modules of their own.
    pub(super) fn parents(&self) -> impl Iterator<Item = &ModulePath> {
        self.modules.iter().filter(|(_, module)| !module.children.is_empty()).map(|(path, _)| path)
    }

    /// All uses, sorted.
    pub(super) fn uses(&self) -> BTreeSet<Use> {
        let mut found = BTreeSet::new();
        for (from, module) in &self.modules {
            found.extend(module.named.iter().filter_map(|named| self.use_of(from, named)));
        }
        found
    }

    fn add_file(
        &mut self,
        path: &Path,
        is_root: bool,
        module: &ModulePath,
        read: &dyn Fn(&Path) -> Option<String>,
    ) {
        let Some(text) = read(path) else { return };
        let source = Source::new(&text);
        let file = File { path, module, blocks: inline_modules(&source), source: &source };
        let tests = test_parts(&source);
        let in_tests = |at: usize| tests.iter().any(|part| part.contains(&at));
        for at in source.words("mod").filter(|at| !in_tests(*at)) {
            let Some(name) = ident(&source.code[at + 3..]) else { continue };
            let parent = file.module_at(at);
            let child = joined(&parent, [name.clone()]);
            self.modules.entry(parent.clone()).or_default().children.push(name.clone());
            self.modules.entry(child.clone()).or_default();
            let around = &parent[module.len()..];
            if source.block_after(at).is_some() {
                continue;
            }
            let line = source.line_of(at);
            for candidate in candidates(path, is_root, &source, &name, around, line) {
                if !is_test_file(&candidate) {
                    self.add_file(&candidate, false, &child, read);
                }
            }
        }
        let mut declarations = Vec::new();
        for at in source.words("use").filter(|at| !in_tests(*at)) {
            let end = source.code[at..].find(';').map_or(source.code.len(), |len| at + len);
            declarations.push(at..end);
            self.add_use(&file, at, &source.code[at + 3..end]);
        }
        let in_use = |at: usize| declarations.iter().any(|range| range.contains(&at));
        for first in ["crate", "super", "self"] {
            let places = source.words(first).filter(|at| !in_tests(*at) && !in_use(*at));
            for at in places.filter(|at| begins_path(&source.code[..*at])) {
                let path = idents(&source.code[at..]);
                // A `self` or `pub(super)` alone names nothing.
                if path.len() > 1 {
                    self.add_named(&file, at, path);
                }
            }
        }
        for (at, _) in source.code.match_indices("#[macro_export]") {
            let name = source.code[at..].split_once("macro_rules!").map(|(_, rest)| rest);
            if let Some(name) = name.and_then(ident) {
                self.macros.insert(name, file.module_at(at));
            }
        }
        self.modules.entry(module.clone()).or_default().code = source.code.clone();
    }

    /// Takes in a `use` declaration, of which `tree` is the text between `use` and its semicolon.
    fn add_use(&mut self, file: &File, at: usize, tree: &str) {
        let module = file.module_at(at);
        let mut leaves = Vec::new();
        use_leaves(tree, &Vec::new(), &mut leaves);
        for (offset, path, name) in leaves {
            let at = at + 3 + offset;
            let target = self.absolute(&module, &path);
            self.add_named(file, at, path);
            let entry = self.modules.entry(module.clone()).or_default();
            match name.as_str() {
                "*" => entry.globs.extend(target),
                _ => drop(entry.imports.insert(name, target)),
            }
        }
    }

    fn add_named(&mut self, file: &File, at: usize, path: ModulePath) {
        let module = file.module_at(at);
        let Some(path) = self.absolute(&module, &path) else { return };
        let named = Named { file: file.path.into(), line: file.source.line_of(at), path };
        self.modules.entry(module).or_default().named.push(named);
    }

    /// The path from the root of the crate; nothing if it is one into another crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<ModulePath> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some(joined(module, rest.iter().cloned())),
            "super" => {
                let ups = path.iter().take_while(|name| *name == "super").count();
                let parent = &module[..module.len().checked_sub(ups)?];
                Some(joined(parent, path[ups..].iter().cloned()))
            }
            // A module is declared above its first use: rustfmt puts `mod` before `use`.
            name if self.children(module).iter().any(|child| child == name) => {
                Some(joined(module, path.iter().cloned()))
            }
            _ => None,
        }
    }

    /// Follows a path from the root to the first module that is not around `from`.
    fn use_of(&self, from: &[String], named: &Named) -> Option<Use> {
        let mut path = named.path.clone();
        let item = path.last()?.clone();
        let (mut depth, mut follow) = (0, REEXPORTS);
        loop {
            let parent = &path[..depth];
            let user = from.get(depth)?;
            let made = |to| {
                let (from, file) = (user.clone(), named.file.clone());
                Use { parent: parent.into(), from, to, item: item.clone(), file, line: named.line }
            };
            let Some(name) = path.get(depth) else { return Some(made(None)) };
            if self.children(parent).contains(name) {
                if name != user {
                    return Some(made(Some(name.clone())));
                }
                depth += 1;
            } else if let Some(place) = self.import(parent, name)
                && follow > 0
            {
                path = joined(&place?, path[depth + 1..].iter().cloned());
                (depth, follow) = (0, follow - 1);
            } else {
                return Some(made(None));
            }
        }
    }

    /// The place from which a module takes a name, if it does; no place if that is another crate.
    fn import(&self, module: &[String], name: &str) -> Option<Option<ModulePath>> {
        let imports = self.modules.get(module)?;
        if let Some(place) = imports.imports.get(name) {
            return Some(place.clone());
        }
        if module.is_empty()
            && let Some(place) = self.macros.get(name)
        {
            return Some(Some(joined(place, [name.into()])));
        }
        let has = |glob: &&ModulePath| {
            let below = self.modules.iter().filter(|(path, _)| path.starts_with(glob));
            below.into_iter().any(|(_, module)| defines(&module.code, name))
        };
        let glob = imports.globs.iter().filter(|glob| *glob != module).find(has)?;
        Some(Some(joined(glob, [name.into()])))
    }
}

/// A file on its way into the graph.
struct File<'a> {
    path: &'a Path,
    module: &'a ModulePath,
    blocks: Vec<(String, Range<usize>)>,
    source: &'a Source,
}

impl File<'_> {
    /// The module of a place in the file.
    fn module_at(&self, at: usize) -> ModulePath {
        let around = self.blocks.iter().filter(|(_, block)| block.contains(&at));
        joined(self.module, around.map(|(name, _)| name.clone()))
    }
}

/// Returns whether the whole file is a test.
pub(super) fn is_test_file(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.components().any(|c| c.as_os_str() == "tests")
}

/// Items that exist only in tests, those without a body too.
fn test_parts(source: &Source) -> Vec<Range<usize>> {
    let code = &source.code;
    let marks = code.match_indices("#[cfg(test)]").chain(code.match_indices("#[cfg(all(test"));
    let end = |at: usize| {
        let semicolon = code[at..].find(';').map_or(code.len(), |len| at + len + 1);
        source.block_after(at + 1).map_or(semicolon, |block| block.end)
    };
    marks.map(|(at, _)| at..end(at)).collect()
}

/// Modules with a body in the file, outermost first.
fn inline_modules(source: &Source) -> Vec<(String, Range<usize>)> {
    let block = |at| Some((ident(&source.code[at + 3..])?, source.block_after(at)?));
    source.words("mod").filter_map(block).collect()
}

/// Returns whether a module's code has an item with this name, or takes it from elsewhere.
fn defines(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let word = |c: char| c == '_' || c.is_alphanumeric();
        let before = code[..at].trim_end_matches(' ');
        let alone = !code[at + name.len()..].starts_with(word) && !code[..at].ends_with(word);
        let items = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];
        alone && items.iter().any(|item| before.ends_with(item))
    })
}

/// Returns whether a path can begin after this text.
fn begins_path(before: &str) -> bool {
    !before.ends_with("::") && !before.ends_with("(in ")
}

fn joined(path: &[String], rest: impl IntoIterator<Item = String>) -> ModulePath {
    path.iter().cloned().chain(rest).collect()
}

/// The word at the beginning of a text.
fn ident(text: &str) -> Option<String> {
    let word = |c: char| c == '_' || c.is_alphanumeric();
    let name: String = text.trim_start().chars().take_while(|c| word(*c)).collect();
    (!name.is_empty()).then_some(name)
}

/// The names of the path at the beginning of a text.
fn idents(text: &str) -> ModulePath {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(name) = ident(rest) {
        rest = &rest.trim_start()[name.len()..];
        names.push(name);
        match rest.trim_start().strip_prefix("::") {
            Some(after) => rest = after,
            None => break,
        }
    }
    names
}

/// The paths of a `use` declaration: `(offset in the text, path, name that it gives)`.
fn use_leaves(tree: &str, above: &[String], leaves: &mut Vec<(usize, ModulePath, String)>) {
    let mut start = 0;
    let mut depth = 0usize;
    let ends = tree.char_indices().chain([(tree.len(), ',')]);
    for (at, c) in ends {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                let first = leaves.len();
                use_leaf(&tree[start..at], above, leaves);
                leaves[first..].iter_mut().for_each(|leaf| leaf.0 += start);
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Takes one part of a `use` declaration apart, which has no comma outside of braces.
fn use_leaf(part: &str, above: &[String], leaves: &mut Vec<(usize, ModulePath, String)>) {
    let skipped = part.len() - part.trim_start().len();
    let text = part.trim().trim_start_matches("::");
    if let Some((head, inner)) = text.split_once('{') {
        let path = joined(above, idents(head));
        let first = leaves.len();
        let inner = inner.trim_end();
        use_leaves(inner.strip_suffix('}').unwrap_or(inner), &path, leaves);
        let before = part.len() - part.split_once('{').map_or(0, |(_, inner)| inner.len());
        leaves[first..].iter_mut().for_each(|leaf| leaf.0 += before);
        return;
    }
    let (path, alias) = match text.split_once(" as ") {
        Some((path, alias)) => (path, Some(alias.trim().to_string())),
        None => (text, None),
    };
    let mut path = joined(above, idents(path));
    if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
        path.pop();
    }
    let Some(last) = path.last() else { return };
    let name = if text.ends_with('*') { "*".into() } else { alias.unwrap_or(last.clone()) };
    leaves.push((skipped, path, name));
}
