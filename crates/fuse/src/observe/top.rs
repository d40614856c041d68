//! Users and processes: the load of each, counted only while somebody watches.
//!
//! There may be any number of users and processes, so each table is a *space-saving* sketch
//! (Metwally, Agrawal, El Abbadi, 2005): it has [`ROWS`] rows; a key without a row takes the row
//! with the fewest requests, and begins with their number as its possible error. A key with more
//! than one in [`ROWS`] of all requests always has a row. There are [`PARTS`] of each table, so
//! that threads rarely wait for each other; a reader adds them up.

use crate::caller::shown_user;
use crate::observe::Answered;
use crate::observe::interest::{Interest, State};
use crate::protocol::flags::WRITE_CACHE;
use crate::protocol::wire::ReadIn;
use crate::protocol::{Opcode, Request};
use parking_lot::Mutex;
use shoal::raw::shard::shard;
use shoal_session::{Counted, Load};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Rows of a table.
pub(crate) const ROWS: usize = 64;
/// Parts of a table.
pub(crate) const PARTS: usize = 8;
/// Time for which requests are counted after somebody has looked.
const WATCH: Duration = Duration::from_secs(15);

fn add(to: &mut Load, other: &Load) {
    to.uid = other.uid;
    to.requests += other.requests;
    to.uncertain += other.uncertain;
    to.took_ns += other.took_ns;
    to.read += other.read;
    to.written += other.written;
}

/// A table with a bounded number of rows.
#[derive(Default)]
struct Sketch(Vec<Load>);

impl Sketch {
    fn add(&mut self, load: &Load) {
        if let Some(row) = self.0.iter_mut().find(|row| row.key == load.key) {
            return add(row, load);
        }
        if self.0.len() < ROWS {
            self.0.push(*load);
            return;
        }
        if let Some(least) = self.0.iter_mut().min_by_key(|row| row.requests) {
            let before = least.requests;
            *least = *load;
            least.requests += before;
            least.uncertain = before;
        }
    }
}

/// Tables of users and processes.
#[derive(Default)]
struct Part {
    users: Sketch,
    processes: Sketch,
}

/// Users and processes of a mount.
pub(crate) struct Top {
    interest: Interest,
    parts: [Mutex<Part>; PARTS],
}

impl Default for Top {
    fn default() -> Top {
        let parts = std::array::from_fn(|_| Mutex::default());
        Top { interest: Interest::new(WATCH), parts }
    }
}

impl Top {
    /// Returns whether somebody may be watching: the time tells.
    #[inline]
    pub(crate) fn was_watched(&self) -> bool {
        self.interest.was_there()
    }

    /// Returns whether somebody watches at a time.
    #[inline]
    pub(crate) fn is_watched(&self, at: Instant) -> bool {
        self.interest.state(at) == State::There
    }

    /// Watches for some time from now on, with empty tables unless somebody watches already.
    /// Returns whether somebody did.
    pub(crate) fn watch(&self) -> bool {
        let was = self.interest.renew();
        if !was {
            self.parts.iter().for_each(|part| *part.lock() = Part::default());
        }
        was
    }

    /// Counts a request.
    pub(crate) fn count(&self, request: &Request<'_>, answered: &Answered) {
        let header = &request.header;
        let by_kernel = is_of_kernel(request, answered.op);
        let uid = shown_user(header);
        let moved = |op| if answered.op == op { answered.bytes } else { 0 };
        let load = Load {
            is_process: false,
            key: uid,
            uid,
            requests: 1,
            uncertain: 0,
            took_ns: answered.took_ns,
            read: moved(Opcode::Read),
            written: moved(Opcode::Write),
        };
        let user = (!by_kernel).then_some(&load);
        let key = if by_kernel { Load::KERNEL } else { header.pid };
        self.add(user, &Load { is_process: true, key, ..load });
    }

    /// Counts a call of a session.
    pub(crate) fn count_call(&self, call: &Counted) {
        let Counted { pid, uid, took, read, written } = *call;
        let took_ns = took.as_nanos() as u64;
        let (is_process, requests, uncertain) = (false, 1, 0);
        let load = Load { is_process, key: uid, uid, requests, uncertain, took_ns, read, written };
        self.add(Some(&load), &Load { is_process: true, key: pid, ..load });
    }

    fn add(&self, user: Option<&Load>, process: &Load) {
        let part = &mut *self.parts[shard() % PARTS].lock();
        if let Some(user) = user {
            part.users.add(user);
        }
        part.processes.add(process);
    }

    /// Returns the users with the most requests, the most first.
    pub(crate) fn users(&self) -> Vec<Load> {
        self.merged(|part| &part.users)
    }

    /// Returns the processes with the most requests, the most first.
    pub(crate) fn processes(&self) -> Vec<Load> {
        self.merged(|part| &part.processes)
    }

    fn merged(&self, table: impl Fn(&Part) -> &Sketch) -> Vec<Load> {
        let mut all = HashMap::<u32, Load>::new();
        for part in &self.parts {
            for row in &table(&part.lock()).0 {
                let sum = all.entry(row.key).or_insert(Load {
                    is_process: row.is_process,
                    key: row.key,
                    ..Load::default()
                });
                add(sum, row);
            }
        }
        let mut rows: Vec<Load> = all.into_values().collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.requests), row.key));
        rows.truncate(ROWS);
        rows
    }
}

/// Returns whether the kernel has made a request of its own, not in a system call. Those of a
/// program in another pid namespace have no thread either.
fn is_of_kernel(request: &Request<'_>, op: Opcode) -> bool {
    let by_itself = match op {
        Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt | Opcode::Destroy => true,
        Opcode::Release | Opcode::Releasedir => true,
        Opcode::Write => request.arg::<ReadIn>().is_ok_and(|arg| arg.bits & WRITE_CACHE != 0),
        _ => false,
    };
    request.header.pid == 0 && by_itself
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::protocol::wire::InHeader;
    use zerocopy::IntoBytes;

    /// Counts a request of this header.
    fn count(top: &Top, header: InHeader, answered: &Answered) {
        let mut body = [0; 8];
        top.count(&Request::from_parts(header, &[], &mut body, 0).unwrap(), answered);
    }

    #[test]
    fn the_kernels_own_requests_are_no_process_and_no_user() {
        let (top, mut body) = (Top::default(), [0; 8]);
        top.watch();
        count(&top, InHeader::default(), &answered(Opcode::BatchForget, 0));
        count(&top, InHeader::default(), &answered(Opcode::Release, 0));
        count(&top, InHeader { uid: 7, ..InHeader::default() }, &answered(Opcode::Lookup, 0));
        for bits in [WRITE_CACHE, 0] {
            let (arg, header) = (ReadIn { bits, ..ReadIn::default() }, InHeader::default());
            let request = Request::from_parts(header, arg.as_bytes(), &mut body, 0).unwrap();
            top.count(&request, &answered(Opcode::Write, 5));
        }
        let keys = |loads: Vec<Load>| -> Vec<(u32, u64, u64)> {
            loads.iter().map(|load| (load.key, load.requests, load.written)).collect()
        };
        assert_eq!(keys(top.processes()), [(Load::KERNEL, 3, 5), (0, 2, 5)]);
        assert_eq!(keys(top.users()), [(0, 1, 5), (7, 1, 0)]);
    }

    fn answered(op: Opcode, bytes: u64) -> Answered {
        Answered { op, took_ns: 10, errno: 0, bytes }
    }

    #[test]
    fn a_hundred_thousand_processes_take_no_more_rows_and_hide_nobody() {
        let top = Top::default();
        assert!(!top.is_watched(Instant::now()));
        assert!(!top.watch());
        assert!(top.is_watched(Instant::now()) && top.watch());
        for n in 0..100_000 {
            let header = InHeader { uid: n % 1000, pid: n, ..InHeader::default() };
            count(&top, header, &answered(Opcode::Lookup, 0));
            if n % 10 == 0 {
                let header = InHeader { uid: 7777, pid: 1 << 30, ..InHeader::default() };
                count(&top, header, &answered(Opcode::Write, 5));
            }
        }
        let (users, processes) = (top.users(), top.processes());
        assert_eq!((users.len(), processes.len()), (ROWS, ROWS));
        assert!(top.parts.iter().all(|part| part.lock().processes.0.len() <= ROWS));
        let process = processes[0];
        assert_eq!((process.key, process.uid), (1 << 30, 7777));
        let sure = process.requests - process.uncertain;
        assert!(sure <= 10_000 && process.requests >= 10_000, "{process:?}");
        assert!(process.written >= 5 * sure && process.read == 0);
        assert_eq!(users[0].key, 7777);
    }

    #[test]
    fn watching_again_after_a_pause_begins_anew() {
        let top = Top::default();
        top.watch();
        count(&top, InHeader::default(), &answered(Opcode::Read, 3));
        assert_eq!((top.users()[0].read, top.users()[0].requests), (3, 1));
        top.interest.end_soon();
        assert!(!top.is_watched(Instant::now()) && !top.watch());
        assert!(top.users().is_empty());
    }
}
