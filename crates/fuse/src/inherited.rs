//! Things that the kernel still keeps from the time of a server before this one.
//!
//! *Unlinked inodes.* The kernel may have some open, or know them otherwise, and only the dead
//! server has counted that. So each is kept until the kernel has been asked: a notice about an
//! inode's attributes is refused with `ENOENT` if it does not know the inode. It is asked about
//! each orphan at the start, and about each inode that is unlinked later, or that it drops.
//!
//! An orphan at the start may be a file without a name (`O_TMPFILE`) whose maker has been answered
//! by the dead server, and has not run since: the kernel learns of the inode when it does. So what
//! it does not know at the start is asked about once more, after [`GRACE`].
//!
//! *Attributes and listings.* The dead server may have owed the kernel a notice of a change that it
//! had made. So the kernel forgets the attributes of all inodes in the last records.
//!
//! A thread of its own talks to the kernel, which may let it wait for an inode that is being
//! evicted ([`crate::transport`], `apart.rs`). Another one frees what is not in use.

use crate::protocol::notify::Notification;
use parking_lot::{Condvar, Mutex};
use shoal::raw::Ino;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// Room for a notice about an inode.
const MESSAGE: usize = 64;

/// Time in which the maker of a file runs that has been answered.
const GRACE: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 10 });

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
    /// Orphans at the start are being queued.
    begins: bool,
    /// Orphans at the start that were not known: each is asked about again at a time.
    again: VecDeque<(Instant, Ino)>,
    /// Orphans at the start that have not been asked about.
    first: HashSet<Ino>,
    /// Answers that somebody waits for.
    waiting: HashMap<Ino, Option<bool>>,
    closed: bool,
}

impl Inherited {
    /// Queues the orphans at the start, which `ask` does.
    pub(crate) fn begin(&self, ask: impl FnOnce()) {
        self.state.lock().begins = true;
        ask();
        self.state.lock().begins = false;
    }

    /// Queues an unlinked inode.
    pub(crate) fn ask(&self, ino: Ino) {
        let mut state = self.state.lock();
        if !state.closed {
            if state.begins {
                state.first.insert(ino);
            }
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
        state.again.clear();
        state.first.clear();
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
            let due = state.again.front().copied();
            let ino = match (state.queue.pop_front(), due) {
                (Some(ino), _) => ino,
                (None, None) => {
                    self.wake.wait(&mut state);
                    continue;
                }
                (None, Some((at, _))) if at > Instant::now() => {
                    self.wake.wait_until(&mut state, at);
                    continue;
                }
                (None, Some((_, ino))) => {
                    state.again.pop_front();
                    ino
                }
            };
            let is_first = state.first.remove(&ino);
            drop(state);
            let known = knows(ino);
            state = self.state.lock();
            if let Some(answer) = state.waiting.get_mut(&ino) {
                *answer = Some(known);
            } else if !known && !state.closed {
                match is_first {
                    true => state.again.push_back((Instant::now() + GRACE, ino)),
                    false => state.unknown.push_back(ino),
                }
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

    /// The maker of a file without a name had its answer, and has not run yet.
    #[test]
    fn orphans_at_the_start_are_asked_about_twice() {
        let inherited = Arc::new(Inherited::default());
        inherited.begin(|| [7, 9].into_iter().for_each(|n| inherited.ask(Ino(n))));
        let (asked, freed) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let (inherited, asked, freed) = (&inherited, &asked, &freed);
            let knows = move |ino: Ino| {
                let mut asked = asked.lock();
                asked.push(ino);
                // By the second time its maker has run.
                ino == Ino(7) && asked.iter().filter(|it| **it == ino).count() == 2
            };
            scope.spawn(move || inherited.run(knows));
            scope.spawn(move || inherited.free_unknown(|ino| freed.lock().push(ino)));
            while asked.lock().len() < 4 || freed.lock().is_empty() {
                std::thread::yield_now();
            }
            // One that is unlinked later is asked about once.
            inherited.ask(Ino(11));
            while freed.lock().len() < 2 {
                std::thread::yield_now();
            }
            inherited.close();
        });
        assert_eq!(*asked.lock(), [7, 9, 7, 9, 11].map(Ino));
        assert_eq!(*freed.lock(), [9, 11].map(Ino));
    }

    #[test]
    fn a_notice_fits() {
        let mut bytes = buffer();
        assert_eq!(notice(u64::MAX, true, &mut bytes).len(), 40);
        assert_eq!(notice(1, false, &mut bytes).len(), 40);
    }
}
