//! Sizes: files, functions, lines; and the note at the head of every file.

use super::Problem;
use crate::source::Source;
use std::path::Path;

const FILE_LINES: usize = 500;
const FILE_LINES_WITH_TESTS: usize = 800;
const FUNCTION_LINES: usize = 70;
const COLUMNS: usize = 100;

/// Checks one file.
pub(super) fn check(path: &Path, source: &Source, problems: &mut Vec<Problem>) {
    let mut report = |line, message: String| problems.push(Problem::new(path, line, message));
    if !source.text.trim_start().starts_with("//! ") {
        report(1, "no module docs: begin with `//!` and say what is here and why".into());
    }
    let lines = source.lines();
    let in_tests: usize = source
        .test_parts()
        .iter()
        .map(|part| source.line_of(part.end - 1) - source.line_of(part.start) + 1)
        .sum();
    if !is_test_file(path) && lines - in_tests > FILE_LINES {
        let code = lines - in_tests;
        report(0, format!("{code} lines without tests; at most {FILE_LINES}: split by noun"));
    }
    if lines > FILE_LINES_WITH_TESTS {
        report(0, format!("{lines} lines with tests; at most {FILE_LINES_WITH_TESTS}"));
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

/// A file that is a test as a whole.
fn is_test_file(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.components().any(|c| c.as_os_str() == "tests")
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
        let file = |lines: usize| format!("//! A.\n{}", "const A: u8 = 0;\n".repeat(lines - 1));
        assert_eq!(problems("a.rs", &file(500)), [""; 0]);
        assert_eq!(problems("a.rs", &file(501)).len(), 1);
        assert_eq!(problems("tests/a.rs", &file(800)), [""; 0]);
        assert_eq!(problems("tests/a.rs", &file(801)).len(), 1);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "const A: u8 = 0;\n".repeat(297));
        assert_eq!(problems("a.rs", &format!("{}{tests}", file(500))), [""; 0]);
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
