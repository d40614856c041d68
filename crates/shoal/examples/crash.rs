//! Crash and recovery: a child process writes into a volume and is killed with SIGKILL; then the
//! volume is opened again, and must hold what was durable.
//!
//! ```sh
//! cargo run -p shoal --example crash [VOLUME]
//! ```
//!
//! The child does two things in turn. It writes a file, makes it durable, and says so on its
//! standard output. And it makes a batch of eight files, which it does not make durable. After the
//! crash each file that it told of must be there, and each batch whole or not at all; and of two
//! batches, if the later is there, so is the earlier. A process that is killed loses what was in
//! its memory, which here is the volume's journal: the same as after a power failure, but for the
//! cache of the disk.

mod common;

use shoal::{Credentials, Volume};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Argument that makes this program the child.
const CHILD: &str = "--child";
/// Directory of the volume that both work in.
const DIRECTORY: &str = "crash-example";
/// Files that the child tells of before it is killed.
const SYNCED: usize = 40;
const FILES_IN_A_BATCH: usize = 8;

fn contents(n: usize) -> Vec<u8> {
    format!("file {n}\n").repeat(n + 1).into_bytes()
}

/// Writes until it is killed.
fn child(path: &Path) -> Result<(), Box<dyn Error>> {
    let volume = Volume::open(path)?;
    let dir = volume.root(Credentials::current()).open_dir(DIRECTORY)?;
    let mut out = std::io::stdout();
    for n in 0.. {
        let mut file = dir.create_new(format!("synced/{n}"))?;
        file.write_all(&contents(n))?;
        file.sync_all()?;
        // Only now: it is durable, and so is everything before it.
        writeln!(out, "{n}")?;
        out.flush()?;
        dir.batch(|batch| {
            batch.create_dir(format!("batches/{n}"))?;
            (0..FILES_IN_A_BATCH)
                .try_for_each(|part| batch.write(format!("batches/{n}/{part}"), contents(n)))
        })?;
    }
    Ok(())
}

/// Starts the child, waits until it has told of some files, and kills it wherever it is. Returns
/// the number of files that it told of.
fn crash(path: &Path) -> Result<usize, Box<dyn Error>> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(CHILD)
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut told = BufReader::new(child.stdout.take().ok_or("no output of the child")?).lines();
    let mut synced = 0;
    for line in told.by_ref().take(SYNCED) {
        assert_eq!(line?.parse::<usize>()?, synced, "in order");
        synced += 1;
    }
    child.kill()?; // SIGKILL: it cannot be caught
    let status = child.wait()?;
    assert!(!status.success() && synced == SYNCED, "the child failed early: {status}");
    // It may have told of more before it died.
    for line in told {
        match line?.parse::<usize>() {
            Ok(n) if n == synced => synced += 1,
            _ => return Err("the child told of a file out of order".into()),
        }
    }
    Ok(synced)
}

fn main() -> Result<(), Box<dyn Error>> {
    let place = common::Place::from_arguments("crash");
    if place.path.as_os_str() == CHILD {
        return child(Path::new(place.arguments.first().ok_or("no volume")?));
    }
    let volume = place.open()?;
    let root = volume.root(Credentials::current());
    if root.exists(DIRECTORY)? {
        root.remove_dir_all(DIRECTORY)?;
    }
    root.create_dir_all(format!("{DIRECTORY}/synced"))?;
    root.create_dir_all(format!("{DIRECTORY}/batches"))?;
    // One process at a time: nothing of the volume may be in use when the child opens it.
    drop(root);
    volume.close()?;

    let synced = crash(&place.path)?;

    // Opening recovers the volume: it reads the journal behind the last checkpoint. No fsck.
    let volume = place.open()?;
    let dir = volume.root(Credentials::current()).open_dir(DIRECTORY)?;
    for n in 0..synced {
        assert_eq!(dir.read(format!("synced/{n}"))?, contents(n), "file {n} was durable");
    }
    let mut batches = Vec::new();
    for entry in dir.open_dir("batches")?.entries()? {
        let entry = entry?;
        let n: usize = std::str::from_utf8(entry.name())?.parse()?;
        for part in 0..FILES_IN_A_BATCH {
            assert_eq!(dir.read(format!("batches/{n}/{part}"))?, contents(n), "batch {n} is whole");
        }
        assert_eq!(entry.metadata()?.len() as usize, FILES_IN_A_BATCH);
        batches.push(n);
    }
    batches.sort_unstable();
    assert!(batches.iter().copied().eq(0..batches.len()), "no batch is missing before another");
    // A batch is durable with what was synced after it.
    assert!(batches.len() + 1 >= synced);
    println!(
        "killed after {synced} files were durable: all there, and {} whole batches",
        batches.len()
    );
    Ok(())
}
