//! The plan of a replay: what must be there before, and the order of the operations.
//!
//! *What must be there.* A trace begins in the middle of a tree's life. Whatever it finds without
//! having made it was there before, as far as names go that the trace follows: through renames of
//! directories, too. Files get the size with which they were found, or that was read of them.
//!
//! *The order.* An operation begins when all that had ended before it began in the trace have ended
//! here. So what depended on each other then does so now, and what was concurrent may be.

use super::record::{Record, Trace, bytes_of};
use std::collections::HashMap;

/// Most threads. Those of the trace share them.
const THREADS_MAX: usize = 64;
/// Most bytes of a file that is made before: a size in a trace may be any.
const SIZE_MAX: u64 = 1 << 30;
/// Type bits of a mode.
const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFLNK: u32 = 0o120_000;
const RENAME_EXCHANGE: u32 = 2;

/// Type of something that must be there before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Directory,
    File,
    Symlink,
}

/// Something that must be there before. What is above it comes first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Before {
    pub path: Vec<u8>,
    pub kind: Kind,
    pub size: u64,
}

/// An operation to be played.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub op: Box<str>,
    /// Relative to the top; empty: the top.
    pub path: Box<[u8]>,
    pub to: Box<[u8]>,
    /// Target of a symlink, or name of an attribute.
    pub text: Box<[u8]>,
    pub errno: i32,
    pub offset: u64,
    pub size: u64,
    pub flags: u32,
    pub mode: u32,
    pub values: [i64; 2],
    /// Nanoseconds after the beginning of the first operation.
    pub begun_ns: u64,
    /// So many operations must have ended, in the order in which they ended in the trace.
    pub after: usize,
    /// Its place in that order.
    pub ended: usize,
}

/// A plan.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub before: Vec<Before>,
    /// The operations of each thread, in the order of their beginning.
    pub threads: Vec<Vec<Step>>,
    /// Number of operations.
    pub steps: usize,
    /// Operations left out: their paths are not known, or not below the top.
    pub left_out: u64,
    /// The trace has no end.
    pub is_cut_off: bool,
}

impl Plan {
    /// Makes the plan of a trace.
    pub(super) fn of(trace: Trace) -> Plan {
        let mut records = trace.records;
        records.sort_by_key(|record| record.begun_ns);
        let first = records.first().map_or(0, |record| record.begun_ns);
        let (mut plan, mut tree) = (Plan::default(), Tree::new());
        let mut steps = Vec::with_capacity(records.len());
        for record in records {
            match step_of(&record, first) {
                Some(step) => {
                    tree.follow(&step);
                    steps.push((record.pid, record.begun_ns.saturating_add(record.took_ns), step));
                }
                None => plan.left_out += 1,
            }
        }
        put_in_order(&mut steps, first);
        let mut threads = HashMap::new();
        for (pid, _, step) in steps {
            let next = threads.len() % THREADS_MAX;
            let thread = *threads.entry(pid).or_insert(next);
            if thread == plan.threads.len() {
                plan.threads.push(Vec::new());
            }
            plan.threads[thread].push(step);
            plan.steps += 1;
        }
        plan.before = tree.before();
        plan
    }
}

/// Sets what each operation comes after.
fn put_in_order(steps: &mut [(u32, u64, Step)], first: u64) {
    let mut by_end: Vec<usize> = (0..steps.len()).collect();
    by_end.sort_by_key(|at| steps[*at].1);
    for (place, at) in by_end.iter().enumerate() {
        steps[*at].2.ended = place;
    }
    let ends: Vec<u64> = by_end.iter().map(|at| steps[*at].1).collect();
    for (at, (_, _, step)) in steps.iter_mut().enumerate() {
        let begun = first.saturating_add(step.begun_ns);
        // An operation that took no time has not ended before itself; those that began with it may
        // not wait for each other either.
        let after = ends.partition_point(|end| *end < begun);
        step.after = after.min(at);
    }
}

/// Returns an operation with paths that are safe to use; `None` if one is not known, or leads out.
fn step_of(record: &Record, first: u64) -> Option<Step> {
    let path = |text: Option<&String>, digits: Option<&String>| {
        let path = bytes_of(text, digits)?;
        let path = path.strip_prefix(b"/")?;
        let is_good = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
        let good = path.is_empty() || path.split(|byte| *byte == b'/').all(is_good);
        good.then(|| Box::from(path))
    };
    let to = match record.to {
        None => Box::default(),
        Some(_) => path(record.to.as_ref(), record.to_bytes.as_ref())?,
    };
    let target = bytes_of(record.target.as_ref(), record.target_bytes.as_ref());
    let attribute = bytes_of(record.attribute.as_ref(), record.attribute_bytes.as_ref());
    Some(Step {
        op: record.op.as_str().into(),
        path: path(record.path.as_ref(), record.path_bytes.as_ref())?,
        to,
        text: target.or(attribute).unwrap_or_default().into(),
        errno: record.errno,
        offset: record.offset,
        size: record.size,
        flags: record.flags,
        mode: record.mode,
        values: record.values,
        begun_ns: record.begun_ns - first,
        after: 0,
        ended: 0,
    })
}

/// The tree as the trace changes it, and what of it was there before.
struct Tree {
    nodes: Vec<Node>,
    before: Vec<Early>,
}

/// A file or directory now.
#[derive(Default)]
struct Node {
    /// Its place in what was there before.
    before: Option<usize>,
    /// Its names, as far as they are known. `None`: it is not there any more.
    names: HashMap<Box<[u8]>, Option<usize>>,
}

/// A file or directory before.
struct Early {
    parent: usize,
    name: Box<[u8]>,
    kind: Kind,
    size: u64,
}

const TOP: usize = 0;

impl Tree {
    fn new() -> Tree {
        let top = Early { parent: TOP, name: Box::default(), kind: Kind::Directory, size: 0 };
        let node = Node { before: Some(TOP), ..Node::default() };
        Tree { nodes: vec![node], before: vec![top] }
    }

    /// Finds a path that is there, or was before. `None`: the trace has not made it, and it cannot
    /// have been there before.
    fn find(&mut self, path: &[u8], kind: Kind, size: u64) -> Option<usize> {
        let mut at = TOP;
        if !path.is_empty() {
            for name in path.split(|byte| *byte == b'/') {
                if let Some(before) = self.nodes[at].before {
                    self.before[before].kind = Kind::Directory;
                }
                at = self.child(at, name)?;
            }
        }
        if let Some(before) = self.nodes[at].before.filter(|before| *before != TOP) {
            let early = &mut self.before[before];
            early.size = early.size.max(size);
            // A file until something says more.
            if early.kind == Kind::File {
                early.kind = kind;
            }
        }
        Some(at)
    }

    fn child(&mut self, dir: usize, name: &[u8]) -> Option<usize> {
        if let Some(known) = self.nodes[dir].names.get(name) {
            return *known;
        }
        let parent = self.nodes[dir].before?;
        self.before.push(Early { parent, name: name.into(), kind: Kind::File, size: 0 });
        let node = Node { before: Some(self.before.len() - 1), ..Node::default() };
        self.nodes.push(node);
        let at = self.nodes.len() - 1;
        self.nodes[dir].names.insert(name.into(), Some(at));
        Some(at)
    }

    /// Sets what has a path now.
    fn set(&mut self, path: &[u8], node: Option<usize>) {
        let (dir, name) = split(path);
        if let Some(dir) = self.find(dir, Kind::Directory, 0) {
            self.nodes[dir].names.insert(name.into(), node);
        }
    }

    fn make(&mut self, path: &[u8]) {
        self.nodes.push(Node::default());
        self.set(path, Some(self.nodes.len() - 1));
    }

    /// Does what an operation did.
    fn follow(&mut self, step: &Step) {
        let (path, to) = (&step.path, &step.to);
        let kind = match &*step.op {
            "rmdir" | "readdir" | "readdirplus" | "opendir" | "fsyncdir" => Kind::Directory,
            "readlink" => Kind::Symlink,
            "lookup" if step.mode & S_IFMT == S_IFDIR => Kind::Directory,
            "lookup" if step.mode & S_IFMT == S_IFLNK => Kind::Symlink,
            "tmpfile" => Kind::Directory,
            _ => Kind::File,
        };
        if step.errno != 0 {
            return self.follow_failure(step);
        }
        match &*step.op {
            "lookup" => drop(self.find(path, kind, step.size)),
            "create" | "mkdir" | "mknod" | "symlink" => self.make(path),
            "unlink" | "rmdir" => {
                self.find(path, kind, 0);
                self.set(path, None);
            }
            "link" => {
                let file = self.find(path, Kind::File, 0);
                self.set(to, file);
            }
            "rename" | "rename2" => {
                let moved = self.find(path, Kind::File, 0);
                let there = match step.flags & RENAME_EXCHANGE {
                    0 => None,
                    _ => self.find(to, Kind::File, 0),
                };
                self.set(path, there);
                self.set(to, moved);
            }
            "read" => {
                let end = step.offset.saturating_add(step.values[0].max(0).cast_unsigned());
                self.find(path, kind, end);
            }
            "copy_file_range" | "copy_file_range64" => {
                self.find(path, kind, step.offset.saturating_add(step.size));
                self.find(to, kind, 0);
            }
            _ => drop(self.find(path, kind, 0)),
        }
    }

    fn follow_failure(&mut self, step: &Step) {
        const ENOENT: i32 = 2;
        const EEXIST: i32 = 17;
        let (dir, name) = split(&step.path);
        match (&*step.op, step.errno) {
            ("lookup" | "unlink" | "rmdir", ENOENT) => {
                if let Some(dir) = self.find(dir, Kind::Directory, 0) {
                    self.nodes[dir].names.entry(name.into()).or_insert(None);
                }
            }
            ("mkdir" | "create" | "mknod" | "symlink", EEXIST) => {
                self.find(&step.path, Kind::File, 0);
            }
            _ => {}
        }
    }

    fn before(self) -> Vec<Before> {
        let mut found = Vec::<Before>::with_capacity(self.before.len());
        for Early { parent, name, kind, size } in self.before {
            let path = match found.get(parent) {
                Some(above) if !above.path.is_empty() => [&above.path, &b"/"[..], &name].concat(),
                _ => name.into_vec(),
            };
            found.push(Before { path, kind, size: size.min(SIZE_MAX) });
        }
        // Without the top.
        found.split_off(1)
    }
}

/// Splits a path into the directory and the name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(begun_ns: u64, pid: u32, op: &str, path: &str) -> Record {
        let path = Some(path.to_owned());
        Record { begun_ns, took_ns: 10, pid, op: op.into(), path, ..Record::default() }
    }

    fn to(record: Record, path: &str) -> Record {
        Record { to: Some(path.into()), ..record }
    }

    fn plan(records: Vec<Record>) -> Plan {
        Plan::of(Trace { records, tail: None })
    }

    fn before(records: Vec<Record>) -> Vec<(String, Kind, u64)> {
        let before = plan(records).before.into_iter();
        before.map(|it| (String::from_utf8(it.path).unwrap(), it.kind, it.size)).collect()
    }

    #[test]
    fn what_is_found_was_there_and_what_is_made_was_not() {
        let missing = Record { errno: 2, ..record(0, 1, "lookup", "/d/new") };
        let read = Record { offset: 10, values: [90, 0], ..record(3, 1, "read", "/d/old") };
        let found = Record { mode: 0o100_644, size: 40, ..record(4, 1, "lookup", "/d/old") };
        let records = vec![
            missing,
            record(1, 1, "create", "/d/new"),
            record(2, 1, "write", "/d/new"),
            read,
            found,
            record(5, 1, "readdir", "/e/f"),
            record(6, 1, "mkdir", "/g"),
            record(7, 1, "create", "/g/h"),
            record(8, 1, "readlink", "/l"),
        ];
        let wanted = [
            ("d", Kind::Directory, 0),
            ("d/old", Kind::File, 100),
            ("e", Kind::Directory, 0),
            ("e/f", Kind::Directory, 0),
            ("l", Kind::Symlink, 0),
        ];
        let wanted = wanted.map(|(path, kind, size)| (path.to_owned(), kind, size));
        assert_eq!(before(records), wanted);
    }

    #[test]
    fn names_are_followed_through_renames() {
        let records = vec![
            to(record(0, 1, "rename", "/a"), "/b"),
            record(1, 1, "read", "/b/file"),
            record(2, 1, "unlink", "/b/file"),
            record(3, 1, "read", "/b/file"),
            to(record(4, 1, "link", "/b/x"), "/c/y"),
            record(5, 1, "getattr", "/c/y"),
            Record { flags: RENAME_EXCHANGE, ..to(record(6, 1, "rename2", "/p"), "/q") },
            record(7, 1, "readdir", "/q/r"),
        ];
        let found = before(records);
        let paths: Vec<&str> = found.iter().map(|(path, ..)| path.as_str()).collect();
        assert_eq!(paths, ["a", "a/file", "a/x", "c", "p", "q", "p/r"]);
        assert_eq!(found[0].1, Kind::Directory);
    }

    #[test]
    fn what_ended_before_comes_first_and_no_circle_waits() {
        let records = vec![
            record(0, 1, "mkdir", "/d"),
            record(5, 2, "mkdir", "/e"),
            record(20, 2, "create", "/d/f"),
            record(20, 1, "create", "/d/g"),
            Record { took_ns: 0, ..record(40, 1, "unlink", "/d/f") },
            Record { took_ns: 0, ..record(40, 2, "unlink", "/d/g") },
        ];
        let plan = plan(records);
        assert_eq!((plan.steps, plan.threads.len()), (6, 2));
        let after = |thread: usize| -> Vec<usize> {
            plan.threads[thread].iter().map(|step| step.after).collect()
        };
        assert_eq!((after(0), after(1)), (vec![0, 2, 4], vec![0, 2, 4]));
    }

    #[test]
    fn paths_that_lead_out_are_left_out() {
        let odd =
            ["/a/../b", "/./a", "a", "//a", "/a/", "/a\0b"].map(|path| record(0, 1, "read", path));
        let none = Record { path: None, ..record(0, 1, "read", "") };
        let two = to(record(0, 1, "rename", "/a"), "/../b");
        let many = odd.into_iter().chain([none, two]).collect();
        let plan = plan(many);
        assert_eq!((plan.steps, plan.left_out, plan.before.len()), (0, 8, 0));
    }
}
