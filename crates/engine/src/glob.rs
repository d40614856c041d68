//! Shell patterns for names and paths: `*`, `?`, `[a-z]`, `[!a-z]`, `[[:alpha:]]`, and `\` before a
//! character. A slash is an ordinary character.
//!
//! Names are bytes; `?` and `[…]` take a whole UTF-8 character where there is one, else a byte.
//! As in find(1), a leading dot is an ordinary character.

/// Returns whether `name` matches `pattern` as a whole.
///
/// Only the last `*` can need another try: giving an earlier one more characters cannot help once
/// the part after it has matched. So the work is at most pattern length × name length.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, n));
            continue;
        }
        if p == pattern.len() && n == name.len() {
            return true;
        }
        match step(&pattern[p..], &name[n..]) {
            Some((pattern_used, name_used)) => {
                p += pattern_used;
                n += name_used;
            }
            None => match retry {
                Some((after_star, from)) if from < name.len() => {
                    let next = from + char_len(&name[from..]);
                    retry = Some((after_star, next));
                    (p, n) = (after_star, next);
                }
                _ => return false,
            },
        }
    }
}

/// Matches one element of the pattern; returns the lengths that it takes of pattern and name.
fn step(pattern: &[u8], name: &[u8]) -> Option<(usize, usize)> {
    let length = char_len(name);
    if length == 0 {
        return None;
    }
    match *pattern.first()? {
        b'?' => Some((1, length)),
        b'[' => match class(pattern, character(name)) {
            Some((used, true)) => Some((used, length)),
            Some((_, false)) => None,
            // No closing bracket: the bracket stands for itself.
            None => (name[0] == b'[').then_some((1, 1)),
        },
        b'\\' if pattern.len() > 1 => (pattern[1] == name[0]).then_some((2, 1)),
        byte => (byte == name[0]).then_some((1, 1)),
    }
}

/// Reads the class at the start of `pattern`; returns its length, and whether it holds `wanted`.
fn class(pattern: &[u8], wanted: u32) -> Option<(usize, bool)> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let first = if negated { 2 } else { 1 };
    let mut at = first;
    let mut found = false;
    while at < pattern.len() {
        if pattern[at] == b']' && at > first {
            return Some((at + 1, found != negated));
        }
        if let Some((is_in, next)) = named_class(pattern, at) {
            found |= char::from_u32(wanted).is_some_and(is_in);
            at = next;
            continue;
        }
        let (low, after_low) = class_character(pattern, at)?;
        let is_range = pattern.get(after_low) == Some(&b'-')
            && pattern.get(after_low + 1).is_some_and(|byte| *byte != b']');
        let (high, next) =
            if is_range { class_character(pattern, after_low + 1)? } else { (low, after_low) };
        found |= (low..=high).contains(&wanted);
        at = next;
    }
    None
}

/// Test of a class that has a name.
type IsIn = fn(char) -> bool;

/// Reads `[:alpha:]` and its like; returns its test and the position behind it.
fn named_class(pattern: &[u8], at: usize) -> Option<(IsIn, usize)> {
    let rest = pattern[at..].strip_prefix(b"[:")?;
    let length = rest.windows(2).position(|end| end == b":]")?;
    let is_in: IsIn = match &rest[..length] {
        b"alpha" => char::is_alphabetic,
        b"digit" => |it| it.is_ascii_digit(),
        b"alnum" => char::is_alphanumeric,
        b"upper" => char::is_uppercase,
        b"lower" => char::is_lowercase,
        b"space" => char::is_whitespace,
        b"blank" => |it| it == ' ' || it == '\t',
        b"punct" => |it| it.is_ascii_punctuation(),
        b"cntrl" => char::is_control,
        b"xdigit" => |it| it.is_ascii_hexdigit(),
        b"graph" => |it| !it.is_control() && !it.is_whitespace(),
        b"print" => |it| !it.is_control(),
        _ => return None,
    };
    Some((is_in, at + length + 4))
}

/// Returns a name or pattern in lower case, for matches without regard to case. Bytes that are not
/// UTF-8 stay.
pub fn lower(name: &[u8]) -> Vec<u8> {
    let mut lower = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            // A character whose small form is several stays, so that `?` still matches it.
            let mut small = character.to_lowercase();
            let one = match (small.next(), small.next()) {
                (Some(one), None) => one,
                _ => character,
            };
            lower.extend_from_slice(one.encode_utf8(&mut [0; 4]).as_bytes());
        }
        lower.extend_from_slice(chunk.invalid());
    }
    lower
}

/// Returns one character of a class and the position behind it.
fn class_character(pattern: &[u8], at: usize) -> Option<(u32, usize)> {
    let at = if pattern.get(at) == Some(&b'\\') && at + 1 < pattern.len() { at + 1 } else { at };
    let rest = pattern.get(at..)?;
    let length = char_len(rest);
    (length > 0).then(|| (character(rest), at + length))
}

/// Returns the bytes of the character at the start: 1 for a byte that is not UTF-8, 0 at the end.
fn char_len(bytes: &[u8]) -> usize {
    decode(bytes).map_or(usize::from(!bytes.is_empty()), char::len_utf8)
}

/// Returns the character at the start; a byte that is not UTF-8 lies beyond all characters.
fn character(bytes: &[u8]) -> u32 {
    const BEYOND_UNICODE: u32 = 0x11_0000;
    decode(bytes).map_or_else(
        || bytes.first().map_or(u32::MAX, |byte| BEYOND_UNICODE + u32::from(*byte)),
        u32::from,
    )
}

fn decode(bytes: &[u8]) -> Option<char> {
    let window = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(window) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&window[..error.valid_up_to()]).ok()?,
    };
    valid.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let cases: &[(&str, &str, bool)] = &[
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", ".hidden", true),
            ("*.rs", "main.rs", true),
            ("*.rs", "main.rsx", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("?", "é", true),
            ("??", "é", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]a]", "]", true),
            ("[a-]", "-", true),
            ("[à-ü]", "é", true),
            ("[abc", "[abc", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[\\]]", "]", true),
            ("a\\", "a\\", true),
            ("[[:digit:]x]", "7", true),
            ("[![:digit:]x]", "7", false),
            ("[[:alpha:]-]", "-", true),
            ("[[:upper:]]", "É", true),
            ("[[:none:]]", "n]", true),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                *expected,
                "{pattern} against {name}"
            );
        }
        assert!(matches(b"a?c", b"a\xffc"), "a byte that is not UTF-8 counts as one character");
        assert!(matches(b"[!a]", b"\xff"));
    }

    #[test]
    fn small_letters() {
        assert_eq!(lower(b"aB\xffC"), b"ab\xffc");
        assert_eq!(lower("ÉİΣ".as_bytes()), "éİσ".as_bytes());
    }

    #[test]
    fn many_stars_do_not_explode() {
        let pattern = "a*".repeat(60) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(255).as_bytes()));
    }
}
