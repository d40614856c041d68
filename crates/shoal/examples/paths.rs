//! Paths of an inode: every file knows its names, so that they are found without a search.
//!
//! ```sh
//! cargo run -p shoal --example paths [[--connect] VOLUME [INODE]...]
//! ```
//!
//! With inode numbers (as `ls -i` shows them on a mount) it prints the paths of each, one a line.
//! Without, it shows what programs keep instead of paths: a [`Handle`], which stays valid when a
//! file is renamed and when the volume is opened again. A backup, an index or an audit log that
//! keeps handles has the right file at once, and today's paths of it.

mod common;

use shoal::{Credentials, FileOptions, Handle, Ino, Volume};
use std::error::Error;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

fn print_paths(volume: &Volume, inodes: &[String]) -> Result<(), Box<dyn Error>> {
    for inode in inodes {
        let ino = Ino(inode.parse()?);
        let paths = volume.paths_of(ino)?;
        // An inode that is not unlinked has a path, and the path leads to it.
        for path in &paths {
            let found = volume.root(Credentials::root()).symlink_metadata(path)?;
            assert_eq!(found.ino(), ino);
            println!("{}", path.as_os_str().as_bytes().escape_ascii());
        }
    }
    Ok(())
}

/// All paths of an inode, sorted.
fn sorted_paths(volume: &Volume, ino: Ino) -> shoal::Result<Vec<PathBuf>> {
    let mut paths = volume.paths_of(ino)?;
    paths.sort();
    Ok(paths)
}

fn main() -> Result<(), Box<dyn Error>> {
    let place = common::Place::from_arguments("paths");
    let volume = place.open()?;
    if !place.arguments.is_empty() {
        return print_paths(&volume, &place.arguments);
    }
    let root = volume.root(Credentials::current());
    if root.exists("paths-example")? {
        root.remove_dir_all("paths-example")?;
    }
    let top = root.create_dir("paths-example")?;

    // One file under three names, among a thousand others.
    let library = top.create_dir_all("library/shelf")?;
    library.batch(|batch| {
        (0..1000).try_for_each(|n| batch.create_new(format!("{n}"), b"other".as_slice()))
    })?;
    top.write("draft", b"Call me Ishmael.")?;
    top.hard_link("draft", "library/shelf/whale")?;
    top.create_dir("archive")?;
    top.hard_link("draft", "archive/1851")?;

    let ino = top.metadata("draft")?.ino();
    let named = ["archive/1851", "draft", "library/shelf/whale"];
    let expected = named.map(|path| PathBuf::from("paths-example").join(path));
    assert_eq!(sorted_paths(&volume, ino)?, expected);
    for path in &expected {
        println!("inode {ino}: {}", path.display());
    }

    // A rename of a directory above changes the path, and touches no file in it.
    top.rename("library", "books")?;
    top.remove_file("archive/1851")?;
    let expected = ["draft", "books/shelf/whale"].map(|p| PathBuf::from("paths-example").join(p));
    let mut sorted = expected.to_vec();
    sorted.sort();
    assert_eq!(sorted_paths(&volume, ino)?, sorted);

    // 12 bytes for another program's database. The file is renamed, and the volume opened again.
    let handle = top.open("draft")?.handle().to_bytes();
    top.rename("draft", "archive/final")?;
    drop((library, top, root));
    volume.close()?;
    let volume = place.open()?;
    let root = volume.root(Credentials::current());
    let handle = Handle::from_bytes(handle);
    let file = FileOptions::new().read(true).open_by_handle(&root, handle)?;
    let mut start = [0; 7];
    file.read_at(&mut start, 0)?;
    assert_eq!(&start, b"Call me");
    assert!(volume.paths_of(file.ino())?.contains(&"paths-example/archive/final".into()));

    // Without names it has no paths, and lives on as long as it is open.
    root.remove_file("paths-example/archive/final")?;
    root.remove_file("paths-example/books/shelf/whale")?;
    assert!(volume.paths_of(file.ino())?.is_empty());
    drop(file);
    let gone = FileOptions::new().read(true).open_by_handle(&root, handle);
    println!("and when it is gone: {}", gone.err().ok_or("the handle must be stale")?);
    Ok(())
}
