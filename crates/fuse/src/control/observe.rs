//! Histograms of a mount's operations, the load of its users and processes, and its requests as
//! they are answered.

use super::Call;
use crate::observe::label;
use crate::observe::top::Load;
use crate::protocol::Opcode;
use crate::protocol::control::{Entry, IN_VOLUME, INTERRUPTED, IS_CALL, IS_PROCESS, Kind, entries};
use crate::protocol::histogram::{histogram, words};
use crate::protocol::traced::Facts;
use shoal::raw::Timing;
use std::io;
use std::os::fd::AsFd;

/// Group of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Requests of the kernel.
    Requests,
    /// Calls of the library, by which the server answers requests. Some are timed one in
    /// [`shoal::raw::Call::weight`]; their numbers are estimates.
    Calls,
    /// Parts of the work inside the volume.
    Volume,
}

/// An operation, with the durations since the mount.

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Name: `lookup`, `device_read`.
    pub name: String,
    /// The group in which its name is the only one.
    pub group: Group,
    /// Durations.
    pub timing: Timing,
}

/// Users and processes by their load, the most requests first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Loads {
    /// Users.
    pub users: Vec<Load>,
    /// Threads of processes.
    pub processes: Vec<Load>,
}

/// Returns the operations that there have been in the mount that `opened` is in.
///
/// # Errors
/// `ENOTTY` when this is no mount of Shoal, `EINVAL` when its server is of an older version.
pub fn operations_of(opened: impl AsFd) -> io::Result<Vec<Operation>> {
    let mut operations = Vec::new();
    Call::new(Kind::Operations, 0).list(opened, &mut |entry| {
        operations.push(Operation {
            name: String::from_utf8_lossy(entry.texts[0]).into_owned(),
            group: match entry.flags {
                flags if flags & IN_VOLUME != 0 => Group::Volume,
                flags if flags & IS_CALL != 0 => Group::Calls,
                _ => Group::Requests,
            },
            timing: histogram(entry.texts[1], entry.numbers),
        });
    })?;
    Ok(operations)
}

/// Returns the load of users and processes in the mount that `opened` is in, as far as it has been
/// watched: from the first call on, while there is another one every ten seconds.
///
/// # Errors
/// `EPERM` unless the caller is the superuser or the user who mounted, `ENOTTY` when this is no
/// mount of Shoal.
pub fn loads_of(opened: impl AsFd) -> io::Result<Loads> {
    let mut loads = Loads::default();
    Call::new(Kind::Top, 0).list(opened, &mut |Entry { numbers, flags, texts }| {
        let [key, requests, took_ns] = numbers;
        let mut words = words(texts[0]);
        let mut next = || words.next().unwrap_or(0);
        let load = Load {
            key: key as u32,
            uid: next() as u32,
            requests,
            uncertain: next(),
            took_ns,
            read: next(),
            written: next(),
        };
        match flags & IS_PROCESS {
            0 => loads.users.push(load),
            _ => loads.processes.push(load),
        }
    })?;
    Ok(loads)
}

/// A request that a mount has answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traced {
    /// Number, in the order of the answers.
    pub number: u64,
    /// Beginning, in nanoseconds since 1970.
    pub begun_ns: u64,
    /// Duration in nanoseconds.
    pub took_ns: u64,
    /// Name of the operation: `lookup`.
    pub op: String,
    /// Its question and its result.
    pub facts: Facts,
    /// Names in the request: of files and attributes, and the target of a symlink.
    pub names: Vec<Vec<u8>>,
}

/// A reader of the requests of a mount.
#[derive(Debug)]
pub struct Tracer {
    next: u64,
    /// Requests that were answered, but had been given up by the server before they were read.
    pub lost: u64,
    /// How often the trace was interrupted: the server was replaced, or nothing was read for more
    /// than ten seconds. Requests in between are in no count.
    pub interruptions: u64,
}

impl Tracer {
    /// Begins with the requests that are answered from now on, in the mount that `opened` is in.
    ///
    /// # Errors
    /// `EPERM` unless the caller is the superuser or the user who mounted, `ENOTTY` when this is no
    /// mount of Shoal, `EINVAL` when its server is of an older version.
    pub fn begin(opened: impl AsFd) -> io::Result<Tracer> {
        let mut tracer = Tracer { next: 0, lost: 0, interruptions: 0 };
        tracer.read(opened, &mut |_| ())?;
        Ok(tracer)
    }

    /// Passes requests that have been answered since to `each`. Returns whether there were any: if
    /// so there may be more, otherwise a pause is due.
    ///
    /// # Errors
    /// As [`Tracer::begin`].
    pub fn read(&mut self, opened: impl AsFd, each: &mut dyn FnMut(Traced)) -> io::Result<bool> {
        let mut call = Call::new(Kind::Trace, 0);
        call.head.cursor[0] = self.next;
        call.send(opened)?;
        let mut found = 0;
        for Entry { numbers: [number, begun_ns, took_ns], flags, texts } in entries(&call.page.0) {
            let Some(op) = Opcode::from_number(flags) else { continue };
            found += 1;
            let names = texts[1].split(|byte| *byte == 0);
            let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
            // Behind the last NUL.
            names.pop();
            let facts = Facts::from_words(words(texts[0]));
            each(Traced { number, begun_ns, took_ns, op: label(op), facts, names });
        }
        let next = call.head.numbers[0];
        if call.head.flags & INTERRUPTED != 0 {
            self.interruptions += 1;
        } else if self.next != 0 {
            self.lost += next.saturating_sub(self.next).saturating_sub(found);
        }
        self.next = next;
        Ok(found > 0)
    }
}
