//! Trace: answered requests, kept for whoever reads them.
//!
//! Requests are kept only while somebody reads: the newest, up to [`PART_BYTES`] in each of
//! [`PARTS`] parts, so that threads rarely wait for each other. A request gets its number under the
//! lock of its part; so a reader that has all locks sees every request below the next number, and a
//! gap is one that was pushed out. Readers have no state here, however many there are: each knows
//! the number that it wants next.
//!
//! Names are copied before a request is handled, because the reply overwrites them.

use crate::caller::shown_user;
use crate::observe::interest::{Interest, State};
use crate::protocol::traced::{Facts, NAMES_MAX, names};
use crate::protocol::{Opcode, Reply, Request};
use parking_lot::Mutex;
use shoal::raw::shard::shard;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Parts.
const PARTS: usize = 8;
/// Most bytes of the requests in a part.
const PART_BYTES: usize = 4 << 20;
/// Time for which requests are kept after somebody has read.
const WATCH: Duration = Duration::from_secs(15);

/// A request that has been answered.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// Number, from 1 in the order of the answers.
    pub number: u64,
    /// Beginning, in nanoseconds since 1970.
    pub begun_ns: u64,
    /// Duration in nanoseconds.
    pub took_ns: u64,
    /// Operation.
    pub op: Opcode,
    /// Its question and its result.
    pub facts: Facts,
    /// Names, each with its NUL.
    pub names: Box<[u8]>,
}

impl Kept {
    fn bytes(&self) -> usize {
        size_of::<Kept>() + self.names.len()
    }
}

#[derive(Default)]
struct Part {
    kept: VecDeque<Kept>,
    bytes: usize,
}

/// A request in work, as far as a trace wants it. Each thread has one.
#[derive(Default)]
pub(crate) struct Noted {
    facts: Facts,
    names: Vec<u8>,
}

impl Noted {
    /// Allocates what the calling thread needs.
    pub(crate) fn new() -> Noted {
        Noted { facts: Facts::default(), names: Vec::with_capacity(NAMES_MAX) }
    }
}

/// Requests that a reader gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Read {
    /// Number to begin with the next time.
    pub next: u64,
    /// Nobody has read for so long that requests since were not kept, or the server is another one.
    pub was_interrupted: bool,
}

/// The trace of a mount.
pub(crate) struct Trace {
    interest: Interest,
    next: AtomicU64,
    parts: [Mutex<Part>; PARTS],
}

impl Default for Trace {
    fn default() -> Trace {
        let parts = std::array::from_fn(|_| Mutex::default());
        Trace { interest: Interest::new(WATCH), next: AtomicU64::new(1), parts }
    }
}

impl Trace {
    /// Returns whether somebody reads at a time. The first call afterwards frees what was kept.
    #[inline]
    pub(crate) fn is_read(&self, at: Instant) -> bool {
        match self.interest.state(at) {
            State::None => false,
            State::There => true,
            State::Ended => {
                self.clear();
                false
            }
        }
    }

    fn clear(&self) {
        self.parts.iter().for_each(|part| *part.lock() = Part::default());
    }

    /// Notes what a request asks for. Returns whether it is to be kept.
    #[cold]
    pub(crate) fn note(&self, noted: &mut Noted, op: Opcode, request: &Request<'_>) -> bool {
        let Some(facts) = Facts::of(op, request) else { return false };
        noted.names.clear();
        noted.names.extend_from_slice(names(op, request.payload()));
        noted.facts = Facts { uid: shown_user(&request.header), ..facts };
        true
    }

    /// Keeps a noted request, which has been answered. `node` returns the inode of a node id.
    #[cold]
    pub(crate) fn keep(
        &self,
        noted: &mut Noted,
        op: Opcode,
        begun: Instant,
        (reply, body): (&Reply, &[u8]),
        node: impl Fn(u64) -> u64,
    ) {
        let took_ns = begun.elapsed().as_nanos() as u64;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        noted.facts.answered(op, reply, body, node);
        let part = &mut *self.parts[shard() % PARTS].lock();
        let kept = Kept {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            begun_ns: (now.as_nanos() as u64).saturating_sub(took_ns),
            took_ns,
            op,
            facts: noted.facts,
            names: noted.names.as_slice().into(),
        };
        part.bytes += kept.bytes();
        part.kept.push_back(kept);
        while part.bytes > PART_BYTES
            && let Some(oldest) = part.kept.pop_front()
        {
            part.bytes -= oldest.bytes();
        }
    }

    /// Passes requests to `each` in the order of their numbers, from `from` on, until it returns
    /// false; the one it refuses comes again. `from` 0: none, and later those from now on.
    pub(crate) fn read(&self, from: u64, each: &mut dyn FnMut(&Kept) -> bool) -> Read {
        let was_read = self.interest.renew();
        let mut parts = self.parts.each_ref().map(|part| part.lock());
        let next = self.next.load(Ordering::Relaxed);
        if !was_read {
            parts.iter_mut().for_each(|part| **part = Part::default());
        }
        if from == 0 || from > next || !was_read {
            return Read { next, was_interrupted: from != 0 };
        }
        let mut at = parts.each_ref().map(|part| part.kept.partition_point(|it| it.number < from));
        loop {
            let heads = parts.iter().zip(at).enumerate();
            let heads = heads.filter_map(|(n, (part, at))| Some((part.kept.get(at)?, n)));
            let Some((kept, n)) = heads.min_by_key(|(kept, _)| kept.number) else {
                return Read { next, was_interrupted: false };
            };
            if !each(kept) {
                return Read { next: kept.number, was_interrupted: false };
            }
            at[n] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::InHeader;

    fn keep(trace: &Trace, noted: &mut Noted, name: &[u8], node: u64) {
        let mut body = name.to_vec();
        let header = InHeader { nodeid: node, ..InHeader::default() };
        let filled = body.len();
        let request = Request::from_parts(header, &[], &mut body, filled).unwrap();
        if trace.note(noted, Opcode::Unlink, &request) {
            let reply = (&Reply::Body(0), &[][..]);
            trace.keep(noted, Opcode::Unlink, Instant::now(), reply, |id| id);
        }
    }

    fn all(trace: &Trace, from: u64) -> (Vec<u64>, Read) {
        let mut numbers = Vec::new();
        let read = trace.read(from, &mut |kept| {
            numbers.push(kept.number);
            true
        });
        (numbers, read)
    }

    #[test]
    fn requests_are_read_in_order_by_any_number_of_readers() {
        let (trace, mut noted) = (Trace::default(), Noted::new());
        assert!(!trace.is_read(Instant::now()));
        let (none, begun) = all(&trace, 0);
        assert_eq!((none, begun), (vec![], Read { next: 1, was_interrupted: false }));
        assert!(trace.is_read(Instant::now()));
        for _ in 0..5 {
            keep(&trace, &mut noted, b"name\0", 7);
        }
        let mut few = 0;
        let read = trace.read(begun.next, &mut |kept| {
            few += 1;
            assert_eq!((&*kept.names, kept.facts.node), (&b"name\0"[..], 7));
            few <= 3
        });
        assert_eq!(read, Read { next: 4, was_interrupted: false });
        assert_eq!(all(&trace, read.next).0, [4, 5]);
        assert_eq!(all(&trace, begun.next).0, [1, 2, 3, 4, 5]);
        let (_, ahead) = all(&trace, 1000);
        assert_eq!(ahead, Read { next: 6, was_interrupted: true }, "of another server");
    }

    #[test]
    fn a_reader_that_is_slow_finds_a_gap_and_one_that_stops_is_told() {
        let (trace, mut noted) = (Trace::default(), Noted::new());
        all(&trace, 0);
        let name = [vec![b'x'; 255], vec![0]].concat();
        for _ in 0..50_000 {
            keep(&trace, &mut noted, &name, 7);
        }
        let (found, read) = all(&trace, 1);
        assert!(found[0] > 1 && found.len() < 50_000 && read.next == 50_001);
        assert!(found.windows(2).all(|pair| pair[0] + 1 == pair[1]), "of one thread: no others");
        assert!(trace.parts.iter().all(|part| part.lock().bytes <= PART_BYTES));
        trace.interest.end_soon();
        assert!(!trace.is_read(Instant::now()));
        assert!(trace.parts.iter().all(|part| part.lock().kept.is_empty()), "freed");
        let (found, read) = all(&trace, 50_001);
        assert_eq!((found, read), (vec![], Read { next: 50_001, was_interrupted: true }));
    }

    #[test]
    fn threads_lose_none_and_readers_never_pass_one() {
        let trace = Trace::default();
        all(&trace, 0);
        let threads = 4u64;
        std::thread::scope(|scope| {
            for node in 0..threads {
                let trace = &trace;
                scope.spawn(move || {
                    let mut noted = Noted::new();
                    (0..2000).for_each(|_| keep(trace, &mut noted, b"n\0", node + 1));
                });
            }
            let (mut seen, mut next) = (0, 1);
            while seen < threads * 2000 {
                let (numbers, read) = all(&trace, next);
                let wanted: Vec<u64> = (next..read.next).collect();
                assert_eq!(numbers, wanted);
                (seen, next) = (seen + numbers.len() as u64, read.next);
            }
        });
    }
}
