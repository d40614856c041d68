//! Arguments of `shoal label`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

const AFTER: &str = "\
LABELS:
  A label has at most 64 bytes of UTF-8, without slashes and control characters. Volumes on devices
  can be named by it, here and for mount(8): LABEL=backup. So they can by their id: UUID=...; see
  'shoal info'. Both need udev's rule from the package of Shoal for mount(8) and fstab, and nothing
  for the commands mount, fsck, info and label. mkfs --label gives a new volume its label.

  After a change of a volume on a device, udev looks at the device when it is closed; a mount keeps
  it open. 'udevadm trigger /dev/DEVICE' does it at once.

EXIT STATUS:
  0   Done.
  1   The label could not be changed.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal label vol.img backup
    shoal label /data
    shoal label --remove LABEL=backup
";

/// Show or change the label of a volume, mounted or not
///
/// The change is on disk when this returns.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER)]
pub(crate) struct LabelArgs {
    /// The volume's file or device, LABEL= or UUID=, or a directory of its mount
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// New label; without it, the label is printed
    #[arg(value_name = "LABEL")]
    pub label: Option<String>,
    /// Remove the label
    #[arg(long, conflicts_with = "label")]
    pub remove: bool,
}
