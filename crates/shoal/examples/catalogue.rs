//! A catalogue of a tree (each path and its size) that is kept up to date by changes: what it costs
//! depends on what has changed, not on how large the tree is.
//!
//! ```sh
//! cargo run -p shoal --example catalogue [[--connect] VOLUME [DIRECTORY [CATALOGUE]]]
//! ```
//!
//! The catalogue is a file of the host: the mark of its moment, then each path, with NUL between
//! them, because a path may contain anything else. Called again, the example reads what has changed
//! since that mark, and no more. A mark that is refused, as after a repair, or without all removed
//! names, means that everything is read anew: never a catalogue that is wrong.

mod common;

use shoal::{ChangeKind, Changes, Dir, Mark, Result};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of contents by path; of directories 0.
type Sizes = BTreeMap<PathBuf, u64>;

/// A tree as it was at a mark.
struct Catalogue {
    mark: Mark,
    sizes: Sizes,
}

impl Catalogue {
    /// Reads all of a tree.
    fn new(top: &Dir) -> Result<Catalogue> {
        let mut changes = Changes::since(top, None)?;
        let mut sizes = Sizes::new();
        for change in &mut changes {
            for path in change?.paths() {
                note(top, path, &mut sizes)?;
            }
        }
        Ok(Catalogue { mark: changes.mark(), sizes })
    }

    /// Takes over what has changed; returns how many changes were read.
    fn update(&mut self, top: &Dir) -> Result<usize> {
        let mut changes = match Changes::since(top, Some(&self.mark)) {
            Ok(changes) if changes.has_all_removed() => changes,
            Ok(_) => return self.start_anew(top),
            Err(error) if error.kind() == ErrorKind::StaleNetworkFileHandle => {
                return self.start_anew(top);
            }
            Err(error) => return Err(error),
        };
        // All that is gone is forgotten before anything is noted: a path may have been given to
        // another file.
        let told: Vec<_> = changes.by_ref().collect::<Result<_>>()?;
        for change in &told {
            if change.kind() == ChangeKind::Removed {
                change.paths().for_each(|path| forget(&path, &mut self.sizes));
            }
            if let Some(earlier) = change.from() {
                forget(&earlier, &mut self.sizes);
            }
        }
        for change in told.iter().filter(|change| change.kind() != ChangeKind::Removed) {
            for path in change.paths() {
                let is_moved = change.kind() == ChangeKind::Renamed;
                note(top, path.clone(), &mut self.sizes)?;
                // What is below a renamed directory is not told.
                if is_moved && change.file_kind() == Some(shoal::FileKind::Directory) {
                    for below in top.open_dir(&path)?.walk() {
                        note(top, path.join(below?.path()), &mut self.sizes)?;
                    }
                }
            }
        }
        self.mark = changes.mark();
        Ok(told.len())
    }

    fn start_anew(&mut self, top: &Dir) -> Result<usize> {
        *self = Catalogue::new(top)?;
        Ok(self.sizes.len())
    }

    fn load(path: &Path) -> Option<Catalogue> {
        let bytes = fs::read(path).ok()?;
        let mut lines = bytes.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        let mark = str::from_utf8(lines.next()?).ok()?.parse().ok()?;
        let entry = |line: &[u8]| {
            let blank = line.iter().position(|byte| *byte == b' ')?;
            let size = str::from_utf8(&line[..blank]).ok()?.parse().ok()?;
            Some((OsStr::from_bytes(&line[blank + 1..]).into(), size))
        };
        Some(Catalogue { mark, sizes: lines.map(entry).collect::<Option<_>>()? })
    }

    fn save(&self, path: &Path) -> std::io::Result<()> {
        let mut bytes = format!("{}\0", self.mark).into_bytes();
        for (path, size) in &self.sizes {
            bytes.extend_from_slice(format!("{size} ").as_bytes());
            bytes.extend_from_slice(path.as_os_str().as_bytes());
            bytes.push(0);
        }
        fs::write(path, bytes)
    }
}

/// Notes a path. One that has vanished since it was told is told by the next changes.
fn note(top: &Dir, path: PathBuf, sizes: &mut Sizes) -> Result<()> {
    match top.symlink_metadata(&path) {
        Ok(metadata) => {
            let size = if metadata.is_dir() { 0 } else { metadata.len() };
            sizes.insert(path, size);
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Forgets a path and everything below it.
fn forget(path: &Path, sizes: &mut Sizes) {
    let below: Vec<_> = sizes.range(path.to_owned()..).map(|(other, _)| other.clone()).collect();
    for other in below.iter().take_while(|other| other.starts_with(path)) {
        sizes.remove(other);
    }
}

/// A tree of 2,000 files in 100 directories.
fn make_tree(top: &Dir) -> Result<()> {
    for user in 0..100 {
        let dir = top.create_dir_all(format!("user-{user}"))?;
        dir.batch(|batch| (0..20).try_for_each(|n| batch.write(format!("{n}"), vec![b'x'; n])))?;
    }
    Ok(())
}

/// Changes of each kind.
fn change_tree(top: &Dir) -> Result<()> {
    top.write("user-0/new", b"text")?;
    top.write("user-1/3", b"longer than before")?;
    top.remove_file("user-2/4")?;
    top.rename("user-3", "user-4/moved")?;
    // A path that is given to another file.
    top.remove_file("user-5/5")?;
    top.rename("user-5/6", "user-5/5")?;
    top.hard_link("user-6/7", "user-7/same")?;
    top.remove_dir_all("user-8")
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let place = common::Place::from_arguments("catalogue");
    let volume = place.open()?;
    // What is gone is told by name only if the volume keeps these names.
    volume.keep_removed_names(true)?;
    let is_own = !place.is_named();
    let top = place.directory(&volume, 0, "")?;
    if is_own {
        make_tree(&top)?;
    }

    let file = place.arguments.get(1).map(PathBuf::from);
    let mut catalogue = match file.as_deref().and_then(Catalogue::load) {
        Some(catalogue) => catalogue,
        None => Catalogue::new(&top)?,
    };
    if is_own {
        change_tree(&top)?;
    }
    let read = catalogue.update(&top)?;
    println!("{} paths, {read} changes read, mark {}", catalogue.sizes.len(), catalogue.mark);
    if let Some(file) = file {
        catalogue.save(&file)?;
    }

    if is_own {
        assert!(read < 40, "{read} changes read: what has changed, not the tree");
        assert_eq!(catalogue.sizes, Catalogue::new(&top)?.sizes, "as if it had been read anew");
        assert_eq!(catalogue.sizes[Path::new("user-4/moved/19")], 19);
        assert!(!catalogue.sizes.contains_key(Path::new("user-8")));
    }
    Ok(())
}
