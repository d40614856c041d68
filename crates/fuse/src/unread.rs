//! Attributes that the kernel may not have taken from our replies yet: how it never comes to keep
//! old ones. They are valid for ever, so what it keeps wrongly is wrong until the next change.
//!
//! The kernel notes a version of an inode's attributes when it asks for them, and drops an answer
//! if the inode has a newer version by then. But not all changes make a new version (Linux 6.18,
//! `fs/fuse/dir.c`), and one of them counts instead of asking:
//!
//! | what happens in the kernel | what it then kept | what we do |
//! | --- | --- | --- |
//! | A LOOKUP, GETATTR or READDIRPLUS brings a directory's attributes; before its caller has taken them, a creation or removal in that directory ends, which marks them as unknown (`fuse_dir_changed`) without a new version; then the caller takes them | size, links and times from before the change | [`Unread::changed`]: if somebody else was given attributes of what changes, an INVAL_INODE, which makes a new version, goes out between the change and its reply |
//! | the same with `setxattr`, `fallocate`, and the time of change of what a rename moves | mode (of an access control list), blocks, times | the same |
//! | A file loses one of its names; before the caller of UNLINK or RENAME has taken the reply, another brings the file's attributes, with the links that are left; then the first takes one off that (`fuse_entry_unlinked`) | one link too few: `link` says `ENOENT` to a file with one name left | [`Unread::is_losing`]: an INVAL_INODE goes out before the attributes, so that they are shown to who asks, but not kept |
//!
//! Why a notice between the two is right: who was given attributes before it has noted an older
//! version, and who asks after it is told of the change. The kernel handles INVAL_INODE without a
//! lock that anybody holds while waiting for us, and the inode that changes is in use by who
//! changes it, so a serving thread can send it. Where an inode need not be in use, as with the
//! links, it may be about to be evicted, which may wait for a request; then the thread that
//! delivers notices sends it ([`crate::notices`]), and the reply waits for a limited time.
//!
//! *When no notice is needed*, which is nearly always: a thread in the kernel has one request at a
//! time, so by its next one it has taken the reply to the last. Who alone was given attributes and
//! then makes the change has taken them. And after [`KEPT_MS`] a reply has been taken by whomever.
//!
//! Times of access are left out: they are kept roughly in any case.

use parking_lot::Mutex;
use shoal::Ino;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

/// After so many milliseconds a reply has been taken: its caller waits in the kernel, cannot be
/// stopped there, and has nothing to wait for.
const KEPT_MS: u64 = 10_000;
/// Inodes share a slot by the low bits of their numbers. A shared one costs superfluous notices:
/// for [`KEPT_MS`], one for each change.
const SLOTS: usize = 32_768;
/// Threads that have taken a name from a file with others, remembered at most.
const LOSING_MAX: usize = 256;

/// Bits of a [`Slot`]'s word: what identifies the inode, the thread, and the time.
const TAG_SHIFT: u32 = 48;
const TID_SHIFT: u32 = 26;
const TID_MASK: u64 = (1 << 22) - 1;
const TIME_MASK: u64 = (1 << 26) - 1;
/// Tag of a word about several inodes.
const SEVERAL: u64 = 0xffff;

#[derive(Default)]
struct Slot {
    /// To whom attributes were given last; 0: to nobody. A thread of 0: to several, or who knows.
    given: AtomicU64,
    /// When an inode of this slot was changed last, in nanoseconds.
    changed: AtomicU64,
}

/// A name that is being taken from a file that has others.
struct Loss {
    ino: Ino,
    tid: u32,
    at_ms: u64,
}

/// Who was given which attributes, and may not have taken them.
pub struct Unread {
    start: Instant,
    slots: Box<[Slot]>,
    losses: Mutex<Vec<Loss>>,
    /// How many there are, to be asked without the lock.
    losing: AtomicUsize,
}

impl Default for Unread {
    fn default() -> Unread {
        let slots = std::iter::repeat_with(Slot::default).take(SLOTS).collect();
        let (losses, losing) = (Mutex::default(), AtomicUsize::new(0));
        Unread { start: Instant::now(), slots, losses, losing }
    }
}

impl Unread {
    /// Nanoseconds of the clock of [`Unread::changed_since`].
    #[inline]
    pub fn now(&self) -> u64 {
        // Never 0, which is before everything.
        self.start.elapsed().as_nanos() as u64 + 1
    }

    /// Thread `tid` is about to be given attributes of `ino`, at `now`. To be called before they
    /// are read: a change after that is sure to find this.
    #[inline]
    pub fn give(&self, ino: Ino, tid: u32, now: u64) {
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

    /// Thread `tid` has changed attributes of `ino` and is not told the new ones. Whether the
    /// kernel must be told, before the reply, that those it has or is given are old.
    #[inline]
    #[must_use]
    pub fn changed(&self, ino: Ino, tid: u32) -> bool {
        let (slot, now) = (self.slot(ino), self.now());
        slot.changed.fetch_max(now, SeqCst);
        let old = slot.given.load(SeqCst);
        if old == 0 || is_over(old, now / 1_000_000) {
            return false;
        }
        match old >> TAG_SHIFT {
            SEVERAL => true,
            mine if mine == tag(ino) => {
                // A failure means that somebody was given attributes since: after the change.
                let _ = slot.given.compare_exchange(old, 0, SeqCst, SeqCst);
                tid == 0 || tid_of(old) != tid
            }
            _ => false,
        }
    }

    /// Whether `ino` may have been changed since `then`. Asked after [`Unread::give`] about
    /// attributes that were read before it.
    #[inline]
    pub fn changed_since(&self, ino: Ino, then: u64) -> bool {
        self.slot(ino).changed.load(SeqCst) >= then
    }

    /// Thread `tid` is about to take from `ino` a name that is not its only one.
    #[cold]
    pub fn lose(&self, ino: Ino, tid: u32) {
        let at_ms = self.now() / 1_000_000;
        let mut losses = self.losses.lock();
        // Its last loss has been taken note of: it goes on.
        losses.retain(|loss| loss.tid != tid && at_ms - loss.at_ms.min(at_ms) < KEPT_MS);
        if losses.len() == LOSING_MAX {
            losses.remove(0);
        }
        losses.push(Loss { ino, tid, at_ms });
        self.losing.store(losses.len(), SeqCst);
    }

    /// Whether somebody else than `tid` has taken, or is taking, a name from `ino`, and may not
    /// have been told so. Asked after the attributes were read.
    #[inline]
    pub fn is_losing(&self, ino: Ino, tid: u32) -> bool {
        self.losing.load(SeqCst) != 0 && self.find_loss(ino, tid)
    }

    #[cold]
    fn find_loss(&self, ino: Ino, tid: u32) -> bool {
        let now = self.now() / 1_000_000;
        let mut losses = self.losses.lock();
        losses.retain(|loss| now - loss.at_ms.min(now) < KEPT_MS);
        self.losing.store(losses.len(), SeqCst);
        losses.iter().any(|loss| loss.ino == ino && (loss.tid != tid || tid == 0))
    }

    #[inline]
    fn slot(&self, ino: Ino) -> &Slot {
        &self.slots[ino.0 as usize % SLOTS]
    }
}

/// What tells inodes of one slot apart, mostly: two of the same tag cost a superfluous notice.
#[inline]
fn tag(ino: Ino) -> u64 {
    let hash = (ino.0 / SLOTS as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    // Neither 0, so that a word in use is not, nor `SEVERAL`.
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

/// Whether what a word says is over, or it says nothing.
#[inline]
fn is_over(word: u64, now_ms: u64) -> bool {
    let age = now_ms.wrapping_sub(word) & TIME_MASK;
    // More than half of what there is: it is newer than the caller's `now`. (Or hours old, if
    // nobody has used the slot since, which costs one superfluous notice.)
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
        unread.lose(DIR, 1);
        assert!(unread.is_losing(DIR, 2) && !unread.is_losing(DIR, 1));
        assert!(!unread.is_losing(TWIN, 2));
        unread.lose(TWIN, 1);
        assert!(!unread.is_losing(DIR, 2) && unread.is_losing(TWIN, 2));
        (2..400).for_each(|tid| unread.lose(Ino(u64::from(tid) * 1000), tid));
        assert!(unread.losses.lock().len() == LOSING_MAX && !unread.is_losing(TWIN, 9999));
        assert!(unread.is_losing(Ino(399_000), 9999));
    }
}
