//! Observation of a mount: each request is timed, and what it was is kept where somebody wants to
//! know.
//!
//! | what | cost of a request | memory |
//! | --- | --- | --- |
//! | histogram of each operation ([`Timings`]) | two readings of the clock, three increments of the thread's own cells | 105 KB for each thread |
//! | slow requests ([`slow`]) | a comparison; a slow one takes a lock | the newest [`slow::KEPT_MAX`] |
//! | damage ([`damage`]) | nothing; a request that meets some takes a lock | [`damage::FILES_MAX`] files, [`damage::PROBLEMS_MAX`] problems |
//! | users and processes ([`top`]) | a comparison; a lock of the thread's own while somebody watches | [`top::ROWS`] rows for each of both, in [`top::PARTS`] parts |
//! | the requests themselves ([`trace`]) | a comparison; a copy of the names and a lock of the thread's own while somebody reads | 32 MiB while somebody reads |
//!
//! Nothing here grows with what users do.

pub(crate) mod damage;
mod interest;
pub(crate) mod slow;
pub(crate) mod top;
pub(crate) mod trace;

use crate::protocol::wire::ReadIn;
use crate::protocol::{Errno, Opcode, Reply, Request};
use damage::DamageLog;
use shoal::raw::{Timing, Timings, phase};
use slow::SlowLog;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Instant;
use top::Top;
use trace::Trace;

/// Number of kinds of operations: by the number of their code.
const OPERATIONS: usize = {
    let (mut at, mut most) = (0, 0);
    while at < Opcode::ALL.len() {
        if Opcode::ALL[at] as usize > most {
            most = Opcode::ALL[at] as usize;
        }
        at += 1;
    }
    most + 1
};

/// The observer of a mount.
pub(crate) struct Observer {
    begun: Instant,
    operations: Timings,
    /// Facts about the mount, once it is there.
    pub config: OnceLock<Config>,
    /// Slow requests.
    pub slow: SlowLog,
    /// Damage that requests have met.
    pub damage: DamageLog,
    /// Users and processes.
    pub top: Top,
    /// The requests themselves.
    pub trace: Trace,
}

impl Default for Observer {
    fn default() -> Observer {
        Observer {
            begun: Instant::now(),
            operations: Timings::new(OPERATIONS),
            config: OnceLock::new(),
            slow: SlowLog::default(),
            damage: DamageLog::default(),
            top: Top::default(),
            trace: Trace::default(),
        }
    }
}

/// Facts about a mount, to be shown.
pub(crate) struct Config {
    /// Mount point.
    pub directory: PathBuf,
    /// Source in the list of mounts.
    pub source: String,
    /// Options.
    pub options: serde_json::Value,
}

/// A request that has been answered.
#[derive(Clone, Copy)]
pub(crate) struct Answered {
    /// Operation.
    pub op: Opcode,
    /// Duration in nanoseconds.
    pub took_ns: u64,
    /// Errno; 0: none.
    pub errno: i32,
    /// Bytes read or written.
    pub bytes: u64,
}

impl Observer {
    /// Allocates what the calling thread needs to observe without allocating.
    pub(crate) fn prepare(&self) {
        self.operations.prepare();
    }

    /// Begins a request.
    #[inline]
    pub(crate) fn begin(&self) -> Instant {
        phase::reset();
        Instant::now()
    }

    /// Ends a request. Returns it if it was slow.
    #[inline]
    pub(crate) fn end(
        &self,
        op: Opcode,
        begun: Instant,
        request: &Request<'_>,
        reply: &Reply,
    ) -> Option<Answered> {
        let took = begun.elapsed();
        let errno = if let Reply::Error(errno) = reply { errno.0 } else { 0 };
        let bytes = moved(op, request, reply);
        self.operations.record(op as usize, took, is_failure(errno), bytes);
        let took_ns = took.as_nanos() as u64;
        let answered = Answered { op, took_ns, errno, bytes };
        if self.top.is_watched(begun) {
            self.top.count(request, &answered);
        }
        (took_ns >= self.slow.least_ns()).then_some(answered)
    }

    /// Returns the histogram of an operation.
    pub(crate) fn operation(&self, op: Opcode) -> Timing {
        self.operations.get(op as usize)
    }

    /// Returns the operations that there have been, with their histograms.
    pub(crate) fn operations(&self) -> Vec<(Opcode, Timing)> {
        let all = Opcode::ALL.iter().map(|op| (*op, self.operation(*op)));
        all.filter(|(_, timing)| timing.count() > 0).collect()
    }

    /// Returns when the mount began.
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }
}

/// Returns whether an errno says that a request has failed. Otherwise it is an ordinary answer: no
/// such attribute (the kernel asks for each file), no such ioctl (each `isatty` is one), never ask
/// again.
#[inline]
fn is_failure(errno: i32) -> bool {
    let answers = [Errno::ENODATA, Errno::ENOTTY, Errno::ENOSYS];
    errno != 0 && !answers.contains(&Errno(errno))
}

/// Returns the bytes of data that a request has moved.
#[inline]
fn moved(op: Opcode, request: &Request<'_>, reply: &Reply) -> u64 {
    match (op, reply) {
        (Opcode::Read, Reply::Body(len)) => *len as u64,
        (Opcode::Write, Reply::Body(_)) => {
            request.arg::<ReadIn>().map_or(0, |arg| u64::from(arg.size))
        }
        _ => 0,
    }
}

/// Returns the name of an operation in output: `copy_file_range` for `CopyFileRange`.
pub(crate) fn label(op: Opcode) -> String {
    let mut label = String::new();
    for letter in op.name().chars() {
        if letter.is_ascii_uppercase() && !label.is_empty() {
            label.push('_');
        }
        label.push(letter.to_ascii_lowercase());
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::InHeader;
    use zerocopy::IntoBytes;

    #[test]
    fn labels_are_words_of_small_letters() {
        assert_eq!(label(Opcode::CopyFileRange64), "copy_file_range64");
        assert_eq!(label(Opcode::Lookup), "lookup");
        let labels: std::collections::HashSet<_> =
            Opcode::ALL.iter().map(|op| label(*op)).collect();
        assert_eq!(labels.len(), Opcode::ALL.len());
    }

    #[test]
    fn requests_are_counted_with_errors_and_bytes() {
        let observer = Observer::default();
        let arg = ReadIn { size: 300, ..ReadIn::default() };
        let mut body = [0; 400];
        let mut end = |op: Opcode, reply| {
            let header = InHeader { opcode: op as u32, uid: 5, pid: 7, ..InHeader::default() };
            let request = Request::from_parts(header, arg.as_bytes(), &mut body, 300).unwrap();
            observer.end(op, observer.begin(), &request, &reply)
        };
        assert!(end(Opcode::Write, Reply::Body(8)).is_none(), "not slow");
        assert!(end(Opcode::Read, Reply::Body(100)).is_none());
        assert!(end(Opcode::Read, Reply::Error(Errno::EIO)).is_none());
        assert!(end(Opcode::Forget, Reply::Silent).is_none());
        assert!(end(Opcode::Getxattr, Reply::Error(Errno::ENODATA)).is_none());
        let found: Vec<_> = observer
            .operations()
            .into_iter()
            .map(|(op, timing)| (op, timing.count(), timing.errors, timing.bytes))
            .collect();
        let wanted = [
            (Opcode::Forget, 1, 0, 0),
            (Opcode::Read, 2, 1, 100),
            (Opcode::Write, 1, 0, 300),
            (Opcode::Getxattr, 1, 0, 0),
        ];
        assert_eq!(found, wanted);
    }
}
