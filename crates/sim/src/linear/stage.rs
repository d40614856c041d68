//! Stage of a history on a volume: the directories and files that its threads have handles of, and
//! its operations as calls of the library.

use super::history::Event;
use super::program::{HANDLES, is_held, making, paths};
use super::reply::{Reply, Seen};
use crate::call::on_volume;
use crate::op::{Op, Target};
use shoal::raw::{Caller, FileKind, Ino, Result, Volume};
use std::sync::atomic::{AtomicU64, Ordering};

/// The handles of a history.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    top: Ino,
    handles: [Ino; HANDLES],
    trees: bool,
}

impl Stage {
    /// Makes what a history begins with, in this directory.
    pub fn make(volume: &Volume, top: Ino, trees: bool) -> Result<Stage> {
        let find = |path: &[u8]| match path {
            [] => Ok(top),
            path => {
                volume.namespace().resolve(&Caller::root(), top, path, false).map(|found| found.ino)
            }
        };
        for op in making(trees) {
            let target = |target: &Target| match target {
                Target::Path(path) => find(path),
                Target::Slot(_) => unreachable!("nothing is open yet"),
            };
            let inos = op.targets().into_iter().map(target).collect::<Result<Vec<_>>>()?;
            on_volume(volume, &op, &inos, &mut None)?;
        }
        let mut handles = [top; HANDLES];
        for (handle, path) in handles.iter_mut().zip(paths(trees)) {
            *handle = find(path.as_bytes())?;
        }
        Ok(Stage { top, handles, trees })
    }

    /// The handles that there really are.
    fn held(&self) -> impl Iterator<Item = Ino> {
        let trees = self.trees;
        let handles = self.handles.into_iter().enumerate();
        handles.filter(move |(number, _)| is_held(trees, *number)).map(|(_, ino)| ino)
    }

    /// Holds what the threads have handles of.
    pub fn hold(&self, volume: &Volume) -> Result<()> {
        self.held().try_for_each(|ino| volume.references().hold(ino, 1))
    }

    /// Lets it go.
    pub fn release(&self, volume: &Volume) {
        self.held().for_each(|ino| volume.references().release(ino, 1));
    }

    /// Numbers of the handles.
    pub fn inos(&self) -> [u64; HANDLES] {
        self.handles.map(|ino| ino.0)
    }

    /// The inode of a handle.
    pub fn ino(&self, handle: usize) -> Ino {
        self.handles[handle]
    }

    /// Makes a call. An error that is none of a call on names is an answer all the same: nothing
    /// explains it.
    pub fn call(&self, volume: &Volume, op: &Op) -> Reply {
        self.make_call(volume, op).unwrap_or_else(|e| Reply::Failed(e.code().errno()))
    }

    fn make_call(&self, volume: &Volume, op: &Op) -> Result<Reply> {
        let ino = |target: &Target| match target {
            Target::Slot(handle) => self.handles[*handle],
            // Where batches in several directories begin.
            Target::Path(path) if path.is_empty() => self.top,
            Target::Path(_) => unreachable!("threads have handles"),
        };
        let inos: Vec<Ino> = op.targets().into_iter().map(ino).collect();
        if let Op::Readdir { .. } = op {
            return list(volume, inos[0]);
        }
        let mut told = None;
        let answer = on_volume(volume, op, &inos, &mut told)?;
        Ok(Reply::of_answer(op, answer, told))
    }

    /// Makes a call and notes when.
    pub fn event(&self, volume: &Volume, clock: &AtomicU64, thread: usize, op: &Op) -> Event {
        let begin = clock.fetch_add(1, Ordering::SeqCst);
        let reply = self.call(volume, op);
        let end = clock.fetch_add(1, Ordering::SeqCst);
        Event { thread, op: op.clone(), reply, begin, end, may_miss: false }
    }
}

fn list(volume: &Volume, dir: Ino) -> Result<Reply> {
    let mut entries = Vec::new();
    volume.directories().readdir(dir, 0, &mut |entry| {
        let dir = entry.kind == FileKind::Directory;
        entries.push((entry.name.to_vec(), Seen { dir, ino: entry.ino.0, age: 0 }));
        true
    })?;
    Ok(Reply::of_list(entries.into_iter()))
}
