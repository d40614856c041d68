//! Arguments of `shoal copy`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

const COPY_AFTER: &str = "\
CONTENTS:
  Everything in use, exactly as it is: subvolumes, quotas, times, ids, all of it. The copy has the
  same size and the same id; do not mount it beside the original. Single files and directories are
  copied by 'shoal cp' and 'shoal sync'.

  A second copy to the same DEST takes only the changes since: it follows the pointers that are
  younger, and reads nothing else. Either of the two may be the SOURCE, but only one of them
  may have been changed since they were the same. Otherwise the copy is refused, and --force copies
  everything.

  A copy that was interrupted, or that failed, goes on when the same command is given again, also
  if SOURCE has been changed meanwhile.

WHILE IT RUNS:
  Neither volume may be mounted. SOURCE is opened and closed first, to note in it that it was
  copied; one that cannot be written is copied as a whole each time, by --force. From the first
  change of DEST until the end, DEST is no volume, and cannot be mounted. To have a backup at any
  moment, keep two, and write them in turn.

EXIT STATUS:
  0   DEST is the same volume as SOURCE, and durable.
  1   It is not: something could not be read or written. The same command goes on.
  2   Wrong usage, or one of the two cannot be used: missing, damaged, in use; or DEST holds
      something else, or has been changed (--force).

EXAMPLES:
    shoal copy vol.img s3://bucket/backup
    shoal copy s3://bucket/backup vol.img
    shoal copy /dev/vg/data /backup/data.img
";

/// Copy a volume to a file, a device or a bucket, or bring a copy up to date
#[derive(Args, Debug)]
#[command(after_long_help = COPY_AFTER)]
pub(crate) struct CopyArgs {
    /// The volume to copy: its file, device or bucket, or LABEL= or UUID=
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub source: PathBuf,
    /// File, block device or place in a bucket that becomes the same volume
    #[arg(value_name = "DEST", value_hint = ValueHint::AnyPath)]
    pub destination: PathBuf,
    /// Copy everything, whatever is in DEST
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object instead: kind, bytes, used, stamped
    #[arg(long)]
    pub json: bool,
}
