//! The requests of a mount as they are answered.

use crate::observe::label;
use crate::protocol::Opcode;
use crate::protocol::traced::Facts;
use shoal::raw::{Caller, Result};
use shoal_session::{Calls, Trace, TracedRequest};

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
    /// Begins with the requests that are answered from now on, in a mount.
    ///
    /// # Errors
    /// `EPERM` unless the caller is the superuser or the user who mounted.
    pub fn begin(mount: &dyn Calls) -> Result<Tracer> {
        let mut tracer = Tracer { next: 0, lost: 0, interruptions: 0 };
        tracer.read(mount, &mut |_| ())?;
        Ok(tracer)
    }

    /// Passes requests that have been answered since to `each`. Returns whether there were any: if
    /// so there may be more, otherwise a pause is due.
    ///
    /// # Errors
    /// As [`Tracer::begin`].
    pub fn read(&mut self, mount: &dyn Calls, each: &mut dyn FnMut(Traced)) -> Result<bool> {
        let Trace { next, was_interrupted, requests } = mount.trace(&Caller::root(), self.next)?;
        let mut found = 0;
        for request in requests {
            let TracedRequest { number, begun_ns, took_ns, op, facts, names } = request;
            let Some(op) = Opcode::from_number(op) else { continue };
            found += 1;
            let names = names.split(|byte| *byte == 0);
            let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
            // Behind the last NUL.
            names.pop();
            let facts = Facts::from_words(facts.into_iter());
            each(Traced { number, begun_ns, took_ns, op: label(op), facts, names });
        }
        if was_interrupted {
            self.interruptions += 1;
        } else if self.next != 0 {
            self.lost += next.saturating_sub(self.next).saturating_sub(found);
        }
        self.next = next;
        Ok(found > 0)
    }
}
