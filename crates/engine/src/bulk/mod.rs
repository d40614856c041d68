//! Calls on many inodes: attributes of a list of inodes (`stat_many`, after `statlite` and
//! `readdirplus` of the POSIX extensions for high-performance computing), of all inodes of a
//! subvolume (`bulkstat`, after that of XFS), and totals of everything below a directory.
//!
//! Problem: a program that knows the files it wants to see pays for each of them a walk of its
//! path, a lookup of its block and, with a cold cache, a read that nothing else waits for together
//! with it.
//!
//! Rule: the inodes are sorted by block, each block is found once, and all missing blocks are read
//! together, while no lock is held. The answers are in the caller's order.

mod climb;
mod inodes;
mod names;
mod numbers;
mod totals;

mod children;

use crate::directories::Directories;
use crate::namei::Namespace;
use crate::paths::Paths;
use crate::permissions::Permissions;
use crate::state::room;
use crate::types::{Caller, Fields, Freshness, Stat, StatItem};
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};

/// Items that are answered together. Bounds the memory of a call.
const CHUNK: usize = 4096;

room! {
    /// Attributes of many inodes.
    pub struct Bulk {
        directories: Directories,
        namespace: Namespace,
        paths: Paths,
        permissions: Permissions,
    }
}

/// Wanted attributes, and how current they must be.
#[derive(Clone, Copy)]
struct Wish {
    want: Fields,
    freshness: Freshness,
}

impl Wish {
    fn may_read(self) -> bool {
        self.freshness != Freshness::DontWait
    }
}

/// The answers to the items of a chunk, in their order.
type Answers = [Result<Stat>];

impl Bulk<'_> {
    /// Calls `each` with the position and the attributes of every item, in the order of the items.
    /// Each inode is seen as it was at some moment of the call; all names of one directory that are
    /// looked up together are seen as they were at the same moment.
    ///
    /// # Errors
    /// Those of each item: `ESTALE` for a number that is free or of another generation, or whose
    /// inode is unlinked and not in use, `EPERM` for a number from an unprivileged caller; for
    /// names those of `lookup`. Damage and errors of the device affect only the items of the
    /// unreadable block.
    pub fn stat_many(
        self,
        who: &Caller,
        items: &[StatItem<'_>],
        want: Fields,
        freshness: Freshness,
        each: &mut dyn FnMut(usize, Result<Stat>),
    ) {
        let wish = Wish { want, freshness };
        // The answers are of the items: the call itself does not fail.
        let _: Result<()> = self.0.measured(Call::StatMany, || {
            self.stat_chunks(who, items, wish, each);
            Ok(())
        });
    }

    fn stat_chunks(
        self,
        who: &Caller,
        items: &[StatItem<'_>],
        wish: Wish,
        each: &mut dyn FnMut(usize, Result<Stat>),
    ) {
        for (chunk, first) in items.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
            let mut answers: Vec<Result<Stat>> =
                chunk.iter().map(|_| Ok(Stat::default())).collect();
            self.numbers(who, chunk, wish, &mut answers);
            self.names(who, chunk, wish, &mut answers);
            for (at, answer) in (first..).zip(answers) {
                each(at, answer);
            }
        }
    }
}

/// Checks that the caller may address inodes by number.
fn check_privileged(who: &Caller) -> Result<()> {
    match who.bypasses() {
        true => Ok(()),
        false => Err(Error::Code(Code::NotPermitted)),
    }
}

/// The block of an inode: subvolume and number.
fn block_of(ino: Ino) -> (u16, u64) {
    (ino.root().0, ino.index() / shoal_base::limits::INODES_PER_BLOCK as u64)
}
