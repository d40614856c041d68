//! Things that the kernel still keeps from the time of a server before this one.
//!
//! *Unlinked inodes.* The kernel may have some open, or know them otherwise, and only the dead
//! server has counted that. So each is kept until the kernel has been asked: a notice about an
//! inode's attributes is refused with `ENOENT` if it does not know the inode. It is asked about
//! each orphan at the start, and about each inode that is unlinked later, or that it drops.
//!
//! *Attributes and listings.* The dead server may have owed the kernel a notice of a change that it
//! had made. So the kernel forgets the attributes of all inodes in the last records.
//!
//! A thread of its own talks to the kernel, which may let it wait for an inode that is being
//! evicted ([`crate::transport`], `apart.rs`). Another one frees what is not in use.

use crate::protocol::notify::Notification;
use parking_lot::{Condvar, Mutex};
use shoal::raw::Ino;
use std::collections::{HashMap, VecDeque};

/// Room for a notice about an inode.
const MESSAGE: usize = 64;

/// Inodes to ask the kernel about.
#[derive(Default)]
pub(crate) struct Inherited {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// To be asked about.
    queue: VecDeque<Ino>,
    /// Asked about, and not known.
    unknown: VecDeque<Ino>,
    /// Answers that somebody waits for.
    waiting: HashMap<Ino, Option<bool>>,
    closed: bool,
}

impl Inherited {
    /// Queues an unlinked inode.
    pub(crate) fn ask(&self, ino: Ino) {
        let mut state = self.state.lock();
        if !state.closed {
            state.queue.push_back(ino);
            self.wake.notify_all();
        }
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.queue.clear();
        state.unknown.clear();
        self.wake.notify_all();
    }

    /// Asks about an inode, and waits for the answer. After the end everything counts as known.
    pub(crate) fn knows(&self, ino: Ino) -> bool {
        let mut state = self.state.lock();
        state.waiting.insert(ino, None);
        state.queue.push_front(ino);
        self.wake.notify_all();
        loop {
            match state.waiting.get(&ino) {
                _ if state.closed => return true,
                // Another one has taken the same answer.
                None => return true,
                Some(Some(known)) => {
                    let known = *known;
                    state.waiting.remove(&ino);
                    return known;
                }
                Some(None) => self.wake.wait(&mut state),
            }
        }
    }

    /// Runs the thread that asks the kernel by `knows`.
    pub(crate) fn run(&self, knows: impl Fn(Ino) -> bool) {
        let mut state = self.state.lock();
        while !state.closed {
            let Some(ino) = state.queue.pop_front() else {
                self.wake.wait(&mut state);
                continue;
            };
            drop(state);
            let known = knows(ino);
            state = self.state.lock();
            if let Some(answer) = state.waiting.get_mut(&ino) {
                *answer = Some(known);
            } else if !known && !state.closed {
                state.unknown.push_back(ino);
            }
            self.wake.notify_all();
        }
    }

    /// Runs the thread that calls `free` for each unlinked inode that the kernel does not know.
    pub(crate) fn free_unknown(&self, free: impl Fn(Ino)) {
        loop {
            let mut state = self.state.lock();
            while state.unknown.is_empty() && !state.closed {
                self.wake.wait(&mut state);
            }
            let Some(ino) = state.unknown.pop_front() else { return };
            drop(state);
            free(ino);
        }
    }
}

/// Writes the notice that makes the kernel forget the attributes of a node, and the listing of a
/// directory. Returns its bytes.
pub(crate) fn notice(node: u64, listing: bool, buffer: &mut [u8; MESSAGE]) -> &[u8] {
    let range = listing.then_some((0, 0));
    let notice = Notification::InvalInode { ino: Ino(node), range };
    let len = notice.encode(buffer).unwrap_or_default();
    &buffer[..len]
}

/// A buffer for [`notice`].
pub(crate) fn buffer() -> [u8; MESSAGE] {
    [0; MESSAGE]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_the_kernel_does_not_know_is_reported() {
        let inherited = Arc::new(Inherited::default());
        (1..=4).for_each(|n| inherited.ask(Ino(n)));
        let unknown = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let (inherited, unknown) = (&inherited, &unknown);
            scope.spawn(move || inherited.run(|ino| ino.0 % 2 == 0));
            scope.spawn(move || inherited.free_unknown(|ino| unknown.lock().push(ino)));
            assert!(inherited.knows(Ino(8)) && !inherited.knows(Ino(9)));
            while unknown.lock().len() < 2 {
                std::thread::yield_now();
            }
            inherited.close();
        });
        assert_eq!(*unknown.lock(), [Ino(1), Ino(3)]);
        inherited.ask(Ino(5));
        inherited.run(|_| panic!("closed"));
        inherited.free_unknown(|_| panic!("closed"));
        assert!(inherited.knows(Ino(6)));
    }

    #[test]
    fn a_notice_fits() {
        let mut bytes = buffer();
        assert_eq!(notice(u64::MAX, true, &mut bytes).len(), 40);
        assert_eq!(notice(1, false, &mut bytes).len(), 40);
    }
}
