//! Checks of our own code that stay in what users run.
//!
//! A broken invariant is a fault of Shoal's, or of the memory it runs in, and what follows from it
//! must not reach the device. So the check is made in releases too, and ends by a panic: whoever
//! called gets `EIO`, and a volume that was being changed becomes read-only and says so
//! (`shoal_txn`'s `Careful` and the transaction's end). TigerBeetle and SQLite's authors give the
//! reasons at length; what it costs is in `docs/performance.md`, measured by
//! `cargo xtask checks-cost`, which builds without the checks by `--cfg shoal_unchecked`, and
//! without those of overflows.
//!
//! Bytes that come from a device or from the kernel are never subject of an invariant: they are
//! verified, and what is wrong with them is an [`Error`](crate::Error).

/// Panics with the message unless the condition holds; compiled out by `--cfg shoal_unchecked`.
#[macro_export]
macro_rules! invariant {
    ($holds:expr, $($message:tt)+) => {
        if cfg!(not(shoal_unchecked)) && !$holds {
            $crate::invariant::broken(format_args!($($message)+));
        }
    };
}

/// Ends the work of this thread.
#[cold]
#[inline(never)]
#[track_caller]
pub fn broken(message: std::fmt::Arguments<'_>) -> ! {
    panic!("invariant broken: {message}")
}

#[cfg(test)]
mod tests {
    #[test]
    #[should_panic(expected = "invariant broken: 3 links, 4 names")]
    fn a_broken_invariant_says_what_is_wrong() {
        invariant!(3 == 3, "three is three");
        let (links, names) = (3, 4);
        invariant!(links == names, "{links} links, {names} names");
    }
}
