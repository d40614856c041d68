//! Arguments of the commands about files in a volume.

use std::ffi::OsString;

use clap::{Args, ValueEnum, ValueHint};

const EXIT_STATUS: &str = "\
EXIT STATUS:
  0   Everything was done.
  1   Some of it failed; each failure has a line of its own on standard error.
  2   Wrong usage, or the volume cannot be used: missing, damaged, or in use.
";

/// The fields of a file in JSON, and the exit statuses.
const JSON_FILE: &str = "\
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

/// List directories of a volume
///
/// Prints one name a line, sorted by bytes. Owners are shown as numbers and times in UTC, because
/// a volume may come from another machine.
#[derive(Args, Debug)]
#[command(after_long_help = JSON_FILE)]
pub struct LsArgs {
    /// What to list, as VOLUME:/path
    #[arg(value_name = "VOLUME:/PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Show type, mode, links, owner, group, size and time of each file
    #[arg(short)]
    pub long: bool,
    /// List the directories below, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Show names that start with a dot, too
    #[arg(short, long)]
    pub all: bool,
    /// Show a directory itself, not what is in it
    #[arg(short, long)]
    pub directory: bool,
    /// Do not sort: starts at once and needs no memory, however large the directory
    #[arg(short = 'U')]
    pub unsorted: bool,
    /// Print JSON, one object a line for each file
    #[arg(long)]
    pub json: bool,
}

/// Show what is known of files in a volume
#[derive(Args, Debug)]
#[command(after_long_help = JSON_FILE)]
pub struct StatArgs {
    /// Files, as VOLUME:/path
    #[arg(value_name = "VOLUME:/PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Show what a symlink leads to, not the symlink
    #[arg(short = 'L', long)]
    pub dereference: bool,
    /// Print JSON, one object a line for each file
    #[arg(long)]
    pub json: bool,
}

/// Write files of a volume to standard output
#[derive(Args, Debug)]
#[command(after_long_help = EXIT_STATUS)]
pub struct CatArgs {
    /// Files, as VOLUME:/path
    #[arg(value_name = "VOLUME:/PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
}

/// Find files in a volume
///
/// Walks the trees below the given places and prints the path of each file that passes all tests,
/// in the order of the directories. The options may also be spelled as find(1) does: -name, -type.
#[derive(Args, Debug)]
#[command(after_long_help = JSON_FILE)]
pub struct FindArgs {
    /// Where to start, as VOLUME:/path
    #[arg(value_name = "VOLUME:/PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub places: Vec<OsString>,
    /// Only files whose name matches: * ? [a-z] [!a-z]
    #[arg(long, value_name = "PATTERN")]
    pub name: Option<OsString>,
    /// Only files of this type
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<TypeFilter>,
    /// End each path with a zero byte instead of a new line
    #[arg(short = '0', long, conflicts_with = "json")]
    pub null: bool,
    /// Print JSON, one object a line for each file
    #[arg(long)]
    pub json: bool,
}

/// The types as find(1) writes them.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum TypeFilter {
    /// Regular files
    #[value(name = "f")]
    Regular,
    /// Directories
    #[value(name = "d")]
    Directory,
    /// Symbolic links
    #[value(name = "l")]
    Symlink,
    /// Named pipes
    #[value(name = "p")]
    Fifo,
    /// Sockets
    #[value(name = "s")]
    Socket,
    /// Character devices
    #[value(name = "c")]
    CharDevice,
    /// Block devices
    #[value(name = "b")]
    BlockDevice,
}

const CP_AFTER: &str = "\
WHAT IS KEPT:
  Mode, times, symlinks, hard links among the files copied, holes of sparse files, device files,
  pipes and sockets; the owner if root does it; extended attributes and access control lists. In
  this it is like 'cp -a' also without -r; but without -r a symlink given on the command line is
  followed. An attribute that the other side refuses is left out: that is said once, and is no
  failure.

WHAT IS OVERWRITTEN:
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

  Copy what is in a directory, not the directory:
    shoal cp -r ~/mail/. vol.img:/backup
";

/// Copy files into, out of, or within a volume
///
/// Each argument is a place in a volume, VOLUME:/path, or a local path; at least one must be in a
/// volume. A local path that contains ':/' is written with ./ before it.
#[derive(Args, Debug)]
#[command(after_long_help = CP_AFTER)]
pub struct CpArgs {
    /// What to copy
    #[arg(value_name = "SOURCE", required = true, value_hint = ValueHint::AnyPath)]
    pub sources: Vec<OsString>,
    /// Where to
    #[arg(value_name = "DESTINATION", required = true, value_hint = ValueHint::AnyPath)]
    pub destination: OsString,
    /// Copy directories with everything in them
    #[arg(short, long)]
    pub recursive: bool,
    /// Accepted for those who are used to it: the same as -r
    #[arg(short, long)]
    pub archive: bool,
    /// Copy to DESTINATION itself, also if it is a directory
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    /// Print each file that is copied
    #[arg(short, long)]
    pub verbose: bool,
}

/// Rename or move files within a volume
///
/// If the destination is a directory, the sources are moved into it; a file in the way is
/// replaced. To move between volumes, copy with cp and remove with rm.
#[derive(Args, Debug)]
#[command(after_long_help = EXIT_STATUS)]
pub struct MvArgs {
    /// What to move, as VOLUME:/path
    #[arg(value_name = "SOURCE", required = true, value_hint = ValueHint::AnyPath)]
    pub sources: Vec<OsString>,
    /// Where to, in the same volume
    #[arg(value_name = "DESTINATION", required = true, value_hint = ValueHint::AnyPath)]
    pub destination: OsString,
    /// Fail instead of replacing a file
    #[arg(short, long)]
    pub no_clobber: bool,
    /// Swap the two
    #[arg(long, conflicts_with = "no_clobber")]
    pub exchange: bool,
    /// Rename to DESTINATION itself, also if it is a directory
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
}

const RM_AFTER: &str = "\
TREES:
  With -r a directory goes with everything below it as one change, however much that is: a reader
  sees all of it or nothing, and so does who looks after a crash. Its space is freed behind that,
  and the command waits for it, unless the volume is mounted or --no-wait is given; what is left is
  freed whenever the volume is next in use. A file that has names elsewhere keeps them; what is open
  stays usable.

WHO MAY:
  In a mounted volume, whoever could do it with rm -rf: change the directory that the tree is in;
  list, search and change each directory below that is not empty; and where the sticky bit is set,
  own the directory or what is in it. But while rm -rf goes as far as it can, here nothing is
  removed unless all of it may be. For the superuser nothing has to be looked at. With --top-only
  nothing but the tree's own name is looked at; only the superuser may ask for that.

  In a volume that is not mounted nothing is looked at, as whoever may write the volume's file may
  do everything with what is in it.

OUTPUT:
  With --verbose, a line for each argument that was removed. With --json, an object:

    place      what was removed, a string; place_bytes as in shoal ls --json
    files      inodes that were freed while the command waited; only with -r and not mounted
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
/// A place in a volume that is not mounted is written VOLUME:/path; anything else is a path in a
/// mounted volume, and refused elsewhere.
#[derive(Args, Debug)]
#[command(after_long_help = RM_AFTER)]
pub struct RmArgs {
    /// What to remove: in a mounted volume, or as VOLUME:/path
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
    /// Look at the permission for the tree's own name only (superuser)
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
    /// Say nothing of files that do not exist
    #[arg(short, long)]
    pub force: bool,
}

/// Make directories in a volume
#[derive(Args, Debug)]
#[command(after_long_help = EXIT_STATUS)]
pub struct MkdirArgs {
    /// Directories, as VOLUME:/path
    #[arg(value_name = "VOLUME:/PATH", required = true, value_hint = ValueHint::AnyPath)]
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

/// Make hard or symbolic links in a volume
#[derive(Args, Debug)]
#[command(after_long_help = LN_AFTER)]
pub struct LnArgs {
    /// The file that gets another name, as VOLUME:/path; with -s any text
    #[arg(value_name = "TARGET", value_hint = ValueHint::AnyPath)]
    pub target: OsString,
    /// The new name, as VOLUME:/path; if it is a directory, the target's own name in it
    #[arg(value_name = "LINK", value_hint = ValueHint::AnyPath)]
    pub link: OsString,
    /// Make a symbolic link, whose contents are TARGET as it is written
    #[arg(short, long)]
    pub symbolic: bool,
    /// Replace a file that has the name already
    #[arg(short, long)]
    pub force: bool,
}
