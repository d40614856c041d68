//! Where a history takes place on a volume: the directories and files that its threads have handles
//! of; and its calls as calls of the library.

use super::call::{At, Call, Content, HANDLES, HEAD, Kind, Mode, NAMES, Reply, Seen, WHOLE};
use super::history::Event;
use shoal::{Attr, Caller, Error, FileKind, Ino, RenameFlags, Result, SetAttr, TreeCheck, Volume};
use std::sync::atomic::{AtomicU64, Ordering};

/// The handles of a history.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    handles: [Ino; HANDLES],
    trees: bool,
}

impl Stage {
    /// Makes what a history begins with, in this directory.
    pub fn make(volume: &Volume, top: Ino, trees: bool) -> Result<Stage> {
        let who = Caller::root();
        let mkdir = |dir, name: &str| volume.mkdir(&who, dir, name.as_bytes(), 0o777);
        let (a, b) = (mkdir(top, "a")?.ino, mkdir(top, "b")?.ino);
        let f = volume.create(&who, a, b"x", 0o666)?.ino;
        let g = volume.create(&who, b, b"x", 0o666)?.ino;
        let c = mkdir(a, "z")?.ino;
        let d = if trees { mkdir(c, "y")?.ino } else { mkdir(b, "z")?.ino };
        if trees {
            volume.link(&who, g, c, b"x")?;
        }
        Ok(Stage { handles: [a, b, c, d, f, g], trees })
    }

    /// The handles that there really are.
    fn held(&self) -> impl Iterator<Item = Ino> {
        let trees = self.trees;
        let skipped = move |number: usize| trees && (number == 2 || number == 3);
        let handles = self.handles.into_iter().enumerate();
        handles.filter(move |(number, _)| !skipped(*number)).map(|(_, ino)| ino)
    }

    /// Holds what the threads have handles of.
    pub fn hold(&self, volume: &Volume) -> Result<()> {
        self.held().try_for_each(|ino| volume.hold(ino, 1))
    }

    /// Lets it go.
    pub fn release(&self, volume: &Volume) {
        self.held().for_each(|ino| volume.release(ino, 1));
    }

    /// Numbers of the handles.
    pub fn inos(&self) -> [u64; HANDLES] {
        self.handles.map(|ino| ino.0)
    }

    /// The inode of a handle.
    pub fn ino(&self, handle: u8) -> Ino {
        self.handles[usize::from(handle)]
    }

    /// Makes a call.
    pub fn call(&self, volume: &Volume, call: Call) -> Reply {
        make(volume, &Caller::root(), &self.handles, call).unwrap_or_else(|e| failed(&e))
    }

    /// Makes a call and notes when.
    pub fn event(&self, volume: &Volume, clock: &AtomicU64, thread: usize, call: Call) -> Event {
        let begin = clock.fetch_add(1, Ordering::SeqCst);
        let reply = self.call(volume, call);
        let end = clock.fetch_add(1, Ordering::SeqCst);
        Event { thread, call, reply, begin, end }
    }
}

/// What is no errno of a call on names is an errno all the same: nothing explains it.
fn failed(error: &Error) -> Reply {
    Reply::Failed(error.code().errno())
}

fn seen(attr: &Attr) -> Seen {
    Seen { kind: kind(attr.kind), ino: attr.ino.0, age: attr.generation.0 }
}

fn kind(kind: FileKind) -> Kind {
    if kind == FileKind::Directory { Kind::Dir } else { Kind::File }
}

fn make(volume: &Volume, who: &Caller, handles: &[Ino; HANDLES], call: Call) -> Result<Reply> {
    let ino = |handle: u8| handles[usize::from(handle)];
    let place = |at: At| (ino(at.dir), at.text().as_bytes());
    let done = |()| Reply::Done;
    match call {
        Call::Create(at) => {
            let (dir, name) = place(at);
            volume.create(who, dir, name, 0o666).map(|attr| Reply::Found(seen(&attr)))
        }
        Call::Mkdir(at) => {
            let (dir, name) = place(at);
            volume.mkdir(who, dir, name, 0o777).map(|attr| Reply::Found(seen(&attr)))
        }
        Call::Unlink(at) => volume.unlink(who, place(at).0, place(at).1).map(done),
        Call::Rmdir(at) => volume.rmdir(who, place(at).0, place(at).1).map(done),
        Call::Rename(from, to, mode) => {
            let ((from_dir, from), (to_dir, to)) = (place(from), place(to));
            let flags = RenameFlags {
                noreplace: mode == Mode::NoReplace,
                exchange: mode == Mode::Exchange,
            };
            volume.rename(who, from_dir, from, to_dir, to, flags).map(done)
        }
        Call::Link(file, at) => {
            volume.link(who, ino(file), place(at).0, place(at).1).map(|_| Reply::Done)
        }
        Call::Lookup(at) => {
            let (dir, name) = place(at);
            volume.lookup(who, dir, name).map(|attr| Reply::Found(seen(&attr)))
        }
        Call::List(dir) => list(volume, ino(dir)).map(Reply::Listed),
        Call::Stat(handle) => volume.getattr(ino(handle)).map(|attr| {
            let entries = if attr.kind == FileKind::Directory { attr.size } else { 0 };
            Reply::Attrs { links: attr.nlink, entries }
        }),
        Call::RemoveTree(at) => {
            let (dir, name) = place(at);
            volume.remove_tree(who, dir, name, TreeCheck::Tree).map(done)
        }
        Call::Write(file, value) => {
            let bytes = vec![value; Content::length_of(value) as usize];
            volume.write(ino(file), 0, &bytes, false).map(|_| Reply::Done)
        }
        Call::Cut(file, to_head) => {
            let size = Some(if to_head { HEAD } else { 0 });
            let set = SetAttr { size, ..SetAttr::default() };
            volume.setattr(who, ino(file), &set).map(|_| Reply::Done)
        }
        Call::Read(file) => {
            let mut bytes = vec![0; 2 * WHOLE as usize];
            let len = volume.read(ino(file), 0, &mut bytes)?;
            Ok(Reply::Content(Content::of(&bytes[..len])))
        }
        Call::Probe(_) => unreachable!("not a call"),
    }
}

fn list(volume: &Volume, dir: Ino) -> Result<[Option<Seen>; NAMES]> {
    let mut entries = [None; NAMES];
    volume.readdir(dir, 0, &mut |entry| {
        let known = |name: &u8| At { dir: 0, name: *name }.text().as_bytes() == entry.name;
        if let Some(name) = (0..NAMES as u8).find(known) {
            let (kind, ino) = (kind(entry.kind), entry.ino.0);
            entries[usize::from(name)] = Some(Seen { kind, ino, age: 0 });
        }
        true
    })?;
    Ok(entries)
}
