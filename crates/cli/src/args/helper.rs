//! Arguments of `mount.shoal` and `umount.shoal`, which mount(8) and umount(8) run for
//! `mount -t shoal`, for fstab lines, and for every mounted volume.

use std::path::PathBuf;

use clap::{Parser, ValueHint};

const MOUNT_AFTER: &str = "\
OPTIONS OF MOUNT:
  Those of shoal-mount(1), with the defaults of mount(8): set-id bits, devices and programs are
  allowed for root unless the list says nosuid, nodev or noexec. (Among user, allow_other and
  no_default_permissions, mount(8) and this helper choose the safe ones: see shoal-mount(1).)

  These are for mount(8), fstab(5) and systemd, and are accepted and ignored: defaults, auto,
  noauto, user, users, owner, group, nofail, _netdev, comment=, x-..., X-...

REMOUNT:
  'mount -o remount,OPTIONS DIR' changes ro and rw, noatime and relatime, and the flags that every
  filesystem has: suid, dev, exec, sync, dirsync and their opposites. Every other option is
  refused by name, unless it has that value already.

  With ro the mount refuses every change, everything is on disk when the command returns, and there
  is nothing to replay in the volume. It fails while files are open for writing. The server keeps
  its claim on the volume. A volume that was mounted with ro cannot become writable: its server has
  opened it read-only. Unmount it, and mount it again.

INSTALLATION:
  mount.shoal is the command shoal under another name. Install it as links where mount(8) looks.
  The kernel lists a mount with the type fuse.shoal, which a remount and umount(8) look for:

    for name in mount.shoal mount.fuse.shoal umount.fuse.shoal fsck.shoal mkfs.shoal; do
      ln -s \"$(command -v shoal)\" /sbin/$name
    done

EXIT STATUS:
  0   Mounted, or remounted.
  1   Wrong usage.
  32  It failed.

EXAMPLES:
    mount -t shoal /srv/vol.img /data -o allow_other,cache=2G
    mount -o remount,ro /data

  In /etc/fstab:
    /srv/vol.img  /data  shoal  allow_other,cache=2G,nofail  0  0
";

const UMOUNT_AFTER: &str = "\
INSTALLATION:
  See mount.shoal(8). Without this helper umount(8) returns before the volume is released.

EXIT STATUS:
  0   Unmounted, everything is on disk and the volume is closed, unless other mounts of it remain,
      which are named; with -l or -f: detached. With -r, perhaps read-only instead.
  1   Wrong usage.
  32  It failed.
";

/// Mount a Shoal volume for mount(8), or change the options of a mount
///
/// Does what 'shoal mount' does, with the arguments that mount(8) gives to its helpers.
#[derive(Parser, Debug)]
#[command(name = "mount.shoal", version, after_long_help = MOUNT_AFTER, max_term_width = 100)]
pub(crate) struct HelperArgs {
    /// The volume's file or device
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub source: PathBuf,
    /// The directory to mount it on
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
    /// Mount options, separated by commas
    #[arg(short, value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Ignore unknown options
    #[arg(short)]
    pub sloppy: bool,
    /// Do everything but mount
    #[arg(short)]
    pub fake: bool,
    /// Accepted and ignored: there is no mtab to leave alone
    #[arg(short)]
    pub no_mtab: bool,
    /// Print the steps
    #[arg(short)]
    pub verbose: bool,
    /// Accepted and ignored: the type, as mount(8) passes it on
    #[arg(short = 't', value_name = "TYPE")]
    pub fs_type: Option<String>,
    /// Accepted and ignored: mount(8) has entered the namespace before
    #[arg(short = 'N', value_name = "NAMESPACE")]
    pub namespace: Option<String>,
}

/// Unmount a Shoal volume for umount(8), and return when it is on disk and released
///
/// Does what 'shoal umount' does, with the arguments that umount(8) gives to its helpers.
#[derive(Parser, Debug)]
#[command(name = "umount.shoal", version, after_long_help = UMOUNT_AFTER, max_term_width = 100)]
pub(crate) struct UmountHelperArgs {
    /// The directory it is mounted on
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
    /// Detach at once also while files are in use
    #[arg(short)]
    pub lazy: bool,
    /// End the connection to the server first, so that calls that wait for it fail
    #[arg(short, conflicts_with = "lazy")]
    pub force: bool,
    /// If it cannot be unmounted, make it read-only
    #[arg(short)]
    pub read_only: bool,
    /// Accepted and ignored: there is no mtab to leave alone
    #[arg(short)]
    pub no_mtab: bool,
    /// Do everything but unmount
    #[arg(long)]
    pub fake: bool,
    /// Print the steps
    #[arg(short)]
    pub verbose: bool,
    /// Accepted and ignored: the type, as umount(8) passes it on
    #[arg(short = 't', value_name = "TYPE")]
    pub fs_type: Option<String>,
    /// Accepted and ignored: umount(8) has entered the namespace before
    #[arg(short = 'N', value_name = "NAMESPACE")]
    pub namespace: Option<String>,
}
