//! Sizes of functions and lines; and the note at the head of every file. There is no limit for
//! files or types: one that can be met by counting makes files that end just below it.

use super::Problem;
use crate::source::Source;
use std::path::Path;

const FUNCTION_LINES: usize = 70;
const COLUMNS: usize = 100;

/// Checks one file.
pub(super) fn check(path: &Path, source: &Source, problems: &mut Vec<Problem>) {
    let mut report = |line, message: String| problems.push(Problem::new(path, line, message));
    if !source.text.trim_start().starts_with("//! ") {
        report(1, "no module docs: begin with `//!` and say what is here and why".into());
    }
    for function in source.functions().iter().filter(|f| f.lines > FUNCTION_LINES) {
        let (name, lines) = (&function.name, function.lines);
        let message = format!("fn {name} has {lines} lines; at most {FUNCTION_LINES}");
        report(function.line, message);
    }
    for (number, line) in source.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS && !is_table_row(line) {
            report(number + 1, format!("{columns} columns; at most {COLUMNS}"));
        }
        if line.ends_with([' ', '\t']) {
            report(number + 1, "space at the end of the line".into());
        }
    }
}

/// A row of a Markdown table in a comment, which cannot be broken.
fn is_table_row(line: &str) -> bool {
    let text = line.trim_start();
    text.starts_with("//! |") || text.starts_with("/// |")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        let mut problems = Vec::new();
        check(Path::new(path), &Source::new(text), &mut problems);
        problems.into_iter().map(|p| format!("{}: {}", p.line, p.message)).collect()
    }

    #[test]
    fn a_small_documented_file_is_fine() {
        assert_eq!(problems("a.rs", "//! What it is.\nfn f() {}\n"), [""; 0]);
    }

    #[test]
    fn each_limit_is_exact() {
        let body = |lines: usize| format!("//! A.\nfn f() {{\n{}}}\n", "    a();\n".repeat(lines));
        assert_eq!(problems("a.rs", &body(68)), [""; 0]);
        assert_eq!(problems("a.rs", &body(69)), ["2: fn f has 71 lines; at most 70"]);
    }

    #[test]
    fn lines_and_heads() {
        assert_eq!(problems("a.rs", "fn f() {}\n").len(), 1);
        let long = format!("//! {}\n", "é".repeat(97));
        assert_eq!(problems("a.rs", &long), ["1: 101 columns; at most 100"]);
        assert_eq!(problems("a.rs", &long.replace("//! ", "//! | ")), [""; 0], "a table");
        assert_eq!(problems("a.rs", "//! A. \n"), ["1: space at the end of the line"]);
    }
}
