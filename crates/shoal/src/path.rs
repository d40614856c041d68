//! Calls by path, for programs that link the library: STUB being replaced by the lead.
/// Whether a symlink in the last component is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// Follow it.
    Yes,
    /// Return the link itself.
    No,
}
/// Splits `a/b/c` into `a/b` and `c`.
pub fn split_parent(path: &[u8]) -> (&[u8], &[u8]) {
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    match trimmed.iter().rposition(|b| *b == b'/') {
        Some(0) => (b"/", &trimmed[1..]),
        Some(at) => (&trimmed[..at], &trimmed[at + 1..]),
        None => (b"", trimmed),
    }
}
