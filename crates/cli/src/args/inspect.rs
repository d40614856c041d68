//! Arguments of the commands that look inside a volume, mounted or not.

use std::path::PathBuf;

use clap::{Args, ValueHint};

const STATS_AFTER: &str = "\
OUTPUT:
  One row for each counter: its name, its value, what it counts. First what has happened since the
  volume was mounted; then, of some things, how much there is now. A volume that is not mounted is
  opened, and what that took is shown. With --json, one object; with --every, one a line:

    counters    {name: value}, what has happened
    now         {name: value}, how much there is now

  With --every each further table shows what was added since the one before, and how much there is
  now.

HOW FILES WITHOUT A NAME ARE COUNTED:
  orphan_slots counts each slot taken in the orphan table, on the disk: for a file that one
  transaction cannot free, a tree that was removed, a file whose tail is cut off. detached counts
  files that were unlinked in use and freed on the disk at once, living on in memory alone: they
  take no slot. detached_back counts those of them that grew and took a slot after all.

EXIT STATUS:
  0   Done.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal stats /mnt
    shoal stats /mnt --every 1
";

/// Show what a volume counts
///
/// A mounted volume is asked through its mount, by anybody who may look into it.
#[derive(Args, Debug)]
#[command(after_long_help = STATS_AFTER)]
pub struct StatsArgs {
    /// The volume's file or device, or a directory where it is mounted
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show again every so many seconds, until interrupted (mounted volumes)
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub every: Option<u64>,
}

const TRIM_AFTER: &str = "\
WHAT IT DOES:
  Tells the device, or the file system that holds the volume's file, that the free space of the
  volume is not needed: a sparse file gets holes and takes less room, a solid-state disk has less to
  keep. A mounted volume does so by itself, a while after something has been removed, unless it is
  mounted with -o nodiscard; shoal trim does it for all free space at once. Some 20 MiB stay
  allocated, so that something can be removed when what stores the volume is full.

OUTPUT:
  How many bytes were discarded, whether or not the device held something there. With --json, one
  object: bytes.

EXIT STATUS:
  0   Done; also where the device cannot do it.
  1   The mount does not do it for this user.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal trim vol.img
    shoal trim /mnt
";

/// Give the free space of a volume back to the device or file that stores it
///
/// A mounted volume is asked through its mount and stays in use; only the superuser and the user
/// who mounted it may do so.
#[derive(Args, Debug)]
#[command(after_long_help = TRIM_AFTER)]
pub struct TrimArgs {
    /// The volume's file or device, or a directory where it is mounted
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const ORPHANS_AFTER: &str = "\
OUTPUT:
  A table, sorted by inode number:

    INODE   its number
    KIND    unlinked, it has lost its last name; tree, a directory removed with everything below
            it; cut, a file whose tail is being freed; root, a deleted root; broken, what should
            not be there (see shoal fsck)
    IN      slot, of the orphan table on the disk; memory, where it lives on alone
    HELD    yes: somebody has it open, or the kernel knows it; it goes when they let go of it
    SIZE    bytes of a file; of a tree, entries left in its top; of a root, inodes left in it
    BYTES   bytes of data that it keeps
    PATH    where it was last, if that directory is still there

  What is held by nobody is freed in the background while the volume is in use. With --json, one
  object a line:

    ino, kind, slot, held, size, bytes
    path        string, only if known; path_bytes as in shoal ls --json

EXIT STATUS:
  0   Done; also if there are none.
  1   The mount does not say it to this user.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal orphans vol.img
    shoal orphans /mnt --json
";

/// List what has no name but is still there: unlinked files, removed trees, deleted roots
///
/// Of a volume that is not mounted it shows what the next mount will free; nothing is changed. A
/// mounted volume is asked through its mount; only the superuser and the user who mounted it may do
/// so.
#[derive(Args, Debug)]
#[command(after_long_help = ORPHANS_AFTER)]
pub struct OrphansArgs {
    /// The volume's file or device, or a directory where it is mounted
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

const SCRUB_AFTER: &str = "\
OUTPUT:
  Each problem is one line, when it is found: the short name of the rule that is broken, then what
  is wrong, where, and of which file. A summary follows. With --json, one object at the end:

    volume        as it was given; volume_bytes as in shoal ls --json
    clean         true if everything has been read and there is no problem
    problems      list of {rule, message}
    left_out      how many more there are, too many in one place to be told
    blocks, objects, bytes
                  what was read: blocks of metadata, data objects, bytes of both
    live_bytes    bytes in use; a scrub that was not stopped has read about all of them
    seconds       how long it took
    stopped       why it did not get to the end, only if so

WHAT IS READ:
  What the newest checkpoint points to: every block of metadata and all file data, from the device,
  even if it is in memory. Each is compared with the checksum that belongs to it. The scrub of a
  mount begins with a checkpoint; what is written later comes with the next scrub. Of a volume that
  was not closed, what is in its journal alone is left out: the summary says which share was read.
  What has to stand still to be compared (names with link counts, space with what uses it) is left
  to shoal fsck, which repairs, too.

  Neither reads nor writes wait for a scrub of a mount, but they share the device with it: --rate
  leaves them most of it.

EXIT STATUS:
  0   There is no problem.
  4   Problems were found. They are left as they are.
  8   The scrub could not be made, or not to its end: no such file, not a volume, in use, a read
      error, or the mount does not do it for this user.
  16  Wrong usage.

EXAMPLES:
    shoal scrub vol.img
    shoal scrub /mnt --rate 20M --quiet
";

/// Read everything on a volume and compare it with its checksums, also while it is mounted
///
/// Finds what the device has lost or changed, and names the files. Nothing is written. A mounted
/// volume stays in use and is asked through its mount, step by step; only the superuser and the
/// user who mounted it may do so.
#[derive(Args, Debug)]
#[command(after_long_help = SCRUB_AFTER)]
pub struct ScrubArgs {
    /// The volume's file or device, or a directory where it is mounted
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Read at most so many bytes a second, as 20M
    #[arg(long, value_name = "SIZE", value_parser = super::some_size)]
    pub rate: Option<u64>,
    /// Show no progress and no summary: problems only
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}
