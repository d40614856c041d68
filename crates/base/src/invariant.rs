//! Assertions of our own code that stay in releases.
//!
//! A broken invariant is a bug of Shoal or a memory fault, and its consequences must never reach
//! the device. The check therefore stays in releases and panics. The caller gets `EIO`; a volume
//! that was being changed becomes read-only and says why (`shoal_txn`'s `Careful` and the end of
//! the transaction). The cost is in `docs/performance.md`, measured by `cargo xtask checks-cost`,
//! which builds without these checks (`--cfg shoal_unchecked`) and without overflow checks.
//!
//! Bytes from a device or from the kernel must never be checked by an invariant. They are verified,
//! and a mismatch is an [`Error`](crate::Error).

/// Panics with the message unless the condition holds. `--cfg shoal_unchecked` compiles it out.
#[macro_export]
macro_rules! invariant {
    ($holds:expr, $($message:tt)+) => {
        if cfg!(not(shoal_unchecked)) && !$holds {
            $crate::invariant::broken(format_args!($($message)+));
        }
    };
}

/// Panics with the message.
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
