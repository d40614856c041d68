//! `-regex`: POSIX extended regular expressions on whole paths.
//!
//! They are rewritten for the crate `regex`, whose matcher needs time linear in the path, whatever
//! the expression. Back references and repeated repetitions (`a+*`) are refused.

use regex::bytes::{Regex, RegexBuilder};

/// The classes of POSIX. They hold ASCII alone.
const CLASSES: &[&str] = &[
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "xdigit",
];

/// A regular expression that a whole path must match.
#[derive(Debug)]
pub(crate) struct PathRegex(Regex);

impl PathRegex {
    /// Compiles an expression. The error says what is wrong with it.
    pub(crate) fn new(text: &str, ignores_case: bool) -> Result<PathRegex, String> {
        let rewritten = format!(r"\A(?:{})\z", rewrite(text)?);
        let mut builder = RegexBuilder::new(&rewritten);
        // Errors of the crate show the rewritten expression in several lines.
        let compiled = builder.case_insensitive(ignores_case).dot_matches_new_line(true).build();
        compiled.map(PathRegex).map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "is too large".to_owned(),
            _ => "is not a POSIX extended regular expression".to_owned(),
        })
    }

    /// Returns whether all of `path` matches.
    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        self.0.is_match(path)
    }
}

/// Rewrites POSIX syntax as that of the crate.
fn rewrite(text: &str) -> Result<String, String> {
    let mut rewritten = String::with_capacity(text.len() + 8);
    let mut rest = text.chars().peekable();
    // The last element was a repetition.
    let mut is_repeated = false;
    while let Some(letter) = rest.next() {
        let repeats = matches!(letter, '*' | '+' | '?' | '{');
        if repeats && is_repeated {
            return Err("repeats a repetition (write parentheses)".to_owned());
        }
        is_repeated = repeats;
        match letter {
            '(' if rest.peek() == Some(&'?') => {
                return Err("has nothing to repeat after '('".to_owned());
            }
            '[' => bracket(&mut rest, &mut rewritten)?,
            '{' => {
                let inner: String = std::iter::from_fn(|| rest.next_if(|it| *it != '}')).collect();
                let is_count = inner.chars().all(|it| it.is_ascii_digit() || it == ',');
                if rest.next().is_none() || !is_count || inner.is_empty() {
                    return Err("has a '{' without a count (write \\{ for the brace)".to_owned());
                }
                // An open lower end is 0 in POSIX.
                let zero = if inner.starts_with(',') { "0" } else { "" };
                rewritten.push_str(&format!("{{{zero}{inner}}}"));
            }
            '\\' => match rest.next() {
                None => return Err("ends with a backslash".to_owned()),
                Some(letter @ ('w' | 'W' | 's' | 'S' | 'b' | 'B')) => {
                    rewritten.extend(['\\', letter]);
                }
                Some('<') => rewritten.push_str(r"\b{start}"),
                Some('>') => rewritten.push_str(r"\b{end}"),
                Some('`') => rewritten.push_str(r"\A"),
                Some('\'') => rewritten.push_str(r"\z"),
                Some('1'..='9') => return Err("has a back reference".to_owned()),
                Some(letter) => rewritten.push_str(&regex::escape(letter.encode_utf8(&mut [0; 4]))),
            },
            other => rewritten.push(other),
        }
    }
    Ok(rewritten)
}

/// Rewrites a bracket expression, whose backslashes stand for themselves.
fn bracket(
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    rewritten: &mut String,
) -> Result<(), String> {
    let unclosed = || "has a '[' without its ']'".to_owned();
    rewritten.push('[');
    if rest.next_if_eq(&'^').is_some() {
        rewritten.push('^');
    }
    let mut is_first = true;
    loop {
        let letter = rest.next().ok_or_else(unclosed)?;
        match letter {
            ']' if !is_first => break,
            '[' if rest.peek() == Some(&':') => {
                rest.next();
                let name: String = std::iter::from_fn(|| rest.next_if(|it| *it != ':')).collect();
                if rest.next() != Some(':') || rest.next() != Some(']') {
                    return Err(unclosed());
                }
                if !CLASSES.contains(&name.as_str()) {
                    return Err(format!("has no class '{name}'"));
                }
                rewritten.push_str(&format!("[:{name}:]"));
            }
            '[' if matches!(rest.peek(), Some('.' | '=')) => {
                return Err("has a collating element".to_owned());
            }
            // Between two letters it is a range; at an end it stands for itself.
            '-' if !is_first && rest.peek().is_some_and(|next| *next != ']') => {
                rewritten.push('-');
            }
            letter => {
                if !letter.is_alphanumeric() && letter.is_ascii() && !letter.is_control() {
                    rewritten.push('\\');
                }
                rewritten.push(letter);
            }
        }
        is_first = false;
    }
    rewritten.push(']');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posix_expressions_match_whole_paths() {
        let cases: &[(&str, &str, bool)] = &[
            (r"/t/[a-c]+\.rs", "/t/abc.rs", true),
            (r"/t/[a-c]+\.rs", "/t/abcxrs", false),
            (r".*/(one|two)", "/t/two", true),
            (r"one", "/t/one", false),
            (r".*[\].*", r"/a\b", true),
            (r".*[]x].*", "/]", true),
            (r".*[^]x]", "/]", false),
            (r"/[a&&b]+", "/a&b", true),
            (r"/[[:digit:]]{2,3}", "/12", true),
            (r"/x{,2}", "/xx", true),
            (r"/[a-]", "/-", true),
            (r"/[[]", "/[", true),
            (r".*\<two", "/t/two", true),
            (r".*\.", "/é.", true),
            (r"/.", "/\n", true),
            ("^/a$", "/a", true),
        ];
        for (text, path, expected) in cases {
            let regex = PathRegex::new(text, false).expect(text);
            assert_eq!(regex.matches(path.as_bytes()), *expected, "{text} on {path}");
        }
        assert!(PathRegex::new("/É", true).expect("É").matches("/é".as_bytes()));
    }

    #[test]
    fn others_are_refused() {
        let bad = [r"(a)\1", "(?i)a", "a+*", "a{x}", "a{", "[a", "[[:x:]]", "(", "a)", "*", r"a\"];
        for text in bad {
            assert!(PathRegex::new(text, false).is_err(), "{text}");
        }
    }
}
