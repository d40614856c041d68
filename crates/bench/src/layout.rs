//! Which files there are: every name follows from (thread, number, generation), so that no workload
//! has to remember millions of names, and a later run finds the files of an earlier one.
//!
//! The pattern is that of `fs_mark -D 1000 -N 1000 -d a -d b`: each thread has a top directory of
//! its own with subdirectories, and makes so many files in one before the next one's turn. A
//! generation is a whole set of names for the same places: another round of `create` makes the
//! next generation, `rename` turns one into the next.

use crate::args::Args;
use crate::error::{BenchError, Result};
use std::ffi::{CStr, CString};

/// Bytes of a file name, as in fs_mark.
pub(crate) const NAME_LEN: usize = 40;

/// Numbers that say where each thread's files are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Files of each thread.
    pub files: u64,
    /// Files in a subdirectory before the next one's turn.
    pub per_dir: u64,
    /// Subdirectories in use.
    pub dirs: u64,
    /// All threads work in the same directories.
    pub shared: bool,
}

impl Layout {
    /// The layout that the command line asks for.
    pub(crate) fn new(args: &Args) -> Layout {
        let needed = args.files.div_ceil(args.per_dir);
        Layout {
            files: args.files,
            per_dir: args.per_dir,
            dirs: args.dirs.min(needed),
            shared: args.shared,
        }
    }

    /// The thread under whose top directory the files of a thread are.
    #[inline]
    pub(crate) fn owner(&self, thread: usize) -> usize {
        if self.shared { 0 } else { thread }
    }

    /// The subdirectory of file `index`.
    #[inline]
    pub(crate) fn dir_of(&self, index: u64) -> u64 {
        index / self.per_dir % self.dirs
    }

    /// The `n`-th file to visit when scattered: a walk by a stride that shares no factor with the
    /// number of files meets each exactly once.
    pub(crate) fn stride(&self) -> u64 {
        let mut stride = (self.files as f64 * 0.618) as u64 | 1;
        while gcd(stride, self.files) != 1 {
            stride += 2;
        }
        stride % self.files.max(2)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The top directory of a thread: `a`, `b`, … as in fs_mark's examples.
pub(crate) fn top_path(thread: usize) -> Result<CString> {
    path_of(match thread {
        0..26 => char::from(b'a' + thread as u8).to_string(),
        _ => format!("t{thread}"),
    })
}

/// A subdirectory of a thread, relative to the target's root.
pub(crate) fn dir_path(thread: usize, dir: u64) -> Result<CString> {
    path_of(format!("{}/{dir:03x}", top_path(thread)?.to_string_lossy()))
}

fn path_of(text: String) -> Result<CString> {
    CString::new(text).map_err(|e| BenchError::failed("path", "with NUL", e))
}

/// 64 bits that look random: SplitMix64's finaliser.
#[inline]
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Returns the first eight bytes of a small file, which no other file has.
#[inline]
pub(crate) fn stamp(thread: usize, index: u64) -> [u8; 8] {
    mix((thread as u64) << 48 ^ index).to_le_bytes()
}

/// A file name, with the NUL that system calls want.
pub(crate) struct Name([u8; NAME_LEN + 1]);

impl Name {
    /// The name of file `index` of a thread.
    #[inline]
    pub(crate) fn new(thread: usize, index: u64, generation: u32) -> Name {
        const DIGITS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
        let mut name = Name([b'~'; NAME_LEN + 1]);
        let out = &mut name.0;
        for (n, digit) in out[..8].iter_mut().enumerate() {
            *digit = DIGITS[(generation >> (28 - 4 * n) & 15) as usize];
        }
        let seed = (thread as u64) << 48 ^ index ^ u64::from(generation) << 32;
        let mut bits = mix(seed.wrapping_add(0x9E37_79B9_7F4A_7C15));
        for half in out[16..NAME_LEN].chunks_mut(12) {
            let mut left = bits;
            for digit in half {
                *digit = DIGITS[(left & 31) as usize];
                left >>= 5;
            }
            bits = mix(bits ^ seed.rotate_left(17));
        }
        out[NAME_LEN] = 0;
        name
    }

    /// As system calls take it.
    #[inline]
    pub(crate) fn as_cstr(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.0).expect("one NUL, at the end")
    }
}

/// A buffer that holds the path of one file after the other, rewriting the directory's part only
/// when it changes.
pub(crate) struct FilePath {
    thread: usize,
    dir: Option<u64>,
    prefix: usize,
    bytes: Vec<u8>,
}

impl FilePath {
    /// For the files of `thread`.
    pub(crate) fn new(thread: usize) -> FilePath {
        FilePath { thread, dir: None, prefix: 0, bytes: Vec::with_capacity(128) }
    }

    /// The path of file `index`.
    #[inline]
    pub(crate) fn of(&mut self, layout: &Layout, index: u64, generation: u32) -> Result<&CStr> {
        let dir = layout.dir_of(index);
        if self.dir != Some(dir) {
            self.bytes.clear();
            self.bytes.extend_from_slice(dir_path(layout.owner(self.thread), dir)?.as_bytes());
            self.bytes.push(b'/');
            self.prefix = self.bytes.len();
            self.dir = Some(dir);
        }
        self.bytes.truncate(self.prefix);
        self.bytes.extend_from_slice(&Name::new(self.thread, index, generation).0);
        Ok(CStr::from_bytes_with_nul(&self.bytes).expect("one NUL, at the end"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const LAYOUT: Layout = Layout { files: 5000, per_dir: 100, dirs: 7, shared: false };

    #[test]
    fn names_have_40_bytes_and_are_all_different() {
        let mut seen = HashSet::new();
        for thread in 0..3 {
            for index in 0..5000 {
                for generation in 0..3 {
                    let name = Name::new(thread, index, generation);
                    assert_eq!(name.as_cstr().to_bytes().len(), NAME_LEN);
                    assert!(seen.insert(name.0), "{:?} twice", name.as_cstr());
                }
            }
        }
    }

    #[test]
    fn paths_agree_with_directories_and_names() {
        let mut path = FilePath::new(27);
        for index in [0, 99, 100, 700, 4999, 0] {
            let dir = dir_path(27, LAYOUT.dir_of(index)).expect("path");
            let name = Name::new(27, index, 1);
            let expected = format!("{}/{}", dir.to_str().expect("text"), text(&name));
            assert_eq!(path.of(&LAYOUT, index, 1).expect("path").to_str(), Ok(&*expected));
        }
    }

    #[test]
    fn directories_take_turns() {
        assert_eq!(LAYOUT.dir_of(99), 0);
        assert_eq!(LAYOUT.dir_of(100), 1);
        assert_eq!(LAYOUT.dir_of(700), 0);
    }

    #[test]
    fn scattered_order_meets_every_file_once() {
        for files in [1, 2, 3, 10, 999, 5000, 65_536] {
            let layout = Layout { files, ..LAYOUT };
            let stride = layout.stride();
            let met: HashSet<u64> = (0..files).map(|n| n * stride % files).collect();
            assert_eq!(met.len() as u64, files);
        }
    }

    fn text(name: &Name) -> &str {
        name.as_cstr().to_str().expect("ASCII")
    }
}
