//! Arguments of `shoal dump` and `shoal restore`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

const DUMP_AFTER: &str = "\
STREAM:
  Everything in use, exactly as it is on the volume, with checksums: subvolumes, quotas, times, ids,
  all of it. So a restored volume has the same size and the same id; do not mount it beside the
  original. Space that is free takes nothing. Compress the stream with any program. It has
  the files of all users: a file made by --output can be read by its owner alone.

FILE:
  --output writes beside FILE, and gives it its name when it is whole and on disk: until then, and
  after a failure or an interruption, FILE is what it was. A pipe or device is written directly.

  The volume must not be mounted. A volume that was not closed is opened and closed first.

EXIT STATUS:
  0   The stream is whole.
  1   It is not: the volume could not be read, or the stream not be written.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal dump vol.img | zstd > vol.dump.zst
    shoal dump /dev/vg/data --output /backup/data.dump
    shoal dump vol.img | ssh host shoal restore - /dev/vg/copy
";

/// Write a whole volume to a stream, to be restored
#[derive(Args, Debug)]
#[command(after_long_help = DUMP_AFTER)]
pub(crate) struct DumpArgs {
    /// The volume's file or device, or LABEL= or UUID=
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Write the stream to FILE; without it, to standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Write FILE also over another volume
    #[arg(long, requires = "output")]
    pub force: bool,
}

const RESTORE_AFTER: &str = "\
RESTORE:
  The volume is as large as the dumped one; a device must be at least so large, and 'shoal grow'
  takes the rest. Each segment is verified. The superblock is written last: if the command is
  interrupted, or the stream is damaged or cut off, there is no volume. With --force a file stays
  as it was until the new volume is whole, so both need space; a device is overwritten.

EXIT STATUS:
  0   The volume is restored, and on disk.
  1   It is not: the stream is damaged, or the volume could not be written.
  2   Wrong usage, or VOLUME holds something else (--force).

EXAMPLES:
    shoal restore vol.dump vol.img
    zstd -dc vol.dump.zst | shoal restore - /dev/vg/data --force
";

/// Make a volume from a stream of shoal dump
#[derive(Args, Debug)]
#[command(after_long_help = RESTORE_AFTER)]
pub(crate) struct RestoreArgs {
    /// The stream's file; - for standard input
    #[arg(value_name = "STREAM", value_hint = ValueHint::FilePath)]
    pub stream: PathBuf,
    /// File or block device that becomes the volume
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Overwrite whatever is there
    #[arg(long)]
    pub force: bool,
}
