//! Arguments of `mount.shoal`, which mount(8) runs for `mount -t shoal` and for fstab lines.

use std::path::PathBuf;

use clap::{Parser, ValueHint};

const AFTER_HELP: &str = "\
INSTALLATION:
  mount.shoal is the command shoal under another name. Install it as a link where mount(8) looks:

    ln -s \"$(command -v shoal)\" /sbin/mount.shoal

EXIT STATUS:
  0   Mounted.
  1   Wrong usage.
  32  The mount failed.

EXAMPLES:
    mount -t shoal /srv/vol.img /data -o allow_other,cache=2G

  In /etc/fstab:
    /srv/vol.img  /data  shoal  allow_other,cache=2G,nofail  0  0
";

/// Mount a Shoal volume for mount(8)
///
/// Does what 'shoal mount' does, with the arguments that mount(8) gives to its helpers. The
/// options after -o are described in shoal-mount(1).
#[derive(Parser, Debug)]
#[command(name = "mount.shoal", version, after_long_help = AFTER_HELP, max_term_width = 100)]
pub struct HelperArgs {
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
}
