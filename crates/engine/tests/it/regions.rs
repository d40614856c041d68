//! Every field of every kind of block is damaged separately, one bit and the whole field. `fsck`
//! and a scrub of the open volume must find it and report the affected paths; a repair must restore
//! it wherever a second copy exists. The fields are those of the format's own tables.
//!
//! With `--nocapture` it prints the table of `docs/testing.md`.

use crate::common::*;
use shoal_base::{Addr, Lsn};
use shoal_engine::*;
use shoal_format::attr::{Attr, Attrs, Namespace, Value};
use shoal_format::batch::{BatchHeader, BatchKind};
use shoal_format::bytes::{u16_at, u32_at, u64_at};
use shoal_format::declare::Row;
use shoal_format::extent::{Extent, HEADER};
use shoal_format::inode::{CORE, Core, Form};
use shoal_format::intent::Intent;
use shoal_format::layout::TABLES;
use shoal_format::node::Key;
use shoal_format::root::PagePtr;
use shoal_format::superblock::{SIZE, backup_copy_of, backup_superblock_at};
use shoal_format::{Ptr, orphan, usage};
use shoal_txn::{fork_extents, remote_extents};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

const ROOT: Ino = Ino::ROOT;

/// A block on the device.
struct Block {
    kind: String,
    at: Range<u64>,
    /// Files that a report must name: for each its names, one of which is enough.
    named: Vec<Vec<String>>,
    /// A repair loses nothing of it.
    redundant: bool,
    /// File contents: a repair leaves the damage.
    contents: bool,
}

/// An open volume with every kind of block, without writes since.
struct Sample {
    device: Arc<MemDevice>,
    volume: Volume,
    shown: Shown,
    blocks: Vec<Block>,
}

fn build(device: &Arc<MemDevice>) {
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let (volume, who) = (open(device), Caller::root());
    let mut files = Vec::new();
    for d in 0..3 {
        let dir =
            volume.namespace().mkdir(&who, ROOT, format!("dir-{d}").as_bytes(), 0o750).unwrap().ino;
        for f in 0..70 {
            let name = format!("file-{f}-of-{d}-{}", "x".repeat(f));
            let file = volume.namespace().create(&who, dir, name.as_bytes(), 0o640).unwrap().ino;
            let size = [20, 150, 3000][f % 3];
            volume.files().write(file, 0, &vec![f as u8 + 1; size], false).unwrap();
            files.push((dir, file));
        }
        volume.namespace().symlink(&who, dir, b"link", format!("../dir-{d}").as_bytes()).unwrap();
    }
    for n in 0..40 {
        volume
            .namespace()
            .link(&who, files[7].1, files[n * 5].0, format!("hard-{n}").as_bytes())
            .unwrap();
    }
    let flags = XattrFlags::default;
    for (n, (_, file)) in files.iter().enumerate().skip(20).step_by(45) {
        for a in 0..30 {
            volume
                .attributes()
                .setxattr(&who, *file, format!("user.a{a}").as_bytes(), &[7; 60], flags())
                .unwrap();
        }
        volume
            .attributes()
            .setxattr(&who, *file, b"user.far", &vec![n as u8; 9000], flags())
            .unwrap();
        for e in 0..60u64 {
            volume.files().write(*file, e * 9_000, &[e as u8 + 1; 1500], false).unwrap();
        }
    }
    volume.attributes().setxattr(&who, files[3].1, b"user.far", &[9; 5000], flags()).unwrap();
    let orphan = volume.namespace().tmpfile(&who, ROOT, 0o600).unwrap().ino;
    volume.files().write(orphan, 0, &[1; 10_000], false).unwrap();
    volume.maintenance().checkpoint().unwrap();
}

/// Leaves an open intent in the newest checkpoint.
fn intend(device: &Arc<MemDevice>) {
    let store = store(device);
    let place = store.root(ROOT).unwrap().table.get(Ino(40)).unwrap();
    let generation = place.read().inode.core.generation;
    let set = Attr { space: Namespace::User, name: b"intended", value: Value::Local(b"yes") };
    let intent = Intent { ino: Ino(40), generation, remove: Vec::new(), set: set.to_bytes() };
    store.intents().note(1, intent);
    store.checkpoints().write().unwrap();
    store.journal().unwrap().shutdown();
}

impl Sample {
    fn new() -> Sample {
        let device = Arc::new(MemDevice::new(24 << 20));
        build(&device);
        intend(&device);
        // This checkpoint has the intent and the orphan. Their completion, and later changes, are
        // in the journal.
        let (volume, who) = (open(&device), Caller::root());
        for n in 0..4 {
            let name = format!("after the checkpoint {n}");
            volume.namespace().create(&who, ROOT, name.as_bytes(), 0o600).unwrap();
            volume.sync().unwrap();
        }
        let shown = shown(&volume);
        let mut sample = Sample { device, volume, shown, blocks: Vec::new() };
        sample.tables();
        sample.metadata();
        sample.journal();
        sample
    }

    /// Returns the names of an inode, if it has any.
    fn names(&self, ino: Ino) -> Option<Vec<String>> {
        // Names in the journal are in no block of the checkpoint.
        let old = self.shown.iter().filter(|(path, _)| !path.contains("after the checkpoint"));
        let named = old.filter(|(_, (of, ..))| *of == ino.0);
        let names = named.map(|(path, _)| path.rsplit('/').next().unwrap().to_owned());
        Some(names.collect()).filter(|names: &Vec<String>| !names.is_empty())
    }

    fn add(&mut self, kind: &str, at: u64, len: u64, named: Vec<Vec<String>>, lost: &str) {
        let (redundant, contents) = (lost.is_empty(), lost == "contents");
        let block = Block { kind: kind.into(), at: at..at + len, named, redundant, contents };
        self.blocks.push(block);
    }

    fn tables(&mut self) {
        let sb = shoal_txn::read_superblock(&*self.device).unwrap();
        self.add("superblock", 0, 4096, vec![], "");
        self.add("superblock", 65_536, 4096, vec![], "");
        self.add("spare superblock", backup_superblock_at(sb.checkpoint), SIZE as u64, vec![], "");
        let twin = backup_copy_of(sb.checkpoint).unwrap();
        self.add("checkpoint's second copy", twin.addr.0, u64::from(twin.len), vec![], "");
        let mut kinds = BTreeSet::new();
        image(&*self.device).for_each_object(&mut |kind, ptr| {
            if kinds.insert(kind.name()) {
                self.add(kind.name(), ptr.addr.0, u64::from(ptr.len), vec![], "");
            }
        });
        assert_eq!(kinds.len(), 9, "{kinds:?}");
    }

    fn metadata(&mut self) {
        let found = blocks(&self.device);
        let known: Vec<String> = self.blocks.iter().map(|block| block.kind.clone()).collect();
        for (kind, ptrs) in found.into_iter().filter(|(kind, _)| !known.contains(kind)) {
            let mut picked = vec![ptrs[0], ptrs[ptrs.len() - 1]];
            picked.dedup();
            for ptr in picked {
                let (named, lost) = self.of_node(&kind, ptr);
                self.add(&kind, ptr.addr.0, u64::from(ptr.len), named, lost);
            }
        }
        self.objects();
    }

    /// Returns the files affected by a node or inode block, and the loss.
    fn of_node(&self, kind: &str, ptr: Ptr) -> (Vec<Vec<String>>, &'static str) {
        let mut raw = vec![0; ptr.len as usize];
        self.device.read_at(&mut raw, ptr.addr.0).unwrap();
        let keys = || (0..u16_at(&raw, 32) as usize).map(|i| u64_at(&raw, 64 + 20 * i));
        match kind {
            "inode block" => {
                let number = u64_at(&raw, 16);
                let inodes = number * 32..number * 32 + 32;
                (inodes.flat_map(|ino| self.names(Ino(ino))).collect(), "inodes")
            }
            "dirents leaf" | "attrs leaf" | "extents leaf" => {
                let named = keys().filter(|ino| *ino != 1).flat_map(|ino| self.names(Ino(ino)));
                let mut named: Vec<Vec<String>> = named.collect();
                named.dedup();
                let lost = ["", "attributes", "extents"];
                (named, lost[["d", "a", "e"].iter().position(|c| kind.starts_with(c)).unwrap()])
            }
            _ => (vec![], ""),
        }
    }

    /// Adds one object of each kind: data and a value, referenced by an inode and by a tree.
    fn objects(&mut self) {
        let store = store_as(&copy(&self.device), true);
        let root = store.root(ROOT).unwrap();
        let mut found: BTreeMap<&str, (Ino, Ptr)> = BTreeMap::new();
        for ino in (2..256).map(Ino) {
            let Ok(place) = root.table.get(ino) else { continue };
            let slot = place.read();
            if slot.inode.core.data_form == Form::Extents {
                let first = fork_extents(&slot.inode.data).unwrap()[0];
                found.insert("data, extent in the inode", (ino, first.ptr));
            }
            if let Some(value) = remote_extents(&slot.inode.attr).next() {
                found.insert("value, attribute in the inode", (ino, value.ptr));
            }
            assert!(Attrs::new(&slot.inode.attr).all(|attr| attr.is_some()));
        }
        let mut record = |key: Key, value: &[u8]| {
            let extent = Extent::decode_value(key.lo, value).unwrap();
            found.insert("data, extent in the tree", (key.ino(root.id), extent.ptr));
            Ok(true)
        };
        root.extents.for_each(Key::MIN, Key::MAX, &mut record).unwrap();
        let mut attr = |key: Key, value: &[u8]| {
            if let Some(extent) = Attr::decode_whole(value).unwrap().value.extent() {
                found.insert("value, attribute in the tree", (key.ino(root.id), extent.ptr));
            }
            Ok(true)
        };
        root.attrs.for_each(Key::MIN, Key::MAX, &mut attr).unwrap();
        assert_eq!(found.len(), 4, "{found:?}");
        for (kind, (ino, ptr)) in found {
            let len = u64::from(ptr.len) + HEADER as u64;
            let at = ptr.addr.0 - HEADER as u64;
            self.add(kind, at, len, self.names(ino).into_iter().collect(), "contents");
        }
    }

    fn journal(&mut self) {
        let sb = shoal_txn::read_superblock(&*self.device).unwrap();
        let checkpoint = shoal_txn::read_checkpoint(&*self.device, &sb).unwrap();
        let (mut addr, mut lsn, mut batches) = (checkpoint.journal, checkpoint.lsn, Vec::new());
        loop {
            let mut raw = vec![0; BatchHeader::SIZE];
            self.device.read_at(&mut raw, addr.0).unwrap();
            let header = BatchHeader::decode(&raw).filter(|h| h.lsn_start == lsn);
            let Some(header) = header.filter(|h| h.incarnation == sb.incarnation) else { break };
            assert_eq!(header.kind, BatchKind::Records);
            batches.push((addr.0, (BatchHeader::SIZE + header.len as usize) as u64));
            addr = Addr(addr.0 + BatchHeader::padded(header.len as usize) as u64);
            lsn = Lsn(lsn.0 + u64::from(header.len));
        }
        assert!(batches.len() >= 3, "{batches:?}");
        let last = batches.pop().unwrap();
        self.add("last journal batch", last.0, last.1, vec![], "journal");
        for at in [0, batches.len() - 1] {
            self.add("journal batch", batches[at].0, batches[at].1, vec![], "journal");
        }
    }
}

/// A field or another part of a block.
type Region = (String, Range<u64>);

fn fields(table: &str, prefix: &str, base: u64, end: u64) -> Vec<Region> {
    let table = TABLES.iter().find(|t| t.name == table).unwrap();
    let field = |row: &Row| {
        let Row { at, len, name, .. } = *row;
        (format!("{prefix}{name} {at}"), base + at as u64..base + (at + len) as u64)
    };
    table.rows.iter().map(field).filter(|(_, r)| r.end <= end && !r.is_empty()).collect()
}

/// Returns all regions of a block, by the layout of its kind. They cover the whole block.
fn regions(block: &Block, raw: &[u8]) -> Vec<Region> {
    let len = raw.len() as u64;
    let mut all = match block.kind.as_str() {
        "superblock" => fields("superblock", "", 0, len),
        "spare superblock" => fields("superblock", "", 0, len),
        kind if kind.starts_with("checkpoint") => in_checkpoint(raw),
        kind if kind.starts_with("root page") => in_root_page(raw),
        "orphan list" => {
            let mut all = fields("orphan-list", "", 0, len);
            all.extend(fields("pointer", "block ", 16, len));
            all
        }
        kind if kind.starts_with("usage") => in_usage(kind, len),
        "orphan block" => {
            let mut all = fields("orphan-block", "", 0, len);
            all.push(("slots".into(), 24..orphan::BLOCK_SIZE as u64 - 8));
            all
        }
        "open intents" => {
            let mut all = fields("open-intents", "", 0, len);
            all.push(("intent number".into(), 16..24));
            all.push(("intent length".into(), 24..28));
            all.extend(fields("intent", "intent ", 28, len));
            all
        }
        "inode block" => in_inode_block(raw),
        kind if kind.starts_with("data") || kind.starts_with("value") => {
            let mut all = fields("data-object", "", 0, len);
            all.push(("first byte".into(), 32..33));
            all.push(("last byte".into(), len - 1..len));
            all
        }
        kind if kind.ends_with("journal batch") => {
            let mut all = fields("batch", "", 0, len);
            all.push(("first record's length".into(), 64..68));
            all.push(("first record".into(), 68..len.min(100)));
            all.push(("last record".into(), len - 2..len));
            all
        }
        _ => in_node(raw),
    };
    all.retain(|(_, range)| !range.is_empty());
    all.sort_by_key(|(_, range)| range.start);
    // The gaps: values, free space, padding.
    let mut between = Vec::new();
    let mut at = 0;
    for (name, range) in &all {
        if range.start > at {
            between.push((format!("before {name}"), at..range.start));
        }
        at = at.max(range.end);
    }
    between.extend((at < len).then(|| ("the rest".into(), at..len)));
    all.extend(between);
    all
}

fn in_usage(kind: &str, len: u64) -> Vec<Region> {
    let mut all = fields(&kind.replace(' ', "-"), "", 0, len);
    match kind {
        "usage root" => all.extend(fields("pointer", "index ", usage::ROOT_FIXED as u64, len)),
        "usage index" => all.extend(fields("pointer", "page ", usage::HEADER as u64, len)),
        _ => {
            for seg in 0..2 {
                let at = (usage::HEADER + seg * usage::ENTRY) as u64;
                all.extend(fields("usage-entry", &format!("segment {seg} "), at, len));
            }
        }
    }
    all
}

fn in_checkpoint(raw: &[u8]) -> Vec<Region> {
    let len = raw.len() as u64;
    let mut all = fields("checkpoint", "", 0, len);
    let mut at = 80;
    for i in 0..u32_at(raw, 72) {
        all.extend(fields("pointer", &format!("orphans {i} "), at, len));
        at += Ptr::SIZE as u64;
    }
    for i in 0..u32_at(raw, 76) {
        all.extend(fields("page-pointer", &format!("page {i} "), at, len));
        all.extend(fields("pointer", &format!("page {i} "), at, len));
        at += PagePtr::SIZE as u64;
    }
    all.extend(fields("pointer", "intents ", at, len));
    all
}

fn in_root_page(raw: &[u8]) -> Vec<Region> {
    let len = raw.len() as u64;
    let mut all = fields("root-page", "", 0, len);
    let mut at = 32;
    for i in 0..u16_at(raw, 26) {
        let name = u64::from(raw[at as usize + 2]);
        all.extend(fields("root", &format!("root {i} "), at, at + 4));
        all.push((format!("root {i} name"), at + 4..at + 4 + name));
        let behind = fields("root", &format!("root {i} "), at + name, len);
        all.extend(behind.into_iter().skip(3));
        at += 4 + name + 4 * 24 + 16;
    }
    all.push(("checksum".into(), at..at + 8));
    all
}

fn in_node(raw: &[u8]) -> Vec<Region> {
    let len = raw.len() as u64;
    let (count, heap) = (u16_at(raw, 32) as u64, u16_at(raw, 34) as u64);
    let mut all = fields("node", "", 0, len);
    for i in [0, count - 1] {
        let slot = 64 + 20 * i;
        all.extend(fields("slot", &format!("slot {i} "), slot, len));
        let (at, n) = (u16_at(raw, slot as usize + 16), u16_at(raw, slot as usize + 18));
        // The free bytes between slots and values are not stored.
        let at = u64::from(at) - heap + 64 + 20 * count;
        all.push((format!("value {i}"), at..at + u64::from(n)));
    }
    all
}

/// Offset of the length of the data fork in an inode.
const AT_DATA_LEN: usize = Core::TABLE.at("data_len");

fn in_inode_block(raw: &[u8]) -> Vec<Region> {
    let len = raw.len() as u64;
    let mut all = fields("inode-block", "", 0, len);
    let mut at = 48 + 64;
    let mut used = 0;
    for i in 0..32 {
        let size = u64::from(u16_at(raw, 48 + 2 * i));
        all.push((format!("length {i}"), 48 + 2 * i as u64..50 + 2 * i as u64));
        let core = CORE as u64;
        if size >= core && used < 2 {
            used += 1;
            all.extend(fields("inode", &format!("inode {i} "), at, len));
            let data = u64::from(u16_at(raw, at as usize + AT_DATA_LEN));
            all.push((format!("inode {i} data fork"), at + core..at + core + data));
            all.push((format!("inode {i} attribute fork"), at + core + data..at + size));
        }
        at += size;
    }
    all.truncate(120);
    all
}

/// Inverts one bit of the range, or all of it.
fn damage(device: &MemDevice, at: Range<u64>, whole: bool) {
    let mut raw = vec![0; (at.end - at.start) as usize];
    device.read_at(&mut raw, at.start).unwrap();
    match whole {
        true => raw.iter_mut().for_each(|byte| *byte ^= 0xff),
        false => raw[0] ^= 1,
    }
    device.write_at(&raw, at.start).unwrap();
}

fn scrub(volume: &Volume) -> Vec<Problem> {
    let (mut report, mut at) = (ScrubReport::default(), Some(ScrubAt::default()));
    while let Some(here) = at {
        at = volume.maintenance().scrub_step(here, 1 << 20, &mut report).unwrap();
    }
    report.problems
}

fn text(problems: &[Problem]) -> String {
    problems.iter().map(|p| format!("{}: {}\n", p.rule, p.message)).collect()
}

/// Results for one kind of block.
#[derive(Default)]
struct Count {
    blocks: u32,
    regions: u32,
    cases: u32,
    fsck: u32,
    scrub: u32,
    clean: u32,
    whole: u32,
}

impl Sample {
    fn case(&self, image: &MemDevice, block: &Block, region: &Region, whole: bool, n: &mut Count) {
        let at = block.at.start + region.1.start..block.at.start + region.1.end;
        let what = format!("{} at {}, {}, whole {whole}", block.kind, at.start, region.0);
        n.cases += 1;
        // The open volume, which has everything in memory.
        damage(&self.device, at.clone(), whole);
        let problems = scrub(&self.volume);
        damage(&self.device, at.clone(), whole);
        assert!(!problems.is_empty(), "{what}: the scrub did not see it");
        let said = text(&problems);
        for names in &block.named {
            let told = names.iter().any(|name| said.contains(name));
            assert!(told, "{what}: {names:?} are not in {said}");
        }
        n.scrub += 1;
        // The volume as after a crash.
        let damaged = copy(image);
        damage(&damaged, at, whole);
        let device: Arc<dyn Device> = damaged.clone();
        let found = Volume::inspect_on(&device, &options(), &mut |_, _, _| {}).unwrap();
        let torn = block.kind == "last journal batch";
        if torn && found.found.is_empty() {
            // Looks like the torn tail of a crash: it is reported with the recovery, if it begins
            // like one.
        } else {
            assert!(!found.found.is_empty(), "{what}: fsck did not see it");
            // Replay may have found it: then the actions name the files.
            let actions = found.actions.iter().map(|a| a.message.as_str()).collect::<String>();
            let said = text(&found.found) + &actions;
            for names in &block.named {
                let told = names.iter().any(|name| said.contains(name));
                assert!(told, "{what}: {names:?} are not in {said}");
            }
            n.fsck += 1;
        }
        self.repaired(&damaged, block, &what, n);
    }

    fn repaired(&self, damaged: &Arc<MemDevice>, block: &Block, what: &str, n: &mut Count) {
        let report = repair(damaged);
        let again = repair(damaged);
        if block.contents {
            assert!(!report.left.is_empty() && !again.written, "{what}");
            assert_eq!(text(&again.found), text(&again.left), "{what}");
            assert!(
                text(&again.left).contains(&block.named[0][0]),
                "{what}: {}",
                text(&again.left)
            );
            return;
        }
        assert_eq!(report.left, vec![], "{what}: {:#?}", report.actions);
        assert_eq!((again.found, again.written), (vec![], false), "{what}: a second repair");
        n.clean += 1;
        let volume = open(damaged);
        let after = shown(&volume);
        volume.close().unwrap();
        let same = after == self.shown;
        assert!(same || !block.redundant, "{what}: {:#?}", report.actions);
        n.whole += u32::from(same);
    }
}

#[test]
fn every_field_of_every_kind_of_block() {
    let sample = Sample::new();
    assert_eq!(text(&scrub(&sample.volume)), "");
    let image = copy(&sample.device);
    let device: Arc<dyn Device> = copy(&image);
    let found = Volume::inspect_on(&device, &options(), &mut |_, _, _| {}).unwrap();
    assert_eq!(text(&found.found), "");
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    for block in &sample.blocks {
        let mut raw = vec![0; (block.at.end - block.at.start) as usize];
        image.read_at(&mut raw, block.at.start).unwrap();
        let count = counts.entry(&block.kind).or_default();
        let regions = regions(block, &raw);
        count.blocks += 1;
        count.regions += regions.len() as u32;
        for region in &regions {
            for whole in [false, true] {
                sample.case(&image, block, region, whole, count);
            }
        }
    }
    println!(
        "| kind | blocks | regions | cases | fsck | scrub | clean after repair | nothing lost |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (kind, n) in &counts {
        let Count { blocks, regions, cases, fsck, scrub, clean, whole } = n;
        println!(
            "| {kind} | {blocks} | {regions} | {cases} | {fsck} | {scrub} | {clean} | {whole} |"
        );
    }
    assert!(counts.len() >= 20, "{:?}", counts.keys());
}

/// Stale journal batches, which no recovery reads: damage to them must not be reported.
#[test]
fn stale_journal_batches_are_nothing() {
    let device = Arc::new(MemDevice::new(24 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let (volume, who) = (open(&device), Caller::root());
    for n in 0..6 {
        volume.namespace().create(&who, ROOT, format!("file {n}").as_bytes(), 0o600).unwrap();
        volume.sync().unwrap();
        if n == 3 {
            volume.maintenance().checkpoint().unwrap();
        }
    }
    let (image, before) = (copy(&device), shown(&volume));
    let sb = shoal_txn::read_superblock(&*device).unwrap();
    let start = shoal_txn::read_checkpoint(&*device, &sb).unwrap().journal.0;
    let is_batch = |at: &u64| {
        let mut raw = [0; 4];
        image.read_at(&mut raw, *at).unwrap();
        raw == shoal_format::batch::MAGIC.to_le_bytes()
    };
    let stale: Vec<u64> = (0..start).step_by(4096).filter(is_batch).collect();
    assert!(stale.len() >= 3, "{stale:?}");
    for at in stale {
        let damaged = copy(&image);
        damage(&damaged, at..at + 100, true);
        let dev: Arc<dyn Device> = damaged.clone();
        let found = Volume::inspect_on(&dev, &options(), &mut |_, _, _| {}).unwrap();
        assert_eq!(text(&found.found), "", "stale batch at {at}");
        assert!(shown(&open(&damaged)) == before, "stale batch at {at}");
    }
}
