//! Matches without a wildcard, on enums to which cases are added: a new case must not compile until
//! every place has decided what it means there. A journal item that a match ignored once left stale
//! attributes in the kernel after a take-over.

use super::Problem;
use crate::repository::{Crate, Repository};
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Arm, Attribute, ExprMatch, Item, Meta, Pat, Signature};

/// The enums. Their names are theirs alone within [`CRATES`].
const ENUMS: &[&str] = &["Item", "BatchOp", "LostKind", "IntentState", "Loss"];

/// Crates that use them. In others, `Item` is something else.
const CRATES: &[&str] = &["format", "txn", "engine", "shoal", "fuse", "cli"];

/// Checks all crates.
pub(super) fn check(
    repository: &Repository,
    crates: &[Crate],
    problems: &mut Vec<Problem>,
) -> Result<(), String> {
    let is_in = |folder: &Path| CRATES.iter().any(|name| folder.ends_with(name));
    for folder in crates.iter().map(|c| &c.folder).filter(|folder| is_in(folder)) {
        let sources = folder.join("src");
        for path in repository.with_extension("rs").filter(|path| path.starts_with(&sources)) {
            check_file(path, &repository.read(path)?, problems)?;
        }
    }
    Ok(())
}

fn check_file(path: &Path, text: &str, problems: &mut Vec<Problem>) -> Result<(), String> {
    let file = syn::parse_file(text).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut found = Found::default();
    found.visit_file(&file);
    for (function, name) in found.wild {
        let message = format!("a match on {name} in {function} has a wildcard: list its cases");
        problems.push(Problem::new(path, 0, message));
    }
    Ok(())
}

/// Matches with a wildcard: the function, and the enum.
#[derive(Default)]
struct Found {
    function: String,
    wild: Vec<(String, String)>,
}

impl<'a> Visit<'a> for Found {
    fn visit_item(&mut self, item: &'a Item) {
        // Tests may look for one case among all.
        if !matches!(item, Item::Mod(module) if is_test(&module.attrs)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_signature(&mut self, signature: &'a Signature) {
        self.function = signature.ident.to_string();
        visit::visit_signature(self, signature);
    }

    fn visit_expr_match(&mut self, expr: &'a ExprMatch) {
        let name = expr.arms.iter().find_map(|arm| enum_of(&arm.pat));
        if let Some(name) = name.filter(|_| expr.arms.iter().any(is_wild)) {
            self.wild.push((self.function.clone(), name));
        }
        visit::visit_expr_match(self, expr);
    }
}

/// Returns whether these attributes leave an item out of what is not a test.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() == "test",
        _ => false,
    })
}

/// Returns the one of [`ENUMS`] that a pattern is of.
fn enum_of(pattern: &Pat) -> Option<String> {
    let path = match pattern {
        Pat::Or(or) => return or.cases.iter().find_map(enum_of),
        Pat::Reference(of) => return enum_of(&of.pat),
        Pat::Paren(of) => return enum_of(&of.pat),
        Pat::Guard(of) => return enum_of(&of.pat),
        Pat::Path(of) => &of.path,
        Pat::Struct(of) => &of.path,
        Pat::TupleStruct(of) => &of.path,
        _ => return None,
    };
    let of = path.segments.iter().nth_back(1)?.ident.to_string();
    ENUMS.contains(&&*of).then_some(of)
}

/// Returns whether an arm takes every case that those above it have left.
fn is_wild(arm: &Arm) -> bool {
    // With a guard it is a `Pat::Guard`.
    matches!(arm.pat, Pat::Wild(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wild(body: &str) -> usize {
        let mut problems = Vec::new();
        let text = format!("fn f(item: &Item) {{\n{body}\n}}\n");
        check_file(Path::new("a.rs"), &text, &mut problems).expect("it parses");
        assert!(problems.iter().all(|problem| problem.message.contains(" in f ")), "{problems:?}");
        problems.len()
    }

    #[test]
    fn a_wildcard_is_found_wherever_it_hides() {
        assert_eq!(wild("match item { Item::Core { .. } => {} _ => {} }"), 1);
        assert_eq!(wild("match item { Item::Core(_) | Item::Free => {} _ => {} }"), 1);
        assert_eq!(wild("let a = || { match x { &format::Item::Core => 1, _ => 2 } };"), 1);
        // Its own match, in an arm of another.
        assert_eq!(wild("match x { A::B => match y { LostKind::Usage => 1, _ => 2 } _ => 3 }"), 1);
    }

    #[test]
    fn whole_matches_guards_other_enums_and_tests_pass() {
        assert_eq!(wild("match item { Item::Core { .. } | Item::Free { .. } => {} }"), 0);
        assert_eq!(wild("match item { Item::Core { .. } => {} _ if a => {} Item::Free => {} }"), 0);
        assert_eq!(wild("match code { Code::Again => {} _ => {} }"), 0);
        let tests = "#[cfg(test)] mod t { fn g() { match a { Item::Core => {} _ => {} } } }";
        assert_eq!(wild(tests), 0);
    }
}
