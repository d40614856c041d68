//! A Rust file with its comments and literals told apart from its code, so that the rules do not
//! trip over a brace in a string or a word in a comment.
//!
//! This is a lexer of the few things that matter (comments, strings, characters, braces), not a
//! parser: it needs no dependency, and works on files that do not compile.

use std::ops::Range;

/// A Rust file.
pub struct Source {
    /// As written.
    pub text: String,
    /// The same length and lines, with comments and the contents of literals blanked.
    pub code: String,
    line_starts: Vec<usize>,
}

/// A function with a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of its `fn`, from 1.
    pub line: usize,
    /// Lines from `fn` to the closing brace.
    pub lines: usize,
}

impl Source {
    /// Takes a file apart.
    pub fn new(text: &str) -> Source {
        let code = Masker { bytes: text.as_bytes(), code: Vec::new(), at: 0 }.run();
        let line_starts = std::iter::once(0)
            .chain(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at + 1))
            .collect();
        Source { text: text.into(), code, line_starts }
    }

    /// The line, from 1, of a byte.
    pub fn line_of(&self, at: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= at)
    }

    /// Places in the code where `word` stands alone, not as part of a longer identifier.
    pub fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        let bytes = self.code.as_bytes();
        self.code.match_indices(word).map(|(at, _)| at).filter(move |at| {
            let before = at.checked_sub(1).is_none_or(|b| !is_ident(bytes[b]));
            before && bytes.get(at + word.len()).is_none_or(|b| !is_ident(*b))
        })
    }

    /// The code from the brace at or after `from` (but before any `;` outside brackets) to its
    /// partner.
    pub fn block_after(&self, from: usize) -> Option<Range<usize>> {
        let bytes = self.code.as_bytes();
        let mut nested = 0usize;
        let open = (from..bytes.len()).find(|at| {
            match bytes[*at] {
                b'(' | b'[' => nested += 1,
                b')' | b']' => nested = nested.saturating_sub(1),
                _ => {}
            }
            nested == 0 && matches!(bytes[*at], b'{' | b';')
        })?;
        if bytes[open] == b';' {
            return None;
        }
        let mut depth = 0usize;
        let close = (open..bytes.len()).find(|at| {
            match bytes[*at] {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                _ => {}
            }
            depth == 0
        })?;
        Some(open..close + 1)
    }

    /// Names and places of the modules declared without a body: `(name, enclosing modules, line)`.
    pub fn declared_modules(&self) -> Vec<(String, Vec<String>, usize)> {
        let inline: Vec<(String, Range<usize>)> = self
            .words("mod")
            .filter_map(|at| {
                let name = self.ident_after(at + 3)?;
                Some((name, self.block_after(at)?))
            })
            .collect();
        let mut found = Vec::new();
        for at in self.words("mod") {
            let Some(name) = self.ident_after(at + 3) else { continue };
            let rest = self.code[at + 3..].trim_start();
            if !rest[name.len()..].trim_start().starts_with(';') {
                continue;
            }
            let around = inline.iter().filter(|(_, block)| block.contains(&at));
            let enclosing = around.map(|(name, _)| name.clone()).collect();
            found.push((name, enclosing, self.line_of(at)));
        }
        found
    }

    /// All functions with a body, those in macro definitions apart: a table of a macro is as long
    /// as what it lists.
    pub fn functions(&self) -> Vec<Function> {
        let tables: Vec<_> = self
            .code
            .match_indices("macro_rules!")
            .filter_map(|(at, _)| self.block_after(at))
            .collect();
        let mut found = Vec::new();
        for at in self.words("fn") {
            if tables.iter().any(|table| table.contains(&at)) {
                continue;
            }
            let Some(name) = self.ident_after(at + 2) else { continue };
            if let Some(body) = self.block_after(at) {
                let line = self.line_of(at);
                let lines = self.line_of(body.end - 1) - line + 1;
                found.push(Function { name, line, lines });
            }
        }
        found
    }

    fn ident_after(&self, at: usize) -> Option<String> {
        let rest = self.code[at..].strip_prefix(char::is_whitespace)?.trim_start();
        let name: String = rest.chars().take_while(|c| *c == '_' || c.is_alphanumeric()).collect();
        (!name.is_empty()).then_some(name)
    }
}

fn is_ident(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || byte >= 0x80
}

/// Blanks comments and the contents of literals, keeping every newline in its place.
struct Masker<'a> {
    bytes: &'a [u8],
    code: Vec<u8>,
    at: usize,
}

impl Masker<'_> {
    fn run(mut self) -> String {
        while self.at < self.bytes.len() {
            let rest = &self.bytes[self.at..];
            match rest {
                [b'/', b'/', ..] => self.blank(line_end(rest)),
                [b'/', b'*', ..] => self.blank(block_comment_end(rest)),
                [b'"', ..] => self.string(0),
                [b'\'', ..] => self.character(),
                [b'r' | b'b' | b'c', ..] if !self.inside_word() => self.maybe_prefixed(),
                _ => self.keep(1),
            }
        }
        // Blanks are ASCII and whole characters are kept or blanked, so this is UTF-8.
        String::from_utf8_lossy(&self.code).into_owned()
    }

    fn inside_word(&self) -> bool {
        self.at > 0 && is_ident(self.bytes[self.at - 1])
    }

    fn keep(&mut self, len: usize) {
        self.code.extend_from_slice(&self.bytes[self.at..self.at + len]);
        self.at += len;
    }

    fn blank(&mut self, len: usize) {
        let part = &self.bytes[self.at..self.at + len];
        self.code.extend(part.iter().map(|b| if *b == b'\n' { b'\n' } else { b' ' }));
        self.at += len;
    }

    /// `r"…"`, `br#"…"#`, `b"…"`, `b'…'`, `c"…"`, or just a word that begins with such a letter.
    fn maybe_prefixed(&mut self) {
        let rest = &self.bytes[self.at..];
        let letters = rest.iter().take_while(|b| matches!(b, b'r' | b'b' | b'c')).count();
        let raw = rest[..letters].contains(&b'r');
        let hashes = rest[letters..].iter().take_while(|b| **b == b'#').count();
        match rest.get(letters + hashes) {
            Some(b'"') if letters <= 2 && raw => {
                self.keep(letters);
                self.blank(hashes);
                self.raw_string(hashes);
            }
            Some(b'"' | b'\'') if letters == 1 && hashes == 0 => self.keep(1),
            _ => self.keep(letters),
        }
    }

    fn raw_string(&mut self, hashes: usize) {
        let mut end = vec![b'"'];
        end.extend(std::iter::repeat_n(b'#', hashes));
        let body = &self.bytes[self.at + 1..];
        let len = body.windows(end.len()).position(|w| w == end).unwrap_or(body.len());
        self.blank((len + 1 + end.len()).min(self.bytes.len() - self.at));
    }

    fn string(&mut self, from: usize) {
        let rest = &self.bytes[self.at..];
        let mut end = from + 1;
        while end < rest.len() && rest[end] != b'"' {
            end += if rest[end] == b'\\' { 2 } else { 1 };
        }
        self.blank((end + 1).min(rest.len()));
    }

    /// A character, or a lifetime, which has no closing quote.
    fn character(&mut self) {
        let rest = &self.bytes[self.at..];
        let close = match rest.get(1) {
            Some(b'\\') => rest.iter().skip(3).position(|b| *b == b'\'').map(|n| n + 3),
            Some(first) => {
                let width = utf8_width(*first);
                (rest.get(1 + width) == Some(&b'\'')).then_some(1 + width)
            }
            None => None,
        };
        match close {
            Some(close) => self.blank(close + 1),
            None => self.keep(1),
        }
    }
}

fn line_end(rest: &[u8]) -> usize {
    rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
}

fn block_comment_end(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn utf8_width(first: u8) -> usize {
    match first {
        0..0xC0 => 1,
        0xC0..0xE0 => 2,
        0xE0..0xF0 => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_in_literals_and_comments_are_not_code() {
        let source = Source::new(
            "fn a<'x>(s: &'x str) -> char {\n  let _ = \"{ \\\" {\"; // {\n  /* { /* { */ */\n  \
             let _ = r#\"{\"{\"#; let _ = br\"{\"; let _ = b'{'; let _ = '\\'';\n  '{'\n}\n\
             fn b() {}\n",
        );
        let functions = source.functions();
        assert_eq!(functions.len(), 2, "{}", source.code);
        assert_eq!((functions[0].line, functions[0].lines), (1, 6));
        assert_eq!((functions[1].name.as_str(), functions[1].line), ("b", 7));
        assert_eq!(source.code.len(), source.text.len());
    }

    #[test]
    fn signatures_without_body_pointers_and_macros_are_no_functions() {
        let source = Source::new(
            "trait T { fn a(&self) -> [u8; 3]; }\ntype F = fn(u8) -> u8;\n\
             macro_rules! m { () => { fn long() {} } }\nfn b(x: [u8; 2]) where u8: Copy {}\n",
        );
        let names: Vec<_> = source.functions().into_iter().map(|f| f.name).collect();
        assert_eq!(names, ["b"]);
    }

    #[test]
    fn modules_and_their_enclosing_ones() {
        let source = Source::new(
            "mod a;\npub mod b { mod c; }\n#[cfg(test)]\nmod tests {\n  mod d;\n}\n#[cfg(test)]\n\
             mod e;\n// mod f;\n",
        );
        let declared: Vec<_> = source.declared_modules().into_iter().map(|m| (m.0, m.1)).collect();
        let expected = [("a", vec![]), ("c", vec!["b"]), ("d", vec!["tests"]), ("e", vec![])];
        let expected = expected.map(|(name, around)| {
            (name.to_string(), around.into_iter().map(String::from).collect::<Vec<_>>())
        });
        assert_eq!(declared, expected);
    }

    #[test]
    fn words_stand_alone() {
        let source = Source::new("unsafe_code; unsafe {} \"unsafe\" // unsafe\n");
        assert_eq!(source.words("unsafe").count(), 1);
    }
}
