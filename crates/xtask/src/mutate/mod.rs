//! Test of the tests: do they notice a change of the on-disk format? Every declaration is changed
//! in one place, in every way that people do by mistake, and the golden bytes are asked.
//!
//! | mutation | what is changed |
//! | --- | --- |
//! | change places | two neighbours are written in the other order, each offset right again |
//! | swap names | two fields of the same type |
//! | a byte wider | a field takes a byte more, everything behind it moves |
//!
//! Offsets and sizes are adjusted, so that the compiler has nothing against most of them.

mod declared;

use crate::repository::Repository;
use declared::{Mutation, declarations};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folder of the declarations.
const FORMAT: &str = "crates/format/src";

/// Crates that the golden bytes need, the helpers of tests among them.
const CRATES: [&str; 3] = ["crates/base", "crates/format", "crates/skip"];

/// Detector of a mutation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Noticed {
    Compiler,
    Golden,
    Nothing,
}

/// Tries all mutations, or every `step`-th. Returns whether each was noticed.
pub fn run(repository: &Repository, step: usize) -> Result<bool, String> {
    let mut all = Vec::new();
    let is_declared = |path: &&Path| path.starts_with(FORMAT) && !path.ends_with("tests.rs");
    for path in repository.with_extension("rs").filter(is_declared) {
        let source = repository.read(path)?;
        let file = |m: Mutation| (path.to_owned(), m);
        let mutations = declarations(&source).into_iter().flat_map(|d| d.mutations(&source));
        all.extend(mutations.map(file));
    }
    let chosen: Vec<_> = all.iter().step_by(step.max(1)).collect();
    println!("{} mutations, {} are tried", all.len(), chosen.len());
    let copy = Copy::of(repository)?;
    if copy.test()? != Noticed::Nothing {
        return Err(
            "the golden bytes are not what they should be: cargo test -p shoal-format".into()
        );
    }
    let (mut compiler, mut golden, mut missed) = (0, 0, Vec::new());
    for (i, (path, mutation)) in chosen.iter().enumerate() {
        let noticed = copy.with(repository, path, mutation)?;
        match noticed {
            Noticed::Compiler => compiler += 1,
            Noticed::Golden => golden += 1,
            Noticed::Nothing => {
                println!("NOT NOTICED: {}: {}", path.display(), mutation.name);
                missed.push(&mutation.name);
            }
        }
        if (i + 1) % 50 == 0 {
            println!("{} tried, {} not noticed", i + 1, missed.len());
        }
    }
    println!(
        "mutations: {} tried, {compiler} noticed by the compiler, {golden} by the golden bytes, {} \
         by nothing",
        chosen.len(),
        missed.len()
    );
    Ok(missed.is_empty())
}

/// A workspace of the crates that the golden bytes need, to be changed at will.
struct Copy {
    root: PathBuf,
}

impl Copy {
    fn of(repository: &Repository) -> Result<Copy, String> {
        let root = repository.root().join("target/mutants/workspace");
        let copy = Copy { root };
        for path in repository.files() {
            let wanted = CRATES.iter().any(|of| path.starts_with(of));
            let manifest = path == Path::new("Cargo.toml") || path == Path::new("Cargo.lock");
            if wanted || manifest {
                // A member that is named and not there would be missed.
                let named = |line: &&str| !line.starts_with("default-members");
                let text = repository.read(path)?;
                let lines: String = text.lines().filter(named).map(|l| format!("{l}\n")).collect();
                copy.write(path, &lines.replace(", \"fuzz\"]", "]"))?;
            }
        }
        Ok(copy)
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), String> {
        let path = self.root.join(path);
        let told = |e: std::io::Error| format!("{}: {e}", path.display());
        fs::create_dir_all(path.parent().unwrap_or(&self.root)).map_err(told)?;
        // What has not changed is not compiled again.
        if fs::read_to_string(&path).is_ok_and(|was| was == text) {
            return Ok(());
        }
        fs::write(&path, text).map_err(told)
    }

    fn with(
        &self,
        repository: &Repository,
        path: &Path,
        mutation: &Mutation,
    ) -> Result<Noticed, String> {
        self.write(path, &mutation.source)?;
        let noticed = self.test();
        self.write(path, &repository.read(path)?)?;
        noticed
    }

    fn test(&self) -> Result<Noticed, String> {
        if !self.cargo(&["test", "--no-run"])? {
            return Ok(Noticed::Compiler);
        }
        Ok(if self.cargo(&["test"])? { Noticed::Nothing } else { Noticed::Golden })
    }

    fn cargo(&self, words: &[&str]) -> Result<bool, String> {
        let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        command
            .args(words)
            .args("--quiet --offline --package shoal-format --test it golden::".split(' '));
        command.current_dir(&self.root).stdout(Stdio::null()).stderr(Stdio::null());
        // Seconds are spent on compiling, not on running.
        command.env("CARGO_TARGET_DIR", self.root.with_file_name("target"));
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
        command.env("CARGO_INCREMENTAL", "1").env_remove("RUSTFLAGS").env_remove("GOLDEN");
        command.status().map(|status| status.success()).map_err(|e| format!("cargo: {e}"))
    }
}
