//! The load of a mount between two readings, as numbers, text and JSON.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use serde::Serialize;
use shoal::raw::text::counted;
use shoal::raw::{Code, Timing};
use shoal_session::{Group, Load, Metric, Operation};

use crate::accounts::Accounts;
use crate::json::Object;
use crate::operations::{self, aligned, duration};
use crate::session::Session;
use crate::size;
use crate::store::StoreCounts;
use crate::text::printable;

/// A mount at a moment.
pub(super) struct Reading {
    at: Instant,
    stats: Vec<Metric>,
    operations: Vec<Operation>,
    /// `None`: only the superuser and the user who mounted may know.
    loads: Option<Vec<Load>>,
    failed: Option<String>,
}

impl Reading {
    /// Asks the server.
    pub(super) fn of(session: &Session) -> shoal::raw::Result<Reading> {
        let (calls, who) = (session.calls(), &session.who);
        let loads = match calls.all_loads(who) {
            Err(error) if error.is(Code::NotPermitted) => None,
            loads => Some(loads?),
        };
        Ok(Reading {
            at: Instant::now(),
            stats: calls.all_metrics(who)?,
            operations: calls.all_operations(who)?,
            loads,
            failed: calls.read_only_reason(who)?,
        })
    }

    fn stat(&self, name: &str) -> u64 {
        self.stats.iter().find(|stat| stat.name == name).map_or(0, |stat| stat.value)
    }
}

/// A row of users or processes.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(super) struct Row {
    pub id: u32,
    pub name: String,
    pub user: u32,
    pub requests: f64,
    pub read: f64,
    pub written: f64,
    /// Share of the time in which a request of it was being answered; more than 1 with several.
    pub busy: f64,
}

/// The load of a mount during an interval. Rates are by second.
pub(super) struct Interval {
    pub seconds: f64,
    /// At its end.
    pub stats: Vec<Metric>,
    /// Reason why the volume takes no changes.
    pub failed: Option<String>,
    pub operations: Vec<Operation>,
    /// `None`: only the superuser and who has mounted may know.
    pub users: Option<Vec<Row>>,
    pub processes: Option<Vec<Row>>,
    /// Nodes and inode blocks read from the device.
    pub missed: [f64; 2],
    /// Requests of a volume in a bucket, as clauses.
    pub store: Option<Vec<String>>,
}

impl Interval {
    /// Compares two readings.
    pub(super) fn between(before: &Reading, now: &Reading, accounts: &Accounts) -> Interval {
        let seconds = (now.at - before.at).as_secs_f64().max(1e-3);
        let rows = |is_process: bool, name: &dyn Fn(u32) -> (u32, String)| {
            let of = |reading: &Reading| -> Option<Vec<Load>> {
                let all = reading.loads.as_ref()?.iter();
                Some(all.filter(|load| load.is_process == is_process).copied().collect())
            };
            Some(rows(&of(before)?, &of(now)?, seconds, name))
        };
        let rate = |name| now.stat(name).saturating_sub(before.stat(name)) as f64 / seconds;
        Interval {
            seconds,
            stats: now.stats.clone(),
            failed: now.failed.clone(),
            operations: operations::since(&before.operations, &now.operations),
            users: rows(false, &|uid| (uid, accounts.user_or_number(uid))),
            processes: rows(true, &process),
            missed: [rate("node_reads"), rate("inode_block_reads")],
            store: StoreCounts::of_mount(&now.stats)
                .zip(StoreCounts::of_mount(&before.stats))
                .map(|(now, before)| now.since(&before, seconds)),
        }
    }

    fn of(&self, group: Group) -> impl Iterator<Item = &Operation> {
        self.operations.iter().filter(move |it| it.group == group)
    }

    /// Returns the requests of the kernel, the most frequent first.
    pub(super) fn requests(&self) -> Vec<Operation> {
        let mut requests: Vec<Operation> = self.of(Group::Requests).cloned().collect();
        requests.sort_by_key(|it| std::cmp::Reverse(it.timing.count()));
        requests
    }

    /// Returns the parts of the work inside the volume.
    pub(super) fn inside(&self) -> Vec<Operation> {
        self.of(Group::Volume).cloned().collect()
    }

    /// Returns everything as lines.
    pub(super) fn lines(&self) -> Vec<String> {
        let head = self.head().into_iter();
        let mut lines: Vec<String> =
            head.map(|Paragraph { clauses, between }| clauses.join(between)).collect();
        lines.extend(self.alarm());
        for table in [self.requests(), self.inside()] {
            lines.push(String::new());
            lines.extend(operations::table(&table, Some(self.seconds)));
        }
        for (title, rows) in [("user", &self.users), ("process", &self.processes)] {
            lines.push(String::new());
            match rows {
                Some(rows) => lines.extend(aligned(&cells(title, rows))),
                None => lines.push(hidden(title)),
            }
        }
        lines
    }

    /// Returns the state of the mount.
    pub(super) fn head(&self) -> Vec<Paragraph> {
        let mut all = Timing::default();
        let requests = self.of(Group::Requests);
        requests.for_each(|operation| all.merge(&operation.timing));
        let total = all.count() as f64 / self.seconds;
        let mut first = vec![format!("{total:.0} operations/s")];
        first.extend(operations::SHARES.map(|(share, name)| {
            let duration = duration(all.quantile_ns(share));
            format!("{name} {duration}")
        }));
        let of = |name| self.stats.iter().find(|it| it.name == name).map_or(0, |it| it.value);
        let bytes = |name| size::human(of(name));
        let (cache, resident) = (bytes("cache_bytes"), bytes("resident_bytes"));
        let [nodes, blocks] = self.missed;
        let (replay, live) = (bytes("journal_replay_bytes"), bytes("live_bytes"));
        let (free, segments) = (of("segments_free"), of("segments"));
        let clauses = |clauses| Paragraph { clauses, between: "; " };
        let mut head = vec![
            Paragraph { clauses: first, between: "   " },
            clauses(vec![
                format!("memory: {cache} for metadata, {resident} the server"),
                format!("missed: {nodes:.0} nodes/s, {blocks:.0} inode blocks/s"),
            ]),
            clauses(vec![
                format!("journal: {replay} since the checkpoint"),
                format!("{} checkpoints", of("checkpoints")),
                format!("being freed: {}", counted(of("orphan_slots_used"), "file")),
            ]),
            clauses(vec![
                format!("space: {live} live, {free} of {segments} segments free"),
                format!("{} inodes", of("inodes")),
            ]),
        ];
        head.extend(self.store.clone().map(clauses));
        head
    }

    /// Returns the line that tells that the volume takes no changes.
    pub(super) fn alarm(&self) -> Option<String> {
        let reason = self.failed.as_ref()?;
        Some(format!("FAILED: the volume takes no changes: {reason}"))
    }

    /// Returns the object that `--json` prints.
    pub(super) fn json(&self) -> Object {
        let gauges: BTreeMap<&str, u64> = self
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
            .put_some("failed", self.failed.as_deref())
            .put_some("users", self.users.as_deref())
            .put_some("processes", self.processes.as_deref())
    }
}

/// A line that may be broken between its clauses.
pub(super) struct Paragraph {
    pub clauses: Vec<String>,
    pub between: &'static str,
}

/// Returns the load of an interval, the most requests first. Keys of the same name are one row.
fn rows(
    before: &[Load],
    now: &[Load],
    seconds: f64,
    name: &dyn Fn(u32) -> (u32, String),
) -> Vec<Row> {
    let mut rows = BTreeMap::<(u32, String), Row>::new();
    for load in now {
        let old = before.iter().find(|old| old.key == load.key).copied().unwrap_or_default();
        // A row may have been another's in between.
        let rate = |now: u64, old: u64| now.saturating_sub(old) as f64 / seconds;
        let requests = rate(load.requests, old.requests);
        if requests == 0.0 {
            continue;
        }
        let (id, name) = name(load.key);
        let key = (id, name.clone());
        let new =
            Row { id, name, user: load.uid, requests: 0.0, read: 0.0, written: 0.0, busy: 0.0 };
        // The threads of a process are one row.
        let row = rows.entry(key).or_insert(new);
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
pub(crate) fn process(thread: u32) -> (u32, String) {
    match thread {
        0 => return (0, "(in another container)".into()),
        Load::KERNEL => return (0, "(kernel)".into()),
        _ => {}
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

/// Line in place of users or processes that the caller may not see.
pub(super) fn hidden(title: &str) -> String {
    format!("{title}: shown to root and to the user who mounted")
}

/// Returns the cells of a table of users or processes, the names of its columns first.
pub(super) fn cells(title: &str, rows: &[Row]) -> Vec<[String; 6]> {
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
    std::iter::once(head).chain(cells).collect()
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
        let lines = aligned(&cells("user", &found));
        assert!(lines[0].starts_with("user ") && lines[1].ends_with("10%"), "{lines:?}");
    }

    #[test]
    fn threads_have_processes() {
        let (id, name) = process(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned());
        assert_eq!(id, std::process::id());
        assert!(!name.is_empty());
        assert_eq!(process(u32::MAX - 1), (u32::MAX - 1, "(ended)".into()));
        let [kernel, hidden] = [Load::KERNEL, 0].map(|thread| process(thread).1);
        assert_eq!([&*kernel, &hidden], ["(kernel)", "(in another container)"]);
    }
}
