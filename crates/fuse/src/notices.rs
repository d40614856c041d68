//! Notices: cached entries that the kernel must forget, sent by two threads that do nothing else.
//!
//! The kernel knows the outcome of everything that it requests itself. Notices are for the rest: a
//! tree that is removed by one request (`ops/tree.rs`), whose top the kernel was not asked to
//! unlink, and data and attributes that change while they are read (`unread.rs`, `pages.rs`).
//!
//! *Why a thread.* To forget a name the kernel takes its directory's lock. A caller that creates or
//! looks up a name in that directory holds this lock and waits for a server's thread. If a server's
//! thread sent the notice, it would wait for those who wait for it. The thread here answers no
//! requests, so no holder of the lock waits for it, and it gets its turn.
//!
//! *Pages* of a file have a second thread, for the same reason: each has a lock that is held while
//! it is read, and the kernel writes a dirty one before it drops it. That takes a request for each,
//! so other notices must not wait for it.
//!
//! *Changes of trees* (by sessions) tell the kernel themselves, each thread of a change after
//! each of its steps ([`Notices::tell_all`]): it is no server's thread, it holds nothing then, and
//! hundreds of thousands of notices in the queue would hold up those that a reply waits for.
//!
//! *Waiting for it.* A handler may wait, for a limited time and on a thread that may block: others
//! serve meanwhile, so the lock is released. If all threads that may block are waiting, and the
//! lock's owner needs one, the limit ends it.

use crate::protocol::notify::Notification;
use parking_lot::{Condvar, Mutex, RwLock};
use shoal::raw::Ino;
use shoal::raw::limits::NAME_MAX;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Room for the longest message: two heads, a name and its end.
const MESSAGE_MAX: usize = 64 + NAME_MAX;

/// Length of the queue at which optional notices are dropped.
const SUGGESTED_MAX: usize = 4096;

/// A cached entry to be forgotten. Nodes are by the kernel's numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A name in a directory, and everything below it.
    Name {
        /// The directory.
        dir: u64,
        /// The name.
        name: Box<[u8]>,
        /// The name expires: it is looked up at its next use, and dropped then. Otherwise it is
        /// dropped now, with all cached names below it, which takes long for many.
        expire: bool,
    },
    /// The attributes of an inode.
    Attributes {
        /// The inode.
        node: u64,
    },
    /// The cached listing of a directory, and its attributes.
    Listing {
        /// The directory.
        node: u64,
    },
    /// A range of a file's data, and its attributes.
    Data {
        /// The file.
        node: u64,
        /// Start of the range, in bytes.
        at: u64,
        /// Bytes; 0: to the end of the file.
        len: u64,
    },
}

/// Sends one message to the kernel.
pub(crate) type Send = dyn Fn(&[u8]) + std::marker::Send + Sync;

/// Notices of one mount, and their delivery.
#[derive(Default)]
pub struct Notices {
    /// Names, listings and attributes.
    entries: Queue,
    /// Pages.
    pages: Queue,
    /// Sends messages that need not wait their turn; present while a thread delivers.
    send: RwLock<Option<Box<Send>>>,
    /// The kernel can let names expire.
    can_expire: AtomicBool,
}

/// Notices that one thread delivers, in order.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    /// Signals that there are notices to deliver, or that there will be no more.
    wake: Condvar,
    /// Signals that a notice was delivered.
    told: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Notice>,
    /// Number of notices given, ever.
    given: u64,
    /// Number of notices that the kernel has acted upon.
    done: u64,
    /// A thread delivers.
    open: bool,
}

impl Queue {
    fn give(&self, notices: impl IntoIterator<Item = Notice>, at_most: usize) -> Option<u64> {
        let mut state = self.state.lock();
        if state.queue.len() >= at_most {
            return None;
        }
        if state.open {
            let before = state.queue.len();
            state.queue.extend(notices);
            state.given += (state.queue.len() - before) as u64;
            self.wake.notify_one();
        }
        Some(state.given)
    }

    fn wait(&self, given: u64, at_most: Duration) -> bool {
        let end = Instant::now() + at_most;
        let mut state = self.state.lock();
        while state.done < given && state.open {
            if self.told.wait_until(&mut state, end).timed_out() {
                break;
            }
        }
        state.done >= given || !state.open
    }

    fn deliver(&self, send: &Send) {
        let mut state = self.state.lock();
        while state.open {
            let Some(notice) = state.queue.pop_front() else {
                self.wake.wait(&mut state);
                continue;
            };
            drop(state);
            deliver_one(&notice, send);
            state = self.state.lock();
            state.done += 1;
            self.told.notify_all();
        }
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.open = false;
        state.queue.clear();
        self.wake.notify_all();
        self.told.notify_all();
    }
}

impl Notices {
    /// Queues notices that are not about pages, in order. Without a thread that delivers, as before
    /// the beginning and after the end of a mount, the kernel has nothing to forget.
    ///
    /// Returns the number to pass to [`Notices::wait`].
    pub fn give(&self, notices: impl IntoIterator<Item = Notice>) -> u64 {
        self.entries.give(notices, usize::MAX).unwrap_or_default()
    }

    /// Queues an optional notice; `false`: it was dropped, because many wait.
    pub fn suggest(&self, notice: Notice) -> bool {
        self.entries.state.lock().open && self.entries.give([notice], SUGGESTED_MAX).is_some()
    }

    /// Waits until `given` notices have been acted upon; `false`: not in that time.
    pub fn wait(&self, given: u64, at_most: Duration) -> bool {
        self.entries.wait(given, at_most)
    }

    /// Has the kernel write and drop `len` bytes of the pages of a node from `at` (0: to the end).
    /// Returns the number to pass to [`Notices::wait_for_pages`].
    pub fn drop_pages(&self, node: u64, at: u64, len: u64) -> u64 {
        self.pages.give([Notice::Data { node, at, len }], usize::MAX).unwrap_or_default()
    }

    /// Waits until `given` notices about pages have been acted upon; `false`: not in that time. The
    /// caller's thread must not be one that answers READ and WRITE, for which the kernel may wait.
    pub fn wait_for_pages(&self, given: u64, at_most: Duration) -> bool {
        self.pages.wait(given, at_most)
    }

    /// Waits until the connection has ended; `false`: not in that time.
    pub fn wait_for_end(&self, at_most: Duration) -> bool {
        self.wait(u64::MAX, at_most)
    }

    /// Sends a notice about attributes at once, from any thread. The inode must be in use by the
    /// caller that waits for that thread's reply: the kernel would wait for an inode that is being
    /// evicted, and its eviction perhaps for this thread.
    pub fn tell(&self, notice: &Notice) {
        debug_assert!(matches!(notice, Notice::Attributes { .. }), "others take locks: {notice:?}");
        if let Some(send) = &*self.send.read() {
            deliver_one(notice, send);
        }
    }

    /// Sends notices about the attributes of many inodes, from a thread that no request waits for:
    /// the kernel may let it wait for an inode that is being evicted. On return it has acted upon
    /// them, and none of those that others wait for was behind them.
    pub fn tell_all(&self, nodes: impl IntoIterator<Item = u64>) {
        if let Some(send) = &*self.send.read() {
            nodes.into_iter().for_each(|node| deliver_one(&Notice::Attributes { node }, send));
        }
    }

    /// Sends notices, from a thread that no request waits for. On return the kernel has acted upon
    /// them.
    pub fn tell_each(&self, notices: &[Notice]) {
        if let Some(send) = &*self.send.read() {
            notices.iter().for_each(|notice| deliver_one(notice, send));
        }
    }

    /// Runs the thread that delivers notices, by its own `send`.
    pub fn deliver(&self, send: &Send) {
        self.entries.deliver(send);
    }

    /// Runs the thread that delivers those about pages, by its own `send`.
    pub fn deliver_pages(&self, send: &Send) {
        self.pages.deliver(send);
    }

    /// Begins delivery; `send` takes one message at a time, from any thread.
    pub fn open(&self, send: Box<Send>) {
        *self.send.write() = Some(send);
        self.entries.state.lock().open = true;
        self.pages.state.lock().open = true;
    }

    /// Returns the notices that have not been delivered.
    #[cfg(test)]
    pub fn waiting(&self) -> Vec<Notice> {
        self.entries.state.lock().queue.iter().cloned().collect()
    }

    /// Records that the kernel can let names expire.
    pub fn allow_expiry(&self) {
        self.can_expire.store(true, Ordering::Relaxed);
    }

    /// Returns whether the kernel can let names expire.
    pub fn can_expire(&self) -> bool {
        self.can_expire.load(Ordering::Relaxed)
    }

    /// Ends delivery with the connection.
    pub fn close(&self) {
        self.entries.close();
        self.pages.close();
        // Must not be kept open longer than the mount.
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
        // No directory has a name of that length.
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
        let send = || -> Box<Send> {
            let inner = codes.clone();
            Box::new(move |message| inner.lock().push((message[4], message[16])))
        };
        notices.open(send());
        let (inner, own) = (notices.clone(), send());
        let thread = thread::spawn(move || inner.deliver(&own));
        let name = Notice::Name { dir: 5, name: (*b"n").into(), expire: false };
        let given = notices.give([name, Notice::Attributes { node: 6 }]);
        assert!(notices.wait(given, Duration::from_secs(20)));
        notices.tell(&Notice::Attributes { node: 7 });
        notices.tell_all([8, 9]);
        let (inner, own) = (notices.clone(), send());
        let pages = thread::spawn(move || inner.deliver_pages(&own));
        let given = notices.drop_pages(12, 0, 1);
        assert!(notices.wait_for_pages(given, Duration::from_secs(20)));
        notices.close();
        let given = notices.drop_pages(13, 0, 1);
        assert!(notices.wait_for_pages(given, Duration::ZERO), "nobody to be told");
        pages.join().unwrap();
        notices.tell(&Notice::Attributes { node: 10 });
        notices.tell_all([11]);
        assert!(notices.wait(u64::MAX, Duration::from_secs(20)), "after the end nobody waits");
        thread.join().unwrap();
        assert_eq!(*codes.lock(), [(3, 5), (2, 6), (2, 7), (2, 8), (2, 9), (2, 12)]);
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
