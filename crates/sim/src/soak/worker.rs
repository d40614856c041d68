//! The processes that use the mount. Each has a few actors, threads with a directory of their own.
//!
//! An actor notes in a file outside the volume when an operation begins (`<`) and ends (`>`), and
//! what was wrong (`!`): whole lines, so that what it noted before the mount died stays.

use super::actor::Actor;
use super::verify::difference;
use crate::exec::Answer;
use crate::system::Files;
use rustix::fs::statfs;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variable with the orders of a worker.
const ORDERS: &str = "SHOAL_SOAK_WORKER";
/// Actors of each process.
pub const ACTORS: u64 = 2;

/// Orders of a worker process.
#[derive(Clone, Debug)]
pub struct Orders {
    /// The mount.
    pub mount: PathBuf,
    /// Folder of the notes.
    pub notes: PathBuf,
    /// Seed of the run.
    pub seed: u64,
    /// Number of the round.
    pub round: u64,
    /// Number of the process.
    pub worker: u64,
}

impl Orders {
    /// Adds them to the command line of a program that calls [`work`].
    pub fn give(&self, command: &mut Command) {
        let Orders { mount, notes, seed, round, worker } = self;
        let (mount, notes) = (mount.display(), notes.display());
        command.env(ORDERS, format!("{seed}:{round}:{worker}:{mount}:{notes}"));
    }

    /// Those that this process was given.
    pub fn given() -> Option<Orders> {
        let text = std::env::var(ORDERS).ok()?;
        let mut parts = text.splitn(5, ':');
        let mut number = || parts.next()?.parse().ok();
        let (seed, round, worker) = (number()?, number()?, number()?);
        let (mount, notes) = (PathBuf::from(parts.next()?), PathBuf::from(parts.next()?));
        Some(Orders { mount, notes, seed, round, worker })
    }

    /// Numbers of all its actors, with the names of their directories and notes.
    pub fn actors(&self) -> impl Iterator<Item = (u64, String)> + use<> {
        let (first, round) = (self.worker * ACTORS, self.round);
        (first..first + ACTORS).map(move |actor| (actor, format!("h{actor}r{round}")))
    }
}

/// Life of a worker: until the mount dies, or goes.
pub fn work(orders: &Orders) {
    std::thread::scope(|scope| {
        for (number, name) in orders.actors() {
            scope.spawn(move || {
                let actor = Actor::new(orders.seed, orders.round, number);
                let path = orders.notes.join(&name);
                let notes = OpenOptions::new().append(true).create(true).open(path);
                live(actor, &orders.mount, &orders.mount.join(name), &notes.expect("notes"));
            });
        }
    });
}

fn live(mut actor: Actor, mount: &Path, directory: &Path, mut notes: &File) {
    let mut note = |line: &str| notes.write_all(line.as_bytes()).expect("notes");
    note("<\n");
    let mut files = Files::below(directory);
    let mut done = fs::create_dir(directory).map_err(|e| format!("top: {e}"));
    while done.is_ok() {
        note(">\n");
        let (op, expected) = actor.step();
        note("<\n");
        done = match (files.call(&op), expected) {
            (Err(e), _) => Err(format!("{op}: {e}")),
            (Ok((Answer::Bytes(found), _)), Some(expected)) => {
                difference(&expected, &found).map_or(Ok(()), |wrong| Err(format!("{op}: {wrong}")))
            }
            (Ok(_), _) => Ok(()),
        };
    }
    // Only the end of the mount is an excuse, of whatever followed from it: a path that leads to
    // the directory below it, an attribute that the kernel still had.
    const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
    let served = statfs(mount).is_ok_and(|fs| fs.f_type as u64 == FUSE_SUPER_MAGIC);
    if let Err(wrong) = done
        && served
    {
        note(&format!("! {}\n", wrong.replace('\n', " ")));
    }
}
