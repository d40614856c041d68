//! `shoal top`: the operations, users and processes of a mount, live.
//!
//! The screen is drawn anew each time by two escape sequences, so that nothing has to be put back
//! when the command is killed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::termios::tcgetwinsize;
use serde::Serialize;
use shoal_fuse::{
    Group, Load, Loads, Operation, Stat, loads_of, operations_of, read_only_reason_of,
};

use crate::accounts::Accounts;
use crate::args::TopArgs;
use crate::failure::{OK, Result};
use crate::json::Object;
use crate::mounted;
use crate::operations::{self, aligned, duration};
use crate::output::Out;
use crate::size;
use crate::text::printable;

/// Moves to the top left, and clears what is below.
const REDRAW: &[u8] = b"\x1b[H\x1b[J";
/// Lines of a terminal that does not say how many it has.
const LINES: usize = 24;

/// Shows a mount until interrupted, or once.
pub fn run(args: &TopArgs) -> Result<u8> {
    let mount = mounted::open(&args.directory)?;
    let accounts = Accounts::of_this_machine();
    let ask = || Reading::of(&mount).map_err(|error| mounted::refused(&args.directory, error));
    let every = Duration::from_secs(args.every);
    let (mut out, mut before) = (Out::new(), ask()?);
    let is_screen = io::stdout().is_terminal() && !args.once && !args.json;
    loop {
        std::thread::sleep(every);
        let now = ask()?;
        let frame = Frame::between(&before, &now, &accounts);
        if is_screen {
            let lines = tcgetwinsize(io::stdout()).map_or(LINES, |size| usize::from(size.ws_row));
            out.bytes(REDRAW)?;
            for line in frame.lines(lines.max(10)).iter().take(lines.max(10) - 1) {
                out.line(line)?;
            }
        } else if args.json {
            out.json(frame.json())?;
        } else {
            frame.lines(usize::MAX).iter().try_for_each(|line| out.line(line))?;
        }
        out.flush()?;
        if args.once {
            return Ok(OK);
        }
        before = now;
    }
}

/// A mount at a moment.
struct Reading {
    at: Instant,
    stats: Vec<Stat>,
    operations: Vec<Operation>,
    /// `None`: only the superuser and who has mounted may know.
    loads: Option<Loads>,
    failed: Option<String>,
}

impl Reading {
    fn of(mount: &OwnedFd) -> io::Result<Reading> {
        let loads = match loads_of(mount) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => None,
            loads => Some(loads?),
        };
        Ok(Reading {
            at: Instant::now(),
            stats: shoal_fuse::stats_of(mount)?,
            operations: operations_of(mount)?,
            loads,
            failed: read_only_reason_of(mount)?,
        })
    }

    fn stat(&self, name: &str) -> u64 {
        self.stats.iter().find(|stat| stat.name == name).map_or(0, |stat| stat.value)
    }
}

/// A row of users or processes.
#[derive(Serialize, Clone, PartialEq, Debug)]
struct Row {
    id: u32,
    name: String,
    user: u32,
    requests: f64,
    read: f64,
    written: f64,
    /// Share of the time in which a request of it was being answered; more than 1 with several.
    busy: f64,
}

/// A mount during an interval. Rates are by second.
struct Frame<'a> {
    now: &'a Reading,
    seconds: f64,
    operations: Vec<Operation>,
    users: Option<Vec<Row>>,
    processes: Option<Vec<Row>>,
    missed: [f64; 2],
}

impl Frame<'_> {
    fn between<'a>(before: &Reading, now: &'a Reading, accounts: &Accounts) -> Frame<'a> {
        let seconds = (now.at - before.at).as_secs_f64().max(1e-3);
        let rows = |of: fn(&Loads) -> &Vec<Load>, name: &dyn Fn(u32) -> (u32, String)| {
            let (before, now) = (before.loads.as_ref()?, now.loads.as_ref()?);
            Some(rows(of(before), of(now), seconds, name))
        };
        let rate = |name| now.stat(name).saturating_sub(before.stat(name)) as f64 / seconds;
        Frame {
            now,
            seconds,
            operations: operations::since(&before.operations, &now.operations),
            users: rows(|loads| &loads.users, &|uid| (uid, accounts.user_or_number(uid))),
            processes: rows(|loads| &loads.processes, &process),
            missed: [rate("node_reads"), rate("inode_block_reads")],
        }
    }

    fn of(&self, group: Group) -> impl Iterator<Item = &Operation> {
        self.operations.iter().filter(move |it| it.group == group)
    }

    /// Returns the lines, not many more than a screen has.
    fn lines(&self, screen: usize) -> Vec<String> {
        let mut lines = self.head();
        let mut requests: Vec<Operation> = self.of(Group::Requests).cloned().collect();
        requests.sort_by_key(|it| std::cmp::Reverse(it.timing.count()));
        let inside: Vec<Operation> = self.of(Group::Volume).cloned().collect();
        let share = screen.saturating_sub(lines.len() + inside.len() + 10) / 3;
        let share = share.max(4);
        requests.truncate(share);
        for table in [requests, inside] {
            lines.push(String::new());
            lines.extend(operations::table(&table, Some(self.seconds)));
        }
        for (title, rows) in [("user", &self.users), ("process", &self.processes)] {
            lines.push(String::new());
            match rows {
                Some(rows) => lines.extend(table(title, &rows[..rows.len().min(share)])),
                None => lines.push(format!("{title}: shown to root and to who has mounted")),
            }
        }
        lines
    }

    fn head(&self) -> Vec<String> {
        let (now, requests) = (self.now, self.of(Group::Requests));
        let mut all = shoal::raw::Timing::default();
        requests.for_each(|operation| all.merge(&operation.timing));
        let [p50, p99, p999] =
            operations::SHARES.map(|(share, _)| duration(all.quantile_ns(share)));
        let total = all.count() as f64 / self.seconds;
        let of = |name| size::human(now.stat(name));
        let mut lines = vec![
            format!("{total:.0} operations/s   p50 {p50}   p99 {p99}   p99.9 {p999}"),
            format!(
                "memory: {} for metadata, {} the server; \
                 missed: {:.0} nodes/s, {:.0} inode blocks/s",
                of("cache_bytes"),
                of("resident_bytes"),
                self.missed[0],
                self.missed[1],
            ),
            format!(
                "journal: {} since the checkpoint; {} checkpoints; being freed: {} files",
                of("journal_replay_bytes"),
                now.stat("checkpoints"),
                now.stat("orphan_slots_used"),
            ),
            format!(
                "space: {} live, {} of {} segments free; {} inodes",
                of("live_bytes"),
                now.stat("segments_free"),
                now.stat("segments"),
                now.stat("inodes"),
            ),
        ];
        if let Some(reason) = &now.failed {
            lines.push(format!("FAILED: the volume takes no changes: {reason}"));
        }
        lines
    }

    fn json(&self) -> Object {
        let gauges: BTreeMap<&str, u64> = self
            .now
            .stats
            .iter()
            .filter(|stat| stat.gauge)
            .map(|stat| (&*stat.name, stat.value))
            .collect();
        Object::new()
            .put("seconds", self.seconds)
            .put("operations", operations::json(&self.operations, Group::Requests))
            .put("calls", operations::json(&self.operations, Group::Calls))
            .put("volume", operations::json(&self.operations, Group::Volume))
            .put("now", gauges)
            .put_some("failed", self.now.failed.as_deref())
            .put_some("users", self.users.as_deref())
            .put_some("processes", self.processes.as_deref())
    }
}

/// Returns the load of an interval, the most requests first. Keys of the same name are one row.
fn rows(
    before: &[Load],
    now: &[Load],
    seconds: f64,
    name: &dyn Fn(u32) -> (u32, String),
) -> Vec<Row> {
    let mut rows = BTreeMap::<u32, Row>::new();
    for load in now {
        let old = before.iter().find(|old| old.key == load.key).copied().unwrap_or_default();
        // A row may have been another's in between.
        let rate = |now: u64, old: u64| now.saturating_sub(old) as f64 / seconds;
        let requests = rate(load.requests, old.requests);
        if requests == 0.0 {
            continue;
        }
        let (id, name) = name(load.key);
        let new =
            Row { id, name, user: load.uid, requests: 0.0, read: 0.0, written: 0.0, busy: 0.0 };
        // The threads of a process are one row.
        let row = rows.entry(id).or_insert(new);
        row.requests += requests;
        row.read += rate(load.read, old.read);
        row.written += rate(load.written, old.written);
        row.busy += rate(load.took_ns, old.took_ns) / 1e9;
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    rows.sort_by(|a, b| b.requests.total_cmp(&a.requests));
    rows
}

/// Returns the process that a thread belongs to, and its name, as far as it can be seen.
pub fn process(thread: u32) -> (u32, String) {
    if thread == 0 {
        return (0, "(in another container)".into());
    }
    let Ok(status) = fs::read(format!("/proc/{thread}/status")) else {
        return (thread, "(ended)".into());
    };
    let field = |name: &[u8]| {
        let mut lines = status.split(|byte| *byte == b'\n');
        lines.find_map(|line| line.strip_prefix(name)).map(<[u8]>::trim_ascii)
    };
    let id = field(b"Tgid:").and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
    let name = field(b"Name:").map(|name| printable(name).into_owned());
    (id.unwrap_or(thread), name.unwrap_or_default())
}

fn table(title: &str, rows: &[Row]) -> Vec<String> {
    let head = [title, "id", "per s", "read/s", "written/s", "busy"].map(String::from);
    let bytes = |n: f64| if n > 0.0 { size::human(n as u64) } else { String::new() };
    let cells = rows.iter().map(|row| {
        [
            row.name.clone(),
            row.id.to_string(),
            format!("{:.0}", row.requests),
            bytes(row.read),
            bytes(row.written),
            format!("{:.0}%", row.busy * 100.0),
        ]
    });
    aligned(&std::iter::once(head).chain(cells).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(key: u32, requests: u64) -> Load {
        Load { key, uid: 0, requests, took_ns: requests * 1_000_000, ..Load::default() }
    }

    #[test]
    fn loads_are_compared_by_interval() {
        let before = [load(0, 100), load(4_000_000, 10), load(4_000_001, 7)];
        let now = [load(0, 300), load(4_000_000, 30), load(4_000_001, 7)];
        let name = |uid| (uid, String::new());
        let found = rows(&before, &now, 2.0, &name);
        let short: Vec<_> = found.iter().map(|row| (row.id, row.requests)).collect();
        assert_eq!(short, [(0, 100.0), (4_000_000, 10.0)]);
        assert!((found[0].busy - 0.1).abs() < 1e-9);
        assert!(rows(&now, &before, 2.0, &name).is_empty(), "a row of another");
        let lines = table("user", &found);
        assert!(lines[0].starts_with("user ") && lines[1].ends_with("10%"), "{lines:?}");
    }

    #[test]
    fn threads_have_processes() {
        let (id, name) = process(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
        assert_eq!(id, std::process::id());
        assert!(!name.is_empty());
        assert_eq!(process(u32::MAX), (u32::MAX, "(ended)".into()));
    }
}
