//! The public API of the library as text, in docs/public-api.txt: one line for each item, sorted by
//! path, so that a change of it shows in review.
//!
//! The text is made from the sources of `crates/shoal`, not by the compiler: rustdoc's JSON needs a
//! nightly toolchain, and would be another text with each of them. Macros of the crate are expanded
//! (`expand`), signatures are printed in one way (`print`). Types that other crates of the
//! workspace declare, and the library shows under its own name, are listed with what they declare
//! there. `shoal::raw` is named only: it may change at any time.

mod expand;
mod items;
mod print;

use crate::repository::Repository;
use expand::Macros;
use items::Listing;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::{Item, UseTree};

/// The document.
pub const PATH: &str = "docs/public-api.txt";
const SOURCES: &str = "crates/shoal/src";
/// Crates that declare what the library shows of them.
const BELOW: [&str; 3] = ["crates/base/src", "crates/format/src", "crates/engine/src"];
/// The module that is not listed.
const RAW: &str = "raw";

/// Writes the text afresh. Returns whether it was up to date, or, with `check`, an error message
/// when it was not.
pub fn refresh(repository: &Repository, check: bool) -> Result<Result<bool, String>, String> {
    let path = Path::new(PATH);
    let fresh = generate(repository)?;
    if repository.read(path).is_ok_and(|text| text == fresh) {
        return Ok(Ok(true));
    }
    if check {
        return Ok(Err(format!(
            "{PATH}: the public API has changed: run cargo xtask api, and say it in CHANGELOG.md"
        )));
    }
    repository.write(path, &fresh)?;
    Ok(Ok(false))
}

/// The text.
pub fn generate(repository: &Repository) -> Result<String, String> {
    let mut files = Vec::new();
    let (lib, raw) = (Path::new(SOURCES).join("lib.rs"), Path::new(SOURCES).join(RAW));
    for path in repository.with_extension("rs").filter(|path| path.starts_with(SOURCES)) {
        if path != lib && path.with_extension("") != raw && !path.starts_with(&raw) {
            files.push(parse(repository, path)?);
        }
    }
    let names = Exports::of(&parse(repository, &lib)?)?;
    let mut listing = Listing::default();
    let macros = Macros::of(files.iter().flatten());
    listing.add(files.into_iter().flatten(), &names.own, &macros)?;
    for name in &names.from_raw {
        listing.line(name, format!("pub use shoal::{RAW}::{name}"));
        let mut declared = parse(repository, &declaration(repository, name)?)?;
        // Macros there declare bytes on disk.
        declared.retain(|item| !matches!(item, Item::Macro(_)));
        listing.add(declared, &BTreeSet::from([name.clone()]), &Macros::default())?;
    }
    for module in names.modules {
        listing.line(&module, format!("pub mod shoal::{module}"));
    }
    Ok(listing.text())
}

fn parse(repository: &Repository, path: &Path) -> Result<Vec<Item>, String> {
    let file = syn::parse_file(&repository.read(path)?);
    Ok(file.map_err(|e| format!("{}: {e}", path.display()))?.items)
}

/// The one file that declares a type of the crates below.
fn declaration(repository: &Repository, name: &str) -> Result<PathBuf, String> {
    let mut found = Vec::new();
    for path in repository.with_extension("rs") {
        if BELOW.iter().any(|below| path.starts_with(below))
            && declares(&repository.read(path)?, name)
        {
            found.push(path.to_path_buf());
        }
    }
    match found.as_slice() {
        [path] => Ok(path.clone()),
        _ => Err(format!("{name} is declared in {} files of {}", found.len(), BELOW.join(", "))),
    }
}

fn declares(text: &str, name: &str) -> bool {
    ["pub struct ", "pub enum "].iter().any(|keyword| {
        text.match_indices(&format!("{keyword}{name}")).any(|(at, found)| {
            let after = text[at + found.len()..].chars().next();
            !after.is_some_and(|c| c == '_' || c.is_alphanumeric())
        })
    })
}

/// Names that the root of the crate exports.
#[derive(Default)]
struct Exports {
    /// Names that its private modules declare.
    own: BTreeSet<String>,
    /// Names of the crates below.
    from_raw: BTreeSet<String>,
    /// Public modules.
    modules: BTreeSet<String>,
}

impl Exports {
    fn of(lib: &[Item]) -> Result<Exports, String> {
        let mut exports = Exports::default();
        for item in lib {
            match item {
                Item::Use(item) if items::is_public(&item.vis) => exports.add(&item.tree)?,
                Item::Mod(item) if items::is_public(&item.vis) => {
                    let name = item.ident.to_string();
                    if name != RAW {
                        return Err(format!(
                            "public module {name}: cargo xtask api knows only raw"
                        ));
                    }
                    exports.modules.insert(name);
                }
                Item::Mod(_) | Item::Use(_) | Item::Const(_) => {}
                _ => return Err("lib.rs declares an item: move it into a module".into()),
            }
        }
        Ok(exports)
    }

    /// Adds `module::Name` or `module::{Name, …}`.
    fn add(&mut self, tree: &UseTree) -> Result<(), String> {
        let UseTree::Path(path) = tree else {
            return Err("pub use of something that is no path".into());
        };
        let names = if path.ident == RAW { &mut self.from_raw } else { &mut self.own };
        let leaves: Vec<&UseTree> = match &*path.tree {
            UseTree::Group(group) => group.items.iter().collect(),
            tree => vec![tree],
        };
        for leaf in leaves {
            let UseTree::Name(leaf) = leaf else {
                return Err(format!("pub use {}::…: name each item by itself", path.ident));
            };
            names.insert(leaf.ident.to_string());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a module that is shown as a whole.
    fn of(source: &str, names: &[&str]) -> Vec<String> {
        let items = syn::parse_file(source).expect("parses").items;
        let macros = Macros::of(&items);
        let mut listing = Listing::default();
        let names = names.iter().map(|name| name.to_string()).collect();
        listing.add(items, &names, &macros).expect("is listed");
        listing.text().lines().map(str::to_owned).collect()
    }

    #[test]
    fn public_items_are_listed_and_no_others() {
        let source = "
            #[derive(Clone, Debug)] #[non_exhaustive] /// Doc.
            pub struct A<'a> { pub len: u64, inner: &'a [u8] }
            pub struct Hidden;
            impl<'a> A<'a> {
                pub const MAX: usize = 7;
                #[must_use] pub fn new(mut path: impl AsRef<Path>) -> Option<Self> { None }
                pub(crate) fn secret(&self) {}
                pub fn each<F>(&self, f: F) -> Result<()> where F: Fn(&mut [u8]) -> u8 { Ok(()) }
            }
            impl Hidden { pub fn f(&self) {} }
            impl Read for &A<'_> { fn read(&mut self) {} }
            impl From<A<'_>> for String { fn from(a: A<'_>) -> String { String::new() } }
            pub(crate) trait Own { fn f(&self); }
            impl Own for A<'_> { fn f(&self) {} }
            #[cfg(test)] impl A<'_> { pub fn in_tests() {} }
        ";
        assert_eq!(
            of(source, &["A"]),
            [
                "#[non_exhaustive] pub struct shoal::A<'a>",
                "impl Clone for shoal::A",
                "impl Debug for shoal::A",
                "impl From<A<'_>> for String",
                "impl Read for &A<'_>",
                "pub const shoal::A::MAX: usize",
                "pub fn shoal::A::each<F>(&self, f: F) -> Result<()> where F: Fn(&mut [u8]) -> u8",
                "pub shoal::A::len: u64",
                "#[must_use] pub fn shoal::A::new(path: impl AsRef<Path>) -> Option<Self>",
            ]
        );
    }

    #[test]
    fn enums_traits_and_aliases() {
        let source = "
            pub enum E { A = 1, B(u8, String), C { x: u8 } }
            pub trait T: Send { type X; fn f(&self) -> &[u8]; fn g(&self) -> u8 { 1 } }
            impl T for str { type X = Vec<u8>; fn f(&self) -> &[u8] { &[] } }
            impl<P: T + ?Sized> T for &P { type X = u8; fn f(&self) -> &[u8] { &[] } }
            pub type R<X, Y = E> = std::result::Result<X, Y>;
            pub fn free(a: &str, b: [u8; 4]) -> (u8, u16) { (1, 2) }
        ";
        assert_eq!(
            of(source, &["E", "T", "R", "free"]),
            [
                "pub enum shoal::E",
                "shoal::E::A = 1",
                "shoal::E::B(u8, String)",
                "shoal::E::C { x: u8 }",
                "pub type shoal::R<X, Y = E> = std::result::Result<X, Y>",
                "pub trait shoal::T: Send",
                "impl T for str with X = Vec<u8>",
                "impl<P: T + ?Sized> T for &P with X = u8",
                "type shoal::T::X",
                "fn shoal::T::f(&self) -> &[u8]",
                "fn shoal::T::g(&self) -> u8 (provided)",
                "pub fn shoal::free(a: &str, b: [u8; 4]) -> (u8, u16)",
            ]
        );
    }

    #[test]
    fn macros_are_expanded() {
        let source = r#"
            pub struct A; pub struct B;
            macro_rules! calls {
                ($type:ty, $what:literal) => {
                    impl $type {
                        pub fn call(&self, name: impl $crate::AsPath) -> $crate::Result<()> {}
                    }
                };
            }
            macro_rules! flags {
                ($($(#[doc = $doc:literal])* $name:ident)*) => {$(
                    $(#[doc = $doc])* pub fn $name(mut self, $name: bool) -> Self { self }
                )*};
            }
            macro_rules! each { ($($what:ty => |$it:ident| $bytes:expr;)*) => {$(
                impl Write for $what { fn f() { $bytes } }
            )*}; }
            calls!(A, "a");
            impl B { flags! {
                /// One.
                read
                write
            } }
            each! { A => |it| it.a(1, 2); B => |it| it; }
        "#;
        assert_eq!(
            of(source, &["A", "B"]),
            [
                "pub struct shoal::A",
                "impl Write for shoal::A",
                "pub fn shoal::A::call(&self, name: impl AsPath) -> Result<()>",
                "pub struct shoal::B",
                "impl Write for shoal::B",
                "pub fn shoal::B::read(self, read: bool) -> Self",
                "pub fn shoal::B::write(self, write: bool) -> Self",
            ]
        );
        let unknown = syn::parse_file("other!(A);").expect("parses").items;
        let none = Macros::of(&[]);
        assert!(
            Listing::default().add(unknown, &BTreeSet::new(), &none).is_err(),
            "not overlooked"
        );
    }
}
