//! Doc comments: the first sentence must say what the item is or does, so it must not begin with a
//! question word.

use super::Problem;
use crate::source::Source;
use std::path::Path;

/// Words that must not begin a doc comment.
const REFUSED: &[&str] = &["What", "Whether", "Where", "Who"];

/// Checks one Rust file.
pub(super) fn check(path: &Path, source: &Source, problems: &mut Vec<Problem>) {
    for (line, text) in first_lines(&source.text) {
        let text = text.trim_start_matches(|c: char| !c.is_alphabetic());
        let word = text.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        if REFUSED.contains(&word) {
            let message = format!(
                "a doc comment begins with {word}: begin with a noun phrase (what the item is) or \
                 a verb (what it does, \"Returns whether …\")"
            );
            problems.push(Problem::new(path, line, message));
        }
    }
}

/// Returns the first line with text of each doc comment, with its number from 1.
fn first_lines(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut marker_above = None;
    let mut text_above = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let marker = ["///", "//!"].into_iter().find(|marker| line.starts_with(marker));
        if marker != marker_above {
            (marker_above, text_above) = (marker, false);
        }
        let Some(marker) = marker else { continue };
        let comment = line[marker.len()..].trim();
        if !text_above && !comment.is_empty() {
            found.push((index + 1, comment));
            text_above = true;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let mut problems = Vec::new();
        check(Path::new(path), &Source::new(text), &mut problems);
        problems.into_iter().map(|p| p.line).collect()
    }

    #[test]
    fn a_first_sentence_with_a_question_word_is_refused() {
        for word in REFUSED {
            assert_eq!(lines("a.rs", &format!("//! {word} is here.\n")), [1]);
            assert_eq!(lines("a.rs", &format!("fn f() {{}}\n    /// {word} is here.\n")), [2]);
            assert_eq!(lines("a.rs", &format!("/// **{word}** is here.\n")), [1]);
            assert_eq!(lines("a.rs", &format!("///\n/// {word} is here.\n")), [2]);
        }
    }

    #[test]
    fn only_the_first_sentence_counts() {
        assert_eq!(lines("a.rs", "/// The slot. What is in it.\n/// What else.\n"), [0; 0]);
        assert_eq!(lines("a.rs", "/// The slot.\n///\n/// What else.\n"), [0; 0]);
        assert_eq!(lines("a.rs", "//! The slot.\n/// What else.\n"), [2]);
        assert_eq!(lines("a.rs", "/// A.\nA,\n/// What else.\nB,\n"), [3]);
    }

    #[test]
    fn other_words_and_plain_comments_are_fine() {
        let fine = "/// Returns whether it is full.\n/// Whatever fits.\n// What else.\n";
        assert_eq!(lines("a.rs", fine), [0; 0]);
        assert_eq!(lines("a.rs", "/// Whatever fits.\n/// `What`.\n"), [0; 0]);
    }
}
