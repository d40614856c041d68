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
//! A thread of its own does both, because the kernel may let it wait for an inode that is being
//! evicted.

use crate::protocol::notify::Notification;
use parking_lot::{Condvar, Mutex};
use shoal::raw::Ino;
use std::collections::VecDeque;

/// Room for a notice about an inode.
const MESSAGE: usize = 64;

/// Inodes to ask the kernel about.
#[derive(Default)]
pub struct Inherited {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Ino>,
    closed: bool,
}

impl Inherited {
    /// Queues an unlinked inode.
    pub fn ask(&self, ino: Ino) {
        let mut state = self.state.lock();
        if !state.closed {
            state.queue.push_back(ino);
            self.wake.notify_one();
        }
    }

    /// Ends the thread.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.queue.clear();
        self.wake.notify_all();
    }

    /// Runs the thread: `knows` asks the kernel, and `unknown` is called for what it does not know.
    pub fn run(&self, knows: impl Fn(Ino) -> bool, unknown: impl Fn(Ino)) {
        loop {
            let mut state = self.state.lock();
            while state.queue.is_empty() && !state.closed {
                self.wake.wait(&mut state);
            }
            let Some(ino) = state.queue.pop_front() else { return };
            drop(state);
            if !knows(ino) {
                unknown(ino);
            }
        }
    }
}

/// Writes the notice that makes the kernel forget the attributes of a node, and the listing of a
/// directory. Returns its bytes.
pub fn notice(node: u64, listing: bool, buffer: &mut [u8; MESSAGE]) -> &[u8] {
    let range = listing.then_some((0, 0));
    let notice = Notification::InvalInode { ino: Ino(node), range };
    let len = notice.encode(buffer).unwrap_or_default();
    &buffer[..len]
}

/// A buffer for [`notice`].
pub fn buffer() -> [u8; MESSAGE] {
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
            scope.spawn(move || {
                inherited.run(|ino| ino.0 % 2 == 0, |ino| unknown.lock().push(ino));
            });
            while unknown.lock().len() < 2 {
                std::thread::yield_now();
            }
            inherited.close();
        });
        assert_eq!(*unknown.lock(), [Ino(1), Ino(3)]);
        inherited.ask(Ino(5));
        inherited.run(|_| panic!("closed"), |_| ());
    }

    #[test]
    fn a_notice_fits() {
        let mut bytes = buffer();
        assert_eq!(notice(u64::MAX, true, &mut bytes).len(), 40);
        assert_eq!(notice(1, false, &mut bytes).len(), 40);
    }
}
