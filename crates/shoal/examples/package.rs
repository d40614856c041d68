//! Installs packages, each as one batch: files, directories and symlinks, and the replacement of an
//! older version. A reader, and a recovery after a crash, finds the old version or the new one; an
//! installation that fails changes nothing.
//!
//! ```sh
//! cargo run -p shoal --example package [[--connect] VOLUME [DIRECTORY]]
//! ```
//!
//! There is no staging directory, no list of what to undo, and no lock. A package manager on
//! another filesystem has all three.

mod common;

use shoal::{Dir, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

/// Directory of the lists of what is installed.
const INSTALLED: &str = "var/lib/packages";

/// Contents of a package. Paths are relative to the directory that it is installed in.
#[derive(Default)]
struct Package {
    name: &'static str,
    /// Path, permission bits, contents.
    files: Vec<(&'static str, u32, Vec<u8>)>,
    /// Path, target.
    symlinks: Vec<(&'static str, &'static str)>,
}

impl Package {
    fn paths(&self) -> BTreeSet<&str> {
        let files = self.files.iter().map(|(path, ..)| *path);
        files.chain(self.symlinks.iter().map(|(path, _)| *path)).collect()
    }

    fn list(&self) -> String {
        format!("{INSTALLED}/{}", self.name)
    }

    /// The paths of the version that is installed; none if none is.
    fn installed(&self, system: &Dir) -> Result<Vec<String>> {
        match system.read(self.list()) {
            Ok(list) => Ok(String::from_utf8_lossy(&list).lines().map(str::to_owned).collect()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    /// Installs the package in place of an older version.
    ///
    /// # Errors
    /// `AlreadyExists` when a file exists that the older version does not own; then, and after any
    /// other error, nothing has changed.
    fn install(&self, system: &Dir) -> Result<()> {
        let (old, new) = (self.installed(system)?, self.paths());
        let list: String = new.iter().map(|path| format!("{path}\n")).collect();
        let mut missing = BTreeSet::new();
        for path in new.iter().copied().chain([self.list().as_str()]) {
            for above in directories_above(path) {
                if !system.exists(above)? {
                    // In order, so that a directory is made before those in it.
                    missing.insert(above.to_owned());
                }
            }
        }
        // Files are replaced by files; all other paths of the older version are removed first.
        let (mut replaced, mut removed) = (BTreeSet::new(), Vec::new());
        for path in old.iter().map(String::as_str) {
            let is_new_file = self.files.iter().any(|(file, ..)| *file == path);
            match system.symlink_metadata(path) {
                Ok(metadata) if metadata.is_file() && is_new_file => drop(replaced.insert(path)),
                Ok(_) => removed.push(path),
                // Somebody has removed it by hand.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        system.batch(|batch| {
            removed.iter().try_for_each(|path| batch.remove(path))?;
            for path in &missing {
                batch.create_dir(path)?;
            }
            for (path, mode, contents) in &self.files {
                match replaced.contains(path) {
                    true => batch.write(*path, contents)?,
                    false => batch.create_new(*path, contents)?,
                }
                batch.set_permissions(*path, *mode)?;
            }
            for (path, target) in &self.symlinks {
                batch.symlink(*target, *path)?;
            }
            batch.write(self.list(), list.into_bytes())
        })?;
        // Durable, when this returns; before, a crash may leave the old version, whole.
        system.sync_all()
    }

    /// Removes the package. Directories stay: other packages may use them.
    fn remove(&self, system: &Dir) -> Result<()> {
        let paths = self.installed(system)?;
        system.batch(|batch| {
            paths.iter().try_for_each(|path| batch.remove(path))?;
            batch.remove(self.list())
        })
    }
}

/// `a` and `a/b` of `a/b/c`.
fn directories_above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// Everything below a directory, with what could differ between two versions: kind, permissions,
/// inode number and contents.
type Tree = BTreeMap<Vec<u8>, (String, Vec<u8>)>;

fn tree(system: &Dir) -> Result<Tree> {
    let entry = |found: Result<shoal::WalkEntry>| {
        let found = found?;
        let (path, data) = (found.path_bytes(), found.metadata());
        let contents = if data.is_file() { system.read(path)? } else { Vec::new() };
        let seen = format!("{:?} {:o} {}", data.kind(), data.permissions(), data.ino());
        Ok((path.to_vec(), (seen, contents)))
    };
    system.walk().into_iter().map(entry).collect()
}

/// Versions of an editor.
fn editor(version: u8) -> Package {
    let program = vec![version; 20_000];
    let mut files = vec![("bin/shoaled", 0o755, program), ("share/shoaled/help", 0o644, vec![])];
    match version {
        1 => files.push(("share/shoaled/old.conf", 0o644, b"tabs\n".to_vec())),
        _ => files.push(("share/shoaled/colours/dark", 0o644, b"black\n".to_vec())),
    }
    Package { name: "shoaled", files, symlinks: vec![("bin/se", "shoaled")] }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = common::Place::from_arguments("package");
    let volume = place.open()?;
    let system = place.directory(&volume, 0, "system")?;

    editor(1).install(&system)?;
    assert_eq!(system.read("bin/se")?, vec![1; 20_000], "by the symlink");
    assert_eq!(system.metadata("bin/shoaled")?.permissions(), 0o755);

    // Version 2 takes its place. A process that has the old program open keeps it.
    let running = system.open("bin/shoaled")?;
    editor(2).install(&system)?;
    assert_eq!(system.read("bin/se")?, vec![2; 20_000]);
    assert!(!system.exists("share/shoaled/old.conf")?, "what is no longer part of it is gone");
    assert_eq!(system.read("share/shoaled/colours/dark")?, b"black\n");
    let mut first = [0];
    running.read_at(&mut first, 0)?;
    assert_eq!(first, [1]);

    // Another package brings a file that the editor owns. It is refused, and nothing of it is
    // there.
    let before = tree(&system)?;
    let files = vec![
        ("share/other/data", 0o644, vec![0; 1000]),
        ("bin/other", 0o755, b"other".to_vec()),
        ("bin/se", 0o755, b"its own se".to_vec()),
    ];
    let other = Package { name: "other", files, symlinks: Vec::new() };
    let refused = other.install(&system).err().ok_or("a conflict must be refused")?;
    println!("refused: {refused}");
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    assert_eq!(tree(&system)?, before, "a failing installation changes nothing");

    editor(2).remove(&system)?;
    let left: Vec<Vec<u8>> = tree(&system)?.into_keys().collect();
    assert!(!left.iter().any(|path| path.starts_with(b"bin/s")), "removed: {left:?}");
    assert!(editor(2).installed(&system)?.is_empty());
    println!("installed, replaced, refused and removed; {} directories left", left.len());
    Ok(())
}
