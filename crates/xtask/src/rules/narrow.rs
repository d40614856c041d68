//! Narrow types: at most so many public methods. A type with more has several subjects, and its
//! callers can be given smaller ones.

use super::Problem;
use crate::repository::{Crate, Repository};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use syn::{Attribute, ImplItem, Item, Meta, Type, Visibility};

/// Public methods of one type, in all files of its crate.
const METHODS: usize = 30;

/// Public methods of a type, and the file of its first ones.
type Methods = BTreeMap<String, (usize, PathBuf)>;

/// Checks all crates.
pub(super) fn check(
    repository: &Repository,
    crates: &[Crate],
    problems: &mut Vec<Problem>,
) -> Result<(), String> {
    for folder in crates.iter().map(|c| &c.folder) {
        let (mut methods, sources) = (Methods::new(), folder.join("src"));
        for path in repository.with_extension("rs").filter(|path| path.starts_with(&sources)) {
            count(path, &repository.read(path)?, &mut methods)?;
        }
        report(&methods, problems);
    }
    Ok(())
}

fn report(methods: &Methods, problems: &mut Vec<Problem>) {
    for (name, (count, path)) in methods.iter().filter(|(_, (count, _))| *count > METHODS) {
        let message = format!("{name} has {count} public methods; at most {METHODS}: divide it");
        problems.push(Problem::new(path, 0, message));
    }
}

fn count(path: &Path, text: &str, methods: &mut Methods) -> Result<(), String> {
    let file = syn::parse_file(text).map_err(|e| format!("{}: {e}", path.display()))?;
    count_items(path, &file.items, methods);
    Ok(())
}

fn count_items(path: &Path, items: &[Item], methods: &mut Methods) {
    for item in items {
        match item {
            Item::Mod(module) if !is_test(&module.attrs) => {
                let inside = module.content.as_ref().map_or(&[][..], |(_, items)| items);
                count_items(path, inside, methods);
            }
            Item::Impl(block) if block.trait_.is_none() && !is_test(&block.attrs) => {
                let Type::Path(of) = &*block.self_ty else { continue };
                let Some(name) = of.path.segments.last() else { continue };
                let public = block.items.iter().filter(|item| match item {
                    ImplItem::Fn(method) => matches!(method.vis, Visibility::Public(_)),
                    _ => false,
                });
                let entry = methods.entry(name.ident.to_string());
                entry.or_insert_with(|| (0, path.into())).0 += public.count();
            }
            _ => {}
        }
    }
}

/// Returns whether these attributes leave an item out of what is not a test.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() == "test",
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[&str]) -> Vec<String> {
        let (mut methods, mut problems) = (Methods::new(), Vec::new());
        for (number, text) in files.iter().enumerate() {
            let path = format!("{number}.rs");
            count(Path::new(&path), text, &mut methods).expect("parses");
        }
        report(&methods, &mut problems);
        problems.iter().map(ToString::to_string).collect()
    }

    fn block(head: &str, method: &str, number: usize) -> String {
        let methods: String = (0..number).map(|n| format!("{method} f{n}() {{}}\n")).collect();
        format!("{head} {{\n{methods}}}\n")
    }

    #[test]
    fn methods_are_counted_over_all_files() {
        let (one, two) = (block("impl A", "pub fn", 20), block("impl<T> A<T>", "pub const fn", 10));
        assert_eq!(messages(&[&one, &two]), [""; 0]);
        let more = format!("mod m {{ {} }}", block("impl super::A", "pub fn", 1));
        let message = "0.rs: A has 31 public methods; at most 30: divide it";
        assert_eq!(messages(&[&one, &two, &more]), [message]);
    }

    #[test]
    fn only_public_methods_of_the_type_itself_count() {
        let public = block("impl A", "pub fn", 30);
        for other in [
            block("impl A", "pub(crate) fn", 1),
            block("impl A", "fn", 1),
            block("impl T for A", "fn", 1),
            block("impl B", "pub fn", 1),
            block("#[cfg(test)] impl A", "pub fn", 1),
        ] {
            assert_eq!(messages(&[&public, &other]), [""; 0], "{other}");
        }
    }
}
