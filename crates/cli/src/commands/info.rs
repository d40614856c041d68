//! `shoal info`: what a volume is and how it is used.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use shoal::{RecoveryReport, RootInfo, StatFs, VolumeInfo};
use shoal_fuse::{read_only_reason_of, stats_of};

use crate::args::InfoArgs;
use crate::failure::{Failure, OK, Reason, Result};
use crate::mounted;
use crate::output::{Out, json_name};
use crate::session::{Access, Session};
use crate::size::human;

/// Width of the column of names.
const NAME_WIDTH: usize = 16;

/// The library's reason for a volume opened read-only.
const OUR_CHOICE: &str = "opened read-only";

/// Shows a volume's geometry, usage and features.
pub fn run(args: &InfoArgs) -> Result<u8> {
    if args.volume.is_dir() {
        return mount(args);
    }
    let session = Session::open(&args.volume, Access::Read)?;
    let info = session.volume.info();
    let usage = session.volume.statfs();
    let roots = Roots::of(&session.volume.root_list());
    session.close()?;
    let mut out = Out::new();
    if args.json {
        out.json(&JsonInfo::new(&args.volume, &info, &roots, Some(&usage)))?;
    } else {
        for (name, value) in rows(&args.volume, &info, &roots, &usage) {
            out.line(&format!("{name:NAME_WIDTH$}{value}"))?;
        }
        for (name, value) in info.counters.iter().filter(|(_, value)| *value != 0) {
            out.line(&format!("{:NAME_WIDTH$}{name} {value}", "counter"))?;
        }
    }
    out.flush()?;
    Ok(OK)
}

/// What a mounted volume's server can tell of it, and the kernel of the mount.
fn mount(args: &InfoArgs) -> Result<u8> {
    let path = &args.volume;
    let opened = mounted::open(path)?;
    let stats = stats_of(&opened).map_err(|error| mounted::refused(path, error))?;
    let reason = read_only_reason_of(&opened).map_err(|error| mounted::refused(path, error))?;
    let space = rustix::fs::fstatvfs(&opened).map_err(|error| {
        Failure::failed(path.display(), Reason::from(std::io::Error::from(error)))
    })?;
    let gauges = stats.iter().filter(|stat| stat.gauge);
    let (mount, mount_bytes) = json_name(path.as_os_str().as_encoded_bytes());
    let info = JsonMount {
        mount,
        mount_bytes,
        size: space.f_blocks * space.f_frsize,
        free: space.f_bfree * space.f_frsize,
        available: space.f_bavail * space.f_frsize,
        read_only: reason.as_deref(),
        now: gauges.map(|stat| (&*stat.name, stat.value)).collect(),
    };
    let mut out = Out::new();
    if args.json {
        out.json(&info)?;
    } else {
        for (name, value) in info.rows() {
            out.line(&format!("{name:NAME_WIDTH$}{value}"))?;
        }
    }
    out.flush()?;
    Ok(OK)
}

/// A mounted volume in JSON.
#[derive(Serialize)]
struct JsonMount<'a> {
    mount: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mount_bytes: Option<String>,
    size: u64,
    free: u64,
    available: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    read_only: Option<&'a str>,
    now: BTreeMap<&'a str, u64>,
}

impl JsonMount<'_> {
    fn rows(&self) -> Vec<(&str, String)> {
        let bytes = |bytes: u64| format!("{} ({bytes} bytes)", human(bytes));
        let mut rows = vec![("size", bytes(self.size)), ("available", bytes(self.available))];
        rows.extend(self.now.iter().map(|(name, value)| (*name, value.to_string())));
        rows.extend(self.read_only.map(|why| ("read-only", why.to_owned())));
        rows
    }
}

/// What is shown to a reader.
fn rows(
    path: &Path,
    info: &VolumeInfo,
    roots: &Roots,
    usage: &StatFs,
) -> Vec<(&'static str, String)> {
    let bytes = |bytes: u64| format!("{} ({bytes} bytes)", human(bytes));
    let features = if info.features.is_empty() { "none".into() } else { info.features.join(", ") };
    let segments =
        format!("{} of {}, {} free", info.segments, human(info.segment_size), info.segments_free);
    let mut rows = vec![
        ("volume", path.display().to_string()),
        ("id", info.id.clone()),
        ("format version", info.version.to_string()),
        ("features", features),
        ("size", bytes(usage.bytes_total)),
        ("available", bytes(usage.bytes_available)),
        ("live", bytes(info.live_bytes)),
        ("segments", segments),
        ("inodes", format!("{} of {} bytes", info.inodes, info.inode_size)),
        ("compression", info.compression.clone()),
        ("orphans", info.orphans.to_string()),
        ("roots", roots.to_string()),
        ("checkpoint", format!("{} at LSN {}", info.checkpoint, info.checkpoint_lsn)),
        ("newest LSN", info.lsn.to_string()),
        ("closed", closed(&info.recovery)),
    ];
    rows.extend(info.claim.iter().map(|owner| ("claim", format!("{owner}; it has ended"))));
    if let Some(why) = damage(info) {
        rows.push(("read-only", why.to_owned()));
    }
    rows
}

/// How many roots there are besides the volume's own, and what is left of deleted ones.
#[derive(Default)]
pub struct Roots {
    live: usize,
    deleted: usize,
    /// Inodes in the deleted ones.
    inodes: u64,
}

impl Roots {
    fn of(list: &[RootInfo]) -> Roots {
        let deleted = || list.iter().filter(|root| root.deleted);
        Roots {
            live: list.len() - deleted().count(),
            deleted: deleted().count(),
            inodes: deleted().map(|root| root.inodes).sum(),
        }
    }
}

impl std::fmt::Display for Roots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.deleted {
            0 => write!(f, "{}", self.live),
            n => write!(f, "{}, and {n} being freed ({} inodes left)", self.live, self.inodes),
        }
    }
}

/// Why the volume can only be read, unless it is because we opened it so.
fn damage(info: &VolumeInfo) -> Option<&str> {
    info.read_only.as_deref().filter(|why| *why != OUR_CHOICE)
}

/// How the volume was left, in words.
pub fn closed(recovery: &RecoveryReport) -> String {
    if !recovery.needed {
        return "yes".into();
    }
    let mut text = format!(
        "no; the next mount replays {} records ({})",
        recovery.records,
        human(recovery.bytes)
    );
    match recovery.intents {
        0 => {}
        1 => text.push_str(", and completes 1 intent"),
        n => text.push_str(&format!(", and completes {n} intents")),
    }
    if let Some(torn) = &recovery.torn {
        text.push_str("; the journal's tail was cut: ");
        text.push_str(torn);
    }
    text
}

/// The volume in JSON.
#[derive(Serialize)]
pub struct JsonInfo<'a> {
    volume: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume_bytes: Option<String>,
    id: &'a str,
    version: u32,
    features: &'a [&'static str],
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    free: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    available: Option<u64>,
    live_bytes: u64,
    segment_size: u64,
    segments: u32,
    segments_free: u32,
    inode_size: u32,
    compression: &'a str,
    inodes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    inodes_free: Option<u64>,
    orphans: u64,
    roots: usize,
    roots_deleted: usize,
    checkpoint: u64,
    checkpoint_lsn: u64,
    lsn: u64,
    cache_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    read_only: Option<&'a str>,
    recovery: JsonRecovery<'a>,
    counters: BTreeMap<&'static str, u64>,
}

impl<'a> JsonInfo<'a> {
    /// Describes the volume at `path`.
    pub fn new(
        path: &Path,
        info: &'a VolumeInfo,
        roots: &Roots,
        usage: Option<&StatFs>,
    ) -> JsonInfo<'a> {
        let (volume, volume_bytes) = json_name(path.as_os_str().as_encoded_bytes());
        let geometry = u64::from(info.segments) * info.segment_size;
        JsonInfo {
            volume,
            volume_bytes,
            id: &info.id,
            version: info.version,
            features: &info.features,
            size: usage.map_or(geometry, |usage| usage.bytes_total),
            free: usage.map(|usage| usage.bytes_free),
            available: usage.map(|usage| usage.bytes_available),
            live_bytes: info.live_bytes,
            segment_size: info.segment_size,
            segments: info.segments,
            segments_free: info.segments_free,
            inode_size: info.inode_size,
            compression: &info.compression,
            inodes: info.inodes,
            inodes_free: usage.map(|usage| usage.inodes_free),
            orphans: info.orphans,
            roots: roots.live,
            roots_deleted: roots.deleted,
            checkpoint: info.checkpoint,
            checkpoint_lsn: info.checkpoint_lsn,
            lsn: info.lsn,
            cache_bytes: info.cache_bytes,
            claim: info.claim.as_deref(),
            read_only: damage(info),
            recovery: JsonRecovery::from(&info.recovery),
            counters: info.counters.iter().copied().collect(),
        }
    }
}

/// What recovery did, in JSON.
#[derive(Serialize)]
pub struct JsonRecovery<'a> {
    needed: bool,
    records: u64,
    bytes: u64,
    orphans: u64,
    intents: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    torn: Option<&'a str>,
    seconds: f64,
}

impl<'a> From<&'a RecoveryReport> for JsonRecovery<'a> {
    fn from(report: &'a RecoveryReport) -> JsonRecovery<'a> {
        JsonRecovery {
            needed: report.needed,
            records: report.records,
            bytes: report.bytes,
            orphans: report.orphans,
            intents: report.intents,
            torn: report.torn.as_deref(),
            seconds: report.seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
