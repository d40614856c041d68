//! The test `-perm`.

use shoal::raw::ModeChange;

/// The test `-perm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Perm {
    how: How,
    /// Bits for files, and for directories: `X` differs.
    bits: [u32; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// Exactly these bits.
    Exactly,
    /// `-`: all of these.
    All,
    /// `/`: any of these; all files if there are none.
    Any,
}

impl Perm {
    /// Reads the argument of `-perm`.
    pub(crate) fn parse(word: &str) -> Option<Perm> {
        let (how, mode) = match word.as_bytes().first()? {
            b'-' => (How::All, &word[1..]),
            b'/' => (How::Any, &word[1..]),
            _ => (How::Exactly, word),
        };
        let changes = ModeChange::parse(mode)?;
        Some(Perm { how, bits: [changes.apply(0, false, 0), changes.apply(0, true, 0)] })
    }

    /// Returns whether the bits of a mode pass.
    pub(crate) fn fits(&self, mode: u32, is_directory: bool) -> bool {
        let (mode, bits) = (mode & 0o7777, self.bits[usize::from(is_directory)]);
        match self.how {
            How::Exactly => mode == bits,
            How::All => mode & bits == bits,
            How::Any => bits == 0 || mode & bits != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ways_to_compare() {
        let fits = |word: &str, mode| Perm::parse(word).expect(word).fits(mode, false);
        assert!(fits("644", 0o100_644) && !fits("644", 0o645));
        assert!(fits("-u+w,g+w", 0o664) && !fits("-u+w,g+w", 0o644));
        assert!(fits("/u+w,g+w", 0o644) && !fits("/222", 0o555));
        assert!(fits("/000", 0) && fits("-000", 0o7777));
        assert_eq!(Perm::parse("-"), None);
        assert_eq!(Perm::parse(""), None);
    }
}
