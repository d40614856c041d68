//! The command `shoal` must be built without what is for tests and studies.

use std::process::Command;

/// Features that no release has.
const LABORATORY: [&str; 6] =
    ["lab", "planted", "fixed-clock", "models", "fail-alloc", "scheduled"];

/// Returns the features of our crates as one build has them: `crate feature`.
fn features(words: &[&str]) -> Vec<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--offline", "--prefix", "none", "--format", "{p}|{f}"])
        .args(words)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo tree");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let ours = text.lines().filter(|line| line.starts_with("shoal"));
    let mut found: Vec<String> = ours
        .flat_map(|line| {
            let (package, features) = line.split_once('|').expect("as asked for");
            let name = package.split(' ').next().unwrap_or_default();
            let features = features.split(" (*)").next().unwrap_or_default();
            let features = features.split(',').filter(|feature| LABORATORY.contains(feature));
            features.map(|feature| format!("{name} {feature}")).collect::<Vec<_>>()
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn the_command_has_no_laboratory() {
    let product = features(&["--package", "shoal-cli", "--edges", "normal,build"]);
    assert!(product.is_empty(), "{product:?}");
}

/// Otherwise the test above could not fail.
#[test]
fn the_simulator_has_one() {
    let found = features(&["--package", "shoal-sim"]);
    assert!(found.contains(&"shoal-engine lab".to_string()), "{found:?}");
    assert!(found.contains(&"shoal-base planted".to_string()), "{found:?}");
}
