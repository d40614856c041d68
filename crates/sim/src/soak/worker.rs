//! The processes that use the mount. Each has a few hands, threads with a directory of their own.
//!
//! A hand notes each deed in a file outside the volume before and after: whole lines, so that what
//! it noted before the mount died stays.

use super::deed::{Deed, Tree, contents};
use super::verify::difference;
use crate::rng::Rng;
use rustix::fs::{XattrFlags, setxattr, statfs};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a worker is told in its environment.
const ORDERS: &str = "SHOAL_SOAK_WORKER";
/// Hands of each process.
pub const HANDS: u64 = 2;
/// Files that are open without a name, at most.
const HIDDEN: usize = 8;

/// What a worker process is to do.
#[derive(Clone, Debug)]
pub struct Orders {
    /// The mount.
    pub mount: PathBuf,
    /// Where the notes go.
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

    /// Names of the directories and notes of all its hands.
    pub fn hands(&self) -> impl Iterator<Item = String> + use<> {
        let (worker, round) = (self.worker, self.round);
        (0..HANDS).map(move |hand| format!("h{}r{round}", worker * HANDS + hand))
    }
}

/// Life of a worker: until the mount dies, or goes.
pub fn work(orders: &Orders) {
    std::thread::scope(|scope| {
        for (number, name) in orders.hands().enumerate() {
            scope.spawn(move || {
                let seed = Rng::new(orders.seed).fork(orders.round << 16 | orders.worker << 8);
                Hand::new(orders, name).live(&mut seed.fork(number as u64 + 1));
            });
        }
    });
}

struct Hand {
    name: String,
    mount: PathBuf,
    directory: PathBuf,
    notes: File,
    hidden: Vec<File>,
}

impl Hand {
    fn new(orders: &Orders, name: String) -> Hand {
        let notes = OpenOptions::new().append(true).create(true).open(orders.notes.join(&name));
        let notes = notes.expect("notes");
        let (mount, directory) = (orders.mount.clone(), orders.mount.join(&name));
        Hand { name, mount, directory, notes, hidden: Vec::new() }
    }

    fn note(&mut self, line: String) {
        self.notes.write_all(line.as_bytes()).expect("notes");
    }

    /// A line that begins with `<` and is followed by `>`: done. By `!`: wrong.
    fn live(mut self, rng: &mut Rng) {
        let mut tree = Tree::default();
        self.note("< top\n".into());
        match fs::create_dir(&self.directory) {
            Ok(()) => self.note(">\n".into()),
            Err(e) => return self.give_up("top", &e),
        }
        for id in 1.. {
            let deed = tree.draw(rng, id);
            self.note(format!("< {deed}\n"));
            if let Err(e) = self.act(&tree, &deed) {
                return self.give_up(&deed.to_string(), &e);
            }
            self.note(">\n".into());
            tree.apply(&self.name, &deed);
            if rng.chance(4)
                && let Err(e) = self.look(&tree, rng)
            {
                return self.give_up("look", &e);
            }
        }
    }

    /// Only the end of the mount is an excuse, of whatever followed from it: a path that leads to
    /// the directory below it, an attribute that the kernel still had.
    fn give_up(&mut self, what: &str, error: &io::Error) {
        const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
        let served = statfs(&self.mount).is_ok_and(|fs| fs.f_type as u64 == FUSE_SUPER_MAGIC);
        if served {
            self.note(format!("! {what}: {error}\n"));
        }
    }

    fn act(&mut self, tree: &Tree, deed: &Deed) -> io::Result<()> {
        let path = |name: &String| self.directory.join(name);
        let open = |name: &String| OpenOptions::new().read(true).write(true).open(path(name));
        match deed {
            Deed::Create(name, _) => {
                OpenOptions::new().write(true).create_new(true).open(path(name)).map(drop)
            }
            Deed::Write(name, offset, len) => {
                let bytes = contents(&self.name, tree.names[name], *offset, *len);
                open(name)?.write_all_at(&bytes, *offset)
            }
            Deed::Truncate(name, len) => open(name)?.set_len(*len),
            Deed::Xattr(name, value) => {
                let value = value.to_string();
                let flags = XattrFlags::empty();
                Ok(setxattr(path(name), "user.soak", value.as_bytes(), flags)?)
            }
            Deed::Rename(from, to) => fs::rename(path(from), path(to)),
            Deed::Link(from, to) => fs::hard_link(path(from), path(to)),
            Deed::Unlink(name) => fs::remove_file(path(name)),
            Deed::Hide(name) => {
                let file = open(name)?;
                fs::remove_file(path(name))?;
                if self.hidden.len() == HIDDEN {
                    self.hidden.remove(0);
                }
                // Another name would show what is written to it.
                if file.metadata()?.nlink() == 0 {
                    self.hidden.push(file);
                }
                Ok(())
            }
            Deed::Mkdir(name) => fs::create_dir(path(name)),
            Deed::RemoveTree(name) => remove_tree(&path(name)),
            Deed::Fsync(name) => open(name)?.sync_all(),
            Deed::FsyncDir => File::open(&self.directory)?.sync_all(),
        }
    }

    /// Reads a file back, and writes to one without a name.
    fn look(&mut self, tree: &Tree, rng: &mut Rng) -> io::Result<()> {
        let names: Vec<&String> = tree.names.keys().collect();
        if !names.is_empty() {
            let name = *rng.pick(&names);
            let found = fs::read(self.directory.join(name))?;
            if let Some(difference) = difference(&tree.files[&tree.names[name]].data, &found) {
                return Err(io::Error::other(format!("{name}: {difference}")));
            }
        }
        match self.hidden.last() {
            Some(file) => file.write_all_at(&[7; 5_000], rng.below(90_000)),
            None => Ok(()),
        }
    }
}

/// By another program: as a user would. What it says when the mount dies says nothing.
fn remove_tree(path: &Path) -> io::Result<()> {
    let done = Command::new("rm").arg("-r").arg(path).output()?;
    if done.status.success() {
        return Ok(());
    }
    match fs::symlink_metadata(path) {
        Ok(_) => Err(io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned())),
        Err(e) => Err(e),
    }
}
