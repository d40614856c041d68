//! Expansion of `macro_rules!` macros, as far as a crate uses them to declare items: fragments,
//! repetitions, groups, `$crate`. Hygiene does not matter for signatures.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use std::collections::BTreeMap;
use syn::parse::discouraged::Speculative;
use syn::parse::{ParseStream, Parser};
use syn::{Item, Macro};

/// The macros that a crate declares, by name.
#[derive(Default)]
pub(super) struct Macros(BTreeMap<String, Vec<Rule>>);

/// A rule: what is matched, and what comes out.
type Rule = (Vec<TokenTree>, TokenStream);

/// Tokens by the name of their fragment.
type Bindings = BTreeMap<String, Binding>;

#[derive(Clone)]
enum Binding {
    One(TokenStream),
    /// One for each turn of a repetition.
    Many(Vec<Binding>),
}

impl Macros {
    pub(super) fn of<'a>(items: impl IntoIterator<Item = &'a Item>) -> Macros {
        let declared = items.into_iter().filter_map(|item| match item {
            Item::Macro(item) => {
                Some((item.ident.as_ref()?.to_string(), rules(item.mac.tokens.clone())))
            }
            _ => None,
        });
        Macros(declared.collect())
    }

    /// The tokens that a call of a macro stands for.
    pub(super) fn expand(&self, call: &Macro) -> Result<TokenStream, String> {
        let name = call.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
        let rules = self.0.get(&name).ok_or(format!("{name}! is no macro of this crate"))?;
        let mut reasons = Vec::new();
        for (pattern, body) in rules {
            match match_all(pattern, call.tokens.clone()) {
                Ok(bindings) => return transcribe(body.clone(), &bindings),
                Err(reason) => reasons.push(reason.to_string()),
            }
        }
        Err(format!("no rule of {name}! matches: {}", reasons.join("; ")))
    }
}

/// `(…) => {…}; …`
fn rules(tokens: TokenStream) -> Vec<Rule> {
    let groups = tokens.into_iter().filter_map(|tree| match tree {
        TokenTree::Group(group) => Some(group.stream()),
        _ => None,
    });
    let groups: Vec<TokenStream> = groups.collect();
    groups
        .chunks_exact(2)
        .map(|rule| (rule[0].clone().into_iter().collect(), rule[1].clone()))
        .collect()
}

fn match_all(pattern: &[TokenTree], input: TokenStream) -> syn::Result<Bindings> {
    let mut bindings = Bindings::new();
    let matched = |input: ParseStream<'_>| match_some(pattern, input, &mut bindings);
    matched.parse2(input)?;
    Ok(bindings)
}

fn match_some(
    mut pattern: &[TokenTree],
    input: ParseStream<'_>,
    bindings: &mut Bindings,
) -> syn::Result<()> {
    loop {
        pattern = match pattern {
            [] => return Ok(()),
            [dollar, TokenTree::Ident(name), _, TokenTree::Ident(kind), rest @ ..]
                if is(dollar, '$') =>
            {
                bindings.insert(name.to_string(), Binding::One(fragment(kind, input)?));
                rest
            }
            [dollar, TokenTree::Group(inner), rest @ ..] if is(dollar, '$') => {
                let (separator, rest) = repetition(rest);
                match_repeatedly(&inner.stream(), separator, input, bindings)?;
                rest
            }
            [TokenTree::Group(group), rest @ ..] => {
                let TokenTree::Group(found) = input.parse()? else {
                    return Err(input.error("another token than a group"));
                };
                if found.delimiter() != group.delimiter() {
                    return Err(input.error("other brackets"));
                }
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                bindings.extend(match_all(&inner, found.stream())?);
                rest
            }
            [token, rest @ ..] => {
                let found: TokenTree = input.parse()?;
                if found.to_string() != token.to_string() {
                    return Err(input.error(format!("{found} for {token}")));
                }
                rest
            }
        };
    }
}

/// Matches as many turns as there are.
fn match_repeatedly(
    pattern: &TokenStream,
    separator: Option<&TokenTree>,
    input: ParseStream<'_>,
    bindings: &mut Bindings,
) -> syn::Result<()> {
    let pattern: Vec<TokenTree> = pattern.clone().into_iter().collect();
    let mut turns = Vec::new();
    while !input.is_empty() {
        let ahead = input.fork();
        if let (Some(separator), false) = (separator, turns.is_empty())
            && ahead.parse::<TokenTree>()?.to_string() != separator.to_string()
        {
            break;
        }
        let mut turn = Bindings::new();
        if match_some(&pattern, &ahead, &mut turn).is_err() {
            break;
        }
        input.advance_to(&ahead);
        turns.push(turn);
    }
    for name in names(&pattern) {
        let each = turns.iter().filter_map(|turn| turn.get(&name).cloned()).collect();
        bindings.insert(name, Binding::Many(each));
    }
    Ok(())
}

/// Names of all fragments of a pattern.
fn names(pattern: &[TokenTree]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, tree) in pattern.iter().enumerate() {
        match (tree, pattern.get(at + 1)) {
            (dollar, Some(TokenTree::Ident(name))) if is(dollar, '$') => {
                found.push(name.to_string())
            }
            (TokenTree::Group(group), _) => {
                found.extend(names(&group.stream().into_iter().collect::<Vec<_>>()));
            }
            _ => {}
        }
    }
    found
}

/// The separator of a repetition, and what comes behind its `*`.
fn repetition(rest: &[TokenTree]) -> (Option<&TokenTree>, &[TokenTree]) {
    let is_operator = |tree: &TokenTree| ['*', '+', '?'].iter().any(|c| is(tree, *c));
    match rest {
        [operator, rest @ ..] if is_operator(operator) => (None, rest),
        [separator, operator, rest @ ..] if is_operator(operator) => (Some(separator), rest),
        _ => (None, rest),
    }
}

fn fragment(kind: &Ident, input: ParseStream<'_>) -> syn::Result<TokenStream> {
    use quote::ToTokens;
    Ok(match kind.to_string().as_str() {
        "ty" => input.parse::<syn::Type>()?.into_token_stream(),
        "expr" => input.parse::<syn::Expr>()?.into_token_stream(),
        "ident" => input.parse::<Ident>()?.into_token_stream(),
        "literal" => input.parse::<syn::Lit>()?.into_token_stream(),
        "path" => input.parse::<syn::Path>()?.into_token_stream(),
        "tt" => input.parse::<TokenTree>()?.into_token_stream(),
        other => return Err(input.error(format!("cargo xtask api knows no fragment {other}"))),
    })
}

fn is(tree: &TokenTree, c: char) -> bool {
    matches!(tree, TokenTree::Punct(punct) if punct.as_char() == c)
}

/// Puts the bound tokens in their places.
fn transcribe(body: TokenStream, bindings: &Bindings) -> Result<TokenStream, String> {
    let body: Vec<TokenTree> = body.into_iter().collect();
    let mut rest = body.as_slice();
    let mut out = TokenStream::new();
    loop {
        rest = match rest {
            [] => return Ok(out),
            [dollar, TokenTree::Ident(name), rest @ ..] if is(dollar, '$') => {
                match bindings.get(&name.to_string()) {
                    Some(Binding::One(tokens)) => out.extend(tokens.clone()),
                    None if name == "crate" => out.extend([TokenTree::Ident(name.clone())]),
                    _ => return Err(format!("${name} is not bound here")),
                }
                rest
            }
            [dollar, TokenTree::Group(inner), rest @ ..] if is(dollar, '$') => {
                let (separator, rest) = repetition(rest);
                for (at, turn) in turns(inner, bindings)?.iter().enumerate() {
                    out.extend(separator.filter(|_| at > 0).cloned());
                    out.extend(transcribe(inner.stream(), turn)?);
                }
                rest
            }
            [TokenTree::Group(group), rest @ ..] => {
                let inner = transcribe(group.stream(), bindings)?;
                let delimiter: Delimiter = group.delimiter();
                out.extend([TokenTree::Group(Group::new(delimiter, inner))]);
                rest
            }
            [token, rest @ ..] => {
                out.extend([token.clone()]);
                rest
            }
        };
    }
}

/// The bindings of each turn of a repetition: those of its fragments that repeat.
fn turns(body: &Group, bindings: &Bindings) -> Result<Vec<Bindings>, String> {
    let used = names(&body.stream().into_iter().collect::<Vec<_>>());
    let repeating = used.iter().filter_map(|name| match bindings.get(name) {
        Some(Binding::Many(each)) => Some((name, each)),
        _ => None,
    });
    let repeating: Vec<_> = repeating.collect();
    let count = repeating.first().ok_or("a repetition of nothing")?.1.len();
    if repeating.iter().any(|(_, each)| each.len() != count) {
        return Err("fragments of one repetition repeat differently".into());
    }
    let turn = |at: usize| {
        let mut turn = bindings.clone();
        turn.extend(repeating.iter().map(|(name, each)| ((*name).clone(), each[at].clone())));
        turn
    };
    Ok((0..count).map(turn).collect())
}
