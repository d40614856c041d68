//! Arguments of `shoal grow`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

const AFTER: &str = "\
SIZE:
  In whole segments (4 MiB by default; 'shoal info' has their size). A volume in a file: the file
  becomes longer, sparse. On a device, which must be larger already, as after lvextend: without
  --size all of it is used. 'shoal shrink' makes a volume smaller.

  A crash at any moment leaves the volume at its old size or at its new one.

IN USE:
  A mount, or a volume that 'shoal serve' serves, is given to another server of the same program, as
  by 'shoal remount --takeover', which opens the volume at its new size: calls wait for some tens of
  milliseconds. It needs a keeper ('shoal mount --help'). Without one, unmount, grow and mount.

EXIT STATUS:
  0   The volume has its new size, on disk.
  1   It could not grow.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal grow vol.img --size 64G
    lvextend -L +1T vg/data && shoal grow /dev/vg/data
    shoal grow /mnt --size 20T
";

/// Make a volume larger, in use or not
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct GrowArgs {
    /// The volume's file or device, LABEL= or UUID=, or the directory it is mounted on
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// New size; without it, that of the file or device
    #[arg(long, value_name = "SIZE", value_parser = super::some_size)]
    pub size: Option<u64>,
}
