//! Answers about a volume and the process that serves it: counters, durations, load, requests,
//! results of a check. Lists come in parts, each as long as a page of an ioctl can hold
//! (`lists` collects them).

use shoal_engine::{Caller, Generation, Ino, Result, ScrubAt, Timing};
use std::borrow::Cow;

/// Bytes of a part of a list, about; an entry that is longer comes alone.
pub const PART_BYTES: usize = 15 << 10;

/// A counter or gauge of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Name.
    pub name: Cow<'static, str>,
    /// Value.
    pub value: u64,
    /// Description.
    pub what: Cow<'static, str>,
    /// The value also goes down.
    pub gauge: bool,
}

/// Group of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Requests of the kernel.
    Requests,
    /// Calls of the library, by which the server answers requests. Some are timed one in
    /// [`shoal_engine::Call::weight`]; their numbers are estimates.
    Calls,
    /// Parts of the work inside the volume.
    Volume,
}

/// An operation, with the durations since the volume was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Name: `lookup`, `device_read`.
    pub name: String,
    /// The group in which its name is the only one.
    pub group: Group,
    /// Durations.
    pub timing: Timing,
}

/// A fact about a server or its volume, by name.
pub type Fact = (String, String);

/// The load of a user or process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// It is a process's; otherwise a user's.
    pub is_process: bool,
    /// User, or thread of the caller; [`Load::KERNEL`]: requests that no program has made.
    pub key: u32,
    /// User of the last request.
    pub uid: u32,
    /// Number of requests.
    pub requests: u64,
    /// How many of them may be those of others.
    pub uncertain: u64,
    /// Time that they took, in nanoseconds.
    pub took_ns: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

impl Load {
    /// Key of the kernel's own requests among the processes: what it forgets, releases and writes
    /// back. They are no user's.
    pub const KERNEL: u32 = u32::MAX;
}

/// Requests that a server has answered, from one number on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// Number to ask for next.
    pub next: u64,
    /// Requests before these were not kept for want of a reader, or were answered by a server
    /// before this one.
    pub was_interrupted: bool,
    /// The requests, in the order of the answers.
    pub requests: Vec<TracedRequest>,
}

/// A request of a trace, as the server's transport describes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TracedRequest {
    /// Number, in the order of the answers.
    pub number: u64,
    /// Beginning, in nanoseconds since 1970.
    pub begun_ns: u64,
    /// Duration in nanoseconds.
    pub took_ns: u64,
    /// Code of the operation.
    pub op: u32,
    /// Its question and its result.
    pub facts: Vec<u64>,
    /// Names, each with a NUL behind it.
    pub names: Vec<u8>,
}

/// Result of one step of a scrub.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScrubStep {
    /// Start of the next step; `None`: everything has been read.
    pub next: Option<ScrubAt>,
    /// Blocks of metadata read.
    pub blocks: u64,
    /// Data objects read.
    pub objects: u64,
    /// Bytes read, of both kinds.
    pub bytes: u64,
    /// Problems, each by its rule and its description.
    pub problems: Vec<(String, String)>,
    /// Number of problems that did not fit. A smaller step from the same place has more of them.
    pub left_out: u64,
}

/// A hard link: one of the names of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HardLink {
    /// Directory of the name.
    pub dir: Ino,
    /// Generation of that directory.
    pub generation: Generation,
    /// Path from the top; the name is its last component.
    pub path: Vec<u8>,
}

/// Hard links of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HardLinks {
    /// The file.
    pub ino: Ino,
    /// Its generation.
    pub generation: Generation,
    /// It is the top directory, whose only path is `/` and no name.
    pub is_top: bool,
    /// The links.
    pub links: Vec<HardLink>,
    /// Begin of the next part; `None`: these were the last.
    pub next: Option<u64>,
}

/// A server beside its volume: what it knows of itself, of its clients and of the requests that do
/// not come by sessions, and what it can be told.
pub trait Control: Send + Sync {
    /// Returns facts about the server.
    fn facts(&self) -> Vec<Fact>;

    /// Returns what it counts beside its volume.
    fn metrics(&self) -> Vec<Metric>;

    /// Returns the requests that it answers, with their durations.
    fn requests(&self) -> Vec<Operation>;

    /// Returns users and processes by their load, the most requests first, and watches them for
    /// some time.
    fn loads(&self) -> Vec<Load>;

    /// Returns requests from a number on that have been answered, in about `at_most` bytes, and
    /// keeps those that come for some time.
    fn trace(&self, from: u64, at_most: usize) -> Trace;

    /// Allows changes or refuses them, and lets access times change or stay. With everything on
    /// disk if it returns read-only.
    ///
    /// # Errors
    /// `EROFS` if the volume takes no changes, `EBUSY` while a change is in progress, `EPERM` but
    /// for the superuser.
    fn remount(&self, who: &Caller, read_only: bool, noatime: bool) -> Result<()>;

    /// Records that a scrub with a number of the client's has begun, found problems, or ended.
    fn scrub(&self, run: u32, event: ScrubEvent<'_>);
}

/// An event in a scrub.
#[derive(Clone, Copy, Debug)]
pub enum ScrubEvent<'p> {
    /// It begins.
    Begins,
    /// A step has found these problems, each by its rule and its description.
    Found(&'p [(String, String)]),
    /// Everything has been read.
    Ends,
}

/// Returns the longest part of a list that fits into [`PART_BYTES`] bytes: one entry at least, if
/// there is one.
pub fn part_of<T>(list: impl IntoIterator<Item = T>, bytes: impl Fn(&T) -> usize) -> Vec<T> {
    let mut part = Vec::new();
    let mut len = 0;
    for entry in list {
        len += bytes(&entry);
        if len > PART_BYTES && !part.is_empty() {
            break;
        }
        part.push(entry);
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_in_parts() {
        let sizes = [PART_BYTES / 2, PART_BYTES / 2, 1, PART_BYTES + 5, 7];
        let part =
            |found: &[usize]| part_of(sizes.iter().copied().skip(found.len()), |bytes| *bytes);
        assert_eq!(part(&[]), sizes[..2]);
        assert_eq!(part(&sizes[..2]), [1]);
        assert_eq!(part(&sizes[..3]), [PART_BYTES + 5], "too long for any part");
        assert!(part(&sizes).is_empty());
    }
}
