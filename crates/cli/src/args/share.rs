//! Arguments of `shoal share`.

use std::ffi::OsString;

use clap::{Args, ValueEnum, ValueHint};
use shoal::raw::Rights;

const SHARE_AFTER: &str = "\
OPENING:
  Any user with the token can open the file, without permission to the file or its path:
    in a mounted volume       the file .shoal-open/TOKEN in the top directory of the mount
    in one that is not        shoal cat --token TOKEN VOLUME
    in a program              Volume::open_token of the library

  The directory .shoal-open exists in mounts that send opens to their server, as with -o open, and
  not with -o writeback. It cannot be listed, and a real file of that name comes first. A mount of
  one subvolume opens files of that subvolume. With a token to read, opening to write or to truncate
  is refused, also for root. Reads and writes by a token bypass the page cache.

VALIDITY:
  A token stays valid if the file is renamed or its permissions change, until its time is over, the
  file has lost its last name, or all tokens of the volume are revoked. Files that are open stay so.

PERMISSIONS:
  In a volume that is mounted or served, a user can share the rights that the user has. Only the
  superuser and the user who serves it can revoke. In a volume that the command opens nothing is
  checked, as a user who can write the volume's file can do everything with its contents.

OUTPUT:
  The token: 88 letters, digits, '-' and '_'. Keep it as a password.

EXIT STATUS:
  0   The token was made, or all were revoked.
  1   It was refused: no permission, not a regular file, a read-only volume.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    token=$(shoal share /mnt/data/model --for 8h)
    cat /mnt/.shoal-open/$token
    shoal share --rights rw vol.img:/inbox/today
    shoal share --revoke /mnt
";

/// Rights of a token.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShareRights {
    /// Reading
    R,
    /// Reading and writing
    Rw,
}

impl ShareRights {
    /// Returns the rights.
    pub(crate) fn rights(self) -> Rights {
        match self {
            ShareRights::R => Rights::READ,
            ShareRights::Rw => Rights::READ | Rights::WRITE,
        }
    }
}

/// Make a token that opens a file without its path, or revoke all tokens of a volume
///
/// A place in a volume is written VOLUME:/path; anything else is a path in a mounted volume, and
/// refused elsewhere.
#[derive(Args, Debug)]
#[command(after_long_help = SHARE_AFTER)]
pub(crate) struct ShareArgs {
    /// File to share; with --revoke the volume's file or device, or a directory of its mount
    #[arg(value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub place: OsString,
    /// Rights of the token
    #[arg(long, value_name = "RIGHTS", default_value = "r")]
    pub rights: ShareRights,
    /// Lifetime: seconds, or a number with s, m, h or d
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = super::duration)]
    pub lifetime: u64,
    /// Print one JSON object: token, rights (r or rw), lifetime (seconds)
    #[arg(long)]
    pub json: bool,
    /// Revoke all tokens of the volume
    #[arg(long, conflicts_with_all = ["rights", "lifetime", "json"])]
    pub revoke: bool,
}
