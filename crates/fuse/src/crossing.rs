//! Names that a session changes while a system call acts on them.
//!
//! The kernel looks a name up, with its directory locked, and then asks for the removal or the move
//! of that name. If a session gives the name to another inode in between, the volume would remove
//! or move that one, and the kernel its entry for the first: a wrong name that nobody would ever
//! tell it of, or a directory in use taken for removed.
//!
//! So a session announces the names that it takes from an inode, from before the change until the
//! kernel has been told of it, which waits for the directory's lock. A request that acts on such a
//! name fails with `ESTALE`. The kernel then asks for the name once more (`LOOKUP_REVAL`), still or
//! again with its directory locked, and repeats the request: that one acts on what the name means
//! now ([`Crossing::looked_up`]), and is let through. A session waits for requests that are under
//! way: they came first. A link is such a request too: the session looks at what has the name, to
//! tell of its attributes.

use parking_lot::{Condvar, Mutex};
use shoal::raw::{Ino, Result, must_not_wait, refuse_to_wait};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Parts of the table, by directory.
const PARTS: usize = 64;

/// A name in a directory.
pub(crate) type Name = (Ino, Box<[u8]>);

/// The names that are being changed.
pub(crate) struct Crossing {
    parts: Box<[Part]>,
    /// Requests that were refused, and whose names are still announced.
    refused: AtomicUsize,
}

#[derive(Default)]
struct Part {
    uses: Mutex<Vec<Use>>,
    /// A request has ended.
    ended: Condvar,
}

struct Use {
    dir: Ino,
    name: Box<[u8]>,
    by: By,
}

enum By {
    /// A request that acts on the name.
    Kernel,
    /// A session, with the threads that were refused: `true` if one has looked the name up since.
    Session(Vec<(u32, bool)>),
}

impl Default for Crossing {
    fn default() -> Crossing {
        let parts = std::iter::repeat_with(Part::default).take(PARTS).collect();
        Crossing { parts, refused: AtomicUsize::new(0) }
    }
}

/// A request that acts on names, until it is dropped.
pub(crate) struct Request<'c> {
    crossing: &'c Crossing,
    names: [Option<(Ino, &'c [u8])>; 2],
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        for (dir, name) in self.names.iter().flatten() {
            self.crossing.end(*dir, name, |by| matches!(by, By::Kernel));
            self.crossing.part(*dir).ended.notify_all();
        }
    }
}

impl Crossing {
    fn part(&self, dir: Ino) -> &Part {
        &self.parts[dir.0 as usize % PARTS]
    }

    /// Begins a request of thread `tid` that acts on names; `None`: a session has changed what one
    /// of them means, and the kernel may not know.
    pub(crate) fn request<'c>(
        &'c self,
        names: [Option<(Ino, &'c [u8])>; 2],
        tid: u32,
    ) -> Option<Request<'c>> {
        let mut begun = Request { crossing: self, names: [None, None] };
        for (place, (dir, name)) in begun.names.iter_mut().zip(names.into_iter().flatten()) {
            let mut uses = self.part(dir).uses.lock();
            let mut is_old = false;
            for other in uses.iter_mut().filter(|other| other.dir == dir && *other.name == *name) {
                let By::Session(refused) = &mut other.by else { continue };
                match refused.iter().find(|(other, _)| *other == tid) {
                    Some((_, true)) => {}
                    Some((_, false)) => is_old = true,
                    None => {
                        is_old = true;
                        refused.push((tid, false));
                        self.refused.fetch_add(1, SeqCst);
                    }
                }
            }
            if is_old {
                return None;
            }
            uses.push(Use { dir, name: name.into(), by: By::Kernel });
            *place = Some((dir, name));
        }
        Some(begun)
    }

    /// Announces that a session changes a name, when no request acts on it.
    ///
    /// # Errors
    /// For a thread that must not wait, that it would have to.
    pub(crate) fn announce(&self, dir: Ino, name: &[u8]) -> Result<Name> {
        let part = self.part(dir);
        let mut uses = part.uses.lock();
        let is_in_use =
            |it: &Use| it.dir == dir && *it.name == *name && matches!(it.by, By::Kernel);
        while uses.iter().any(is_in_use) {
            if must_not_wait() {
                return Err(refuse_to_wait());
            }
            part.ended.wait(&mut uses);
        }
        uses.push(Use { dir, name: name.into(), by: By::Session(Vec::new()) });
        Ok((dir, name.into()))
    }

    /// Ends an announcement: the kernel has been told, or there is no change.
    pub(crate) fn told(&self, (dir, name): &Name) {
        self.end(*dir, name, |by| matches!(by, By::Session(_)));
    }

    /// Records that thread `tid` is about to be told what a name means. Must be called before it is
    /// looked up.
    #[inline]
    pub(crate) fn looked_up(&self, dir: Ino, name: &[u8], tid: u32) {
        if self.refused.load(SeqCst) == 0 {
            return;
        }
        let mut uses = self.part(dir).uses.lock();
        for it in uses.iter_mut().filter(|it| it.dir == dir && *it.name == *name) {
            if let By::Session(refused) = &mut it.by {
                refused.iter_mut().filter(|it| it.0 == tid).for_each(|it| it.1 = true);
            }
        }
    }

    fn end(&self, dir: Ino, name: &[u8], is_mine: impl Fn(&By) -> bool) {
        let mut uses = self.part(dir).uses.lock();
        let mine = |it: &Use| it.dir == dir && *it.name == *name && is_mine(&it.by);
        let Some(at) = uses.iter().position(mine) else { return };
        if let By::Session(refused) = uses.swap_remove(at).by {
            self.refused.fetch_sub(refused.len(), SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal::raw::{AtOnce, at_once};

    const DIR: Ino = Ino(7);

    #[test]
    fn who_comes_first_goes_first() {
        let crossing = Crossing::default();
        let names = [Some((DIR, &b"a"[..])), Some((Ino(8), &b"b"[..]))];
        let request = crossing.request(names, 1).expect("nobody changes them");
        assert!(crossing.request(names, 2).is_some(), "the kernel has locks of its own");
        let announced = at_once(|| crossing.announce(Ino(8), b"b"));
        assert!(matches!(announced, AtOnce::Refused { .. }));
        let other = crossing.announce(DIR, b"other").unwrap();
        drop(request);
        let name = crossing.announce(Ino(8), b"b").unwrap();
        assert!(crossing.request(names, 1).is_none());
        crossing.told(&name);
        assert!(crossing.request(names, 1).is_some());
        crossing.told(&other);
    }

    #[test]
    fn who_has_looked_again_is_let_through() {
        let crossing = Crossing::default();
        let name = crossing.announce(DIR, b"a").unwrap();
        let names = [Some((DIR, &b"a"[..])), None];
        crossing.looked_up(DIR, b"a", 1);
        assert!(crossing.request(names, 1).is_none(), "it looked before it was refused");
        assert!(crossing.request(names, 1).is_none());
        crossing.looked_up(DIR, b"b", 1);
        crossing.looked_up(DIR, b"a", 2);
        assert!(crossing.request(names, 1).is_none(), "that was another name, or thread");
        crossing.looked_up(DIR, b"a", 1);
        assert!(crossing.request(names, 1).is_some());
        assert!(crossing.request(names, 2).is_none());
        crossing.told(&name);
        assert!(crossing.request(names, 2).is_some());
        assert_eq!(crossing.refused.load(SeqCst), 0);
    }
}
