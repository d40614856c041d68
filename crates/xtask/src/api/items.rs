//! The lines of each kind of item.

use super::expand::Macros;
use super::print::print;
use proc_macro2::TokenTree;
use quote::ToTokens;
use std::collections::BTreeSet;
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Fields, FnArg, Generics, ImplItem, Item, ItemEnum, ItemImpl, ItemStruct, ItemTrait,
    Pat, ReceiverKind, Signature, Token, TraitItem, Type, Visibility,
};

/// Lines with the paths that they are sorted by; of one path, declarations before implementations.
#[derive(Default)]
pub(super) struct Listing(BTreeSet<(String, bool, String)>);

pub(super) fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Names that are listed, and what is known of their crate.
struct Context<'a> {
    names: &'a BTreeSet<String>,
    /// Traits of the crate that nobody outside can name.
    private_traits: BTreeSet<String>,
    macros: &'a Macros,
}

impl Listing {
    /// Adds a line under a path below the crate.
    pub(super) fn line(&mut self, path: &str, line: String) {
        self.0.insert((path.to_owned(), line.starts_with("impl"), line));
    }

    pub(super) fn text(&self) -> String {
        self.0.iter().map(|(_, _, line)| format!("{line}\n")).collect()
    }

    /// Adds what is public of the items with these names.
    pub(super) fn add(
        &mut self,
        items: impl IntoIterator<Item = Item>,
        names: &BTreeSet<String>,
        macros: &Macros,
    ) -> Result<(), String> {
        let mut all = Vec::new();
        for item in items {
            match item {
                Item::Macro(item) if item.ident.is_some() => {}
                Item::Macro(item) => {
                    let file = syn::parse2::<syn::File>(macros.expand(&item.mac)?);
                    all.extend(file.map_err(|e| e.to_string())?.items);
                }
                item => all.push(item),
            }
        }
        let private_traits = all.iter().filter_map(|item| match item {
            Item::Trait(item) if !names.contains(&item.ident.to_string()) => {
                Some(item.ident.to_string())
            }
            _ => None,
        });
        let context = Context { names, private_traits: private_traits.collect(), macros };
        all.iter().try_for_each(|item| self.item(item, &context))
    }

    fn item(&mut self, item: &Item, context: &Context<'_>) -> Result<(), String> {
        let shown = |ident: &syn::Ident| context.names.contains(&ident.to_string());
        match item {
            Item::Struct(item) if shown(&item.ident) => self.structure(item),
            Item::Enum(item) if shown(&item.ident) => self.enumeration(item),
            Item::Trait(item) if shown(&item.ident) => self.interface(item),
            Item::Type(item) if shown(&item.ident) => {
                let (name, generics) = (&item.ident, print(&item.generics));
                let line = format!("pub type shoal::{name}{generics} = {}", print(&item.ty));
                self.line(&name.to_string(), line);
            }
            Item::Const(item) if shown(&item.ident) => {
                let line = format!("pub const shoal::{}: {}", item.ident, print(&item.ty));
                self.line(&item.ident.to_string(), line);
            }
            Item::Fn(item) if shown(&item.sig.ident) => {
                let name = item.sig.ident.to_string();
                self.line(&name, function(&item.attrs, "pub ", &name, &item.sig));
            }
            Item::Impl(item) => self.implementation(item, context)?,
            _ => {}
        }
        Ok(())
    }

    fn derives(&mut self, name: &str, attributes: &[Attribute]) {
        let parse = Punctuated::<syn::Path, Token![,]>::parse_terminated;
        let derives = attributes.iter().filter(|attribute| attribute.path().is_ident("derive"));
        for path in derives.filter_map(|derive| derive.parse_args_with(parse).ok()).flatten() {
            self.line(name, format!("impl {} for shoal::{name}", print(path)));
        }
    }

    fn structure(&mut self, item: &ItemStruct) {
        let (name, generics) = (item.ident.to_string(), print(&item.generics));
        let line = format!("{}pub struct shoal::{name}{generics}", marks(&item.attrs));
        self.line(&name, line);
        self.derives(&name, &item.attrs);
        for (at, field) in item.fields.iter().enumerate().filter(|(_, f)| is_public(&f.vis)) {
            let field_name = field.ident.as_ref().map_or(at.to_string(), ToString::to_string);
            let path = format!("{name}::{field_name}");
            let line = format!("pub shoal::{path}: {}", print(&field.ty));
            self.line(&path, line);
        }
    }

    fn enumeration(&mut self, item: &ItemEnum) {
        let (name, generics) = (item.ident.to_string(), print(&item.generics));
        self.line(&name, format!("{}pub enum shoal::{name}{generics}", marks(&item.attrs)));
        self.derives(&name, &item.attrs);
        for variant in &item.variants {
            let path = format!("{name}::{}", variant.ident);
            let fields = match &variant.fields {
                Fields::Unit => String::new(),
                Fields::Named(fields) => format!(" {}", print(without_docs(fields))),
                Fields::Unnamed(fields) => print(without_docs(fields)),
            };
            let value = variant.discriminant.as_ref();
            let value = value.map_or(String::new(), |(_, value)| format!(" = {}", print(value)));
            let line = format!("{}shoal::{path}{fields}{value}", marks(&variant.attrs));
            self.line(&path, line);
        }
    }

    fn interface(&mut self, item: &ItemTrait) {
        let (name, generics) = (item.ident.to_string(), print(&item.generics));
        let mut line = format!("{}pub trait shoal::{name}{generics}", marks(&item.attrs));
        if !item.supertraits.is_empty() {
            line.push_str(&format!(": {}", print(&item.supertraits)));
        }
        self.line(&name, line);
        for inner in &item.items {
            match inner {
                TraitItem::Fn(inner) => {
                    let path = format!("{name}::{}", inner.sig.ident);
                    let provided = if inner.default.is_some() { " (provided)" } else { "" };
                    let line = function(&inner.attrs, "", &path, &inner.sig);
                    self.line(&path, format!("{line}{provided}"));
                }
                TraitItem::Type(inner) => {
                    let path = format!("{name}::{}", inner.ident);
                    self.line(&path, format!("type shoal::{path}{}", print(&inner.generics)));
                }
                TraitItem::Const(inner) => {
                    let path = format!("{name}::{}", inner.ident);
                    self.line(&path, format!("const shoal::{path}: {}", print(&inner.ty)));
                }
                _ => {}
            }
        }
    }

    fn implementation(&mut self, item: &ItemImpl, context: &Context<'_>) -> Result<(), String> {
        if is_for_tests(&item.attrs) {
            return Ok(());
        }
        let name = self_name(&item.self_ty);
        let Some((of, _)) = &item.trait_ else {
            return match name.filter(|name| context.names.contains(name)) {
                Some(name) => self.inherent(&name, &item.items, context),
                None => Ok(()),
            };
        };
        let mut words = BTreeSet::new();
        identifiers(of.to_token_stream(), &mut words);
        let of_private = of.segments.last().map(|segment| segment.ident.to_string());
        if of_private.is_some_and(|of| context.private_traits.contains(&of)) {
            return Ok(());
        }
        let own = name.filter(|name| context.names.contains(name));
        let other = words.iter().find(|word| context.names.contains(*word));
        if let Some(path) = own.as_ref().or(other) {
            let (generics, clause) = (parameters(&item.generics), clause(&item.generics));
            let (of, target) = (print(of.segments.last()), print(&item.self_ty));
            let is_plain = own.is_some() && target.starts_with(path.as_str());
            let crate_name = if is_plain { "shoal::" } else { "" };
            let line = format!("impl{generics} {of} for {crate_name}{target}{clause}");
            let line = format!("{line}{}", associated(&item.items));
            self.line(path, line);
        }
        Ok(())
    }

    /// Public methods and constants of a type.
    fn inherent(
        &mut self,
        name: &str,
        items: &[ImplItem],
        context: &Context<'_>,
    ) -> Result<(), String> {
        for item in items {
            match item {
                ImplItem::Fn(item) if is_public(&item.vis) && !is_for_tests(&item.attrs) => {
                    let path = format!("{name}::{}", item.sig.ident);
                    self.line(&path, function(&item.attrs, "pub ", &path, &item.sig));
                }
                ImplItem::Const(item) if is_public(&item.vis) => {
                    let path = format!("{name}::{}", item.ident);
                    self.line(&path, format!("pub const shoal::{path}: {}", print(&item.ty)));
                }
                ImplItem::Macro(item) => {
                    let tokens = context.macros.expand(&item.mac)?;
                    let block: ItemImpl = syn::parse2(quote::quote!(impl Expanded { #tokens }))
                        .map_err(|e| e.to_string())?;
                    self.inherent(name, &block.items, context)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The types that an implementation chooses, if there are any.
fn associated(items: &[ImplItem]) -> String {
    let types = items.iter().filter_map(|item| match item {
        ImplItem::Type(item) => Some(format!("{} = {}", item.ident, print(&item.ty))),
        _ => None,
    });
    match types.collect::<Vec<_>>().join(", ") {
        types if types.is_empty() => types,
        types => format!(" with {types}"),
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| a.path().is_ident("cfg") && print(a).contains("test"))
}

/// The attributes that callers notice.
fn marks(attributes: &[Attribute]) -> String {
    let noticed = ["non_exhaustive", "must_use", "deprecated"];
    let is_noticed = |a: &&Attribute| noticed.iter().any(|name| a.path().is_ident(name));
    let found = attributes.iter().filter(is_noticed);
    found.map(|a| format!("#[{}] ", print(a.path()))).collect()
}

fn without_docs<T: Clone + ToTokens>(fields: &T) -> proc_macro2::TokenStream {
    fn strip(tokens: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
        let mut out = Vec::new();
        let mut tokens = tokens.into_iter().peekable();
        while let Some(tree) = tokens.next() {
            match tree {
                TokenTree::Punct(punct) if punct.as_char() == '#' => drop(tokens.next()),
                TokenTree::Group(group) => {
                    let inner = proc_macro2::Group::new(group.delimiter(), strip(group.stream()));
                    out.push(TokenTree::Group(inner));
                }
                // A comma at the end.
                TokenTree::Punct(punct) if punct.as_char() == ',' && tokens.peek().is_none() => {}
                tree => out.push(tree),
            }
        }
        out.into_iter().collect()
    }
    strip(fields.to_token_stream())
}

/// `A` of `&'a mut b::A<T>`.
fn self_name(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        Type::Reference(reference) => self_name(&reference.elem),
        _ => None,
    }
}

fn identifiers(tokens: proc_macro2::TokenStream, found: &mut BTreeSet<String>) {
    for tree in tokens {
        match tree {
            TokenTree::Ident(ident) => drop(found.insert(ident.to_string())),
            TokenTree::Group(group) => identifiers(group.stream(), found),
            _ => {}
        }
    }
}

/// `<…>`, without its where clause.
fn parameters(generics: &Generics) -> String {
    print(Generics { where_clause: None, ..generics.clone() })
}

fn clause(generics: &Generics) -> String {
    let Some(mut clause) = generics.where_clause.clone() else { return String::new() };
    clause.predicates.pop_punct();
    format!(" {}", print(clause))
}

/// The line of a function. What only its body needs to know, such as `mut`, is left out.
fn function(
    attributes: &[Attribute],
    visibility: &str,
    path: &str,
    signature: &Signature,
) -> String {
    let mut signature = signature.clone();
    signature.inputs.pop_punct();
    for input in &mut signature.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                if matches!(receiver.kind, ReceiverKind::Value) {
                    receiver.mutability = None;
                }
            }
            FnArg::Typed(typed) => {
                if let Pat::Ident(pattern) = &mut *typed.pat {
                    pattern.mutability = None;
                }
            }
        }
    }
    let kinds =
        [("const ", signature.constness.is_some()), ("async ", signature.asyncness.is_some())];
    let kinds: String = kinds.iter().filter(|(_, is)| *is).map(|(kind, _)| *kind).collect();
    let generics = &signature.generics;
    format!(
        "{}{visibility}{kinds}fn shoal::{path}{}({}){}{}",
        marks(attributes),
        parameters(generics),
        print(&signature.inputs),
        match print(&signature.output) {
            output if output.is_empty() => output,
            output => format!(" {output}"),
        },
        clause(generics),
    )
}
