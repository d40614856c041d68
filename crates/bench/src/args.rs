//! The command line of `shoal bench`.

use crate::error::{BenchError, Result};
use shoal::raw::Compression;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Bytes of a small file.
pub(crate) const SMALL: usize = 4096;
/// Bytes of a mail of `make-tree`, about, on average.
pub(crate) const MAIL: u64 = 6000;

/// Options of a benchmark.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Workload
    #[arg(value_enum)]
    pub workload: Workload,
    /// Target: `dir:PATH`, system calls in a fresh subdirectory of any mounted directory;
    /// `vol:FILE`, the library on a fresh volume; or `session:PATH`, the library by a session of
    /// the mount that the directory is in
    #[arg(long, value_name = "TARGET")]
    pub target: Option<Target>,
    /// Threads, each with a top directory of its own
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub threads: usize,
    /// Files for each thread; `make-tree`: of all threads together
    #[arg(
        long,
        default_value_t = 100_000,
        value_name = "N",
        default_value_if("workload", "make-tree", "543337")
    )]
    pub files: u64,
    /// `inode-index`: entries of all threads together
    #[cfg(feature = "lab")]
    #[arg(long, default_value_t = 5_000_000, value_name = "N")]
    pub entries: u64,
    /// Do it again so many times; set-up is not timed (create: more files in the same directories)
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub rounds: u32,
    /// Files that go to one subdirectory before the next one's turn (fs_mark's -N)
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub per_dir: u64,
    /// Subdirectories for each thread at most, used in turn (fs_mark's -D)
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub dirs: u64,
    /// `create`, `unlink`, `stat`, `rename`: all threads work in the same directories, on files of
    /// their own
    #[arg(long)]
    pub shared: bool,
    /// `truncate`: bytes that a file is cut from, one at a time
    #[arg(long, default_value_t = 4096, value_name = "N")]
    pub bytes: u64,
    /// `truncate`: cuts in a round, all threads together, about
    #[arg(long, default_value_t = 1 << 20, value_name = "N")]
    pub cuts: u64,
    /// `overwrite`, `append`: bytes of a file
    #[arg(long, default_value = "1M", value_name = "SIZE", value_parser = parse_size)]
    pub file_bytes: u64,
    /// `append`: files of a thread that are written in turns
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub together: u64,
    /// `overwrite`: bytes of an aligned block, overwritten as one; `append`: bytes of each write
    #[arg(long, default_value = "16K", value_name = "SIZE", value_parser = parse_size)]
    pub block_bytes: u64,
    /// `overwrite`: percent of the volume that the files take, as df counts
    #[arg(long, default_value_t = 80, value_name = "PERCENT")]
    pub fill: u32,
    /// `parents`: one of the settings only, in one round unless more are asked for
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "SETTING", value_parser = ["off", "shortcut", "intents"])]
    pub setting: Option<String>,
    /// `make-tree`: what the tree looks like
    #[arg(long, value_enum, default_value_t = Like::Maildir, value_name = "KIND")]
    pub like: Like,
    /// `make-tree`: seed of names, sizes and places; the same seed makes the same tree
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// `make-tree`: files in the order in which mail arrives, each in another directory than the
    /// one before, instead of a directory after the other
    #[arg(long)]
    pub by_arrival: bool,
    /// Time every N-th operation; the others are counted only. 1 times all of them, and sees
    /// every stall
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub sample: u32,
    /// `stat`: in a scattered order instead of that of creation
    #[arg(long)]
    pub shuffle: bool,
    /// `age`: instead, make a 32nd as many files in new directories, in turns before and after one
    /// of each 32 is removed, so that every inode block has a hole (--rounds, 5 by default)
    #[arg(long)]
    pub holes: bool,
    /// `age`: draw rates, fragmentation and bytes written over the rounds into this SVG file
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// `replay`: the file of the trace, made by shoal trace --output
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// `replay`: begin each operation no earlier than in the trace; otherwise as fast as it goes
    #[arg(long)]
    pub paced: bool,
    /// One JSON object a line, one for each round, then the whole
    #[arg(long)]
    pub json: bool,
    /// Leave the volume or the files where they are
    #[arg(long)]
    pub keep: bool,
    /// `vol:` use the volume that is there and the files that an earlier run with --keep and the
    /// same numbers left in it
    #[arg(long)]
    pub reuse: bool,
    /// `vol:` overwrite what FILE holds, even if it looks like a filesystem
    #[arg(long, conflicts_with = "reuse")]
    pub force: bool,
    /// `vol:` bytes for cached metadata (64M, 2G; default: a quarter of memory)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub cache: Option<u64>,
    /// `vol:` keep staged records in this file, which outlives the process
    #[arg(long, value_name = "FILE")]
    pub journal_ring: Option<PathBuf>,
    /// `vol:` size of the volume (default: 8G, more where the files need it)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// `vol:` compress the volume, as mkfs --compress
    #[arg(long, value_name = "CODEC", default_value = "none")]
    pub compress: Compression,
    /// `vol:` let checkpoints follow each other without pause
    #[cfg(feature = "lab")]
    #[arg(long)]
    pub checkpoint_always: bool,
}

/// Trees that `make-tree` makes.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Like {
    /// A mail server: 3,221 directories, files of 400 bytes to 200 KB, half of them below 3 KB
    Maildir,
}

/// The workloads.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Make empty files with names of 40 bytes, spread over subdirectories, no sync: fs_mark's
    /// pattern
    Create,
    /// The same with an fsync of each file
    CreateSync,
    /// Attributes of every file by its full path, all warm
    Stat,
    /// List the tree with all attributes; an operation is an entry, a latency that of a directory
    /// divided by its entries
    Readdirplus,
    /// `vol:` attributes of all inodes in the order of their numbers, by --threads threads; an
    /// operation is an inode
    Bulkstat,
    /// `vol:` totals of the whole volume, without a walk, by --threads threads; an operation is an
    /// inode
    Totals,
    /// Give every file another name in its directory
    Rename,
    /// Remove every file
    Unlink,
    /// Make files of 4 KiB: create and write
    WriteSmall,
    /// Read files of 4 KiB whole: look up, open, read
    ReadSmall,
    /// Read blocks of --block-bytes from files of --file-bytes, in a scattered order, as many as
    /// there are; an operation is a read
    ReadRandom,
    /// Make files of --file-bytes, written from beginning to end, --block-bytes at a time,
    /// --together of them in turns; an operation is a write
    Append,
    /// `vol:` make files, none in a checkpoint; drop the volume as a crash would; time opening it
    Recover,
    /// `vol:` resident bytes for each cached inode: after making the files, and after opening the
    /// volume again and a `stat` of each
    #[cfg(feature = "lab")]
    Memory,
    /// `vol:` checkpoints that have one new file to write, beside all the others in the cache
    #[cfg(feature = "lab")]
    Checkpoint,
    /// `vol:` create, rename and unlink without parent pointers, with them, and with each of their
    /// changes through an intent, in turns (--rounds, 7 by default)
    #[cfg(feature = "lab")]
    Parents,
    /// `vol:` replace a security label of the same length
    Setxattr,
    /// `vol:` all paths of inodes ten directories deep, in a scattered order
    Paths,
    /// Truncate a file from --bytes to nothing, a byte at a time, --cuts times in a round
    /// (--rounds, 5 by default)
    Truncate,
    /// `vol:` the same as Shoal does it, with a slot of the orphan table for each truncate, with a
    /// mutex-guarded list, and without tracking, in turns
    #[cfg(feature = "lab")]
    TruncateTracking,
    /// Make a file, remove it while it is open, close it
    OpenUnlink,
    /// Remove the files of all threads as one tree. `vol:` detached at once and freed behind the
    /// call; `dir:` as rm -rf does it
    RemoveTree,
    /// Make a tree as people have it (--like, --seed, --files); with --keep it stays
    MakeTree,
    /// Make the files, then remove a random half of them and make it anew, round after round
    /// (--rounds, 20 by default). `vol:` also in how many inode blocks the files of a directory lie
    Age,
    /// `vol:` fill a volume to --fill percent, overwrite blocks at random, report the bytes written
    /// to the device for each byte
    Overwrite,
    /// Play the operations of a trace again (--trace, --paced), with its concurrency. Reports how
    /// many ended otherwise than in the trace, and how many it has no call for
    Replay,
    /// No target: insert dense numbers into the XArray, a red-black tree, a `BTreeMap` and a
    /// sharded hash map, and look up random ones
    #[cfg(feature = "lab")]
    InodeIndex,
    /// No target: walks, listings and recoveries on a device with 1 ms a read, and creates beside
    /// another thread's slow write and cold removal
    #[cfg(feature = "lab")]
    Cold,
    /// No target: creates with a quota and without, opening by a token and by a path, a change of a
    /// whole tree
    #[cfg(feature = "lab")]
    Costs,
}

impl Workload {
    /// The name on the command line and in results.
    pub fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Bytes of each file that the workload makes or needs.
    pub fn file_size(self) -> u64 {
        match self {
            Workload::WriteSmall | Workload::ReadSmall => SMALL as u64,
            Workload::MakeTree => MAIL,
            _ => 0,
        }
    }

    /// Returns whether it works on files, or only in memory.
    pub fn needs_target(self) -> bool {
        #[cfg(feature = "lab")]
        if matches!(self, Workload::InodeIndex | Workload::Cold | Workload::Costs) {
            return false;
        }
        true
    }

    /// Returns whether only the library can do it.
    pub fn needs_volume(self) -> bool {
        self.is_special() || self.compares_settings()
    }

    /// Returns whether it is done once, on a volume of its own.
    fn is_special(self) -> bool {
        #[cfg(feature = "lab")]
        if matches!(self, Workload::Memory | Workload::Checkpoint) {
            return true;
        }
        use Workload::{Bulkstat, Overwrite, Paths, Recover, Setxattr, Totals};
        matches!(self, Recover | Setxattr | Paths | Overwrite | Bulkstat | Totals)
    }

    /// Returns whether it looks at all inodes of a volume.
    pub(crate) fn scans(self) -> bool {
        matches!(self, Workload::Bulkstat | Workload::Totals)
    }

    /// Returns whether it makes volumes with different settings in turns.
    fn compares_settings(self) -> bool {
        #[cfg(feature = "lab")]
        let compares = matches!(self, Workload::Parents | Workload::TruncateTracking);
        #[cfg(not(feature = "lab"))]
        let compares = false;
        compares
    }
}

/// Target of a workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// System calls below this directory.
    Directory(PathBuf),
    /// The library on this volume file.
    Volume(PathBuf),
    /// The library by a session of the mount that this directory is in.
    Session(PathBuf),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        match text.split_once(':') {
            Some((_, "")) => Err(format!("'{text}' names no path")),
            Some(("dir", path)) => Ok(Target::Directory(path.into())),
            Some(("vol", path)) => Ok(Target::Volume(path.into())),
            Some(("session", path)) => Ok(Target::Session(path.into())),
            _ => Err(format!("'{text}' is none of dir:PATH, vol:FILE and session:PATH")),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Directory(path) => write!(f, "dir:{}", path.display()),
            Target::Volume(path) => write!(f, "vol:{}", path.display()),
            Target::Session(path) => write!(f, "session:{}", path.display()),
        }
    }
}

impl Args {
    /// Refuses combinations that mean nothing.
    pub(crate) fn check(&self) -> Result<()> {
        let zero = [
            ("--threads", self.threads as u64),
            ("--files", self.files),
            #[cfg(feature = "lab")]
            ("--entries", self.entries),
            ("--rounds", u64::from(self.rounds)),
            ("--per-dir", self.per_dir),
            ("--dirs", self.dirs),
            ("--bytes", self.bytes),
            ("--file-bytes", self.file_bytes),
            ("--block-bytes", self.block_bytes),
            ("--together", self.together),
            ("--sample", u64::from(self.sample)),
        ];
        if let Some((name, _)) = zero.iter().find(|(_, value)| *value == 0) {
            return Err(BenchError::new(format!("{name} must be at least 1")));
        }
        let name = self.workload.name();
        if self.target.is_some() != self.workload.needs_target() {
            let message = if self.target.is_some() { "takes no" } else { "needs a" };
            return Err(BenchError::new(format!("{name} {message} --target")));
        }
        if self.workload != Workload::Age && (self.holes || self.plot.is_some()) {
            return Err(BenchError::new("--holes and --plot are options of age"));
        }
        if self.trace.is_some() != (self.workload == Workload::Replay) {
            return Err(BenchError::new("replay needs a --trace, and nothing else takes one"));
        }
        if self.workload == Workload::Replay && (self.rounds > 1 || self.threads > 1 || self.reuse)
        {
            let message = "replay takes no --rounds, no --threads and no --reuse";
            return Err(BenchError::new(message));
        }
        if self.paced && self.workload != Workload::Replay {
            return Err(BenchError::new("--paced is an option of replay"));
        }
        if matches!(self.workload, Workload::Age | Workload::MakeTree) && self.reuse {
            return Err(BenchError::new(format!("{name} takes no --reuse")));
        }
        #[cfg(feature = "lab")]
        if self.workload != Workload::Parents && self.setting.is_some() {
            return Err(BenchError::new("--setting is an option of parents"));
        }
        if self.workload == Workload::MakeTree && self.rounds > 1 {
            return Err(BenchError::new("make-tree takes no --rounds"));
        }
        if self.workload.needs_volume() {
            if !matches!(self.target, Some(Target::Volume(_)) | None) {
                return Err(BenchError::new(format!("{name} needs a vol: target")));
            }
            if self.workload.compares_settings() && (self.reuse || self.keep) {
                return Err(BenchError::new(format!("{name} takes neither --reuse nor --keep")));
            }
            if self.workload.is_special()
                && (self.reuse || self.rounds > 1)
                && !self.workload.scans()
            {
                let message = format!("{name} takes neither --reuse nor --rounds");
                return Err(BenchError::new(message));
            }
        }
        Ok(())
    }

    /// Rounds of `age`.
    pub(crate) fn age_rounds(&self) -> u32 {
        match (self.rounds, self.holes) {
            (1, false) => 20,
            (1, true) => 5,
            (rounds, _) => rounds,
        }
    }

    /// Size of a fresh volume: what was asked for, or room for every file twice over (the old and
    /// the new copy of metadata live side by side until a checkpoint is done), 8 GiB at least.
    pub(crate) fn volume_size(&self) -> u64 {
        const METADATA: u64 = 1024;
        let sets = match self.workload {
            // The same number of files all the time, about.
            Workload::Age => 2,
            _ => u64::from(self.rounds),
        };
        let files = self.files.saturating_mul(self.threads as u64 * sets);
        let each = match self.workload {
            Workload::Append | Workload::ReadRandom => self.file_bytes,
            other => other.file_size(),
        };
        let need = files.saturating_mul((each + METADATA).saturating_mul(2));
        self.size.unwrap_or(need.max(8 << 30).next_multiple_of(1 << 30))
    }
}

/// `64M`, `2G`, `4096`: a number with an optional binary unit.
fn parse_size(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let shift = match unit.to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("'{unit}' is no unit: use K, M, G or T")),
    };
    let number: u64 =
        digits.parse().map_err(|_| format!("'{text}' is no size: write 64M or 2G"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, String> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        let parsed = <Command as clap::Parser>::try_parse_from(words);
        parsed.map(|c| c.args).map_err(|e| e.to_string())
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        assert_eq!(parse_size("4096"), Ok(4096));
        for bad in ["", "M", "1X", "99999999999T"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn targets_and_refusals() {
        let args = parse("create-sync --target vol:/x:y --threads 2").expect("parses");
        let target = args.target.expect("given");
        assert_eq!(target, Target::Volume("/x:y".into()));
        assert_eq!(target.to_string(), "vol:/x:y");
        let session = parse("create --target session:/mnt").expect("parses").target;
        assert_eq!(session.map(|it| it.to_string()).as_deref(), Some("session:/mnt"));
        assert!(parse("age --target session:").is_err());
        assert!(parse("create --target /x").is_err());
        assert!(parse("create --target dir:").is_err());
        for refused in [
            "memory --target dir:/x",
            "create --target dir:/x --threads 0",
            "recover --target vol:/x --rounds 2",
            "create",
            "inode-index --target vol:/x",
            "create --target vol:/x --holes",
            "stat --target vol:/x --plot /y",
            "age --target vol:/x --reuse",
            "create --target vol:/x --setting off",
            "create --target vol:/x --trace /t",
            "replay --target vol:/x",
            "replay --target vol:/x --trace /t --threads 2",
            "create --target vol:/x --paced",
        ] {
            assert!(parse(refused).expect("parses").check().is_err(), "{refused}");
        }
    }

    #[test]
    fn every_workload_has_the_name_that_the_command_line_takes() {
        for workload in <Workload as clap::ValueEnum>::value_variants() {
            let args = parse(&format!("{} --target vol:/x", workload.name())).expect("parses");
            assert_eq!(args.workload, *workload);
        }
    }
}
