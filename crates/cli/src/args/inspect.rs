//! Arguments of the commands that look inside a volume, mounted or not.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

const STATS_AFTER: &str = "\
OUTPUT:
  One row for each counter: name, value, description. First the counters of events since the volume
  was mounted, then the gauges. A volume that is not mounted is opened, and the counters of that are
  shown.

  For a mounted volume, three tables follow: one of the requests that the kernel has sent, by
  operation; one of the calls of the library by which the server answers them; and one of the work
  inside the volume (operations of the device, waits for the journal, checkpoints). A row has the
  number, the failures, and the durations that a half, 99% and 99.9% of them did not exceed, to
  within an eighth. A missing name (lookup), attribute or ioctl is no failure.

  Of calls that take less than some microseconds one in 64 is timed, and counts for 64: their
  numbers are estimates, and of few calls nothing may be shown. Failures are counted each time.

  With --json, one object; with --every, one a line:

    counters    {name: value}, events
    now         {name: value}, gauges
    operations  {name: {count, errors, bytes, seconds, p50, p99, p99.9}}, requests; in seconds
    calls       the same of the calls of the library
    volume      the same of the work inside the volume

  With --every each further table shows the increase since the one before, and the gauges.

FILES WITHOUT A NAME:
  orphan_slots counts each slot taken in the orphan table, on the disk: for a file that one
  transaction cannot free, a removed tree, a large truncate. detached counts files that were
  unlinked while open and freed on the disk at once, living on in memory alone: they take no slot.
  detached_back counts those of them that grew and took a slot after all.

EXIT STATUS:
  0   Done.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal stats /mnt
    shoal stats /mnt --every 1
";

/// Show the counters and operations of a volume
///
/// A mounted volume is asked through its mount, by anybody who can open it.
#[derive(Args, Debug)]
#[command(after_long_help = STATS_AFTER)]
pub(crate) struct StatsArgs {
    /// The volume's file or device, LABEL= or UUID=, or a directory where it is mounted
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show again after each interval of so many seconds, until interrupted (mounted volumes)
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub every: Option<u64>,
}

const TOP_AFTER: &str = "\
OUTPUT:
  Above, the state of the mount: all operations a second, and the durations that a half, 99% and
  99.9% of them did not exceed; memory; the journal; space. Then the requests by operation, the work
  inside the volume, and the users and processes with the most requests. busy is the share of the
  time in which a request was being answered, more than 100% with several at a time.

  Users and processes are counted only while this command, or another one, looks, with their calls
  by sessions. There are 64 rows for each: a user with less than one in 64 of all requests may be
  missing. They are shown to root and to the user who mounted.

  Elsewhere than on a terminal, or with TERM=dumb, each view follows the one before. With --json,
  one object a line: seconds, operations, calls and volume (as shoal stats shows them, of this
  interval), now (gauges), failed (the reason, if the volume takes no changes), users, processes
  (rates by second).

SCREEN:
  It fits itself to the terminal: a narrow one has fewer columns, a short one fewer rows. If the
  server does not answer for three seconds, it says so above. No colours with NO_COLOR.

    Tab, right      one table alone: requests, volume, users, processes, and all again; left: back
    up, down        scroll a table that is alone, as PageUp, PageDown and Home do
    s               sort users and processes by operations, bytes or busy
    Space           keep the numbers that are shown, until pressed again
    q, Esc, Ctrl-C  end

EXIT STATUS:
  0   Shown once, ended by a key, or because its reader did.
  1   The mount has ended.
  2   Wrong usage, or DIR is not in a mounted volume.

EXAMPLES:
    shoal top /mnt
    shoal top /mnt --once --json
";

/// Show the operations, users and processes of a mount or of a served volume, live
#[derive(Args, Debug)]
#[command(after_long_help = TOP_AFTER)]
pub(crate) struct TopArgs {
    /// The directory where it is mounted, or the volume, LABEL= or UUID=
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub directory: PathBuf,
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=10))]
    pub every: u64,
    /// Show one interval and end
    #[arg(long)]
    pub once: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const TRACE_AFTER: &str = "\
OPERATIONS:
  Those that reach the server: what the kernel answers from its caches is not seen. Reads of names,
  the attributes of files that it knows, and data that it holds do not appear a second time. Each is
  shown when it has been answered: beginning, duration, operation, user, process, path, arguments
  and result. Operations that ask about the mount itself are left out.

  The server keeps operations only while this command reads, 32 MiB of them; a reader that is too
  slow is told the number of lost operations.

FILE:
  --output writes one JSON object a line: the beginning of the trace (shoal_trace, begun_ns, mount),
  each operation (begun_ns, took_ns, op, pid, uid, errno, path, to, target, attribute, ino, offset,
  size, flags, mode, values; without those that are 0), and its end (operations, lost,
  interruptions). Only its owner can read it. shoal bench replay plays it again, on another file
  system, too.

EXIT STATUS:
  0   Ended by --count or --seconds, or by Ctrl-C, or because its reader did.
  1   The mount ended, the file could not be written, or the mount is another user's.
  2   Wrong usage, or DIR is not in a mounted volume.

EXAMPLES:
    shoal trace /mnt
    shoal trace /mnt --op create,unlink --user www-data --path /spool
    shoal trace /mnt --slower 5ms --failed
    shoal trace /mnt --output day.trace --seconds 60
    shoal bench replay --trace day.trace --target dir:/mnt/other
";

/// Show each operation of a mount: its time, caller, path and result
#[derive(Args, Debug)]
#[command(after_long_help = TRACE_AFTER)]
pub(crate) struct TraceArgs {
    /// The directory it is mounted on
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
    /// Write the trace to FILE, to be replayed; nothing is shown
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Only these operations: lookup, create, read (shoal stats has the names)
    #[arg(long, value_name = "OP", value_delimiter = ',')]
    pub op: Vec<String>,
    /// Only those of this user
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// Only those of this process, or thread
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Only those at or below this path of the mount, as /spool
    #[arg(long, value_name = "PATH")]
    pub path: Option<OsString>,
    /// Only those that failed
    #[arg(long)]
    pub failed: bool,
    /// Only those that took longer: 100us, 5ms, 1s
    #[arg(long, value_name = "TIME", value_parser = super::short_duration)]
    pub slower: Option<Duration>,
    /// End after N operations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// End after SECONDS
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
    /// Print JSON, as in the file
    #[arg(long, conflicts_with = "output")]
    pub json: bool,
}

const TRIM_AFTER: &str = "\
DISCARD:
  Discards the volume's free space on the device, or in the file system that holds its file: a
  sparse file gets holes and takes less room, a solid-state disk has less to keep. A mounted volume
  does so by itself, some time after a removal, unless it is mounted with -o nodiscard; shoal trim
  does it for all free space at once. Some 20 MiB stay allocated, so that files can be removed when
  the file system below is full.

OUTPUT:
  The number of bytes discarded, whether or not the device held data there. With --json, one object:
  bytes.

EXIT STATUS:
  0   Done; also where the device cannot discard.
  1   The mount refuses this user.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal trim vol.img
    shoal trim /mnt
";

/// Return the free space of a volume to the device or file that stores it
///
/// A mounted volume is asked through its mount and stays in use; only the superuser and the user
/// who mounted it may do so.
#[derive(Args, Debug)]
#[command(after_long_help = TRIM_AFTER)]
pub(crate) struct TrimArgs {
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
            it; truncated, a file being truncated; subvolume, a deleted one; broken, an entry that
            should not exist (see shoal fsck)
    IN      slot, of the orphan table on the disk; memory, where alone it lives on
    HELD    yes: it is open, or known to the kernel; it is freed when they release it
    SIZE    bytes of a file; of a tree, entries left in its top; of a subvolume, inodes left
    BYTES   bytes of its data
    PATH    its last path, if that directory still exists

  Inodes that are not held are freed in the background while the volume is in use. With --json, one
  object a line:

    ino, kind, slot, held, size, bytes
    path        string, only if known; path_bytes as in shoal ls --json

EXIT STATUS:
  0   Done; also if there are none.
  1   The mount refuses this user.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal orphans vol.img
    shoal orphans /mnt --json
";

/// List inodes without a name: unlinked files, removed trees, deleted subvolumes
///
/// Of a volume that is not mounted it shows those that the next mount will free; nothing is
/// changed. A mounted volume is asked through its mount; only the superuser and the user who
/// mounted it may do so.
#[derive(Args, Debug)]
#[command(after_long_help = ORPHANS_AFTER)]
pub(crate) struct OrphansArgs {
    /// The volume's file or device, or a directory where it is mounted
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

const SCRUB_AFTER: &str = "\
OUTPUT:
  Each problem is one line, when it is found: the short name of the broken rule, then the damage,
  its place and its file. A summary follows. With --json, one object at the end:

    volume        as it was given; volume_bytes as in shoal ls --json
    clean         true if everything has been read and there is no problem
    problems      list of {rule, message}
    left_out      number of further problems, too many in one place to be listed
    blocks, objects, bytes
                  numbers read: blocks of metadata, data objects, bytes of both
    live_bytes    bytes in use; a scrub that was not stopped has read about all of them
    seconds       duration
    stopped       the reason why it stopped before the end, if it did

COVERAGE:
  Everything that the newest checkpoint points to: every block of metadata and all file data, from
  the device, even if it is in memory. Each is compared with its checksum. The scrub of a mount
  begins with a checkpoint; later writes are read by the next scrub. Of a volume that was not
  closed, changes in its journal alone are left out: the summary says which share was read. Checks
  that need a volume at rest (names against link counts, space against its use) are left to shoal
  fsck, which repairs, too.

  Neither reads nor writes wait for a scrub of a mount, but they share the device with it: --rate
  leaves them most of it.

EXIT STATUS:
  0   There is no problem.
  4   Problems were found. They are left as they are.
  8   The scrub could not be made, or not to its end: no such file, not a volume, in use, a read
      error, or the mount refuses this user.
  16  Wrong usage.
  32  Interrupted by SIGINT or SIGTERM.

EXAMPLES:
    shoal scrub vol.img
    shoal scrub /mnt --rate 20M --quiet
";

/// Read everything on a volume and verify its checksums, also while it is mounted
///
/// Finds data that the device has lost or changed, and names the files. Nothing is written. A
/// mounted volume stays in use and is asked through its mount, step by step; only the superuser and
/// the user who mounted it may do so.
#[derive(Args, Debug)]
#[command(after_long_help = SCRUB_AFTER)]
pub(crate) struct ScrubArgs {
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
