//! How often a thread was interrupted.

/// Returns how often another thread has taken the calling thread's processor from it.
pub(crate) fn preemptions() -> u64 {
    // SAFETY: plain numbers, for which zeros are allowed; the kernel writes one such structure.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    usage.ru_nivcsw as u64
}
