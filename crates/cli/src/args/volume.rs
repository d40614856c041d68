//! Arguments of the commands about a whole volume.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use shoal::raw::{Compression, Label};

const MKFS_AFTER: &str = "\
EXIT STATUS:
  0   The volume was made.
  2   It was not: the target looks like a filesystem or is not empty and --force was not given, is
      in use, too small, or cannot be written. Nothing on it was changed.

EXAMPLES:
  A sparse file that grows up to 100 GiB as the volume fills:
    shoal mkfs vol.img --size 100G

  A whole block device, over its former contents:
    shoal mkfs /dev/sdx1 --force
";

/// Make a volume
///
/// VOLUME is a new file, an existing file, a block device or a place in a bucket. A file is sparse:
/// it takes disk space only as the volume fills. Anything that looks like a filesystem already is
/// left alone unless --force is given. The top directory belongs to the user who runs the command.
/// A new file gets mode 600: any user who can read it can read every file in the volume.
#[derive(Args, Debug)]
#[command(after_long_help = MKFS_AFTER)]
pub(crate) struct MkfsArgs {
    /// File or block device that becomes the volume, or a place in a bucket: s3://BUCKET/PREFIX
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Size of the volume, as 8G; K, M, G and T are powers of 1024
    ///
    /// Without it, an existing file or device keeps its size and a new file gets 8G. In a bucket it
    /// is only a limit, by default 8T.
    #[arg(long, value_name = "SIZE", value_parser = super::size)]
    pub size: Option<u64>,
    /// Bytes of an inode: larger ones hold larger files and more attributes within themselves
    #[arg(long, value_name = "BYTES", default_value = "512")]
    #[arg(value_parser = inode_size)]
    pub inode_size: u32,
    /// Bytes of a segment, a power of two from 1M to 64M [default: depends on the size]
    #[arg(long, value_name = "SIZE", value_parser = super::size)]
    pub segment_size: Option<u64>,
    /// Keep for each name a pointer from the file to its directory
    ///
    /// Without these pointers 'shoal path' and 'shoal parents' do not work, and fsck checks less.
    /// They cost almost nothing: off is for measuring their cost.
    #[arg(long, value_name = "WHETHER", default_value = "on")]
    pub parent: Switch,
    /// Compress metadata and data: none, lz4, zstd, or zstd:LEVEL from 1 to 19
    ///
    /// Metadata is compressed block by block, and the data of a file where that saves an eighth of
    /// it. Overwrites of a few KiB in large files read and write units of up to 128K.
    #[arg(long, value_name = "CODEC", default_value = "none")]
    pub compress: Compression,
    /// Label of the volume, by which it can be mounted; see shoal-label(1)
    #[arg(long, short = 'L', value_name = "LABEL", value_parser = Label::new)]
    pub label: Option<Label>,
    /// Overwrite a file or device that looks like a filesystem or is not empty
    #[arg(long, short)]
    pub force: bool,
    /// In a bucket: do not test that the store lets only one of many writers create an object
    ///
    /// The test takes some seconds and up to 3,400 requests. A store that fails it would let two
    /// mounts destroy the volume.
    #[arg(long)]
    pub trust_store: bool,
    /// Print the result as JSON: the object that info --json prints
    #[arg(long)]
    pub json: bool,
}

/// On or off.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Switch {
    /// Yes
    On,
    /// No
    Off,
}

/// Parses an inode size that the format has.
fn inode_size(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(size @ (256 | 512 | 1024 | 2048)) => Ok(size),
        _ => Err(format!("'{text}' is not an inode size: choose 256, 512, 1024 or 2048")),
    }
}

const FSCK_AFTER: &str = "\
OUTPUT:
  Each problem is one line: the short name of the broken rule, then the damage, its place and its
  files. A summary follows. With --json, one object:

    volume        path of the volume
    clean         true if there is no problem
    problems      list of {rule, message}
    inodes, directories, dirents, extents, blocks, data_bytes
                  numbers checked
    recovery      contents of the volume's journal when it was opened: {needed, records, bytes,
                  orphans, intents, torn, seconds}; replayed in memory only
    repair        with --repair: {written, actions, left, inodes, seconds, log}; actions is a list
                  of {pass, message}, left one of problems that could not be repaired

  Without --json, and without --repair, the changes that a repair would make are listed too.

REPAIR:
  Facts that are recorded in two places are restored from the one that is left: names of a lost
  directory from the files that were in it, hard links included; parents of files from directories;
  counts and free space by counting. Data without a second record is given up, and reported by
  path. Files that have lost their names get new ones in lost+found.

  All changes are prepared in memory first, shown, and written in one step if you agree. A crash
  meanwhile leaves the volume as it was. The changes are appended to a log: VOLUME.fsck.log, for a
  device in the current directory.

  That takes memory: some 250 bytes for each inode, and 16 KiB for each leaf of a tree that has to
  be rebuilt. If it is likely to take more than the machine has available, or than --memory allows,
  the repair is refused with both figures before it begins, and a check without --repair says that
  it has not planned a repair.

  Contents of files and large values of attributes are recorded once, so damaged ones cannot be
  repaired. They are named, by path and range of bytes, here and in the log. Reading that range
  fails with EIO, before the repair and after it; the rest of the file can be read. Every further
  fsck names them again, with exit status 4, and every further --repair says that there is nothing
  to repair, until the range is overwritten or the file is removed: restore it from a copy.

  A place that the device fails to read counts as damaged. It is reported, and its contents are
  lost; the repair goes on with the rest. A device that is gone ends the repair, before anything has
  been written.

  A volume without any superblock is found again by the backup superblock behind its newest
  checkpoint, for which the whole device is read. Before you agree, compare the id and the time at
  which it was made, which are shown.

AT BOOT:
  fsck(8) runs fsck.shoal, which is this command, for lines of fstab whose last field is not 0, with
  -a. It replays the journal of a volume that was not closed, as the next mount would, so that
  status 0 means that the volume can be mounted. It does not read the whole volume: a crash damages
  none. If the volume cannot be opened, it is checked, and repaired if all lost facts are recorded
  a second time (names, counts, free space, a copy of the superblock). If something would be given
  up, or guessed, nothing is written: status 4, and you have to run 'shoal fsck --repair'.

  Without --log it keeps no log, but prints every change.

EXIT STATUS:
  0   The volume is clean; with --auto: it can be mounted.
  1   Problems were found and repaired.
  4   Problems were found. They, or some of them, are left uncorrected.
  8   The check could not be made: no such file, not a volume, in use, or the device is gone; or a
      repair takes more memory than it may.
  16  Wrong usage.
  32  Interrupted by SIGINT or SIGTERM. A repair is made as a whole or not at all.

EXAMPLES:
    shoal fsck vol.img && shoal mount vol.img /mnt
    shoal fsck --repair vol.img
    shoal fsck -a -f /dev/sdb1
    shoal fsck --yes --log /var/log/shoal.log vol.img
";

/// Check a volume, and repair it with --repair
///
/// Reads all metadata and file data, verifies every checksum and compares everything that is
/// recorded in two places. The volume must not be mounted. If it was not closed properly, its
/// journal is replayed in memory, and the result, which the next mount would see, is checked.
/// Without --repair nothing is written.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = FSCK_AFTER)]
pub(crate) struct FsckArgs {
    /// The volume's file, device or place in a bucket, or LABEL= or UUID= of one on a device
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Repair damage; asks before anything is written
    #[arg(long, short)]
    pub repair: bool,
    /// Repair damage, and do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Without questions, do what is safe: for boot (as -p)
    ///
    /// A volume that was closed is not read, unless with -f. The journal of one that was not closed
    /// is replayed. Damage is repaired if nothing is given up by that: see AT BOOT.
    #[arg(long, short, visible_short_alias = 'p', conflicts_with_all = ["repair", "yes"])]
    pub auto: bool,
    /// Write nothing (the default without -a, -p, -r and -y)
    #[arg(long, short, conflicts_with_all = ["repair", "yes", "auto"])]
    pub no_changes: bool,
    /// With --auto: check also a volume that was closed. All others are checked in any case
    #[arg(long, short)]
    pub full: bool,
    /// Write progress to this open descriptor, in lines as those of e2fsck; 0: show a bar. Also -C,
    /// -CFD and -C FD, as fsck(8) has it
    #[arg(long, value_name = "FD")]
    pub progress_fd: Option<u32>,
    /// Type of the volume, which must be shoal; accepted for fsck(8)
    #[arg(short = 't', value_name = "TYPE", value_parser = ["shoal", "fuse.shoal"])]
    pub fs_type: Option<String>,
    /// Accepted for fsck(8): everything is told anyway
    #[arg(long, short)]
    pub verbose: bool,
    /// Go on although another process has a claim on the volume
    ///
    /// For a copy of a volume in use, or when the process is known to be dead. If it is not, a
    /// check reports damage that does not exist, and a repair destroys the volume.
    #[arg(long)]
    pub force: bool,
    /// Threads that check [default: one for each processor]
    ///
    /// The result does not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Memory that a repair may take, as 8G [default: the machine's available memory]
    ///
    /// A repair that takes more is refused before it begins. The amount is an estimate.
    #[arg(long, value_name = "SIZE", value_parser = super::some_size)]
    pub memory: Option<u64>,
    /// Append the repair's changes to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

const INFO_AFTER: &str = "\
OUTPUT:
  With --json, one object:

    volume, id, label, version, features, created (seconds since 1970)
    size, free, available, live_bytes        bytes
    segment_size, segments, segments_free
    inode_size, inodes, inodes_free, orphans
    subvolumes, subvolumes_deleted           their numbers; deleted: those still being freed
    checkpoint, checkpoint_lsn, lsn          newest checkpoint, and positions in the journal
    cache_bytes
    claim                                    the process that had it open and has ended without
                                             closing it, if any
    read_only                                the reason, only if it is damaged or failing
    recovery                                 {needed, records, bytes, orphans, intents, torn,
                                             seconds}
    counters                                 {name: value}, since the volume was opened

  Of a mounted volume, one object:

    mount, size, free, available             bytes
    volume, id, label, version, features, created, options, shoal, server, keeper, uptime,
    writable, checkpoint, checkpoint_age, scrub_age
                                             only for the superuser and the user who mounted;
                                             server, keeper: processes, keeper null if there is
                                             none; uptime, ages: seconds
    read_only                                the reason, only if it takes no changes
    now                                      {name: value}, gauges

EXIT STATUS:
  0   Done.
  2   The volume cannot be used: missing, damaged, or in use.
";

/// Show a volume's geometry, usage and features
///
/// Nothing is changed. Of a mounted volume, named by its path or its mount, the server answers.
#[derive(Args, Debug)]
#[command(after_long_help = INFO_AFTER)]
pub(crate) struct InfoArgs {
    /// The volume's file or device, LABEL= or UUID=, or a directory of its mount
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print the properties for udev, as lines NAME=VALUE
    ///
    /// Reads two sectors, takes no lock, and so works while the volume is in use. What is no volume
    /// is status 2, without a message.
    #[arg(long, conflicts_with = "json")]
    pub udev: bool,
}

const LOGDUMP_AFTER: &str = "\
OUTPUT:
  First the start of the journal and the intents open there. Then each record, which is one
  transaction: its LSN, its numbers of bytes and items, and the items below it. An item about an
  intent ends in the state of the intent from there on: logged, spread, removed or done. Last, the
  end of the journal, and each intent that the next mount has to carry out.

  With --json, one object a line, told apart by their first field:

    checkpoint    {checkpoint, clean, lsn, incarnation, open}: the start
    record        {record, bytes, items}: record is the LSN; each item is {kind, text}, and
                  {intent, state} if it is about one
    end           {end, records, bytes, items, intents_logged, intents_done, open, torn}

  open is a list of {intent, state, text}.

EXIT STATUS:
  0   Done; also if there is nothing to replay.
  2   The volume cannot be used: missing, damaged, or in use.
";

/// Print the journal of a volume that is not mounted
///
/// Shows the records since the newest checkpoint of a volume that was not closed, which the next
/// mount replays. Nothing is replayed and nothing is changed.
#[derive(Args, Debug)]
#[command(after_long_help = LOGDUMP_AFTER)]
pub(crate) struct LogdumpArgs {
    /// The volume's file or device
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

const GENERATE_AFTER: &str = "\
EXIT STATUS:
  0   The files were written.
  1   They were not, or some of them.
  2   Wrong usage.

EXAMPLES:
    shoal generate man /usr/local/share/man/man1
    shoal generate completions .
";

/// Write man pages, shell completions, or a dashboard for Grafana
#[derive(Args, Debug)]
#[command(after_long_help = GENERATE_AFTER)]
pub(crate) struct GenerateArgs {
    /// Kind of files to write
    #[arg(value_name = "KIND")]
    pub what: GenerateWhat,
    /// Directory to write the files into
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
}

/// Kinds of files that `generate` can write.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GenerateWhat {
    /// Man pages: one for the command, one for each subcommand, one for the mount helper
    Man,
    /// Completions for bash, zsh, fish and elvish
    Completions,
    /// A dashboard of the metrics, to be imported in Grafana
    Grafana,
}
