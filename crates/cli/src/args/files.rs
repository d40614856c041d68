//! Arguments of the commands about files in a volume.

use std::ffi::OsString;

use clap::{Args, ValueHint};

const EXIT_STATUS: &str = "\
EXIT STATUS:
  0   Everything was done.
  1   Some of it failed; each failure has a line of its own on standard error.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// The fields of a file in JSON, and the exit statuses.
pub(super) const JSON_FILE: &str = "\
JSON:
  One object a line for each file:

    path, name        strings
    type              file, directory, symlink, fifo, socket, char_device or block_device
    ino, generation   together they identify a file for ever
    mode              permission bits, a string in octal
    nlink, uid, gid
    size              bytes; of a directory, its entries
    blocks            space used, in units of 512 bytes
    device            [major, minor], only of device files
    atime, mtime, ctime, btime
                      {sec, nsec} since 1970
    target            only of symlinks
    attributes        names of the extended attributes; only from stat. attributes_bytes: all of
                      them in hexadecimal, only if one is not UTF-8

  A name that is not UTF-8 is given with \\xNN for each offending byte; only then there is a second
  field (path_bytes, name_bytes, target_bytes) with all its bytes in hexadecimal.

EXIT STATUS:
  0   Everything was done.
  1   Some of it failed; each failure has a line of its own on standard error.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// Show the attributes of files in a volume
///
/// --format takes the fields of stat(1): %n name, %N with the target, %F type, %a %A permission
/// bits, %f all of the mode, %s size, %b blocks of %B bytes, %o size of transfers, %h links, %i
/// inode, %u %U %g %G owner and group, %t %T %r device, %x %X %y %Y %z %Z %w %W times of access,
/// contents, inode and birth as text and in seconds, each with flags, a width and a precision.
#[derive(Args, Debug)]
#[command(after_long_help = JSON_FILE)]
pub(crate) struct StatArgs {
    /// Files, in a mount or as VOLUME:/path
    #[arg(value_name = "PLACE", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Show the target of a symlink, not the symlink
    #[arg(short = 'L', long)]
    pub dereference: bool,
    /// Print this for each file, with %FIELDs as of stat(1), and a new line
    #[arg(short = 'c', long, value_name = "FORMAT", conflicts_with = "json")]
    pub format: Option<String>,
    /// Print JSON, one object a line for each file
    #[arg(long)]
    pub json: bool,
}

/// Write files to standard output
///
/// With --token, the one file of VOLUME that a token opens (shoal share); on a mount, read the file
/// .shoal-open/TOKEN in its top directory.
#[derive(Args, Debug)]
#[command(after_long_help = EXIT_STATUS)]
pub(crate) struct CatArgs {
    /// Files, in a mount or as VOLUME:/path; with --token the volume alone
    #[arg(value_name = "PLACE", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Write the file of this token
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
}

const CP_AFTER: &str = "\
KEPT:
  Mode, times, symlinks, hard links among the files copied, holes of sparse files, device files,
  pipes and sockets; the owner if run by root; extended attributes and access control lists. In
  this it is like 'cp -a' also without -r; but without -r a symlink given on the command line is
  followed. An attribute that the other side refuses is left out, with one message, and is no
  failure.

OVERWRITTEN:
  If DESTINATION is a directory, sources are copied into it under their own names; a source that
  ends in '.' or is a volume's top directory is merged into it. Directories are merged, files
  overwritten, other types replaced. A file is never replaced by a directory or the reverse. A
  symlink that is found in place of a file is followed if it is DESTINATION itself, and replaced
  if it is below.

ERRORS:
  A file that cannot be copied is reported and the others are still copied. Copying stops when
  the destination is full or a volume has become read-only.

EXIT STATUS:
  0   Everything was copied.
  1   Some of it was not; each failure has a line of its own on standard error.
  2   Wrong usage, or a volume cannot be used: missing, damaged, or in use.

EXAMPLES:
  Into a volume, out of it, and within it:
    shoal cp -r ~/mail vol.img:/
    shoal cp vol.img:/mail/inbox/1 .
    shoal cp -r vol.img:/mail vol.img:/mail.old

  Standard input to a file:
    pg_dump shop | shoal cp - vol.img:/dumps/shop.sql

  Copy the contents of a directory, not the directory:
    shoal cp -r ~/mail/. vol.img:/backup
";

/// Copy files into, out of, or within a volume
///
/// Each argument is a place in a volume, VOLUME:/path, or a local path; at least one must be in a
/// volume. A local path that contains ':/' is written with ./ before it. A single source '-' is
/// standard input.
#[derive(Args, Debug)]
#[command(after_long_help = CP_AFTER)]
pub(crate) struct CpArgs {
    /// Files and directories to copy
    #[arg(value_name = "SOURCE", required = true, value_hint = ValueHint::AnyPath)]
    pub sources: Vec<OsString>,
    /// Destination
    #[arg(value_name = "DESTINATION", required = true, value_hint = ValueHint::AnyPath)]
    pub destination: OsString,
    /// Copy directories with everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Accepted out of habit: the same as -r
    #[arg(short, long)]
    pub archive: bool,
    /// Leave files alone that exist
    #[arg(short, long)]
    pub no_clobber: bool,
    /// Overwrite only files that are older than the source
    #[arg(short, long, conflicts_with = "no_clobber")]
    pub update: bool,
    /// Accepted out of habit: mode, owner and times are kept anyway
    #[arg(short, long)]
    pub preserve: bool,
    /// Overwrite DESTINATION also if it holds a volume; other files are overwritten anyway
    #[arg(short, long)]
    pub force: bool,
    /// Copy to DESTINATION itself, also if it is a directory
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    /// Print each file that is copied
    #[arg(short, long)]
    pub verbose: bool,
}

/// Rename or move files within a volume or mount
///
/// If the destination is a directory, the sources are moved into it; a file in the way is
/// replaced. To move between volumes, copy with cp and remove with rm.
#[derive(Args, Debug)]
#[command(after_long_help = EXIT_STATUS)]
pub(crate) struct MvArgs {
    /// Files to move, in a mount or as VOLUME:/path
    #[arg(value_name = "SOURCE", required = true, value_hint = ValueHint::AnyPath)]
    pub sources: Vec<OsString>,
    /// Destination, in the same volume
    #[arg(value_name = "DESTINATION", required = true, value_hint = ValueHint::AnyPath)]
    pub destination: OsString,
    /// Fail instead of replacing a file
    #[arg(short, long, overrides_with = "force")]
    pub no_clobber: bool,
    /// Replace files, which is the default; takes back -n
    #[arg(short, long)]
    pub force: bool,
    /// Print each file that is moved
    #[arg(short, long)]
    pub verbose: bool,
    /// Swap the two files
    #[arg(long, conflicts_with = "no_clobber")]
    pub exchange: bool,
    /// Rename to DESTINATION itself, also if it is a directory
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
}

const RM_AFTER: &str = "\
TREES:
  With -r a directory goes with everything below it as one change, however large: a reader sees all
  of it or nothing, and so does a mount after a crash. Its space is freed in the background, and the
  command waits for that, unless the volume is mounted or --no-wait is given; the rest is freed when
  the volume is next in use. A file that has names elsewhere keeps them; open files stay usable.

PERMISSIONS:
  In a mounted volume, those that rm -rf needs: to change the directory that the tree is in; to
  list, search and change each directory below that is not empty; and where the sticky bit is set,
  to own the directory or the files in it. But while rm -rf goes as far as it can, here nothing is
  removed unless all of it may be. The superuser skips the checks. With --top-only only the tree's
  own name is checked; only the superuser may ask for that.

  In a volume that the command opens nothing is checked, as a user who can write the volume's file
  can do everything with its contents.

OUTPUT:
  With --verbose, a line for each argument that was removed. With --json, an object:

    place      the argument, a string; place_bytes as in shoal ls --json
    files      inodes freed while the command waited; only with -r, and not if a server frees them
    waiting    true: some of its space is still to be freed

EXIT STATUS:
  0   Everything was removed.
  1   Some of it was not; each failure has a line of its own on standard error.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal rm vol.img:/a
    shoal rm -r --no-wait vol.img:/build
    shoal rm -r /mnt/build
";

/// Remove files and trees, in a volume or where it is mounted
///
/// A place in a volume is written VOLUME:/path; anything else is a path in a mounted volume, and
/// refused elsewhere.
#[derive(Args, Debug)]
#[command(after_long_help = RM_AFTER)]
pub(crate) struct RmArgs {
    /// Files to remove: in a mounted volume, or as VOLUME:/path
    #[arg(value_name = "PLACE", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Remove directories with everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Ask before each argument; only an answer that starts with y removes it
    #[arg(short, long, conflicts_with = "force")]
    pub interactive: bool,
    /// Do not wait until the space of trees is free
    #[arg(long, requires = "recursive")]
    pub no_wait: bool,
    /// Check the permission for the tree's own name only (superuser)
    #[arg(long, requires = "recursive")]
    pub top_only: bool,
    /// Print each argument that was removed
    #[arg(short, long)]
    pub verbose: bool,
    /// Print JSON, one object for each argument that was removed
    #[arg(long, conflicts_with = "verbose")]
    pub json: bool,
    /// Remove empty directories
    #[arg(short, long)]
    pub dir: bool,
    /// Ignore files that do not exist
    #[arg(short, long)]
    pub force: bool,
}

/// Make directories
#[derive(Args, Debug)]
#[command(after_long_help = EXIT_STATUS)]
pub(crate) struct MkdirArgs {
    /// Directories, in a mount or as VOLUME:/path
    #[arg(value_name = "PLACE", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Make the directories above, too; a directory that exists is no error
    #[arg(short, long)]
    pub parents: bool,
    /// Permission bits in octal [default: 777 without the bits of the umask]
    #[arg(short, long, value_name = "MODE", value_parser = super::octal_mode)]
    pub mode: Option<u32>,
}

const LN_AFTER: &str = "\
EXIT STATUS:
  0   The link was made.
  1   It was not.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.

EXAMPLES:
    shoal ln vol.img:/a vol.img:/b
    shoal ln -s ../shared/c vol.img:/d/c
";

/// Make hard or symbolic links
#[derive(Args, Debug)]
#[command(after_long_help = LN_AFTER)]
pub(crate) struct LnArgs {
    /// The file that gets another name, in a mount or as VOLUME:/path; with -s any text
    #[arg(value_name = "TARGET", value_hint = ValueHint::AnyPath)]
    pub target: OsString,
    /// The new name, in the same volume; if it is a directory, the target's own name in it
    #[arg(value_name = "LINK", value_hint = ValueHint::AnyPath)]
    pub link: OsString,
    /// Make a symbolic link, whose contents are TARGET as it is written
    #[arg(short, long)]
    pub symbolic: bool,
    /// Replace a file that has the name already
    #[arg(short, long)]
    pub force: bool,
}
