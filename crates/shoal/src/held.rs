//! Inodes that a program has open: they live on when their last name goes, until nobody holds them.

use crate::Volume;
use crate::raw::{self, Attr, Caller, Code, Ino};

/// Times that a call is begun again.
const ATTEMPTS: usize = 64;

/// Runs a call again when the file that it found has been removed or replaced meanwhile. Returns
/// `ESTALE` when that happens [`ATTEMPTS`] times in a row.
#[inline]
pub(crate) fn unless_stale<T>(call: impl Fn() -> raw::Result<T>) -> raw::Result<T> {
    for _ in 1..ATTEMPTS {
        match call() {
            Err(e) if e.is(Code::Stale) => {}
            done => return done,
        }
    }
    call()
}

/// An inode that stays, until this is dropped.
pub(crate) struct Held {
    pub volume: Volume,
    pub who: Caller,
    pub ino: Ino,
    /// Not for the top of a volume, which cannot be removed.
    counted: bool,
}

impl Held {
    /// Holds the inode that has the attributes `attr`. `ESTALE` if it has been removed since.
    pub(crate) fn new(volume: Volume, who: Caller, attr: &Attr) -> raw::Result<Held> {
        let Attr { ino, generation, .. } = *attr;
        volume.raw().references().hold(ino, 1)?;
        let held = Held { volume, who, ino, counted: true };
        // The number may have been used again before it was held.
        match held.volume.raw().attributes().getattr(ino)?.generation == generation {
            true => Ok(held),
            false => Err(Code::Stale.into()),
        }
    }

    /// Holds an inode that has just been made, and that nobody else can have removed and made again
    /// without its generation.
    pub(crate) fn top(volume: Volume, who: Caller, ino: Ino) -> Held {
        let counted = ino != Ino::ROOT && volume.raw().references().hold(ino, 1).is_ok();
        Held { volume, who, ino, counted }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.counted {
            self.volume.raw().references().release(self.ino, 1);
        }
    }
}
