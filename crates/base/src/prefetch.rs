//! Loading cache lines before they are used.

/// Size of a cache line, in bytes.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Begins to load the cache lines of a value, without waiting for them. A hint: it changes nothing,
/// and does nothing on processors other than x86-64, for which the standard library has no such
/// function.
///
/// Worth it only if many values are far apart, known in advance, and used soon: then the processor
/// waits for several loads from memory at the same time.
#[inline]
pub fn prefetch<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in (0..size_of::<T>()).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = std::ptr::from_ref(value).cast::<i8>().wrapping_add(line);
        // SAFETY: a prefetch neither reads nor writes as far as the program can tell, and does not
        // fault at any address. SSE, which it needs, is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}
