//! The scrub: a check of a volume in use. It reads everything that the newest checkpoint points to
//! from the device, cached or not, and verifies it.
//!
//! The objects of each pass are in `passes.rs`, with the same passes of `fsck`. Checks that need a
//! volume without changes (link counts, sums of live bytes, overlaps) are left to fsck.
//!
//! A scrub has steps. Each uses the newest checkpoint, and continues at the key where the last one
//! stopped. While a step runs, nothing that its checkpoint points to is reused. Objects that move
//! to a place already passed were written, with a new checksum, after the scrub began.
//!
//! Inode blocks precede names. So the scrub can report the names of unreadable inodes, whose own
//! parent pointers are lost.

use crate::check::Inspection;
use crate::objects::inline_extents;
use crate::types::Problem;
use shoal_base::limits::NODE_SIZE;
use shoal_base::{Error, Ino, Result, RootId};
use shoal_format::Ptr;
use shoal_format::attr::Attr;
use shoal_format::checkpoint::{RootRecord, RootState};
use shoal_format::dirent::Dirent;
use shoal_format::extent::Extent;
use shoal_format::inode::{Form, Inode};
use shoal_format::node::{Key, TreeId};
use shoal_format::root::ROOTS;
use shoal_tree::{LostNode, Met};
use shoal_txn::{Image, Root, remote_extents};

/// Problems after which a step ends, so that the caller's buffer is large enough.
pub(crate) const PROBLEMS_MAX: usize = 100;

/// Position of a scrub. Opaque, and valid as long as the volume is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrubAt {
    /// 0 for the structures that exist once per volume; then four stages for each subvolume.
    pub stage: u64,
    /// Key in the tree of the stage.
    pub key: (u64, u64),
}

/// Results of a scrub.
#[derive(Clone, Debug, Default)]
pub struct ScrubReport {
    /// Blocks of metadata read.
    pub blocks: u64,
    /// Data objects read.
    pub objects: u64,
    /// Bytes read, of both kinds.
    pub bytes: u64,
    /// Problems found.
    pub problems: Vec<Problem>,
}

impl ScrubReport {
    pub(super) fn problem(&mut self, rule: &'static str, message: String) {
        self.problems.push(Problem { rule, message });
    }
    pub(super) fn block(&mut self, len: u32) {
        self.blocks += 1;
        self.bytes += u64::from(len);
    }
    /// Turns damage into a problem, so that the scrub continues after it.
    pub(super) fn damage<T>(&mut self, rule: &'static str, step: Result<T>) -> Result<Option<T>> {
        match step {
            Ok(value) => Ok(Some(value)),
            Err(e) if e.is_damage() || matches!(e, Error::Code(_)) => {
                self.problem(rule, e.to_string());
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

/// Function for an entry of a tree.
pub(crate) type Entry = fn(Inspection<'_>, &Root, Key, &[u8], &mut ScrubReport) -> Result<()>;

impl Inspection<'_> {
    /// Returns the record of a subvolume in the checkpoint. `None` if its number is vacant, or if
    /// its root page is unreadable, which has been reported.
    pub(crate) fn scrub_root(
        self,
        image: &Image,
        number: usize,
        report: &mut ScrubReport,
    ) -> Result<Option<RootRecord>> {
        let mut unread = self.0.unread.lock();
        let key = (image.checkpoint.epoch, number / ROOTS);
        if unread.page.as_ref().is_none_or(|(of, _)| *of != key) {
            let (device, geometry) = (self.0.store.device(), self.0.store.geometry());
            let roots = match image.read_roots(device, geometry, number / ROOTS) {
                Err(e) if e.is_damage() => Vec::new(),
                roots => roots?,
            };
            report.bytes += roots.iter().map(|root| root.encoded_len() as u64).sum::<u64>();
            unread.page = Some((key, roots));
        }
        let roots = unread.page.iter().flat_map(|(_, roots)| roots);
        let live = |root: &&RootRecord| root.state != RootState::Vacant;
        Ok(roots.filter(live).find(|root| usize::from(root.id.0) == number).cloned())
    }

    /// Performs a step in a tree of the checkpoint. Returns the key to continue from.
    pub(crate) fn scrub_tree(
        self,
        record: &RootRecord,
        (id, entry): (TreeId, Entry),
        from: Key,
        enough: u64,
        report: &mut ScrubReport,
    ) -> Result<Option<Key>> {
        let root = self.0.store.root(Ino::new(record.id, 0))?;
        let most = report.problems.len() + PROBLEMS_MAX;
        let (tree, at) = (root.tree(id), record.trees[id as usize]);
        tree.read_image(at, from, &mut |met| {
            match met {
                Met::Node(ptr) => {
                    report.block(ptr.len);
                    // A step must get beyond the nodes above its first key.
                    return Ok(true);
                }
                Met::Lost(LostNode { error, low, high, .. }) => {
                    report.block(NODE_SIZE as u32);
                    let whose = self.whose(record.id, id, low, high);
                    report.problem(id.name(), format!("{error}{whose}"));
                    self.affected(root, id, low, high, &mut |ino, rule, text| {
                        if id == TreeId::Attrs {
                            self.0.unread.lock().attrs.insert(ino);
                        }
                        report.problem(rule, text);
                    });
                    if id == TreeId::Imap {
                        self.0.unread.lock().blocks.push((record.id, low.hi..high.hi));
                    }
                }
                Met::Entry(key, raw) => entry(self, root, key, raw, report)?,
            }
            Ok(report.bytes < enough && report.problems.len() < most)
        })
    }

    /// Checks a directory entry, and whether its inode was readable.
    pub(crate) fn scrub_name(
        self,
        root: &Root,
        key: Key,
        raw: &[u8],
        report: &mut ScrubReport,
    ) -> Result<()> {
        let Some(entry) = Dirent::decode(root.id, raw) else {
            report.problem("dirent", broken(root.id, TreeId::Dirents, key, "not an entry"));
            return Ok(());
        };
        let lost = self.0.unread.lock().of(entry.child);
        if let Some(what) = lost {
            let path = self.path_below(key.ino(root.id), entry.name);
            let message = format!("{path}: {what} {} cannot be read", entry.child);
            report.problem("dirent-child-missing", message);
        }
        Ok(())
    }

    /// Checks an attribute in the tree and its value.
    pub(crate) fn scrub_attr(
        self,
        root: &Root,
        key: Key,
        raw: &[u8],
        report: &mut ScrubReport,
    ) -> Result<()> {
        match Attr::decode_whole(raw) {
            Some(attr) => {
                if let Some(extent) = attr.value.extent() {
                    self.scrub_value(key.ino(root.id), &extent, report)?;
                }
            }
            None => {
                report.problem("attribute", broken(root.id, TreeId::Attrs, key, "not an attribute"))
            }
        }
        Ok(())
    }

    /// Checks an extent record and its data.
    pub(crate) fn scrub_extent(
        self,
        root: &Root,
        key: Key,
        raw: &[u8],
        report: &mut ScrubReport,
    ) -> Result<()> {
        match Extent::decode_value(key.lo, raw) {
            Some(extent) => self.scrub_object(key.ino(root.id), &extent, report)?,
            None => report.problem("extent", broken(root.id, TreeId::Extents, key, "not a record")),
        }
        Ok(())
    }

    /// Checks an inode block, and the data and values to which its inodes point directly.
    pub(crate) fn scrub_inodes(
        self,
        root: &Root,
        key: Key,
        raw: &[u8],
        report: &mut ScrubReport,
    ) -> Result<()> {
        let number = key.hi;
        let Some(ptr) = raw.get(..Ptr::SIZE).and_then(Ptr::of_value) else {
            report.problem("imap", format!("imap entry of block {number}: not a pointer"));
            return Ok(());
        };
        report.block(ptr.len);
        let inodes: Vec<Inode> = match root.table.read_block(number, ptr) {
            Err(e) if e.is_damage() => {
                self.0.unread.lock().blocks.push((root.id, number..number.saturating_add(1)));
                let (low, high) = (Key::new(number, 0), Key::new(number.saturating_add(1), 0));
                let whose = self.whose(root.id, TreeId::Imap, low, high);
                report.problem("inode-block", format!("{e}{whose}"));
                return Ok(());
            }
            read => read?,
        };
        for (slot, inode) in inodes.iter().enumerate().filter(|(_, inode)| inode.core.in_use()) {
            let ino = Ino::new(root.id, number * inodes.len() as u64 + slot as u64);
            if inode.core.data_form == Form::Extents {
                let list = report.damage("extents", inline_extents(ino, inode))?;
                for extent in list.unwrap_or_default() {
                    self.scrub_object(ino, &extent, report)?;
                }
            }
            for extent in remote_extents(&inode.attr) {
                self.scrub_value(ino, &extent, report)?;
            }
        }
        Ok(())
    }

    fn scrub_object(self, ino: Ino, extent: &Extent, report: &mut ScrubReport) -> Result<()> {
        if extent.is_prealloc() {
            return Ok(());
        }
        report.objects += 1;
        report.bytes += u64::from(extent.ptr.len);
        for (rule, what) in self.object_problems(ino, extent)? {
            report.problem(rule, format!("inode {ino}{}: {what}", self.path_hint(ino)));
        }
        Ok(())
    }

    fn scrub_value(self, ino: Ino, extent: &Extent, report: &mut ScrubReport) -> Result<()> {
        report.objects += 1;
        report.bytes += u64::from(extent.ptr.len);
        for (rule, what) in self.value_problems(ino, extent.ptr)? {
            let hint = self.path_hint(ino);
            report.problem(rule, format!("value of an attribute of inode {ino}{hint}: {what}"));
        }
        Ok(())
    }
}

fn broken(root: RootId, tree: TreeId, key: Key, rule: &str) -> String {
    format!("{} entry {}:{:#x}: {rule}", tree.name(), key.ino(root), key.lo)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::{Caller, MemDevice, MkfsOptions, OpenOptions, Volume, XattrFlags, mkfs_on};
    use shoal_device::Device;
    use std::sync::Arc;

    fn scrub(volume: &Volume, piece: u64) -> ScrubReport {
        let (mut report, mut at) = (ScrubReport::default(), Some(ScrubAt::default()));
        while let Some(here) = at {
            at = volume.maintenance().scrub_step(here, piece, &mut report).unwrap();
        }
        report
    }

    fn volume() -> (Arc<MemDevice>, Volume) {
        let device = Arc::new(MemDevice::new(64 << 20));
        mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
        let options = OpenOptions { background: false, ..OpenOptions::default() };
        let volume = Volume::open_on(device.clone(), &options).unwrap();
        let who = Caller::root();
        for n in 0..700u32 {
            let name = format!("a name of some length {n}");
            let file = volume.namespace().create(&who, Ino::ROOT, name.as_bytes(), 0o644).unwrap();
            let data =
                vec![n as u8; [0, 100, 5000, 300_000][n as usize % 4].min(9000 + n as usize)];
            volume.files().write(file.ino, 0, &data, false).unwrap();
            if n.is_multiple_of(50) {
                let flags = XattrFlags::default();
                volume
                    .attributes()
                    .setxattr(&who, file.ino, b"user.v", &[7; 20_000], flags)
                    .unwrap();
                for i in 0..30 {
                    volume.files().write(file.ino, i * 200_000, b"apart", false).unwrap();
                }
            }
        }
        volume.maintenance().checkpoint().unwrap();
        (device, volume)
    }

    #[test]
    fn steps_of_any_size_read_the_same() {
        let (_, volume) = volume();
        let whole = scrub(&volume, u64::MAX);
        assert!(whole.problems.is_empty(), "{:?}", whole.problems);
        assert!(whole.objects > 600 && whole.blocks > 30, "{whole:?}");
        for piece in [1, 20_000, 300_000] {
            let pieces = scrub(&volume, piece);
            assert_eq!(pieces.objects, whole.objects, "steps of {piece} bytes");
            // Each step reads inner nodes again.
            assert!(pieces.problems.is_empty() && pieces.blocks >= whole.blocks);
        }
    }

    /// Damages every block that the checkpoint points to in turn. Each must be found, although all
    /// are in memory.
    #[test]
    fn each_damaged_place_is_found() {
        let (device, volume) = volume();
        let mut places = Vec::new();
        volume.state.store.checkpoints().with_newest(|image| {
            image.for_each_object(&mut |_, ptr| places.push(ptr));
        });
        for id in TreeId::ALL {
            let tree = volume.state.store.root(Ino::ROOT).unwrap().tree(id);
            tree.for_each_node(&mut |ptr| places.push(ptr)).unwrap();
        }
        let table = &volume.state.store.root(Ino::ROOT).unwrap().table;
        let mut blocks = |_, ptr, _| {
            places.push(ptr);
            Ok(true)
        };
        table.for_each_block(&mut blocks).unwrap();
        places.retain(|ptr| !ptr.is_null());
        assert!(places.len() > 30);
        for ptr in places {
            let mut was = [0];
            let at = ptr.addr.0 + u64::from(ptr.len) / 2;
            device.read_at(&mut was, at).unwrap();
            device.write_at(&[was[0] ^ 0x40], at).unwrap();
            let report = scrub(&volume, 1 << 20);
            assert!(!report.problems.is_empty(), "{ptr:?} is damaged, and nobody saw it");
            device.write_at(&was, at).unwrap();
        }
        assert!(scrub(&volume, 1 << 20).problems.is_empty());
    }

    /// Concurrently with calls and checkpoints, which reuse space.
    #[test]
    fn a_volume_in_use() {
        let (_, volume) = volume();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let who = Caller::root();
                let mut n = 0u64;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    // Written out of place: the old space is reused.
                    let name = format!("b{}", n % 50);
                    let made = volume.namespace().create(&who, Ino::ROOT, name.as_bytes(), 0o600);
                    let file = made
                        .or_else(|_| volume.namespace().lookup(&who, Ino::ROOT, name.as_bytes()));
                    let data = vec![n as u8; 70_000];
                    volume.files().write(file.unwrap().ino, 0, &data, false).unwrap();
                    if n.is_multiple_of(20) {
                        volume.maintenance().checkpoint().unwrap();
                    }
                    n += 1;
                }
            });
            for _ in 0..6 {
                let report = scrub(&volume, 200_000);
                assert!(report.problems.is_empty(), "{:?}", report.problems);
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}
