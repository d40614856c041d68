//! Tests of the library's documents: the public API as text is fresh (as by `cargo xtask api
//! --check`), and the program in the README is the example's.

use std::path::Path;
use xtask::{api, repository::Repository};

#[test]
fn the_text_of_the_public_api_is_fresh() {
    let repository = Repository::find().expect("this test runs in a checkout");
    let fresh = api::refresh(&repository, true).expect("the sources can be read");
    assert_eq!(fresh, Ok(true));
}

#[test]
fn the_program_in_the_readme_is_the_example() {
    let repository = Repository::find().expect("this test runs in a checkout");
    let read = |path| repository.read(Path::new(path)).expect("it can be read");
    let (readme, example) = (read("README.md"), read("crates/shoal/examples/twenty_lines.rs"));
    let program = readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    let program = program.expect("the README has a program");
    assert!(program.lines().count() >= 10, "{program}");
    let mut rest = example.lines();
    for line in program.lines() {
        let found = rest.any(|other| other.strip_prefix("    ") == Some(line));
        assert!(found, "this line of the README is not in the example, or not in order: {line}");
    }
    let main = example.lines().skip_while(|line| !line.starts_with("fn main")).count();
    assert!(main - 2 <= 20, "the program has {} lines", main - 2);
}
