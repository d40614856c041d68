//! `shoal trace`: the operations of a mount, one by one.
//!
//! The server names inodes. Their paths are found out here: from what the operations themselves
//! tell, and for the first of each directory by a question. A directory that is renamed takes along
//! everything below it, because a path is kept as a name in a directory.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use shoal::raw::{Caller, Ino, Time};
use shoal_bench::replay::record::{Head, Record, Tail, VERSION};
use shoal_fuse::{Facts, Traced, Tracer};
use shoal_session::{Calls, Node};

use crate::accounts::Accounts;
use crate::args::TraceArgs;
use crate::clock;
use crate::commands::top::process;
use crate::failure::{Failure, OK, Result};
use crate::interrupt;
use crate::mounted;
use crate::new_file::{self, Terms};
use crate::operations::duration;
use crate::output::Out;
use crate::text::{escaped, hex, printable};

/// Pause when there is nothing to read.
const PAUSE: Duration = Duration::from_millis(10);
/// Most inodes and processes that are remembered.
const KNOWN_MAX: usize = 1 << 20;
/// Most directories of a path.
const DEPTH_MAX: usize = 4096;

/// Shows operations until interrupted, or as many as wanted.
pub(crate) fn run(args: &TraceArgs) -> Result<u8> {
    let session = mounted::session(&args.directory)?;
    let mount = session.calls();
    let accounts = Accounts::of_this_machine();
    let mut filter = Filter::new(args, &accounts)?;
    let refused = |error| mounted::failed(&session, &error);
    interrupt::defer();
    let mut tracer = Tracer::begin(mount).map_err(refused)?;
    let mut sink = Sink::new(args, accounts)?;
    let mut paths = Paths { mount, up: HashMap::new(), down: HashMap::new() };
    let (begun, mut told, mut page) = (Instant::now(), 0, Vec::new());
    let is_over = || {
        let is_late = args.seconds.is_some_and(|seconds| begun.elapsed().as_secs() >= seconds);
        is_late || interrupt::pending().is_some()
    };
    'all: while !is_over() {
        let any = tracer.read(mount, &mut |traced| page.push(traced)).map_err(refused)?;
        for traced in page.drain(..) {
            // Paths take questions: only what may be wanted has them looked up.
            let record = filter.may_want(&traced).then(|| paths.record(&traced));
            paths.learn(&traced);
            if let Some(record) = record.filter(|record| filter.wants(record)) {
                sink.put(&record)?;
                told += 1;
                if Some(told) == args.count {
                    break 'all;
                }
            }
        }
        sink.flush()?;
        if !any {
            std::thread::sleep(PAUSE);
        }
    }
    let (lost, interruptions) = (tracer.lost, tracer.interruptions);
    sink.end(&Tail { operations: told, lost, interruptions })?;
    Ok(OK)
}

/// Operations that are wanted.
struct Filter<'a> {
    args: &'a TraceArgs,
    uid: Option<u32>,
    path: Option<Vec<u8>>,
    processes: Processes,
}

impl Filter<'_> {
    fn new<'a>(args: &'a TraceArgs, accounts: &Accounts) -> Result<Filter<'a>> {
        let uid = match &args.user {
            None => None,
            Some(user) => Some(accounts.uid(user).ok_or_else(|| {
                Failure::usage(user, "no such user: give a name of this machine, or a number")
            })?),
        };
        let path = args.path.as_ref().map(|path| {
            let bytes = path.as_bytes();
            let inner = bytes.trim_ascii_end().strip_prefix(b"/").unwrap_or(bytes);
            let inner = inner.strip_suffix(b"/").unwrap_or(inner);
            [b"/", inner].concat()
        });
        Ok(Filter { args, uid, path, processes: Processes::default() })
    }

    /// Returns whether an operation is wanted, as far as that can be said without its paths.
    fn may_want(&mut self, traced: &Traced) -> bool {
        let Filter { args, uid, processes, .. } = self;
        let Facts { pid, errno, .. } = traced.facts;
        (args.op.is_empty() || args.op.contains(&traced.op))
            && uid.is_none_or(|uid| uid == traced.facts.uid)
            && args.pid.is_none_or(|wanted| pid == wanted || processes.of(pid).0 == wanted)
            && (!args.failed || errno != 0)
            && args.slower.is_none_or(|least| u128::from(traced.took_ns) > least.as_nanos())
    }

    fn wants(&self, record: &Record) -> bool {
        let is_below = |top: &[u8]| {
            [(&record.path, &record.path_bytes), (&record.to, &record.to_bytes)].iter().any(
                |(text, digits)| {
                    let path =
                        shoal_bench::replay::record::bytes_of(text.as_ref(), digits.as_ref());
                    path.is_some_and(|path| lies_below(&path, top))
                },
            )
        };
        self.path.as_deref().is_none_or(is_below)
    }
}

/// Returns whether a path is another one, or below it.
fn lies_below(path: &[u8], top: &[u8]) -> bool {
    match path.strip_prefix(top) {
        Some(rest) => rest.is_empty() || rest[0] == b'/' || top == b"/",
        None => false,
    }
}

/// Destination of operations.
enum Sink {
    /// A file, to be replayed.
    File(Box<Written>),
    /// Lines for people.
    Lines(Out, Box<People>),
    /// The same as in a file.
    Json(Out),
}

struct Written {
    name: String,
    file: BufWriter<File>,
}

impl Sink {
    fn new(args: &TraceArgs, accounts: Accounts) -> Result<Sink> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let head = Head {
            shoal_trace: VERSION,
            begun_ns: now.as_nanos() as u64,
            mount: args.directory.to_string_lossy().into_owned(),
        };
        match &args.output {
            Some(path) => {
                let mut written = Written::create(path)?;
                written.line(&head)?;
                Ok(Sink::File(Box::new(written)))
            }
            None if args.json => {
                let mut out = Out::new();
                out.line(&line(&head)?)?;
                Ok(Sink::Json(out))
            }
            None => {
                let people = People { accounts, processes: Processes::default() };
                Ok(Sink::Lines(Out::new(), Box::new(people)))
            }
        }
    }

    fn put(&mut self, record: &Record) -> Result<()> {
        match self {
            Sink::File(written) => written.line(record),
            Sink::Lines(out, people) => out.line(&people.line(record)),
            Sink::Json(out) => out.line(&line(record)?),
        }
    }

    /// Shows what there is.
    fn flush(&mut self) -> Result<()> {
        match self {
            Sink::File(written) => {
                written.file.flush().map_err(|error| Failure::failed(&written.name, error))
            }
            Sink::Lines(out, _) | Sink::Json(out) => out.flush(),
        }
    }

    fn end(self, tail: &Tail) -> Result<()> {
        match self {
            Sink::File(mut written) => {
                written.line(tail)?;
                eprintln!("shoal: {}: {}", written.name, sum(tail));
                written.file.flush().map_err(|error| Failure::failed(&written.name, error))
            }
            Sink::Lines(mut out, _) => {
                out.flush()?;
                if tail.lost > 0 || tail.interruptions > 0 {
                    eprintln!("shoal: {}", sum(tail));
                }
                Ok(())
            }
            Sink::Json(mut out) => {
                out.line(&line(tail)?)?;
                out.flush()
            }
        }
    }
}

fn sum(tail: &Tail) -> String {
    let Tail { operations, lost, interruptions } = tail;
    let mut text = format!("{operations} operations");
    if *lost > 0 {
        text += &format!(", and {lost} that came too fast and are not there");
    }
    if *interruptions > 0 {
        text += &format!("; {interruptions} times without a trace, as the server was replaced");
    }
    text
}

fn line(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Failure::failed("trace", error))
}

impl Written {
    fn create(path: &Path) -> Result<Written> {
        let name = path.display().to_string();
        let file = new_file::growing(path, &Terms { mode: Terms::PRIVATE, ..Terms::default() })?;
        Ok(Written { name, file: BufWriter::new(file) })
    }

    fn line(&mut self, value: &impl serde::Serialize) -> Result<()> {
        let line = line(value)? + "\n";
        self.file.write_all(line.as_bytes()).map_err(|error| Failure::failed(&self.name, error))
    }
}

/// Processes of threads, with their names: each thread is looked up once.
#[derive(Default)]
struct Processes(HashMap<u32, (u32, String)>);

impl Processes {
    fn of(&mut self, thread: u32) -> &(u32, String) {
        if self.0.len() > KNOWN_MAX {
            self.0.clear();
        }
        self.0.entry(thread).or_insert_with(|| process(thread))
    }
}

/// Names that lines for people need.
struct People {
    accounts: Accounts,
    processes: Processes,
}

impl People {
    fn line(&mut self, record: &Record) -> String {
        let (id, name) = self.processes.of(record.pid);
        let ns = record.begun_ns;
        let at =
            Time { sec: (ns / 1_000_000_000).cast_signed(), nsec: (ns % 1_000_000_000) as u32 };
        let full = clock::full(at);
        // Without the date, and to the microsecond.
        let time = full.get(11..26).unwrap_or(&full);
        let result = match record.errno {
            0 => String::new(),
            errno => format!("  = {}", errno_text(errno)),
        };
        let user = self.accounts.user_or_number(record.uid);
        format!(
            "{time} {took:>8}  {op:<12} {user} {name}[{id}]  {what}{result}",
            took = duration(record.took_ns),
            op = record.op,
            what = what(record),
        )
    }
}

/// Returns the text of an errno, without its number.
fn errno_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Returns what an operation asked for.
fn what(record: &Record) -> String {
    let shown =
        |text: &Option<String>| text.as_deref().map(|text| printable(text.as_bytes()).into_owned());
    let mut text = shown(&record.path).unwrap_or_else(|| format!("inode {}", record.ino));
    if let Some(to) = shown(&record.to).or_else(|| shown(&record.target)) {
        text += &format!(" -> {to}");
    }
    if let Some(attribute) = shown(&record.attribute) {
        text += &format!(" {attribute}");
    }
    match &*record.op {
        "read" | "write" | "fallocate" | "copy_file_range" | "copy_file_range64" => {
            text += &format!("  {} bytes at {}", record.size, record.offset);
        }
        "create" | "mkdir" | "mknod" | "tmpfile" => {
            text += &format!("  mode {:o}", record.mode & 0o7777);
        }
        "setattr" => text += &format!("  {}", set(record)),
        _ => {}
    }
    text
}

/// Returns which attributes a `setattr` sets.
fn set(record: &Record) -> String {
    let [first, second] = record.values;
    let known = [
        (1, format!("mode {:o}", record.mode & 0o7777)),
        (2, format!("user {first}")),
        (4, format!("group {second}")),
        (8, format!("size {}", record.size)),
        (16, "atime".to_owned()),
        (32, "mtime".to_owned()),
    ];
    let set = known.into_iter().filter(|(bit, _)| record.flags & bit != 0);
    set.map(|(_, text)| text).collect::<Vec<_>>().join(", ")
}

/// Paths of inodes.
struct Paths<'a> {
    mount: &'a dyn Calls,
    /// Directory and name of each inode; `None`: it is the top, or has none.
    up: HashMap<u64, Option<(u64, Vec<u8>)>>,
    /// Inode of each of these names.
    down: HashMap<(u64, Vec<u8>), u64>,
}

impl Paths<'_> {
    /// Returns an operation with its paths.
    fn record(&mut self, traced: &Traced) -> Record {
        let Traced { begun_ns, took_ns, op, facts, names, .. } = traced;
        let mut record = Record {
            begun_ns: *begun_ns,
            took_ns: *took_ns,
            op: op.clone(),
            pid: facts.pid,
            uid: facts.uid,
            errno: facts.errno,
            ino: facts.node,
            offset: facts.offset,
            size: facts.size,
            flags: facts.flags,
            mode: facts.mode,
            values: facts.values,
            ..Record::default()
        };
        self.name(&mut record, op, facts, names);
        record
    }

    fn name(&mut self, record: &mut Record, op: &str, facts: &Facts, names: &[Vec<u8>]) {
        let path = (&mut record.path, &mut record.path_bytes);
        let to = (&mut record.to, &mut record.to_bytes);
        match (op, names) {
            ("rename" | "rename2", [old, new]) => {
                put(path, self.below(facts.node, old));
                put(to, self.below(facts.other, new));
            }
            ("link", [name]) => {
                put(path, self.path(facts.other));
                put(to, self.below(facts.node, name));
            }
            ("symlink", [name, target]) => {
                put(path, self.below(facts.node, name));
                put((&mut record.target, &mut record.target_bytes), Some(target.clone()));
            }
            ("setxattr" | "getxattr" | "removexattr", [name]) => {
                put(path, self.path(facts.node));
                put((&mut record.attribute, &mut record.attribute_bytes), Some(name.clone()));
            }
            (_, [name]) => put(path, self.below(facts.node, name)),
            ("copy_file_range" | "copy_file_range64", _) => {
                put(path, self.path(facts.node));
                put(to, self.path(facts.other));
            }
            _ => put(path, self.path(facts.node)),
        }
    }

    /// Returns the path of a name in a directory.
    fn below(&mut self, dir: u64, name: &[u8]) -> Option<Vec<u8>> {
        let mut path = self.path(dir)?;
        if path != b"/" {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Some(path)
    }

    /// Returns a path of an inode; `None`: it has none any more, or the volume does not tell.
    fn path(&mut self, ino: u64) -> Option<Vec<u8>> {
        let (mut names, mut at) = (Vec::new(), ino);
        while let Some((dir, name)) = self.parent(at)? {
            names.push(name);
            at = dir;
            if names.len() > DEPTH_MAX {
                return None;
            }
        }
        names.reverse();
        Some([&b"/"[..], &names.join(&b'/')].concat())
    }

    /// Returns directory and name of an inode, and `Some(None)` for the top.
    #[expect(clippy::option_option, reason = "unknown, the top, or a name")]
    fn parent(&mut self, ino: u64) -> Option<Option<(u64, Vec<u8>)>> {
        if let Some(known) = self.up.get(&ino) {
            return Some(known.clone());
        }
        let found = self.mount.links(&Caller::root(), Node::TOP, Some(Ino(ino)), 0).ok()?;
        let (dir, name) = match found.links.first() {
            _ if found.is_top => {
                self.up.insert(ino, None);
                return Some(None);
            }
            Some(link) => {
                let name = link.path.rsplit(|byte| *byte == b'/').next()?;
                (link.dir.0, name.to_vec())
            }
            None => return None,
        };
        self.set(dir, &name, ino);
        Some(Some((dir, name)))
    }

    /// Remembers what an operation tells of names.
    fn learn(&mut self, traced: &Traced) {
        let Traced { op, facts, names, .. } = traced;
        if facts.errno != 0 {
            return;
        }
        if self.up.len() > KNOWN_MAX || self.down.len() > KNOWN_MAX {
            self.up.clear();
            self.down.clear();
        }
        match (op.as_str(), &names[..]) {
            ("lookup" | "create" | "mkdir" | "mknod" | "symlink" | "link", [name, ..]) => {
                self.set(facts.node, name, facts.other);
            }
            ("rename" | "rename2", [old, new]) => {
                let moved = self.down.remove(&(facts.node, old.clone()));
                let there = self.down.remove(&(facts.other, new.clone()));
                // RENAME_EXCHANGE.
                if let Some(there) = there.filter(|_| facts.flags & 2 != 0) {
                    self.set(facts.node, old, there);
                }
                // One that is not known here is not known by its old name either.
                if let Some(moved) = moved {
                    self.set(facts.other, new, moved);
                }
            }
            ("unlink" | "rmdir", [name]) => {
                // What is open is still shown by the path that it had.
                self.down.remove(&(facts.node, name.clone()));
            }
            _ => {}
        }
    }

    fn set(&mut self, dir: u64, name: &[u8], ino: u64) {
        // "." and ".." are asked for by programs that open files by handles.
        if ino != 0 && !matches!(name, b"." | b"..") {
            self.up.insert(ino, Some((dir, name.to_vec())));
            self.down.insert((dir, name.to_vec()), ino);
        }
    }
}

/// Puts a name as text, and as digits if the text alone would lose something.
fn put((text, digits): (&mut Option<String>, &mut Option<String>), name: Option<Vec<u8>>) {
    let Some(name) = name else { return };
    match String::from_utf8(name) {
        Ok(name) => *text = Some(name),
        Err(odd) => {
            *text = Some(escaped(odd.as_bytes(), false));
            *digits = Some(hex(odd.as_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths of a mount that does not answer.
    fn paths(mount: &dyn Calls) -> Paths<'_> {
        let up = HashMap::from([(1, None)]);
        Paths { mount, up, down: HashMap::new() }
    }

    fn traced(op: &str, node: u64, names: &[&str], other: u64) -> Traced {
        let facts = Facts { node, other, ..Facts::default() };
        let names = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        Traced { number: 1, begun_ns: 5, took_ns: 3, op: op.into(), facts, names }
    }

    #[test]
    fn paths_follow_what_is_made_moved_and_removed() {
        let mount = shoal_fuse::calls_by(File::open("/dev/null").expect("opens").into());
        let mut paths = paths(&*mount);
        let mut path = |op: &str, node, names: &[&str], other| {
            let traced = traced(op, node, names, other);
            let record = paths.record(&traced);
            paths.learn(&traced);
            (record.path, record.to)
        };
        let some = |path: &str| Some(path.to_owned());
        assert_eq!(path("mkdir", 1, &["a"], 7), (some("/a"), None));
        assert_eq!(path("create", 7, &["f"], 8), (some("/a/f"), None));
        assert_eq!(path("rename", 1, &["a", "b"], 1), (some("/a"), some("/b")));
        assert_eq!(path("write", 8, &[], 0), (some("/b/f"), None));
        assert_eq!(path("link", 1, &["l"], 8), (some("/b/f"), some("/l")));
        assert_eq!(path("unlink", 7, &["f"], 0), (some("/b/f"), None));
        assert_eq!(path("read", 8, &[], 0), (some("/l"), None), "its newest name");
        assert_eq!(path("read", 99, &[], 0), (None, None), "not known");
        assert_eq!(path("lookup", 1, &["."], 1), (some("/."), None));
        assert_eq!(path("read", 1, &[], 0), (some("/"), None));
    }

    #[test]
    fn a_name_that_is_not_text_has_its_digits() {
        let mount = shoal_fuse::calls_by(File::open("/dev/null").expect("opens").into());
        let mut odd = traced("symlink", 1, &["x", "y"], 9);
        odd.names[1] = vec![0xff];
        let record = paths(&*mount).record(&odd);
        assert_eq!(
            (record.target.as_deref(), record.target_bytes.as_deref()),
            (Some("\\xff"), Some("ff"))
        );
        assert_eq!(what(&record), "/x -> \\xff");
    }

    #[test]
    fn what_lies_below_a_path() {
        for (path, top, wanted) in [
            ("/a/b", "/a", true),
            ("/a", "/a", true),
            ("/ab", "/a", false),
            ("/", "/a", false),
            ("/x", "/", true),
        ] {
            assert_eq!(lies_below(path.as_bytes(), top.as_bytes()), wanted, "{path} {top}");
        }
    }

    #[test]
    fn lines_say_what_was_asked() {
        let set = Record {
            flags: 9,
            mode: 0o100_600,
            size: 7,
            op: "setattr".into(),
            ..Record::default()
        };
        let set = Record { ino: 5, ..set };
        assert_eq!(what(&set), "inode 5  mode 600, size 7");
        let write =
            Record { op: "write".into(), path: Some("/a\nb".into()), size: 3, offset: 4, ..set };
        assert_eq!(what(&write), "/a\\x0ab  3 bytes at 4");
        assert_eq!(errno_text(2), "No such file or directory");
        let tail = Tail { operations: 5, lost: 2, interruptions: 1 };
        assert!(sum(&tail).contains("2 that came too fast"));
    }
}
