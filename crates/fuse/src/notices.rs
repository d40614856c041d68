//! What the kernel has cached and must forget: told to it by one thread, which does nothing else.
//!
//! Of everything that the kernel asks for itself it knows the outcome. What is left: a tree that
//! goes by one request (`ops/tree.rs`), whose top's name the kernel was not asked to take; what it
//! reads while it changes (`unread.rs`, `pages.rs`).
//!
//! *Why a thread.* To forget a name the kernel takes its directory's lock. Who creates or looks up
//! a name in that directory has this lock and waits for a server's thread. If a server's thread
//! told the kernel, it would wait for those who wait for it. The thread here answers no requests,
//! so nobody who has the lock waits for it, and it gets its turn. It is the same with pages of a
//! file, each of which has a lock that is held while it is read.
//!
//! *Who waits for it.* A handler may, for a limited time and on a thread that may block: others
//! serve meanwhile, so the lock comes free. Should all threads that may block be waiting, and the
//! lock's owner need one, the limit ends it.

use crate::protocol::notify::Notification;
use parking_lot::{Condvar, Mutex, RwLock};
use shoal::Ino;
use shoal::limits::NAME_MAX;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Room for the longest message: two heads, a name and its end.
const MESSAGE_MAX: usize = 64 + NAME_MAX;

/// Notices that wait, at most, when one that may be left out is added.
const SUGGESTED_MAX: usize = 4096;

/// Something to be forgotten. Nodes are by the numbers that the kernel has for them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A name in a directory, and what was found below it.
    Name {
        /// The directory.
        dir: u64,
        /// The name.
        name: Box<[u8]>,
        /// It is asked for at its next use, and dropped then. Otherwise it is dropped now, with
        /// all cached names below it, which takes long for many.
        expire: bool,
    },
    /// The attributes of an inode.
    Attributes {
        /// The inode.
        node: u64,
    },
    /// The names in a directory, as far as they are kept as a list, and its attributes.
    Listing {
        /// The directory.
        node: u64,
    },
    /// A range of a file's data, and its attributes.
    Data {
        /// The file.
        node: u64,
        /// Where the range begins.
        at: u64,
        /// Bytes; not 0.
        len: u64,
    },
}

/// Sends one message to the kernel.
pub type Send = dyn Fn(&[u8]) + std::marker::Send + Sync;

/// What one mount has to tell the kernel.
#[derive(Default)]
pub struct Notices {
    state: Mutex<State>,
    /// There is something to tell, or no more.
    wake: Condvar,
    /// Something has been told.
    told: Condvar,
    /// For what need not wait its turn; there while somebody delivers.
    send: RwLock<Option<Box<Send>>>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Notice>,
    /// How many have been given, ever.
    given: u64,
    /// How many of them the kernel has acted upon.
    done: u64,
    /// Somebody delivers.
    open: bool,
    /// The kernel can let names expire.
    can_expire: bool,
}

impl Notices {
    /// Gives notices to be delivered, in order. Without a thread that delivers, as before the
    /// beginning and after the end of a mount, the kernel has nothing to forget.
    ///
    /// Returns what [`Notices::wait`] is to wait for.
    pub fn give(&self, notices: impl IntoIterator<Item = Notice>) -> u64 {
        let mut state = self.state.lock();
        if state.open {
            let before = state.queue.len();
            state.queue.extend(notices);
            state.given += (state.queue.len() - before) as u64;
            self.wake.notify_one();
        }
        state.given
    }

    /// Gives a notice that may be left out, and is where many others wait: then `false`.
    pub fn suggest(&self, notice: Notice) -> bool {
        let mut state = self.state.lock();
        let taken = state.open && state.queue.len() < SUGGESTED_MAX;
        if taken {
            state.queue.push_back(notice);
            state.given += 1;
            self.wake.notify_one();
        }
        taken
    }

    /// Waits until so many have been acted upon; `false`: not in that time.
    pub fn wait(&self, given: u64, at_most: Duration) -> bool {
        let end = Instant::now() + at_most;
        let mut state = self.state.lock();
        while state.done < given && state.open {
            if self.told.wait_until(&mut state, end).timed_out() {
                break;
            }
        }
        state.done >= given || !state.open
    }

    /// Waits until the connection has ended; `false`: not in that time.
    pub fn wait_for_end(&self, at_most: Duration) -> bool {
        self.wait(u64::MAX, at_most)
    }

    /// Tells the kernel of attributes at once, from whichever thread. Only of an inode that is in
    /// use by who waits for that thread's reply: one that is being evicted the kernel would wait
    /// for, and its eviction perhaps for this thread.
    pub fn tell(&self, notice: &Notice) {
        debug_assert!(matches!(notice, Notice::Attributes { .. }), "others take locks: {notice:?}");
        if let Some(send) = &*self.send.read() {
            deliver_one(notice, send);
        }
    }

    /// Life of the thread that delivers.
    pub fn deliver(&self) {
        let mut state = self.state.lock();
        while state.open {
            let Some(notice) = state.queue.pop_front() else {
                self.wake.wait(&mut state);
                continue;
            };
            drop(state);
            if let Some(send) = &*self.send.read() {
                deliver_one(&notice, send);
            }
            state = self.state.lock();
            state.done += 1;
            self.told.notify_all();
        }
    }

    /// A thread is about to deliver; `send` takes one message at a time, from any thread.
    pub fn open(&self, send: Box<Send>) {
        *self.send.write() = Some(send);
        self.state.lock().open = true;
    }

    /// What has not been delivered.
    #[cfg(test)]
    pub fn waiting(&self) -> Vec<Notice> {
        self.state.lock().queue.iter().cloned().collect()
    }

    /// Says that the kernel can let names expire.
    pub fn allow_expiry(&self) {
        self.state.lock().can_expire = true;
    }

    /// Returns whether the kernel can let names expire.
    pub fn can_expire(&self) -> bool {
        self.state.lock().can_expire
    }

    /// The connection has ended.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.open = false;
        state.queue.clear();
        self.wake.notify_all();
        self.told.notify_all();
        drop(state);
        // Not kept open longer than the mount.
        *self.send.write() = None;
    }
}

fn deliver_one(notice: &Notice, send: &Send) {
    let message = match notice {
        Notice::Name { dir, name, expire } => {
            Notification::InvalEntry { parent: Ino(*dir), name, expire: *expire }
        }
        Notice::Attributes { node } => Notification::InvalInode { ino: Ino(*node), range: None },
        Notice::Listing { node } => {
            Notification::InvalInode { ino: Ino(*node), range: Some((0, 0)) }
        }
        Notice::Data { node, at, len } => {
            Notification::InvalInode { ino: Ino(*node), range: Some((*at, *len)) }
        }
    };
    let mut buffer = [0; MESSAGE_MAX];
    match message.encode(&mut buffer) {
        Ok(len) => send(&buffer[..len]),
        // A name as long as no directory has it.
        Err(_) => tracing::error!(?notice, "notice too long"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn delivered_in_order_and_waited_for() {
        let notices = Arc::new(Notices::default());
        let early = notices.give([Notice::Attributes { node: 1 }]);
        assert!(notices.wait(early, Duration::ZERO), "nobody to be told");
        let codes = Arc::new(Mutex::new(Vec::new()));
        let inner = codes.clone();
        notices.open(Box::new(move |message| inner.lock().push((message[4], message[16]))));
        let inner = notices.clone();
        let thread = thread::spawn(move || inner.deliver());
        let name = Notice::Name { dir: 5, name: (*b"n").into(), expire: false };
        let given = notices.give([name, Notice::Attributes { node: 6 }]);
        assert!(notices.wait(given, Duration::from_secs(20)));
        notices.tell(&Notice::Attributes { node: 7 });
        notices.close();
        notices.tell(&Notice::Attributes { node: 8 });
        assert!(notices.wait(u64::MAX, Duration::from_secs(20)), "after the end nobody waits");
        thread.join().unwrap();
        assert_eq!(*codes.lock(), [(3, 5), (2, 6), (2, 7)]);
    }

    #[test]
    fn waiting_has_an_end() {
        let notices = Notices::default();
        notices.open(Box::new(|_| ()));
        let given = notices.give([Notice::Attributes { node: 1 }]);
        assert!(!notices.wait(given, Duration::from_millis(1)));
    }

    #[test]
    fn the_longest_name_fits() {
        let name = vec![b'x'; NAME_MAX].into();
        let length = Mutex::new(0);
        let notice = Notice::Name { dir: 1, name, expire: true };
        let sent = Arc::new(length);
        let inner = sent.clone();
        deliver_one(&notice, &*Box::new(move |message: &[u8]| *inner.lock() = message.len()));
        assert_eq!(*sent.lock(), 16 + 16 + NAME_MAX + 1);
    }
}
