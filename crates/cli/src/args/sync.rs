//! Arguments of `shoal sync`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

const SYNC_AFTER: &str = "\
WITHOUT DEST:
  Everything of the mounted volume that the directory is in is written to the disk. sync(2), and so
  the command sync, does not reach a filesystem that is served by a process on current kernels. This
  command does; so does fsync(2) on any one file, because Shoal makes changes durable in the order
  in which they were made.

WITH DEST:
  DEST becomes what SOURCE is, as by 'rsync -aHAX SOURCE/ DEST': directories, contents, modes,
  times, symlinks, hard links within SOURCE, devices, pipes and sockets, extended attributes, access
  control lists; owners if run by root. Each is a place in a volume, VOLUME:/path, or a directory
  of this machine, for instance in a mounted volume. DEST is made if it does not exist. Files
  that only DEST has stay, unless --delete is given.

  A file is the same if size and time of the last change are; with --checksum, if the contents are.
  One that differs is written without a name and gets its name when it is whole: after a crash each
  name has the old file or the new one. Holes stay holes.

BY CHANGES:
  If SOURCE is VOLUME:/path, its mark ('shoal changes') is kept in the attribute user.shoal.sync of
  DEST after each sync without a failure. The next one then compares only the changes since, and
  takes the time of these, not of all files. Everything is compared if there is no mark, or one of
  another directory or of other options --exclude or --delete; if the mark is refused, as after a
  repair of the volume; with --checksum or --full; and if SOURCE is the top of a volume with
  subvolumes, whose changes are not listed. --verbose and --stats print which it was.
  Changes made in DEST by other programs are not seen by such a sync: --full repairs them.

  It takes least if the volume keeps removed names ('shoal changes VOLUME --keep-removed on').
  Otherwise the directories that have changed are also listed in DEST, to find removed files; and a
  directory that may have been renamed is compared with everything below: one that has changed
  together with the directory above.

ATTRIBUTES:
  An extended attribute or access control list that DEST refuses, or has no room for, is named, and
  the status is 1, each time. Not those that only the superuser may set, if another user runs it.

OUTPUT:
  With --verbose or --dry-run a line for each change: create, update, link, attributes, delete or
  delete-tree, and the path. With --stats --json one object at the end:

    compared     changes or everything: what was compared
    files, created, updated, attributes, deleted
                 numbers: compared, made, replaced, given other attributes, removed
    bytes        copied

EXIT STATUS:
  0   Everything was done.
  1   Some of it failed; each failure has a line of its own on standard error. Without DEST: it is
      no mount of Shoal, or the disk failed.
  2   Wrong usage, or a volume cannot be used: missing, damaged, or in use.
  24  Files have vanished while they were to be copied; the rest was done.

EXAMPLES:
    shoal sync /mnt
    shoal sync --delete --stats vol.img:/home backup.img:/home
    shoal sync -n --delete ~/mail vol.img:/mail
";

/// Write everything of a mount to the disk; or make a directory the same as another
#[derive(Args, Debug)]
#[command(after_long_help = SYNC_AFTER)]
pub(crate) struct SyncArgs {
    /// Directory of a mount; with DEST the directory to copy
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub source: OsString,
    /// Directory that becomes the same
    #[arg(value_name = "DEST", value_hint = ValueHint::AnyPath)]
    pub destination: Option<OsString>,
    /// Remove files that SOURCE does not have
    #[arg(long, requires = "destination")]
    pub delete: bool,
    /// Change nothing; print the changes that would be made
    #[arg(short = 'n', long, requires = "destination")]
    pub dry_run: bool,
    /// Print each change
    #[arg(
        short,
        long,
        requires = "destination",
        visible_alias = "itemize-changes",
        visible_short_alias = 'i'
    )]
    pub verbose: bool,
    /// Accepted out of habit: it is always so
    #[arg(short, long, requires = "destination")]
    pub archive: bool,
    /// Leave out, and do not remove, files whose path, or the end of it, matches: * ? [a-z]
    #[arg(long, value_name = "PATTERN", requires = "destination")]
    pub exclude: Vec<OsString>,
    /// Compare contents, not the times of the last change
    #[arg(short, long, requires = "destination")]
    pub checksum: bool,
    /// Compare everything, also if there is a mark of the last sync
    #[arg(long, requires = "destination")]
    pub full: bool,
    /// Print how much was compared and changed
    #[arg(long, requires = "destination")]
    pub stats: bool,
    /// Print it as one JSON object
    #[arg(long, requires = "stats", conflicts_with_all = ["verbose", "dry_run"])]
    pub json: bool,
}
