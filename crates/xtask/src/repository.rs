//! The files of the checkout, and what cargo says of its crates.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The checkout.
pub struct Repository {
    root: PathBuf,
    files: Vec<PathBuf>,
}

/// One crate of the workspace.
#[derive(Clone, Debug)]
pub struct Crate {
    /// Name in `Cargo.toml`.
    pub name: String,
    /// Its purpose, from `Cargo.toml`.
    pub description: String,
    /// Folder, relative to the root.
    pub folder: PathBuf,
    /// Root files of its targets, relative to the root.
    pub targets: Vec<PathBuf>,
    /// Other crates of the workspace that it uses, in any way, by name; sorted.
    pub uses: Vec<String>,
}

impl Crate {
    /// The name of its folder, which is what documents call it: `engine` for `shoal-engine`.
    pub fn short_name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

impl Repository {
    /// The checkout that this program was built in.
    pub fn find() -> Result<Repository, String> {
        let start = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let root = start.ancestors().find(|dir| dir.join("Cargo.lock").exists());
        Repository::open(root.ok_or("no Cargo.lock above this crate")?)
    }

    /// The checkout at `root`.
    pub fn open(root: &Path) -> Result<Repository, String> {
        let mut files = Vec::new();
        walk(root, Path::new(""), &mut files)?;
        files.sort();
        Ok(Repository { root: root.into(), files })
    }

    /// Its top folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// All files that are not built or ignored, relative to the root, sorted.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns whether there is such a file.
    pub fn has(&self, path: &Path) -> bool {
        self.files.iter().any(|file| file == path)
    }

    /// Files with this ending, relative to the root.
    pub fn with_extension<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = &'a Path> {
        let fits = move |path: &&PathBuf| path.extension().is_some_and(|e| e == ending);
        self.files.iter().filter(fits).map(PathBuf::as_path)
    }

    /// Contents of a text file; bytes that are not UTF-8 are replaced.
    pub fn read(&self, path: &Path) -> Result<String, String> {
        let bytes = fs::read(self.root.join(path));
        let bytes = bytes.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Replaces the contents of a file.
    pub fn write(&self, path: &Path, text: &str) -> Result<(), String> {
        fs::write(self.root.join(path), text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// The crates of the workspace, as cargo sees them.
    pub fn crates(&self) -> Result<Vec<Crate>, String> {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
            .current_dir(&self.root)
            .output()
            .map_err(|e| format!("cargo metadata: {e}"))?;
        if !output.status.success() {
            return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let metadata: Value =
            serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
        let packages = list(&metadata["packages"]);
        let names: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
        packages.iter().map(|package| self.parse_crate(package, &names)).collect()
    }

    fn parse_crate(&self, package: &Value, names: &[&str]) -> Result<Crate, String> {
        let inside = |value: &Value| -> Result<PathBuf, String> {
            let path = Path::new(value.as_str().unwrap_or_default());
            let path = path.strip_prefix(&self.root).map_err(|e| e.to_string())?;
            Ok(path.to_path_buf())
        };
        let manifest = inside(&package["manifest_path"])?;
        let targets = list(&package["targets"]).iter().map(|t| inside(&t["src_path"]));
        let dependencies = list(&package["dependencies"]);
        let mut uses: Vec<String> = dependencies
            .iter()
            .filter_map(|d| d["name"].as_str())
            // A crate's tests may use the crate itself with other features.
            .filter(|name| names.contains(name) && package["name"] != **name)
            .map(String::from)
            .collect();
        uses.sort();
        uses.dedup();
        Ok(Crate {
            name: package["name"].as_str().unwrap_or_default().into(),
            description: package["description"].as_str().unwrap_or_default().into(),
            folder: manifest.parent().unwrap_or(Path::new("")).into(),
            targets: targets.collect::<Result<_, _>>()?,
            uses,
        })
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Collects files, without what is built (`target…`), version control (in a worktree `.git` is a
/// file), raw benchmark runs and volumes.
fn walk(root: &Path, below: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let dir = root.join(below);
    let entries = fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for entry in entries {
        let entry = entry.map_err(|e| format!("{}: {e}", dir.display()))?;
        let name = entry.file_name();
        let text = name.to_string_lossy();
        let kind = entry.file_type().map_err(|e| format!("{}: {e}", dir.display()))?;
        let path = below.join(&name);
        if kind.is_dir() {
            let skipped = text.starts_with("target") || text == ".git" || text == "bench-runs";
            if !skipped {
                walk(root, &path, files)?;
            }
        } else if kind.is_file() && !text.ends_with(".img") && text != ".git" {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_itself() {
        let repository = Repository::find().expect("a checkout");
        assert!(repository.files().contains(&PathBuf::from("crates/xtask/src/repository.rs")));
        let crates = repository.crates().expect("metadata");
        let xtask = crates.iter().find(|c| c.name == "xtask").expect("this crate");
        assert_eq!(xtask.short_name(), "xtask");
        assert!(xtask.targets.contains(&PathBuf::from("crates/xtask/src/main.rs")));
        assert!(!xtask.description.is_empty());
    }
}
