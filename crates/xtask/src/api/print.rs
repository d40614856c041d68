//! Tokens as text in one line, spaced as rustfmt would.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;

/// The text of a part of a signature. `crate::` is left out.
pub(super) fn print(tokens: impl ToTokens) -> String {
    let mut pieces = Vec::new();
    collect(tokens.into_token_stream(), &mut pieces);
    let mut text = String::new();
    let mut previous = "";
    let mut at = 0;
    while at < pieces.len() {
        if pieces[at] == "crate" && pieces.get(at + 1).is_some_and(|next| next == "::") {
            at += 2;
            continue;
        }
        if needs_space(previous, &pieces[at]) {
            text.push(' ');
        }
        text.push_str(&pieces[at]);
        previous = &pieces[at];
        at += 1;
    }
    text
}

/// Words, literals, lifetimes, brackets, and operators of one or more characters.
fn collect(tokens: TokenStream, pieces: &mut Vec<String>) {
    let mut joined = String::new();
    for tree in tokens {
        match tree {
            TokenTree::Punct(punct) => {
                let c = punct.as_char();
                match joined.as_str() {
                    // `->`, `::` and `=>` are one piece; `<'`, `&'`, `>>` are not.
                    "-" | ":" | "=" if c == '>' || c == ':' => joined.push(c),
                    _ => {
                        flush(&mut joined, pieces);
                        joined.push(c);
                    }
                }
            }
            TokenTree::Ident(ident) if joined == "'" => {
                joined.push_str(&ident.to_string());
                flush(&mut joined, pieces);
            }
            TokenTree::Group(group) => {
                flush(&mut joined, pieces);
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::None => ("", ""),
                };
                pieces.push(open.into());
                collect(group.stream(), pieces);
                pieces.push(close.into());
                pieces.retain(|piece| !piece.is_empty());
            }
            other => {
                flush(&mut joined, pieces);
                pieces.push(other.to_string());
            }
        }
    }
    flush(&mut joined, pieces);
}

fn flush(joined: &mut String, pieces: &mut Vec<String>) {
    if !joined.is_empty() {
        pieces.push(std::mem::take(joined));
    }
}

fn needs_space(previous: &str, next: &str) -> bool {
    const AROUND: [&str; 7] = ["->", "=>", "=", "+", "{", "}", "|"];
    let is_word = |piece: &str| {
        piece.starts_with(|c: char| c == '_' || c == '\'' || c == '"' || c.is_alphanumeric())
    };
    let is_keyword =
        ["mut", "dyn", "for", "as", "in", "impl", "const", "where"].contains(&previous);
    match (previous, next) {
        ("", _) => false,
        (_, "," | ";" | ":" | "::" | ")" | "]" | ">" | "?") if next != "?" => false,
        ("(" | "[" | "<" | "::" | "&" | "*" | "?" | "!" | "#", _) => false,
        ("," | ";" | ":", _) => true,
        (_, "?" | "&" | "*") => previous != "(",
        _ if AROUND.contains(&previous) || AROUND.contains(&next) => true,
        (_, "(" | "[") => is_keyword,
        (">" | ")" | "]", _) => is_word(next),
        _ => is_word(previous) && is_word(next),
    }
}

#[cfg(test)]
mod tests {
    use super::print;
    use proc_macro2::TokenStream;

    #[test]
    fn types_look_as_they_are_written() {
        for text in [
            "impl Into<Cow<'a, [u8]>>",
            "&'static mut [u8; 4]",
            "Result<(), Box<dyn Error + Send + 'static>>",
            "impl FnOnce(&mut Batch<'a>) -> Result<()>",
            "where P: AsPath + ?Sized, for<'x> F: Fn(&'x u8) -> bool",
            "std::io::Result<Option<&[Vec<u8>]>>",
            "(u8, &(u16, *const u8))",
            "C { x: u8 }",
        ] {
            let tokens: TokenStream = text.parse().expect("tokens");
            assert_eq!(print(tokens), text);
        }
        let tokens: TokenStream = "Vec < crate :: Result < u8 > >".parse().expect("tokens");
        assert_eq!(print(tokens), "Vec<Result<u8>>");
    }
}
