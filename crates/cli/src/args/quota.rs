//! Arguments of the commands about quotas.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

const QUOTA_AFTER: &str = "\
QUOTAS:
  A quota is of a directory and everything below it, except subvolumes and directories that have a
  quota themselves. It counts inodes, and the space of data outside of inodes. Its use is kept from
  then on, so that showing it takes no walk. After a crash it is counted again in the background
  when the volume is next mounted or changed; until then it is a lower bound.

LIMITS:
  A call that needs more than a limit leaves fails with EDQUOT (Disk quota exceeded), for the
  superuser too; freeing is always possible. Contents that fit in the inode, attributes and
  directories take no space. In a mounted volume df shows the limits of the directory that it is
  asked about.

BORDERS:
  Files are not linked or renamed into the tree or out of it (EXDEV): mv copies and removes. The
  directory with the quota can be renamed.

MOUNTED VOLUMES:
  Only root sets and removes quotas there. All are listed for root and the user who
  mounted the volume. Every user is shown the quota that a file is in: with its path for those two,
  for others with the number of the directory.

EXIT STATUS:
  0   Done.
  1   It could not be done.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal quota set vol.img:/home/ann --bytes 10G --inodes 1M
    shoal quota show vol.img:/home/ann/mail
    shoal quota list vol.img
    shoal quota set /mnt/vol/home/ann --bytes 20G
    shoal quota list /mnt/vol
    shoal quota remove vol.img:/home/ann
";

/// Limit directory trees, and show what they use
#[derive(Args, Debug)]
#[command(after_long_help = QUOTA_AFTER, disable_help_subcommand = true)]
pub(crate) struct QuotaArgs {
    /// Command to run
    #[command(subcommand)]
    pub command: QuotaCommand,
}

/// The commands about quotas.
#[derive(Subcommand, Debug)]
pub(crate) enum QuotaCommand {
    Set(QuotaSetArgs),
    Show(QuotaShowArgs),
    List(QuotaListArgs),
    Remove(QuotaRemoveArgs),
}

/// A limit as typed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limit(pub Option<u64>);

fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        _ => crate::size::parse(text).map(|most| Limit(Some(most))),
    }
}

const SET_AFTER: &str = "\
EXIT STATUS:
  0   The directory has the limits.
  1   It has not: it is no directory, the volume is full, or has 1,024 quotas.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// Give a directory a quota, or change its limits
///
/// The tree is walked the first time;
/// if this is interrupted, the next command or mount that changes the volume continues it. Limits
/// that are not given stay as they are; a new quota has none. They may be below the use: then
/// nothing more can be made.
#[derive(Args, Debug)]
#[command(after_long_help = SET_AFTER)]
pub(crate) struct QuotaSetArgs {
    /// Directory, as VOLUME:/path or in a mounted volume
    #[arg(value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub place: OsString,
    /// Most bytes of data, as 10G; none for no limit
    #[arg(long, value_name = "SIZE", value_parser = limit)]
    pub bytes: Option<Limit>,
    /// Most inodes, as 1000 or 1M (1,048,576); none for no limit
    #[arg(long, value_name = "NUMBER", value_parser = limit)]
    pub inodes: Option<Limit>,
}

const SHOW_AFTER: &str = "\
OUTPUT:
  As that of shoal quota list, of the quota in which the file is: that of the nearest directory
  above.

EXIT STATUS:
  0   Done.
  1   There is no such file, or it is in no quota.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// Show use and limits of the quota in which a file is
#[derive(Args, Debug)]
#[command(after_long_help = SHOW_AFTER)]
pub(crate) struct QuotaShowArgs {
    /// File or directory, as VOLUME:/path or in a mounted volume
    #[arg(value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub place: OsString,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

const LIST_AFTER: &str = "\
OUTPUT:
  One quota a line: bytes in use and their limit, inodes in use and their limit, and the path of the
  directory; on a terminal below a line of headings. A use with > in front is still to be counted,
  and a lower bound. With --json, one object a line:

    path        of the directory; path_bytes as in shoal ls --json
    ino         its inode number
    bytes       in use: st_blocks without contents in the inode
    bytes_max   limit; absent if there is none
    inodes      in use
    inodes_max  limit; absent if there is none
    exact       false: the use is a lower bound

EXIT STATUS:
  0   Done.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// List all quotas of a volume
#[derive(Args, Debug)]
#[command(after_long_help = LIST_AFTER)]
pub(crate) struct QuotaListArgs {
    /// The volume's file or device, or the directory where it is mounted
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

const REMOVE_AFTER: &str = "\
EXIT STATUS:
  0   The directory has no quota any more.
  1   It had none, or there is no such directory.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// Remove the quota of a directory
///
/// Its files count from then on for the quota of a directory above, if there is one. The tree
/// is walked. The directory and its files stay.
#[derive(Args, Debug)]
#[command(after_long_help = REMOVE_AFTER)]
pub(crate) struct QuotaRemoveArgs {
    /// Directory, as VOLUME:/path or in a mounted volume
    #[arg(value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub place: OsString,
}
