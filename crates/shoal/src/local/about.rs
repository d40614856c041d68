//! The volume as its owner sees it: hard links, counters, durations, orphans, and checks of it.
//!
//! Where the top is that of a subvolume, the rest of the volume is not shown, and not changed as a
//! whole. A scrub covers it all the same: damage in another subvolume is damage to the same device.

use super::{Local, metrics::metrics};
use shoal_engine::{
    self as raw, Attr, Call, Caller, Code, Ino, Label, OrphanInfo, Parent, Quota, Result, RootInfo,
    ScrubAt, ScrubReport, Timed,
};
use shoal_session::about::{PART_BYTES, part_of};
use shoal_session::{
    Fact, Group, HardLink, HardLinks, Load, Metric, Operation, ScrubEvent, ScrubStep, Trace,
};
use std::collections::HashMap;

/// Attempts at hard links when something is renamed meanwhile.
const TRIES: usize = 16;
/// Hard links that are looked at for a part.
const LINKS: usize = 256;
/// Orphans that are looked at for a part.
const ORPHANS: usize = 256;
/// Bytes discarded by a call.
const TRIM_STEP: u64 = 1 << 30;
/// Most bytes that one call reads in a scrub. Meanwhile no freed space is reused, so it must take
/// only tens of milliseconds.
const SCRUB_MAX: u64 = 8 << 20;
/// Longest text about a problem, or value of a fact, in bytes; a longer one (four long paths, say)
/// is cut.
const TEXT_MAX: usize = 4000;
/// Longest path of an orphan that is told.
const PATH_MAX: usize = PART_BYTES / 2;

/// A name with its cookie.
type Found = (u64, Parent);

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_MAX)].to_owned()
}

/// Returns what is in a list from a place on.
fn from<T>(list: Vec<T>, from: u32) -> impl Iterator<Item = T> {
    list.into_iter().skip(from as usize)
}

impl Local {
    /// Refuses where a subvolume alone is served.
    pub(super) fn whole(&self) -> Result<()> {
        if self.top == Ino::ROOT { Ok(()) } else { Err(Code::NotPermitted.into()) }
    }

    /// Returns whether an inode is below the top.
    fn shows(&self, ino: Ino) -> bool {
        self.top == Ino::ROOT || ino.root() == self.top.root()
    }

    /// Returns the path of the top in the volume, without a slash at the end.
    fn top_path(&self) -> Result<Vec<u8>> {
        if self.top == Ino::ROOT {
            return Ok(Vec::new());
        }
        let path = self.volume.paths().paths_of(self.top)?.into_iter().next();
        path.ok_or(Code::Stale.into())
    }

    pub(super) fn hard_links(&self, file: Ino, ino: Option<Ino>, from: u64) -> Result<HardLinks> {
        let ino = ino.unwrap_or(file);
        if !self.shows(ino) {
            return Err(Code::Stale.into());
        }
        let Attr { generation, .. } = self.volume.attributes().getattr(ino)?;
        let is_top = ino == self.top;
        let (links, next) = match is_top {
            true => (vec![HardLink { dir: ino, generation, path: b"/".to_vec() }], None),
            false => self.some_links(ino, from)?,
        };
        Ok(HardLinks { ino, generation, is_top, links, next })
    }

    /// Returns hard links from a cookie on. Each is as it was at one moment: the names are the same
    /// before and after.
    fn some_links(&self, ino: Ino, from: u64) -> Result<(Vec<HardLink>, Option<u64>)> {
        let prefix = self.top_path()?;
        let find = || self.volume.paths().parents_from(ino, from, LINKS);
        let mut tries = 0;
        loop {
            tries += 1;
            let found: Vec<Found> = find()?;
            let (mut dirs, mut whole, mut len) = (HashMap::new(), true, 0);
            let (mut links, mut full): (Vec<HardLink>, _) = (Vec::new(), None);
            for (cookie, parent) in &found {
                let Some(mut path) = self.dir_path(parent.dir, &mut dirs, &prefix)? else {
                    // The directory has gone, and with it the name.
                    whole = false;
                    continue;
                };
                path.push(b'/');
                path.extend_from_slice(&parent.name);
                len += path.len() + size_of::<HardLink>();
                if len > PART_BYTES && !links.is_empty() {
                    full = Some(*cookie);
                    break;
                }
                links.push(HardLink { dir: parent.dir, generation: parent.generation, path });
            }
            if tries == TRIES || whole && found == find()? {
                let is_more = found.len() == LINKS;
                let behind = found.last().filter(|_| is_more).map(|(cookie, _)| cookie + 1);
                return Ok((links, full.or(behind)));
            }
        }
    }

    /// Returns the path of a directory, without a slash at the end; `None`: it has none any more.
    fn dir_path(
        &self,
        dir: Ino,
        known: &mut HashMap<Ino, Option<Vec<u8>>>,
        prefix: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        if let Some(path) = known.get(&dir) {
            return Ok(path.clone());
        }
        let path = match self.volume.paths().paths_of(dir) {
            Ok(paths) => paths.into_iter().next(),
            Err(error) if error.is(Code::Stale) => None,
            Err(error) => return Err(error),
        };
        let path = path.and_then(|path| path.strip_prefix(prefix).map(<[u8]>::to_vec));
        // The volume's own top is a slash alone.
        let path = path.map(|path| if path == b"/" { Vec::new() } else { path });
        known.insert(dir, path.clone());
        Ok(path)
    }

    pub(super) fn some_subvolumes(&self, after: u16) -> Result<Vec<RootInfo>> {
        self.whole()?;
        let all = self.volume.subvolumes().list().into_iter();
        Ok(part_of(all.filter(|root| root.id > after), |root| 64 + root.name.len()))
    }

    pub(super) fn make_root(&self, who: &Caller, name: &[u8], mode: u32) -> Result<Attr> {
        self.whole()?;
        let attr = self.volume.subvolumes().create(who, name, mode)?;
        self.tell_new(Ino::ROOT, name);
        Ok(attr)
    }

    pub(super) fn delete_root(&self, who: &Caller, name: &[u8]) -> Result<()> {
        self.whole()?;
        let top = self.before(Ino::ROOT, name)?;
        self.volume.subvolumes().delete(who, name)?;
        self.tell_tree(Ino::ROOT, name, top.as_ref());
        Ok(())
    }

    pub(super) fn some_quotas(&self, after: Ino) -> Result<Vec<Quota>> {
        raw::check_process(&self.volume)?;
        let all = self.volume.quotas().list().into_iter();
        let shown = all.filter(|quota| quota.dir > after && self.shows(quota.dir));
        Ok(part_of(shown, |_| size_of::<Quota>()))
    }

    pub(super) fn quota_at(&self, ino: Ino) -> Result<Option<Quota>> {
        let quota = self.volume.quotas().of(ino)?;
        Ok(quota.filter(|quota| self.shows(quota.dir)))
    }

    pub(super) fn some_metrics(&self, at: u32) -> Vec<Metric> {
        let mut all = metrics(&self.volume.info());
        all.extend(self.control.as_ref().map(|it| it.metrics()).unwrap_or_default());
        part_of(from(all, at), |it| 32 + it.name.len() + it.what.len())
    }

    pub(super) fn some_operations(&self, at: u32) -> Vec<Operation> {
        let mut all = self.control.as_ref().map(|it| it.requests()).unwrap_or_default();
        let maintenance = self.volume.maintenance();
        all.extend(Timed::ALL.iter().map(|kind| {
            let (name, timing) = (kind.name().to_owned(), maintenance.timing(*kind));
            Operation { name, group: Group::Volume, timing }
        }));
        all.extend(Call::ALL.iter().map(|call| {
            let (name, timing) = (call.name().to_owned(), maintenance.call(*call));
            Operation { name, group: Group::Calls, timing }
        }));
        all.retain(|operation| !operation.timing.is_empty());
        part_of(from(all, at), |it| 64 + it.name.len() + 9 * it.timing.buckets().count())
    }

    pub(super) fn some_facts(&self, at: u32) -> Vec<Fact> {
        let info = self.volume.info();
        let mut all = self.control.as_ref().map(|it| it.facts()).unwrap_or_default();
        let rows = [
            ("shoal", env!("CARGO_PKG_VERSION").to_owned()),
            ("id", info.id),
            ("label", info.label),
            ("created", info.created.to_string()),
            ("version", info.version.to_string()),
            ("features", info.features.join(",")),
            ("size", (info.segment_size * u64::from(info.segments)).to_string()),
            ("checkpoint", info.checkpoint.to_string()),
            ("cache", info.cache_bytes.to_string()),
        ];
        all.extend(rows.map(|(name, value)| (name.to_owned(), value)));
        let age = info.checkpoint_age.map(|age| ("checkpoint_age".to_owned(), age.to_string()));
        all.extend(age);
        let all = from(all, at).map(|(name, value)| (name, cut(&value)));
        part_of(all, |(name, value)| 8 + name.len() + value.len())
    }

    pub(super) fn some_loads(&self, at: u32) -> Vec<Load> {
        let all = self.control.as_ref().map(|it| it.loads()).unwrap_or_default();
        part_of(from(all, at), |_| size_of::<Load>())
    }

    pub(super) fn some_trace(&self, from: u64) -> Result<Trace> {
        let control = self.control.as_ref().ok_or(Code::NotSupported)?;
        Ok(control.trace(from, PART_BYTES))
    }

    pub(super) fn some_orphans(&self, after: Ino) -> Result<Vec<OrphanInfo>> {
        let prefix = self.top_path()?;
        let after = match self.top {
            Ino::ROOT => after,
            // Inodes of its subvolume alone.
            top => after.max(Ino(top.0.saturating_sub(1))),
        };
        let found = self.volume.references().orphan_list_after(after, ORPHANS).into_iter();
        let shown = found.take_while(|orphan| self.shows(orphan.ino)).map(|orphan| {
            let path = orphan.path.as_deref().and_then(|path| path.strip_prefix(&prefix[..]));
            let path = path.filter(|path| path.len() < PATH_MAX).map(<[u8]>::to_vec);
            OrphanInfo { path, ..orphan }
        });
        Ok(part_of(shown, |it| 48 + it.path.as_ref().map_or(0, Vec::len)))
    }

    pub(super) fn trim_some(&self, first: bool) -> Result<u64> {
        self.whole()?;
        self.volume.maintenance().trim(first, TRIM_STEP)
    }

    pub(super) fn label(&self, text: &[u8]) -> Result<()> {
        self.whole()?;
        let text = str::from_utf8(text).map_err(|_| Code::Invalid)?;
        let refused = |rule| raw::Error::refused(Code::Invalid, format!("label '{text}': {rule}"));
        self.volume.maintenance().set_label(Label::new(text).map_err(refused)?)
    }

    pub(super) fn scrub_some(&self, run: u32, at: ScrubAt, bytes: u64) -> Result<ScrubStep> {
        if bytes == 0 {
            return Err(Code::Invalid.into());
        }
        let tell = |event: ScrubEvent<'_>| {
            if let Some(control) = &self.control {
                control.scrub(run, event);
            }
        };
        if at == ScrubAt::default() {
            self.begin_scrub();
            tell(ScrubEvent::Begins);
        }
        let mut report = ScrubReport::default();
        let next = self.volume.maintenance().scrub_step(at, bytes.min(SCRUB_MAX), &mut report)?;
        let count = report.problems.len();
        let all = report.problems.into_iter().map(|it| (cut(it.rule), cut(&it.message)));
        let problems = part_of(all, |(rule, text)| 8 + rule.len() + text.len());
        let left_out = (count - problems.len()) as u64;
        // A client that is told of more asks for a smaller piece from the same place, as long as
        // there is one.
        let is_last = left_out == 0 || bytes == 1;
        if is_last {
            tell(ScrubEvent::Found(&problems));
        }
        if next.is_none() && is_last {
            tell(ScrubEvent::Ends);
        }
        let ScrubReport { blocks, objects, bytes, .. } = report;
        Ok(ScrubStep { next, blocks, objects, bytes, problems, left_out })
    }

    /// Makes a checkpoint. A scrub reads what the newest checkpoint points to; later writes, though
    /// perhaps synced, would be left out.
    fn begin_scrub(&self) {
        let is_new = || self.volume.staged_lsn().0 > self.volume.info().checkpoint_lsn;
        if self.volume.read_only_reason().is_none()
            && is_new()
            && let Err(error) = self.volume.maintenance().checkpoint()
        {
            // The volume is read-only now. The last checkpoint can still be read.
            tracing::error!(%error, "no checkpoint for a scrub");
        }
    }
}
