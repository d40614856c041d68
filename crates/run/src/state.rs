//! The library's switch, and the threads in which it must not act.
//!
//! It must not act while it acts already: the calls that it makes itself (its allocator's, its
//! sockets') go on to the C library, as do those of a signal handler that has interrupted it. Nor
//! may it act in any other signal handler, which may have interrupted the allocator: handlers are
//! known, as the program installs them through this library ([`handler`]).

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Environment: `off` switches the library off.
pub(crate) const SWITCH: &str = "SHOAL_RUN";
/// Environment: the file that counts are appended to when a program ends.
pub(crate) const STATISTICS: &str = "SHOAL_RUN_STATS";

const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

static SWITCHED: AtomicU8 = AtomicU8::new(UNKNOWN);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Signal handlers that this thread is in.
    static HANDLERS: Cell<u32> = const { Cell::new(0) };
    /// Address on the stack of the first of them.
    static FRAME: Cell<usize> = const { Cell::new(0) };
    /// Signals that have come while the library acted, a bit for each: their handlers run after it.
    static PENDING: Cell<u64> = const { Cell::new(0) };
}

/// As long as it lives, the calls of this thread go on to the C library.
#[derive(Debug)]
pub(crate) struct Inside(());

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
        if PENDING.get() != 0 {
            raise_pending();
        }
    }
}

#[cold]
fn raise_pending() {
    // A handler may never return: what has not been raised stays.
    while let pending @ 1.. = PENDING.get() {
        PENDING.set(pending & (pending - 1));
        crate::kernel::raise(pending.trailing_zeros() as i32);
    }
}

/// Returns whether this thread is in a signal handler. One that was left by `longjmp` is seen by
/// the stack, which is shorter than it was there.
#[inline]
fn is_in_handler() -> bool {
    if HANDLERS.get() == 0 {
        return false;
    }
    let here = 0u8;
    let left = (&raw const here).addr() > FRAME.get();
    if left {
        HANDLERS.set(0);
    }
    !left
}

/// Lets the library act; `None` if it must not.
#[inline]
pub(crate) fn enter() -> Option<Inside> {
    if SWITCHED.load(Ordering::Relaxed) == OFF || INSIDE.get() || is_in_handler() {
        return None;
    }
    INSIDE.set(true);
    if SWITCHED.load(Ordering::Relaxed) == UNKNOWN {
        let off = std::env::var_os(SWITCH).is_none_or(|value| value == "off");
        SWITCHED.store(if off { OFF } else { ON }, Ordering::Relaxed);
        if off {
            INSIDE.set(false);
            return None;
        }
    }
    Some(Inside(()))
}

/// Returns whether the library acts in this thread, or a signal handler has interrupted whatever
/// ran: nothing may be allocated or freed.
#[inline]
pub(crate) fn is_interrupted() -> bool {
    is_in_handler()
}

/// Returns whether the calls of this thread are the library's own.
#[inline]
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Returns whether the library is on in this program.
pub(crate) fn is_on() -> bool {
    drop(enter());
    SWITCHED.load(Ordering::Relaxed) == ON
}

/// Switches the library off for the rest of this program.
pub(crate) fn switch_off() {
    SWITCHED.store(OFF, Ordering::Relaxed);
}

/// Marks that this thread runs a signal handler.
#[derive(Debug)]
pub(crate) struct Handler(());

impl Drop for Handler {
    fn drop(&mut self) {
        HANDLERS.set(HANDLERS.get().saturating_sub(1));
    }
}

/// Begins a signal handler; `None`: the library acts in this thread, and the handler must run when
/// it has done that, as it may never return, or make calls that wait for what is locked. `frame`:
/// an address on the stack above all of the handler's.
pub(crate) fn handler(signal: i32, frame: usize) -> Option<Handler> {
    let is_own = !matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL);
    if INSIDE.get() && is_own && (1..64).contains(&signal) {
        PENDING.set(PENDING.get() | 1 << signal);
        return None;
    }
    if !is_in_handler() {
        FRAME.set(frame);
    }
    HANDLERS.set(HANDLERS.get() + 1);
    Some(Handler(()))
}

/// Calls by a session, and calls that concerned a volume and went to the kernel, by what they do.
macro_rules! counted {
    ($($name:ident)*) => {
        /// Kinds of calls that are counted.
        #[allow(non_camel_case_types, reason = "named as the C library's functions")]
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Counted { $($name,)* }
        const NAMES: &[&str] = &[$(stringify!($name),)*];
    };
}

counted! {
    open close stat statx access read write seek sync size allocate copy list
    mkdir mknod symlink link unlink rename readlink chmod chown times xattr settle
}

static BY_SESSION: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];
static BY_KERNEL: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// Counts a call.
#[inline]
pub(crate) fn count(what: Counted, by_session: bool) {
    let counts = if by_session { &BY_SESSION } else { &BY_KERNEL };
    counts[what as usize].fetch_add(1, Ordering::Relaxed);
}

/// The counts of this program so far, a line for each kind of call, as they are appended to the
/// file of `--stats`; and begins to count anew.
pub(crate) fn take_counts() -> String {
    let mut lines = String::new();
    for (at, name) in NAMES.iter().enumerate() {
        let take = |counts: &[AtomicU64]| counts[at].swap(0, Ordering::Relaxed);
        let (session, kernel) = (take(&BY_SESSION), take(&BY_KERNEL));
        if session + kernel > 0 {
            lines.push_str(&format!("{name} {session} {kernel}\n"));
        }
    }
    lines
}
