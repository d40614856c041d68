//! Arguments of `df`, `readlink` and `truncate`.

use std::ffi::OsString;

use clap::{ArgAction, Args, ValueHint};

const EXIT_STATUS: &str = "\
EXIT STATUS:
  0   Everything was done.
  1   Some of it failed; each failure has a line of its own on standard error.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

const DF_AFTER: &str = "\
OUTPUT:
  Columns as those of df(1). Of a place below a directory with a quota: the limits of the quota and
  what they leave. Available is what fits into files: metadata and a reserve are subtracted. With
  --json, one object a line:

    volume                       source of the mount, or the argument
    mount                        where it is mounted; only of mounts
    size, used, available        bytes
    inodes, inodes_free

EXIT STATUS:
  0   Done.
  1   A mount does not answer.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// Show the space of volumes, mounted or not
///
/// Without arguments, of all mounted volumes.
#[derive(Args, Debug)]
#[command(after_long_help = DF_AFTER, disable_help_flag = true)]
pub(crate) struct DfArgs {
    /// Volumes, mounted or not, places in them as VOLUME:/path, or paths in mounts
    #[arg(value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Show sizes with units: 1.5G
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// Show inodes in place of bytes
    #[arg(short, long, conflicts_with = "json")]
    pub inodes: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// Print the targets of symbolic links
#[derive(Args, Debug)]
#[command(after_long_help = EXIT_STATUS)]
pub(crate) struct ReadlinkArgs {
    /// Symbolic links, in a mount or as VOLUME:/path
    #[arg(value_name = "PLACE", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// End each with a NUL in place of a new line
    #[arg(short, long)]
    pub zero: bool,
    /// End a single one with nothing
    #[arg(short, long)]
    pub no_newline: bool,
}

const TRUNCATE_AFTER: &str = "\
SIZES:
  8G: that size. +1M, -1M: longer, shorter by it. <4K, >4K: at most, at least. A file that becomes
  longer gets a hole.

EXIT STATUS:
  0   Everything was done.
  1   Some of it failed; each failure has a line of its own on standard error.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal truncate -s 0 vol.img:/var/log/messages
    shoal truncate -s +1G vol.img:/disk
";

/// Change the size of files in a volume or a mount; make files
#[derive(Args, Debug)]
#[command(after_long_help = TRUNCATE_AFTER)]
pub(crate) struct TruncateArgs {
    /// Files, as VOLUME:/path or a path in a mount
    #[arg(value_name = "PLACE", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// New size, or change of it
    #[arg(short, long, value_name = "SIZE", value_parser = Resize::parse)]
    #[arg(allow_hyphen_values = true)]
    pub size: Resize,
    /// Do not make files
    #[arg(short = 'c', long)]
    pub no_create: bool,
}

/// A new size of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resize {
    /// That size.
    To(u64),
    /// Longer by so much.
    More(u64),
    /// Shorter by so much.
    Less(u64),
    /// At most that size.
    AtMost(u64),
    /// At least that size.
    AtLeast(u64),
}

impl Resize {
    /// Reads an argument.
    pub(crate) fn parse(text: &str) -> Result<Resize, String> {
        let (make, size): (fn(u64) -> Resize, &str) = match text.chars().next() {
            Some('+') => (Resize::More, &text[1..]),
            Some('-') => (Resize::Less, &text[1..]),
            Some('<') => (Resize::AtMost, &text[1..]),
            Some('>') => (Resize::AtLeast, &text[1..]),
            _ => (Resize::To, text),
        };
        super::size(size).map(make)
    }

    /// Returns the new size; `None`: there is no such size.
    pub(crate) fn of(self, old: u64) -> Option<u64> {
        match self {
            Resize::To(size) => Some(size),
            Resize::More(by) => old.checked_add(by),
            Resize::Less(by) => Some(old.saturating_sub(by)),
            Resize::AtMost(size) => Some(old.min(size)),
            Resize::AtLeast(size) => Some(old.max(size)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, old, new) in [
            ("8K", 1, Some(8192)),
            ("+1K", 1, Some(1025)),
            ("-1K", 1, Some(0)),
            ("<2", 5, Some(2)),
            ("<9", 5, Some(5)),
            (">9", 5, Some(9)),
            ("+1", u64::MAX, None),
        ] {
            assert_eq!(Resize::parse(text).expect(text).of(old), new, "{text}");
        }
        for text in ["", "x", "+", "++1", "1-"] {
            assert!(Resize::parse(text).is_err(), "{text}");
        }
    }
}
