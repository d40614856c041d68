//! The house rules, as a test: `cargo test` fails where `cargo xtask tidy` would.

use xtask::{repository::Repository, rules};

#[test]
fn the_repository_is_tidy() {
    let repository = Repository::find().expect("this test runs in a checkout");
    let problems = rules::check_all(&repository).expect("rules can be checked");
    let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{} problems:\n{}", list.len(), list.join("\n"));
}
