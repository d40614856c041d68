//! Attributes in replies that the kernel may not have taken yet: it must never keep old ones. They
//! are valid for ever, so a wrong one stays wrong until the next change.
//!
//! The kernel records a version of an inode's attributes when it asks for them, and drops an answer
//! if the inode has a newer version by then. But not all changes make a new version (Linux 6.18,
//! `fs/fuse/dir.c`), and one of them counts instead of asking:
//! | events in the kernel | attributes that it then kept | action here |
//! | --- | --- | --- |
//! | A LOOKUP, GETATTR or READDIRPLUS brings a directory's attributes; before its caller has taken them, a creation or removal in that directory ends, which marks them as unknown (`fuse_dir_changed`) without a new version; then the caller takes them | size, links and times from before the change | [`Unread::changed`]: if another thread was given attributes of the changed inode, an INVAL_INODE, which makes a new version, goes out between the change and its reply |
//! | the same with `setxattr`, `fallocate`, and the time of change of a renamed file | mode (of an access control list), blocks, times | the same |
//! | A file loses one of its names; before the caller of UNLINK or RENAME has taken the reply, another request brings the file's attributes, with the remaining link count; then the first takes one off that (`fuse_entry_unlinked`) | one link too few: `link` fails with `ENOENT` for a file with one name left | [`Unread::is_losing`]: an INVAL_INODE goes out before the attributes, so that their caller sees them, but they are not kept |
//!
//! The notice between the two is right: a caller that was given attributes before it has recorded
//! an older version, and one that asks after it is told of the change. The kernel handles
//! INVAL_INODE without a lock that anybody holds while waiting for the server, and the changed
//! inode is in use by the caller that changes it, so a serving thread can send the notice. Where an
//! inode need not be in use, as with the links, it may be about to be evicted, which may wait for a
//! request; then the thread that delivers notices sends it ([`crate::notices`]), and the reply
//! waits for a limited time.
//!
//! *Beside sessions* attributes that are not kept are not enough. The kernel reads a file up to the
//! size that it has kept, and checks the permissions that it has kept: after a change by a session
//! ([`crate::doors`]) it must be able to keep new ones, and a name that was taken from the file
//! some seconds ago must not prevent that. So GETATTR waits until the thread that takes the name is
//! done with it ([`Unread::losses`]). That thread has the directory locked; a notice about any name
//! in the directory takes the same lock, and so has been acted upon after that. LOOKUP and
//! READDIRPLUS may come from a caller that has the directory locked itself: they do as before. The
//! attributes in the reply to LINK are taken whatever version the kernel has by then: after a
//! change by a session, a notice waits in the same way for links that are being made, before the
//! kernel is told ([`Unread::links`]).
//!
//! *When no notice is needed*, which is nearly always: a thread in the kernel has one request at a
//! time, so by its next one it has taken the reply to the last. If the thread that makes the change
//! is the only one that was given attributes, it has taken them. And after [`KEPT_MS`] every reply
//! has been taken.
//!
//! Times of access are left out: they are kept roughly in any case.

use parking_lot::Mutex;
use shoal::raw::Ino;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

/// Milliseconds after which a reply has been taken: its caller waits in the kernel, cannot be
/// stopped there, and has nothing to wait for.
const KEPT_MS: u64 = 10_000;
/// Inodes share a slot by the low bits of their numbers. A shared one costs superfluous notices:
/// for [`KEPT_MS`], one for each change.
const SLOTS: usize = 32_768;
/// Most entries of the list of threads that have taken a name from a file with others.
const LOSING_MAX: usize = 256;

/// Bits of a [`Slot`]'s word: identity of the inode, the thread, and the time.
const TAG_SHIFT: u32 = 48;
const TID_SHIFT: u32 = 26;
const TID_MASK: u64 = (1 << 22) - 1;
const TIME_MASK: u64 = (1 << 26) - 1;
/// Tag of a word about several inodes.
const SEVERAL: u64 = 0xffff;

#[derive(Default)]
struct Slot {
    /// Thread that was given attributes last; 0: none. A thread of 0: several, or unknown.
    given: AtomicU64,
    /// Time of the last change of an inode of this slot, in nanoseconds.
    changed: AtomicU64,
}

/// A name that is being taken from a file with others, or given to a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    /// The directory that the name is in.
    pub dir: Ino,
    ino: Ino,
    tid: u32,
    at_ms: u64,
    /// Number of this loss.
    nth: u64,
    /// It is given.
    is_link: bool,
}

impl Loss {
    /// Returns whether another thread than `tid` takes the name from `ino`.
    fn takes_from(&self, ino: Ino, tid: u32) -> bool {
        !self.is_link && self.ino == ino && (self.tid != tid || tid == 0)
    }
}

/// Threads that were given attributes and may not have taken them, by inode.
pub(crate) struct Unread {
    start: Instant,
    slots: Box<[Slot]>,
    losses: Mutex<Vec<Loss>>,
    /// Number of losses, to be read without the lock.
    losing: AtomicUsize,
    /// Number of losses, ever.
    lost: AtomicU64,
    /// A session has changed something.
    beside: AtomicBool,
    /// Time until which replies of a server before this one may not have been taken, in
    /// nanoseconds; 0: there was none.
    inherited: AtomicU64,
}

impl Default for Unread {
    fn default() -> Unread {
        let slots = std::iter::repeat_with(Slot::default).take(SLOTS).collect();
        Unread {
            start: Instant::now(),
            slots,
            losses: Mutex::default(),
            losing: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            beside: AtomicBool::new(false),
            inherited: AtomicU64::new(0),
        }
    }
}

impl Unread {
    /// Takes all attributes for given, to somebody: by a server before this one.
    pub(crate) fn inherit(&self) {
        self.inherited.store(self.now() + KEPT_MS * 1_000_000, SeqCst);
        self.beside.store(true, SeqCst);
    }

    /// Records that a session has changed attributes of `ino`.
    #[inline]
    pub(crate) fn changed_beside(&self, ino: Ino) {
        if !self.beside.load(SeqCst) {
            self.beside.store(true, SeqCst);
        }
        // The notice is another's.
        let _ = self.changed(ino, 0);
    }

    /// Returns whether sessions have changed anything.
    #[inline]
    pub(crate) fn is_beside(&self) -> bool {
        self.beside.load(SeqCst)
    }

    /// Returns the time for [`Unread::changed_since`], in nanoseconds.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        // Never 0, which is before everything.
        self.start.elapsed().as_nanos() as u64 + 1
    }

    /// Records that thread `tid` is about to be given attributes of `ino`, at `now`. Must be called
    /// before they are read: a change after it is sure to see the record.
    #[inline]
    pub(crate) fn give(&self, ino: Ino, tid: u32, now: u64) {
        let given = &self.slot(ino).given;
        let (tag, now) = (tag(ino), now / 1_000_000);
        let mut old = given.load(SeqCst);
        loop {
            let new = match () {
                () if is_over(old, now) => pack(tag, tid, now),
                () if old >> TAG_SHIFT != tag => pack(SEVERAL, 0, now),
                () if tid_of(old) != tid => pack(tag, 0, now),
                () => pack(tag, tid, now),
            };
            match given.compare_exchange(old, new, SeqCst, SeqCst) {
                Ok(_) => return,
                Err(other) => old = other,
            }
        }
    }

    /// Records that thread `tid` has changed attributes of `ino` and is not told the new ones.
    /// Returns whether the kernel must be told, before the reply, that those it has or is given are
    /// old.
    #[inline]
    #[must_use]
    pub(crate) fn changed(&self, ino: Ino, tid: u32) -> bool {
        let (slot, now) = (self.slot(ino), self.now());
        slot.changed.fetch_max(now, SeqCst);
        if now < self.inherited.load(SeqCst) {
            return true;
        }
        let old = slot.given.load(SeqCst);
        if old == 0 || is_over(old, now / 1_000_000) {
            return false;
        }
        match old >> TAG_SHIFT {
            SEVERAL => true,
            mine if mine == tag(ino) => {
                // A failure means that attributes were given since: after the change.
                let _ = slot.given.compare_exchange(old, 0, SeqCst, SeqCst);
                tid == 0 || tid_of(old) != tid
            }
            _ => false,
        }
    }

    /// Returns whether `ino` may have been changed since `then`. Must be called after
    /// [`Unread::give`], about attributes that were read before it.
    #[inline]
    pub(crate) fn changed_since(&self, ino: Ino, then: u64) -> bool {
        self.slot(ino).changed.load(SeqCst) >= then
    }

    /// Records that thread `tid` is about to take from `ino` a name in `dir` that is not its only
    /// one.
    #[cold]
    pub(crate) fn lose(&self, ino: Ino, dir: Ino, tid: u32) {
        self.record(ino, dir, tid, false);
    }

    /// Records that thread `tid` is about to give `ino` a name in `dir`. Must be called before the
    /// attributes for the reply are read: the kernel takes them, whatever version it has by then.
    #[cold]
    pub(crate) fn link(&self, ino: Ino, dir: Ino, tid: u32) {
        self.record(ino, dir, tid, true);
    }

    fn record(&self, ino: Ino, dir: Ino, tid: u32, is_link: bool) {
        let at_ms = self.now() / 1_000_000;
        let mut losses = self.losses.lock();
        // The thread has taken its last reply: it goes on.
        losses.retain(|loss| loss.tid != tid && at_ms - loss.at_ms.min(at_ms) < KEPT_MS);
        if losses.len() == LOSING_MAX {
            losses.remove(0);
        }
        let nth = self.lost.fetch_add(1, SeqCst);
        losses.push(Loss { dir, ino, tid, at_ms, nth, is_link });
        self.losing.store(losses.len(), SeqCst);
    }

    /// Returns whether another thread than `tid` has taken, or is taking, a name from `ino`, and
    /// may not have seen the reply. Must be called after the attributes were read.
    #[inline]
    pub(crate) fn is_losing(&self, ino: Ino, tid: u32) -> bool {
        self.losing.load(SeqCst) != 0 && self.find_loss(ino, tid)
    }

    #[cold]
    fn find_loss(&self, ino: Ino, tid: u32) -> bool {
        let now = self.now() / 1_000_000;
        let mut losses = self.losses.lock();
        losses.retain(|loss| now - loss.at_ms.min(now) < KEPT_MS);
        self.losing.store(losses.len(), SeqCst);
        losses.iter().any(|loss| loss.takes_from(ino, tid))
    }

    /// Returns the names that other threads than `tid` have taken, or are taking, from `ino`, if
    /// the kernel must be able to keep its attributes: a session has changed something.
    #[inline]
    pub(crate) fn losses(&self, ino: Ino, tid: u32) -> Vec<Loss> {
        match self.beside.load(SeqCst) && self.is_losing(ino, tid) {
            true => {
                let losses = self.losses.lock();
                losses.iter().filter(|loss| loss.takes_from(ino, tid)).copied().collect()
            }
            false => Vec::new(),
        }
    }

    /// Returns the directories in which `ino` is being given names. Must be called after a change,
    /// of which the kernel is told when it is done with them.
    #[inline]
    pub(crate) fn links(&self, ino: Ino) -> Vec<Ino> {
        if self.losing.load(SeqCst) == 0 {
            return Vec::new();
        }
        let losses = self.losses.lock();
        let links = losses.iter().filter(|loss| loss.is_link && loss.ino == ino);
        links.map(|loss| loss.dir).collect()
    }

    /// Records that the thread which took a name has seen the reply.
    pub(crate) fn has_lost(&self, loss: &Loss) {
        let mut losses = self.losses.lock();
        losses.retain(|other| other.nth != loss.nth);
        self.losing.store(losses.len(), SeqCst);
    }

    #[inline]
    fn slot(&self, ino: Ino) -> &Slot {
        &self.slots[ino.0 as usize % SLOTS]
    }
}

/// Returns bits that tell inodes of one slot apart; two of the same tag cost a superfluous notice.
#[inline]
fn tag(ino: Ino) -> u64 {
    let hash = (ino.0 / SLOTS as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    // Never 0, which marks a free word, nor `SEVERAL`.
    0x8000 + hash % 0x7fff
}

#[inline]
fn pack(tag: u64, tid: u32, ms: u64) -> u64 {
    tag << TAG_SHIFT | (u64::from(tid) & TID_MASK) << TID_SHIFT | (ms & TIME_MASK)
}

#[inline]
fn tid_of(word: u64) -> u32 {
    (word >> TID_SHIFT & TID_MASK) as u32
}

/// Returns whether a word is free or its record has expired.
#[inline]
fn is_over(word: u64, now_ms: u64) -> bool {
    let age = now_ms.wrapping_sub(word) & TIME_MASK;
    // More than half of the range: it is newer than the caller's `now`. (Or hours old, if nobody
    // has used the slot since, which costs one superfluous notice.)
    word == 0 || age > KEPT_MS && age <= TIME_MASK / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(77);
    /// Same slot, another inode.
    const TWIN: Ino = Ino(77 + SLOTS as u64);

    #[test]
    fn only_others_replies_need_a_notice() {
        let unread = Unread::default();
        assert!(!unread.changed(DIR, 1), "given to nobody");
        unread.give(DIR, 1, unread.now());
        assert!(!unread.changed(DIR, 1), "who changes it has taken it");
        assert!(!unread.changed(DIR, 2), "and nothing was given since");
        unread.give(DIR, 1, unread.now());
        assert!(unread.changed(DIR, 2));
        assert!(!unread.changed(DIR, 2), "told once");
        unread.give(DIR, 1, unread.now());
        unread.give(DIR, 2, unread.now());
        assert!(unread.changed(DIR, 2), "given to two");
        unread.give(DIR, 0, unread.now());
        assert!(unread.changed(DIR, 0), "who knows whom");
    }

    #[test]
    fn inodes_of_one_slot_do_not_hide_each_other() {
        let unread = Unread::default();
        assert_ne!(tag(DIR), tag(TWIN));
        unread.give(TWIN, 1, unread.now());
        assert!(!unread.changed(DIR, 2));
        unread.give(DIR, 1, unread.now());
        assert!(unread.changed(DIR, 1), "superfluous");
        assert!(unread.changed(TWIN, 2) && unread.changed(DIR, 2), "both, still");
    }

    #[test]
    fn replies_are_taken_in_time() {
        let unread = Unread::default();
        unread.give(DIR, 1, 1);
        let (word, late) = (unread.slot(DIR).given.load(SeqCst), KEPT_MS + 2);
        assert!(!is_over(word, KEPT_MS) && is_over(word, late));
        unread.give(TWIN, 2, late * 1_000_000);
        let word = unread.slot(DIR).given.load(SeqCst);
        assert_eq!((word >> TAG_SHIFT, tid_of(word)), (tag(TWIN), 2), "the old one made room");
        // The clock's bits come round.
        let word = pack(tag(DIR), 1, TIME_MASK);
        assert!(!is_over(word, TIME_MASK + 5) && is_over(word, TIME_MASK + late));
        assert!(!is_over(word, TIME_MASK - 5), "from a listing that began before");
    }

    #[test]
    fn listings_see_what_changed_meanwhile() {
        let unread = Unread::default();
        assert!(!unread.changed(DIR, 1));
        let then = unread.now() + 1;
        assert!(!unread.changed_since(DIR, then));
        while unread.now() < then {}
        assert!(!unread.changed(DIR, 1));
        assert!(unread.changed_since(DIR, then) && !unread.changed_since(Ino(78), then));
    }

    #[test]
    fn losses_last_until_their_thread_goes_on() {
        let unread = Unread::default();
        unread.lose(DIR, Ino(2), 1);
        assert!(unread.is_losing(DIR, 2) && !unread.is_losing(DIR, 1));
        assert!(!unread.is_losing(TWIN, 2));
        unread.lose(TWIN, Ino(2), 1);
        assert!(!unread.is_losing(DIR, 2) && unread.is_losing(TWIN, 2));
        (2..400).for_each(|tid| unread.lose(Ino(u64::from(tid) * 1000), Ino(2), tid));
        assert!(unread.losses.lock().len() == LOSING_MAX && !unread.is_losing(TWIN, 9999));
        assert!(unread.is_losing(Ino(399_000), 9999));
    }

    #[test]
    fn losses_are_waited_for_beside_sessions() {
        let unread = Unread::default();
        unread.lose(DIR, Ino(2), 1);
        assert!(unread.losses(DIR, 2).is_empty(), "the kernel knows every size by itself");
        unread.changed_beside(TWIN);
        assert!(unread.losses(DIR, 1).is_empty() && unread.losses(TWIN, 2).is_empty());
        let losses = unread.losses(DIR, 2);
        assert_eq!(losses.iter().map(|loss| loss.dir).collect::<Vec<_>>(), [Ino(2)]);
        // The same name, made again and taken again.
        unread.lose(DIR, Ino(2), 1);
        unread.has_lost(&losses[0]);
        assert!(unread.is_losing(DIR, 2), "the later one");
        unread.losses(DIR, 2).iter().for_each(|loss| unread.has_lost(loss));
        assert!(!unread.is_losing(DIR, 2));
        unread.link(DIR, Ino(3), 1);
        assert!(!unread.is_losing(DIR, 2) && unread.losses(DIR, 2).is_empty());
        assert_eq!((unread.links(DIR), unread.links(TWIN)), (vec![Ino(3)], vec![]));
    }
}
