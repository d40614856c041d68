//! The calls by inode number, for front ends: a mount, a network server, tools.
//!
//! They are what the rest of this library is made of, as a kernel's interface to its filesystems
//! is: names are looked up one at a time, open files are counted by [`hold`](References::hold) and
//! [`release`](References::release), and a call that checks permissions takes a [`Caller`]. Calls
//! on the contents of a file check nothing: like system calls on a descriptor, they are for who has
//! been let in by [`access`](Attributes::access). The calls of a [`Volume`] are in rooms, one for
//! each subject, such as [`Volume::namespace`]. This module may change more often than the rest.

pub use shoal_engine::*;

/// Splits `a/b/c` into `a/b` and `c`: the directory and the name in it. A single name is in "", the
/// directory that the path starts from.
pub fn split_parent(path: &[u8]) -> (&[u8], &[u8]) {
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    match trimmed.iter().rposition(|b| *b == b'/') {
        Some(0) => (b"/", &trimmed[1..]),
        Some(at) => (&trimmed[..at], &trimmed[at + 1..]),
        None => (b"", trimmed),
    }
}

#[cfg(test)]
mod tests {
    use super::split_parent;

    #[test]
    fn paths_are_split_at_the_last_slash() {
        let split = |path: &'static str| split_parent(path.as_bytes());
        assert_eq!(split("/a/b/c"), (&b"/a/b"[..], &b"c"[..]));
        assert_eq!(split("/a/"), (&b"/"[..], &b"a"[..]));
        assert_eq!(split("a"), (&b""[..], &b"a"[..]));
    }
}
