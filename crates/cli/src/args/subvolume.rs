//! Arguments of the commands about subvolumes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

const SUBVOLUME_AFTER: &str = "\
EXIT STATUS:
  0   Done.
  1   It could not be done.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal subvolume create vol.img ci
    shoal cp -r workspace vol.img:/ci
    shoal subvolume delete vol.img ci
    shoal subvolume create /mnt ci
";

/// Make, list and delete subvolumes
///
/// A subvolume is a directory under the volume's top that has inode numbers and trees of its own.
/// Operations in one never wait for those in another, and a subvolume is deleted at once, however
/// much is in it. Like a mount point it cannot be renamed or removed as a directory, and files are
/// not renamed or linked from one subvolume to another. In a mounted volume, this is for the
/// superuser and the user who has mounted it.
#[derive(Args, Debug)]
#[command(after_long_help = SUBVOLUME_AFTER, disable_help_subcommand = true)]
pub(crate) struct SubvolumeArgs {
    /// Command to run
    #[command(subcommand)]
    pub command: SubvolumeCommand,
}

/// The commands about subvolumes.
#[derive(Subcommand, Debug)]
pub(crate) enum SubvolumeCommand {
    Create(SubvolumeCreateArgs),
    List(SubvolumeListArgs),
    Delete(SubvolumeDeleteArgs),
}

const CREATE_AFTER: &str = "\
EXIT STATUS:
  0   The subvolume was made.
  1   It was not: the name is taken, the volume is full, or it has 65,536 subvolumes.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// Make a subvolume
///
/// It belongs to the user who runs the command. Each takes about 128 KiB before anything is in it.
#[derive(Args, Debug)]
#[command(after_long_help = CREATE_AFTER)]
pub(crate) struct SubvolumeCreateArgs {
    /// The volume's file or device, or the directory that it is mounted on
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Name of the subvolume under the volume's top
    #[arg(value_name = "NAME")]
    pub name: OsString,
    /// Permission bits in octal [default: 777 without the bits of the umask]
    #[arg(short, long, value_name = "MODE", value_parser = super::octal_mode)]
    pub mode: Option<u32>,
}

const LIST_AFTER: &str = "\
OUTPUT:
  One subvolume a line, by number: the number, inodes in use, and the name; on a terminal below a
  line of headings. A deleted subvolume is
  listed without a name until its space is free. With --json, one object a line:

    number     top 16 bits of its inode numbers
    name       only of subvolumes that have not been deleted; name_bytes as in shoal ls --json
    top        inode number of its top directory
    inodes     inodes in use
    deleted    true: its space is being freed

EXIT STATUS:
  0   Done.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// List subvolumes
#[derive(Args, Debug)]
#[command(after_long_help = LIST_AFTER)]
pub(crate) struct SubvolumeListArgs {
    /// The volume's file or device, or the directory that it is mounted on
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

const DELETE_AFTER: &str = "\
EXIT STATUS:
  0   The subvolume was deleted; with --wait, and its space is free.
  1   It was not: there is no such subvolume. With --wait also: it was, but its space could not be
      freed.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// Delete a subvolume and everything in it
///
/// The name is gone when the command returns. The space is freed in the background when the volume
/// is next mounted or changed, at once if it is mounted; with --wait it is free on return.
#[derive(Args, Debug)]
#[command(after_long_help = DELETE_AFTER)]
pub(crate) struct SubvolumeDeleteArgs {
    /// The volume's file or device, or the directory that it is mounted on
    #[arg(value_name = "VOLUME", value_hint = ValueHint::AnyPath)]
    pub volume: PathBuf,
    /// Name of the subvolume
    #[arg(value_name = "NAME")]
    pub name: OsString,
    /// Return when the space is free: of this subvolume, and of those deleted before
    #[arg(long)]
    pub wait: bool,
}
