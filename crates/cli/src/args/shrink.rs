//! Arguments of `shoal shrink`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

const AFTER: &str = "\
SIZE:
  In whole segments (4 MiB by default; 'shoal info' has their size), rounded down. The
  contents of the segments that go are moved before them. The contents of the volume must fit, with
  the space that every volume keeps free: about a twentieth, at least 11 segments, and a quarter of
  its metadata. --dry-run prints how small it can become.

  A volume in a file: the file is cut off at the new end. A device stays as it is, with a smaller
  volume on it; it can be made smaller afterwards, as by lvreduce, to no less than the new size.

  Nothing may use the volume: unmount it first. A crash at any moment leaves it at its old size or
  at its new one, with everything that it holds. After a crash, or Ctrl-C, the same command goes on
  with the rest still to be moved.

EXIT STATUS:
  0   The volume has its new size, on disk.
  1   It could not be cut off, or was stopped.
  2   Wrong usage; the size is too small; or the volume cannot be used: missing, damaged, or in
      use. It has its old size.
  130, 143  Interrupted by SIGINT or SIGTERM: it has its old size.

EXAMPLES:
    shoal shrink vol.img --min --dry-run
    shoal shrink vol.img --size 20G
    shoal shrink /dev/vg/data --size 500G && lvreduce -L 500G vg/data
";

/// Make an unmounted volume smaller
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct ShrinkArgs {
    /// The volume's file or device, LABEL= or UUID=
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// New size
    #[arg(long, value_name = "SIZE", value_parser = super::some_size)]
    #[arg(required_unless_present = "min", conflicts_with = "min")]
    pub size: Option<u64>,
    /// As small as it can be
    #[arg(long)]
    pub min: bool,
    /// Only print how much would be moved, and about how small the volume can become
    #[arg(long, short = 'n')]
    pub dry_run: bool,
}
