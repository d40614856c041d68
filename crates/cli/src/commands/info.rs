//! `shoal info`: geometry and usage of a volume.

use std::collections::BTreeMap;
use std::path::Path;

use shoal::raw::text::counted;
use shoal::raw::{RecoveryReport, RootInfo, StatFs, Time, VolumeInfo, identify};

use crate::args::InfoArgs;
use crate::clock;
use crate::failure::{Failure, OK, Reason, Result, UNUSABLE};
use crate::json::Object;
use crate::mounted;
use crate::mounts;
use crate::output::Out;
use crate::patience;
use crate::rings::GivenUp;
use crate::session::{Access, Session};
use crate::size::human;
use crate::store::StoreCounts;
use crate::tags;
use crate::text::printable;

/// Least width of the column of names.
const NAME_WIDTH: usize = 16;

/// The library's reason for a volume opened read-only.
const OUR_CHOICE: &str = "opened read-only";

/// Shows a volume's geometry, usage and features.
pub(crate) fn run(args: &InfoArgs) -> Result<u8> {
    if args.udev {
        return udev(args);
    }
    let _waiting = patience::wait_for_answer(&args.volume);
    if args.volume.is_dir() {
        return mount(args);
    }
    let args = &InfoArgs { volume: tags::resolve(&args.volume)?, ..*args };
    if let Some(volume) = mounts::of_volume(&args.volume) {
        return mount(&InfoArgs { volume, ..*args });
    }
    let session = Session::open(&args.volume, Access::Read)?;
    let Some(volume) = session.direct() else { return served(args, &session) };
    let (info, usage) = (volume.info(), volume.statfs());
    let subvolumes = Subvolumes::of(&volume.subvolumes().list());
    session.close()?;
    let given_up = GivenUp::of_id(&info.id).and_then(|file| file.read());
    let mut out = Out::new();
    if args.json {
        let object = json(&args.volume, &info, &subvolumes, Some(&usage));
        out.json(object.put_some("given_up", given_up))?;
    } else {
        let mut rows = rows(&args.volume, &info, &subvolumes, &usage);
        rows.extend(given_up.map(|why| ("given up", why)));
        let counters = info.counters.iter().filter(|(_, value)| *value != 0);
        rows.extend(counters.map(|(name, value)| ("counter", format!("{name} {value}"))));
        table(&mut out, &rows)?;
    }
    out.flush()?;
    Ok(OK)
}

/// Prints rows of names and values, with the values in one column.
fn table(out: &mut Out, rows: &[(&str, String)]) -> Result<()> {
    let longest = rows.iter().map(|(name, _)| name.len() + 2).max().unwrap_or(0);
    let width = longest.max(NAME_WIDTH);
    for (name, value) in rows {
        out.line(&format!("{name:width$}{}", printable(value.as_bytes())))?;
    }
    Ok(())
}

/// Prints the properties that udev gives a device: those that blkid would, if it knew Shoal.
fn udev(args: &InfoArgs) -> Result<u8> {
    let Ok(Some(found)) = identify(&args.volume) else { return Ok(UNUSABLE) };
    let mut rows = vec![
        ("ID_FS_TYPE", "shoal".to_owned()),
        ("ID_FS_USAGE", "filesystem".to_owned()),
        ("ID_FS_VERSION", found.version.to_string()),
        ("ID_FS_UUID", found.id.clone()),
        ("ID_FS_UUID_ENC", found.id),
        ("ID_FS_SIZE", found.bytes.to_string()),
    ];
    if !found.label.is_empty() {
        // A reader of the unencoded one splits at spaces.
        let safe = |c: char| if tags::is_safe(c) { c } else { '_' };
        rows.push(("ID_FS_LABEL", found.label.chars().map(safe).collect()));
        rows.push(("ID_FS_LABEL_ENC", tags::encoded(&found.label)));
    }
    let mut out = Out::new();
    for (name, value) in rows {
        out.line(&format!("{name}={value}"))?;
    }
    out.flush()?;
    Ok(OK)
}

/// Describes a mounted volume.
fn mount(args: &InfoArgs) -> Result<u8> {
    served(args, &mounted::session(&args.volume)?)
}

/// Describes a volume, as far as its server knows it, and the kernel.
fn served(args: &InfoArgs, session: &Session) -> Result<u8> {
    let (path, calls, who) = (&args.volume, session.calls(), &session.who);
    let ask = || {
        // Users who may not know the facts see the rest.
        let facts = calls.all_facts(who).unwrap_or_default();
        Ok((calls.all_metrics(who)?, calls.read_only_reason(who)?, facts))
    };
    let (stats, reason, facts) = ask().map_err(|error| mounted::failed(session, &error))?;
    let space = match path.is_dir() {
        true => {
            let found = rustix::fs::statvfs(path);
            let found = found.map_err(|os| Failure::failed(path.display(), Reason::from(os)))?;
            let [size, free, available] =
                [found.f_blocks, found.f_bfree, found.f_bavail].map(|n| n * found.f_frsize);
            [size, free, available]
        }
        false => {
            let space = calls.statfs(who).map_err(|error| mounted::failed(session, &error))?;
            [space.bytes_total, space.bytes_free, space.bytes_available]
        }
    };
    let now: BTreeMap<&str, u64> =
        stats.iter().filter(|stat| stat.gauge).map(|stat| (&*stat.name, stat.value)).collect();
    let [size, free, available] = space;
    let mut out = Out::new();
    if args.json {
        let name = if path.is_dir() { "mount" } else { "volume" };
        let object = Object::new().put_name(name, path.as_os_str().as_encoded_bytes());
        out.json(
            facts_json(object, &facts, reason.is_some())
                .put("size", size)
                .put("free", free)
                .put("available", available)
                .put_some("read_only", reason)
                .put("now", now),
        )?;
    } else {
        let bytes = |bytes: u64| format!("{} ({bytes} bytes)", human(bytes));
        let mut rows = facts_rows(&facts, reason.is_some());
        rows.extend([("size", bytes(size)), ("available", bytes(available))]);
        rows.extend(now.iter().map(|(name, value)| (*name, value.to_string())));
        if let Some(store) = StoreCounts::of_mount(&stats) {
            rows.extend(store.rows());
            rows.push(store.row_of_requests());
        }
        rows.extend(reason.map(|why| ("read-only", why)));
        table(&mut out, &rows)?;
    }
    out.flush()?;
    Ok(OK)
}

/// Facts of a mount, by name.
type Facts = BTreeMap<String, String>;

/// Returns whether a mount takes changes; `None` if it is not known. `failed`: its volume takes
/// none.
fn is_writable(facts: &Facts, failed: bool) -> Option<bool> {
    facts.get("read_only").map(|is| is == "no" && !failed)
}

/// Returns the facts of a mount as rows, in the order of those of a volume.
fn facts_rows(facts: &Facts, failed: bool) -> Vec<(&'static str, String)> {
    let fact = |name: &str| facts.get(name).filter(|value| !value.is_empty()).cloned();
    let number = |name: &str| facts.get(name)?.parse::<u64>().ok();
    let ago = |name: &str| number(name).map(|seconds| format!("{} ago", clock::span(seconds)));
    let or_none = |name: &str| facts.get(name).map(|_| fact(name).unwrap_or("none".into()));
    let made = fact("created").and_then(|text| text.parse().ok());
    let checkpoint = fact("checkpoint").map(|number| {
        let age = ago("checkpoint_age").unwrap_or_else(|| "before it was mounted".into());
        format!("{number}, {age}")
    });
    let keeper = facts.get("keeper").map(|_| match fact("keeper") {
        Some(pid) => format!("process {pid}"),
        None => "none: the mount ends with its server".to_owned(),
    });
    let scrub = || ago("scrub_age").unwrap_or_else(|| "none since it was mounted".into());
    [
        ("volume", fact("source")),
        ("id", fact("id")),
        ("label", or_none("label")),
        ("made", made.map(|sec| clock::minutes(Time { sec, nsec: 0 }))),
        ("format version", fact("version")),
        ("features", or_none("features").map(|list| list.replace(',', ", "))),
        ("options", or_none("options")),
        ("writable", is_writable(facts, failed).map(|is| (if is { "yes" } else { "no" }).into())),
        (
            "server",
            fact("server").map(|pid| {
                let up = number("uptime").map(|seconds| format!(", for {}", clock::span(seconds)));
                format!("process {pid}, shoal {}{}", fact("shoal").unwrap_or_default(), {
                    up.unwrap_or_default()
                })
            }),
        ),
        ("keeper", keeper),
        ("checkpoint", checkpoint),
        ("scrub", fact("server").map(|_| scrub())),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

/// Adds the facts of a mount to an object.
fn facts_json(mut object: Object, facts: &Facts, failed: bool) -> Object {
    let texts = [("source", "volume"), ("id", "id"), ("label", "label"), ("options", "options")];
    for (name, field) in texts {
        object = object.put_some(field, facts.get(name));
    }
    let features = facts.get("features");
    object = object.put_some(
        "features",
        features.map(|list| list.split(',').filter(|name| !name.is_empty()).collect::<Vec<_>>()),
    );
    object = object.put_some("shoal", facts.get("shoal"));
    object = object.put_some("writable", is_writable(facts, failed));
    if let Some(keeper) = facts.get("keeper") {
        object = object.put("keeper", keeper.parse::<u32>().ok());
    }
    for (name, field) in [
        ("version", "version"),
        ("created", "created"),
        ("server", "server"),
        ("uptime", "uptime"),
        ("checkpoint", "checkpoint"),
        ("checkpoint_age", "checkpoint_age"),
        ("scrub_age", "scrub_age"),
    ] {
        object = object.put_some(field, facts.get(name).and_then(|it| it.parse::<i64>().ok()));
    }
    object
}

/// Returns the rows of the table.
fn rows(
    path: &Path,
    info: &VolumeInfo,
    subvolumes: &Subvolumes,
    usage: &StatFs,
) -> Vec<(&'static str, String)> {
    let bytes = |bytes: u64| format!("{} ({bytes} bytes)", human(bytes));
    let features = if info.features.is_empty() { "none".into() } else { info.features.join(", ") };
    let segments =
        format!("{} of {}, {} free", info.segments, human(info.segment_size), info.segments_free);
    let label = if info.label.is_empty() { "none".into() } else { info.label.clone() };
    let mut rows = vec![
        ("volume", path.display().to_string()),
        ("id", info.id.clone()),
        ("label", label),
        ("made", clock::minutes(Time { sec: info.created, nsec: 0 })),
        ("format version", info.version.to_string()),
        ("features", features),
        ("size", bytes(usage.bytes_total)),
        ("available", bytes(usage.bytes_available)),
        ("live", bytes(info.live_bytes)),
        ("segments", segments),
        ("inodes", format!("{} of {} bytes", info.inodes, info.inode_size)),
        ("compression", info.compression.clone()),
        ("orphans", info.orphans.to_string()),
        ("subvolumes", subvolumes.to_string()),
        ("checkpoint", format!("{} at LSN {}", info.checkpoint, info.checkpoint_lsn)),
        ("newest LSN", info.lsn.to_string()),
        ("closed", closed(&info.recovery)),
    ];
    if info.tree_changes > 0 {
        let parts = format!("in {} parts, continued when opened for writing", info.tree_changes);
        rows.push(("changes of trees", parts));
    }
    rows.extend(info.claim.iter().map(|owner| ("claim", format!("{owner}; it has ended"))));
    if let Some(why) = damage(info) {
        rows.push(("read-only", why.to_owned()));
    }
    rows.extend(StoreCounts::of_volume(&info.storage).iter().flat_map(StoreCounts::rows));
    rows
}

/// Numbers of live and deleted subvolumes.
#[derive(Default)]
pub(crate) struct Subvolumes {
    live: usize,
    deleted: usize,
    /// Inodes in the deleted ones.
    inodes: u64,
}

impl Subvolumes {
    fn of(list: &[RootInfo]) -> Subvolumes {
        let deleted = || list.iter().filter(|root| root.deleted);
        Subvolumes {
            live: list.len() - deleted().count(),
            deleted: deleted().count(),
            inodes: deleted().map(|root| root.inodes).sum(),
        }
    }
}

impl std::fmt::Display for Subvolumes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.deleted {
            0 => write!(f, "{}", self.live),
            n => {
                let left = counted(self.inodes, "inode");
                write!(f, "{}, and {n} being freed ({left} left)", self.live)
            }
        }
    }
}

/// Returns why the volume can only be read, unless this command opened it so.
fn damage(info: &VolumeInfo) -> Option<&str> {
    info.read_only.as_deref().filter(|why| *why != OUR_CHOICE)
}

/// Describes how the volume was closed.
pub(crate) fn closed(recovery: &RecoveryReport) -> String {
    if !recovery.needed {
        return "yes".into();
    }
    let mut text = format!(
        "no; the next mount replays {} ({})",
        counted(recovery.records, "record"),
        human(recovery.bytes)
    );
    match recovery.intents {
        0 => {}
        n => text.push_str(&format!(", and completes {}", counted(n, "intent"))),
    }
    if let Some(torn) = &recovery.torn {
        text.push_str("; the journal's tail was cut: ");
        text.push_str(torn);
    }
    text
}

/// Describes the volume at `path` in JSON.
pub(crate) fn json(
    path: &Path,
    info: &VolumeInfo,
    subvolumes: &Subvolumes,
    usage: Option<&StatFs>,
) -> Object {
    let geometry = u64::from(info.segments) * info.segment_size;
    Object::new()
        .put_name("volume", path.as_os_str().as_encoded_bytes())
        .put("id", &info.id)
        .put("label", &info.label)
        .put("created", info.created)
        .put("version", info.version)
        .put("features", &info.features)
        .put("size", usage.map_or(geometry, |usage| usage.bytes_total))
        .put_some("free", usage.map(|usage| usage.bytes_free))
        .put_some("available", usage.map(|usage| usage.bytes_available))
        .put("live_bytes", info.live_bytes)
        .put("segment_size", info.segment_size)
        .put("segments", info.segments)
        .put("segments_free", info.segments_free)
        .put("inode_size", info.inode_size)
        .put("compression", &info.compression)
        .put("inodes", info.inodes)
        .put_some("inodes_free", usage.map(|usage| usage.inodes_free))
        .put("orphans", info.orphans)
        .put("tree_changes", info.tree_changes)
        .put("subvolumes", subvolumes.live)
        .put("subvolumes_deleted", subvolumes.deleted)
        .put("checkpoint", info.checkpoint)
        .put("checkpoint_lsn", info.checkpoint_lsn)
        .put("lsn", info.lsn)
        .put("cache_bytes", info.cache_bytes)
        .put_some("claim", info.claim.as_deref())
        .put(
            "storage",
            info.storage.iter().map(|it| (it.name, it.value)).collect::<BTreeMap<_, _>>(),
        )
        .put_some("read_only", damage(info))
        .put_object("recovery", json_recovery(&info.recovery))
        .put("counters", info.counters.iter().copied().collect::<BTreeMap<_, _>>())
}

/// Describes the result of recovery in JSON.
pub(crate) fn json_recovery(report: &RecoveryReport) -> Object {
    Object::new()
        .put("needed", report.needed)
        .put("records", report.records)
        .put("bytes", report.bytes)
        .put("orphans", report.orphans)
        .put("intents", report.intents)
        .put_some("torn", report.torn.as_deref())
        .put("seconds", report.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_whose_volume_has_failed_is_not_writable() {
        let facts = Facts::from([("read_only".to_owned(), "no".to_owned())]);
        let row = |failed| facts_rows(&facts, failed).into_iter().find(|row| row.0 == "writable");
        assert_eq!(row(false), Some(("writable", "yes".to_owned())));
        assert_eq!(row(true), Some(("writable", "no".to_owned())));
        let json = |failed| facts_json(Object::new(), &facts, failed).into_bytes();
        assert_eq!(json(true), b"{\"writable\":false}");
        assert_eq!(is_writable(&Facts::new(), false), None);
    }

    #[test]
    fn an_unclean_volume_is_described() {
        let mut report = RecoveryReport::default();
        assert_eq!(closed(&report), "yes");
        report.needed = true;
        report.records = 3;
        report.bytes = 2048;
        assert!(!closed(&report).contains("intent"));
        report.intents = 2;
        assert!(closed(&report).ends_with("and completes 2 intents"));
        report.intents = 0;
        report.torn = Some("at byte 9".into());
        let text = closed(&report);
        assert!(text.contains("3 records (2.0 KiB)") && text.ends_with("at byte 9"), "{text}");
    }
}
