//! Arguments of `shoal changes` and `shoal watch`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

const CHANGES_AFTER: &str = "\
MARKS:
  A mark is a moment of a subvolume: 76 letters, digits, '-' and '_'. A call lists the changes since
  its mark, and prints the mark for the next call. Marks do not expire, and a mark may be used with
  any directory of its subvolume. Without a mark, or if the file of --mark-file does not exist,
  every file is listed, as added. After a repair by 'shoal fsck', or if the volume was replaced by
  an older copy, marks are refused: begin again without one.

LINES:
  A   path         was made since the mark
  M   path         has changed: contents, attributes, access time or names; of a directory also
                   that an entry was added or removed
  R   old  new     has another name. The files below a renamed directory are listed only if they
                   have changed themselves. An empty old path: it comes from outside of PLACE
  D   path         is gone, or another file has the name
  mark  MARK       the mark for the next call, in the last line, unless there is a --mark-file

  Paths begin at PLACE, which itself is '.'. The fields are separated by tabs, and each line ends
  with a newline; with --null each field ends with a NUL byte. A file with several names has a line
  for each. Names that were made and removed since the mark may be listed as gone.

REMOVED NAMES:
  A volume keeps the names of removed files only with --keep-removed on, and then the newest, at
  most 3 MiB. Names that are no longer known are not listed: the directories that they were in have
  an M. A message says so if any directory is listed. Compare a copy with those directories then, or
  the whole copy, for instance by 'rsync --delete'.

FEEDING OTHER TOOLS:
  --removed prints the paths to delete from a copy: paths that are gone, and the old paths of
  renamed files. --files-from prints the paths to copy into it then: files that were made or have
  changed, and renamed ones with everything below. Delete first, and use the same mark for both.

OUTPUT AS JSON:
  One object a line: kind (created, changed, renamed, removed), inode, generation, type, paths,
  from, and more, which is true if the next object has further paths of the same inode. The last
  object has mark, and all_removed: false if removed names may be missing, which then were in the
  directories that are listed.

ON A MOUNT:
  The server lists the changes that the user could find: each directory on the way from PLACE needs
  permission to list and to search. Nothing outside of PLACE is listed. Marks are the same as those
  of the volume. Changes that the kernel has not sent yet, as those of a mapped file, are listed
  when they are sent. --keep-removed is for root, and for the user who mounted. It takes a session
  with the server: without a way to its socket the command fails.

EXIT STATUS:
  0   All changes were listed.
  1   A mark was refused, something could not be read, or --removed may be incomplete.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal changes vol.img:/home --mark-file home.mark
    shoal changes /mnt/home --mark-file home.mark --files-from | rsync --files-from=- /mnt/home copy
    mark=$(shoal changes vol.img --now)
    shoal changes vol.img --keep-removed on
    shoal changes vol.img:/home --since $mark --removed -0 | (cd copy && xargs -0 rm -rf --)
";

/// A switch.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    /// Keep the names of removed files from now on
    On,
    /// Do not keep them, and drop those that are kept
    Off,
}

/// Show what has changed below a directory since a mark
///
/// It takes the time of the changes, not of the tree. A place is a directory in a mounted
/// volume, or VOLUME:/path.
#[derive(Args, Debug)]
#[command(after_long_help = CHANGES_AFTER)]
pub(crate) struct ChangesArgs {
    /// Directory in a mount, or VOLUME:/path; VOLUME alone for its top
    #[arg(value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub place: OsString,
    /// Mark since which changes are shown
    #[arg(long, value_name = "MARK", conflicts_with_all = ["mark_file", "now", "keep_removed"])]
    pub since: Option<String>,
    /// Read the mark from FILE if it exists, and replace it when everything has been printed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["now", "keep_removed"])]
    pub mark_file: Option<PathBuf>,
    /// Print a mark of this moment, and no changes
    #[arg(long, conflicts_with = "keep_removed")]
    pub now: bool,
    /// Print paths to copy, one a line
    #[arg(long, conflicts_with_all = ["removed", "json", "now"])]
    pub files_from: bool,
    /// Print paths to delete, one a line
    #[arg(long, conflicts_with_all = ["json", "now"])]
    pub removed: bool,
    /// Print objects as JSON, one a line
    #[arg(long, conflicts_with_all = ["null", "now"])]
    pub json: bool,
    /// End each field with a NUL byte
    #[arg(long, short = '0')]
    pub null: bool,
    /// Switch on or off that the volume keeps the names of removed files
    #[arg(long, value_name = "SWITCH")]
    pub keep_removed: Option<Keep>,
}

const WATCH_AFTER: &str = "\
LINES:
  The lines and objects of 'shoal changes', without its last line. A change is printed soon after it
  was made, when it is durable. The command asks the server for changes 5 ms after one, and then
  less and less often, down to twice a second; to answer, the server compares two numbers. So
  without load a change is printed after half a second at most. Several changes of a file between
  two questions are one; a file made and removed between them is not listed, or listed as gone.

  Without --since or --mark-file it begins with the present moment. Names of removed files are
  listed if the volume keeps them (shoal changes VOLUME --keep-removed on). With --json an object
  with the mark follows each group of changes.

THE END:
  SIGINT, SIGTERM, --once and --timeout end the command. It then stores the last mark in the
  --mark-file, or writes it to standard error: with it the next call goes on, and nothing is missed.
  The file is also replaced after each group of changes. It must not be below PLACE, where each
  replacement would be a change.

PERMISSIONS:
  As of 'shoal changes' on a mount.

EXIT STATUS:
  0   It was ended.
  1   A mark was refused, or something could not be read.
  2   Wrong usage, or PLACE is not in a mount.

EXAMPLES:
    shoal watch /mnt/inbox
    shoal watch /mnt/inbox --once --timeout 60
    shoal watch /mnt/home --mark-file home.mark --json
";

/// Show changes below a directory as they happen
///
/// A mount or shoal serve must have the volume open: otherwise nothing changes in it.
#[derive(Args, Debug)]
#[command(after_long_help = WATCH_AFTER)]
pub(crate) struct WatchArgs {
    /// Directory in a mount, or VOLUME:/path of a volume that is served
    #[arg(value_name = "PLACE", value_hint = ValueHint::DirPath)]
    pub place: OsString,
    /// Mark since which changes are shown first
    #[arg(long, value_name = "MARK", conflicts_with = "mark_file")]
    pub since: Option<String>,
    /// Read the mark from FILE if it exists, and replace it when changes have been printed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub mark_file: Option<PathBuf>,
    /// End after the first changes
    #[arg(long)]
    pub once: bool,
    /// End after this time: seconds, or a number with s, m, h or d
    #[arg(long, value_name = "TIME", value_parser = super::duration)]
    pub timeout: Option<u64>,
    /// Print objects as JSON, one a line
    #[arg(long, conflicts_with = "null")]
    pub json: bool,
    /// End each field with a NUL byte
    #[arg(long, short = '0')]
    pub null: bool,
}
