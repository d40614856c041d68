//! Shoal, a POSIX filesystem for shoals of small files, as a library. Front ends use only this
//! crate; what it re-exports is kept stable.
//!
//! ```
//! use shoal::{Caller, Ino, MemDevice, MkfsOptions, OpenOptions, Volume, mkfs_on};
//! use std::sync::Arc;
//!
//! # fn main() -> shoal::Result<()> {
//! // A volume lives in a file or on a block device (`mkfs`, `Volume::open`), or here in memory.
//! let device = Arc::new(MemDevice::new(64 << 20));
//! mkfs_on(device.clone(), &MkfsOptions::default())?;
//! let volume = Volume::open_on(device, &OpenOptions::default())?;
//!
//! let who = Caller::root();
//! let dir = volume.mkdir(&who, Ino::ROOT, b"mail", 0o755)?;
//! let file = volume.create(&who, dir.ino, b"message", 0o644)?;
//! volume.write(file.ino, 0, b"hello", false)?;
//! volume.fsync(file.ino, false)?; // durable, and everything before it too
//!
//! let found = volume.resolve(&who, Ino::ROOT, b"/mail/message", true)?;
//! let mut text = [0; 5];
//! volume.read(found.ino, 0, &mut text)?;
//! assert_eq!(&text, b"hello");
//! volume.close()
//! # }
//! ```
//!
//! Calls name files by inode number, as a mount does; [`Inner::resolve`] walks paths. What a call
//! promises on a crash is in `docs/crash-model.md`.

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
