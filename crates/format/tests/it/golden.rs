//! Every structure and every journal item against the bytes in `golden/v2.txt`: encoding must
//! produce those bytes, and decoding must return the original. No two fields of a value are alike,
//! so swapping, widening or moving one fails here.
//!
//! `GOLDEN=write cargo test -p shoal-format --test it golden::` writes the file. That is only for
//! new structures, and for a version of the format that is still a draft: the bytes of a released
//! version must never change (CONTRIBUTING.md, *The format*).

use shoal_base::{Addr, Ino, Lsn, RootId};
use shoal_format::attr::{self, Attr, AttrHeader, Link, Namespace, Value};
use shoal_format::batch::{BatchHeader, BatchKind};
use shoal_format::bucket::Name;
use shoal_format::bucket::manifest::{self, Body, ManifestHeader, ManifestKind, ObjectEntry};
use shoal_format::bucket::object::{self, ObjectHeader, ObjectKind, Packed, Piece};
use shoal_format::bytes::Reader;
use shoal_format::checkpoint::Checkpoint;
use shoal_format::claim::{ClaimBlock, OwnerClaim};
use shoal_format::copy_mark::CopyMark;
use shoal_format::declare::{Field, U24, U48};
use shoal_format::dirent::{Dirent, DirentHeader};
use shoal_format::extent::{DataHeader, Extent};
use shoal_format::inode::{
    BlockHeader, BlockId, Core, Form, ImapEntry, Inode, Stamp, decode_block, encode_block,
    stamp_block,
};
use shoal_format::intent::{self, Intent, OpenHeader};
use shoal_format::item::{self, Item};
use shoal_format::layout::TABLES;
use shoal_format::node::{Key, Node, NodeHeader, NodeId, Slot, TreeId, stamp_node};
use shoal_format::orphan::{self, ListHeader};
use shoal_format::root::{PagePtr, RootPage, RootRecord, RootState};
use shoal_format::sums::Sums;
use shoal_format::superblock::Superblock;
use shoal_format::usage::{
    self, Expected, IndexHead, PageHead, RootHead, SegKind, Total, UsageEntry, UsageIndex,
    UsagePage, UsageRoot, UsageTable,
};
use shoal_format::{Codec, Coding, Compression, Geometry, Label, Ptr};
use std::fmt::Write;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v2.txt");
const VOLUME: u64 = 0xa1a2_a3a4_a5a6_a7a8;
/// Subvolume of numbers that are relative to one.
const ROOT: RootId = RootId(0x99aa);

/// The text of the file, while it is built.
#[derive(Default)]
struct Golden {
    text: String,
    names: Vec<String>,
}

impl Golden {
    /// Adds a value. `back` decodes its bytes; the result must equal the value.
    fn value<T: PartialEq + std::fmt::Debug>(
        &mut self,
        name: &str,
        value: &T,
        text: &str,
        raw: &[u8],
        back: impl Fn(&[u8]) -> Option<T>,
    ) {
        assert_eq!(back(raw).as_ref(), Some(value), "{name} does not read back");
        self.names.push(name.to_owned());
        let _ = writeln!(self.text, "{name}\n    {text}\n{}", hex(raw));
    }
    /// Adds a structure that consists of fields only.
    fn layout<T: Field + PartialEq + std::fmt::Debug>(&mut self, name: &str, value: &T) {
        let mut raw = vec![0; T::LEN];
        value.put(&mut raw);
        self.value(name, value, &value.text(), &raw, T::get);
    }
    /// Adds an enumeration: each of its numbers.
    fn numbers<T: Field + std::fmt::Debug>(&mut self, name: &str, all: &[T]) {
        let number = |value: &T| {
            let mut raw = vec![0; T::LEN];
            value.put(&mut raw);
            let rows: String = raw.iter().rev().map(|byte| format!("{byte:02x}")).collect();
            format!("{value:?}={rows}")
        };
        let numbers: Vec<String> = all.iter().map(number).collect();
        let _ = writeln!(self.text, "{name}\n    {}\n", numbers.join(" "));
    }
}

/// Formats lines of 16 bytes. Lines of zeros are omitted; the number of bytes is at the end.
fn hex(raw: &[u8]) -> String {
    let mut text = String::new();
    for (at, line) in raw.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|b| *b != 0)) {
        let bytes: String = line.iter().map(|byte| format!(" {byte:02x}")).collect();
        let _ = writeln!(text, "    {:04x}:{bytes}", at * 16);
    }
    let _ = writeln!(text, "    {} bytes", raw.len());
    text
}

/// A pointer whose fields all differ, from each other and from those of any other `n`.
fn ptr(n: u32) -> Ptr {
    Ptr {
        addr: Addr(0x1000_0000 + u64::from(n) * 8),
        birth: 0x2200 + u64::from(n),
        len: 0x33_0000 + n,
        logical: U24::new(0x55_0000 + n),
        codec: Codec::Zstd,
        checksum: 0x4444_5555_6666_0000 + u64::from(n),
    }
}

/// The same for an uncompressed object.
fn plain(n: u32) -> Ptr {
    Ptr { codec: Codec::None, logical: U24::new(ptr(n).len), ..ptr(n) }
}

fn stamp(n: u32) -> Stamp {
    Stamp { sec: 0x5500_0000 + i64::from(n), nsec: 0x600 + n }
}

fn core() -> Core {
    Core {
        mode: 0o100_644,
        nlink: 0x11,
        uid: 0x2222,
        gid: 0x3333,
        generation: 0x44,
        flags: 0x15,
        size: 0x0066_6666_6666,
        bytes: 0x77_7777,
        parent_or_rdev: 0x0008_0000_0000_0009,
        atime: stamp(1),
        mtime: stamp(2),
        ctime: stamp(3),
        btime: stamp(4),
        lsn: 0x0a0b_0c0d,
        project: 0xe0e1,
        data_form: Form::Extents,
        attr_form: Form::Inline,
        data_len: 0x51,
        attr_len: 0x12,
    }
}

fn superblock() -> Superblock {
    Superblock {
        clean: true,
        id: std::array::from_fn(|i| 0xa8 - i as u8),
        geometry: Geometry { segment_size: 1 << 22, segments: 1234, inode_size: 512 },
        compat: 0x0101,
        ro_compat: 0x0202,
        incompat: 0x03,
        sequence: 0x40,
        incarnation: 0x50,
        compression: Compression { codec: Codec::Zstd, level: 9 },
        checkpoint: Ptr { addr: Addr(5 << 22), ..plain(1) },
        created: -6,
        label: Label::NONE,
    }
}

fn claim() -> OwnerClaim {
    OwnerClaim {
        patience_ms: 2_500,
        volume: [0x11; 16],
        owner: [0x22; 16],
        machine: [0x33; 16],
        boot: [0x44; 16],
        pid_namespace: 0x55,
        process_start: 0x66,
        beat: 0x77,
        since: 0x88,
        renewed: 0x99,
        pid: 0xaa,
        host: "host".into(),
        path: "/a path".into(),
        command: "a command".into(),
    }
}

fn copy_mark() -> CopyMark {
    CopyMark {
        done: 0x11,
        volume: [0x22; 16],
        stamp: [0x33; 16],
        epoch: 0x44,
        geometry: Geometry { segment_size: 1 << 22, segments: 1234, inode_size: 512 },
        sequence: 0x55,
    }
}

fn checkpoint() -> Checkpoint {
    Checkpoint {
        floor: 0x11,
        volume: VOLUME,
        epoch: 0x22,
        lsn: Lsn(0x33),
        journal: Addr(0x44),
        usage: ptr(5),
        prealloc: 0x66,
        orphan_lists: vec![ptr(7)],
        pages: vec![page_ptr(), PagePtr::NULL],
        intents: vec![ptr(9), ptr(10), ptr(11)],
    }
}

fn page_ptr() -> PagePtr {
    PagePtr { first: ptr(8), second: Addr(0x88_8888) }
}

fn root(id: u16) -> RootRecord {
    let n = u32::from(id) << 4;
    RootRecord {
        id: RootId(id),
        state: if id == 64 { RootState::Live } else { RootState::Deleted },
        trees: [ptr(n + 1), ptr(n + 2), ptr(n + 3), ptr(n + 4)],
        next_block: 0x5500 + u64::from(id),
        inodes: 0x6600 + u64::from(id),
        name: format!("root {id}").into_bytes(),
    }
}

const NODE: NodeId = NodeId { volume: VOLUME, root: RootId(0x66), tree: TreeId::Extents };
const BLOCK: BlockId =
    BlockId { volume: VOLUME, first: Ino(0x77 << 48 | 0x88 << 5), inode_size: 512 };

/// A leaf with two entries and a removed one.
fn node() -> Node {
    let mut node = Node::init(Node::frame(), NODE, 0, Key::new(0x11, 0x22));
    for n in 0..3u8 {
        let key = Key::new(0x1100 + u64::from(n), 0x2200 + u64::from(n));
        assert!(node.insert(usize::from(n), key, &vec![0xc0 + n; 3 + usize::from(n)]));
    }
    node.remove(1);
    node
}

fn inode() -> Inode {
    Inode {
        core: Core { data_len: 3, attr_len: 2, ..core() },
        data: [1, 2, 3].into(),
        attr: [4, 5].into(),
    }
}

fn block() -> (Vec<u8>, Coding) {
    let mut raw = Vec::new();
    let coding = encode_block((BLOCK, 0x99), Compression::NONE, &mut raw, |slot, out| match slot {
        0 => inode().encode(RootId(0x77), out),
        30 => Inode::free(0x1234).encode(RootId(0x77), out),
        _ => {}
    });
    stamp_block(&mut raw, Addr(0xaaaa_aaa8));
    (raw, coding)
}

fn intent() -> Intent {
    let attr = |name| Attr { space: Namespace::User, name, value: Value::Local(b"value") };
    Intent {
        ino: Ino(0x1111),
        generation: 0x22,
        remove: attr(b"old").to_bytes(),
        set: attr(b"a longer one").to_bytes(),
    }
}

fn outer(golden: &mut Golden) {
    let sb = superblock();
    let labelled = Superblock { label: Label::new("label of sea").expect("a label"), ..sb };
    let back = |raw: &[u8]| Superblock::decode(raw, 0).ok().flatten();
    golden.value("superblock", &sb, &sb.fields_text(), &sb.encode(), back);
    let text = labelled.fields_text();
    golden.value("superblock, labelled", &labelled, &text, &labelled.encode(), back);
    golden.layout("geometry", &sb.geometry);
    let claim = claim();
    let back = |raw: &[u8]| match OwnerClaim::decode(raw) {
        ClaimBlock::Claim(claim) => Some(*claim),
        _ => None,
    };
    golden.value("owner-claim", &claim, &claim.to_text(), &claim.encode(), back);
    let mark = copy_mark();
    golden.value("copy-mark", &mark, &mark.fields_text(), &mark.encode(), CopyMark::decode);
    golden.layout("pointer", &ptr(1));
    let cp = checkpoint();
    let back = |raw: &[u8]| Checkpoint::decode(raw, Addr(0), VOLUME).ok();
    golden.value("checkpoint", &cp, &cp.fields_text(), &cp.encode(), back);
    golden.layout("page-pointer", &page_ptr());
    let page = RootPage { volume: VOLUME, epoch: 0x11, number: 1, roots: vec![root(64), root(66)] };
    let back = |raw: &[u8]| RootPage::decode(raw, Addr(0), VOLUME).ok();
    golden.value("root-page", &page, &page.fields_text(), &page.encode(), back);
    golden.layout("root", &RootRecord { name: Vec::new(), ..root(65) });
    let batch = BatchHeader {
        kind: BatchKind::Link,
        volume: VOLUME,
        incarnation: 0x11,
        len: 0x22,
        lsn_start: Lsn(0x33),
        durable: Lsn(0x44),
        next: Addr(0x55),
    };
    let raw = batch.encode(b"records");
    assert!(BatchHeader::sum_matches(&raw, b"records"));
    golden.value("batch", &batch, &batch.fields_text(), &raw, BatchHeader::decode);
    let blocks = vec![ptr(1), ptr(2)];
    let raw = orphan::encode_list(VOLUME, &blocks);
    let text = ListHeader::read(&raw).unwrap().fields_text();
    let back = |raw: &[u8]| orphan::decode_list(raw, Addr(0), VOLUME).ok();
    golden.value("orphan-list", &blocks, &text, &raw, back);
    let inodes = (0x11, vec![Ino(0x22), Ino(0x33)]);
    let raw = orphan::encode(VOLUME, inodes.0, &inodes.1);
    let text = orphan::BlockHeader::read(&raw).unwrap().fields_text();
    let back = |raw: &[u8]| orphan::decode(raw, Addr(0), VOLUME).ok();
    golden.value("orphan-block", &inodes, &text, &raw, back);
    let intent = intent();
    golden.value("intent", &intent, &intent.to_text(), &intent.to_bytes(), Intent::decode);
    let open = vec![(0x77, intent)];
    let raw = intent::encode_open(VOLUME, &open);
    let text = OpenHeader::read(&raw).unwrap().fields_text();
    let back = |raw: &[u8]| intent::decode_open(raw, Addr(0), VOLUME).ok();
    golden.value("open-intents", &open, &text, &raw, back);
    bucket(golden);
    manifests(golden);
}

fn bucket(golden: &mut Golden) {
    let header = ObjectHeader {
        kind: ObjectKind::Flush,
        volume: VOLUME,
        epoch: 0x11,
        writer: 0x22,
        sequence: 0x33,
        count: 0,
        lease_ms: 0x44,
        length: 0,
    };
    let elsewhere = Piece {
        addr: Addr(0x55),
        len: 0x99,
        stored: 0x66,
        object: 0x77,
        offset: 0x88,
        codec: Codec::Zstd,
        checksum: 0xaa,
    };
    let here = Packed::Here(Addr(0x4400), 0x10, Codec::Lz4, b"a piece");
    let (raw, pieces) = object::pack(header, &[Packed::Other(elsewhere), here]);
    let text = ObjectHeader::read(&raw).unwrap().fields_text();
    let header = object::unpack(&raw, "", VOLUME).unwrap().0;
    let back = |raw: &[u8]| object::unpack(raw, "", VOLUME).ok();
    golden.value("bucket-object", &(header, pieces), &text, &raw, back);
    golden.layout("bucket-piece", &elsewhere);
}

fn manifests(golden: &mut Golden) {
    golden.layout("bucket-manifest-object", &ObjectEntry { epoch: 0x11, number: 0x22, size: 0x33 });
    let extent = manifest::Extent {
        addr: Addr(0x11),
        len: 0x22,
        skip: 0x33,
        decoded: 0x99,
        stored: 0x44,
        object: 0x1,
        offset: 0x55,
        codec: Codec::Zstd,
        checksum: 0x66,
    };
    golden.layout("bucket-manifest-extent", &extent);
    let objects = [Name::Log(0x12), Name::Data(0x13, 0x14)];
    let objects = objects.map(|name| ObjectEntry::of(name, 0x1000)).to_vec();
    let header = ManifestHeader {
        kind: ManifestKind::Complete,
        volume: VOLUME,
        epoch: 0x15,
        writer: 0x16,
        sequence: 0x17,
        base: 0x18,
        log_next: 0x19,
        capacity: 0x10000,
        objects: 0,
        extents: 0,
        closed: 1,
        body: 0,
        written: 0x1a,
        decoded: 0,
        body_sum: 0,
    };
    let raw = manifest::encode(header, &Body::Complete(objects, vec![extent]));
    let text = ManifestHeader::read(&raw).unwrap().fields_text();
    let value = manifest::decode(&raw, 0x17).unwrap();
    golden.value("bucket-manifest", &value, &text, &raw, |raw| manifest::decode(raw, 0x17).ok());
    let objects = [(Name::Log(0x12), 0), (Name::Data(0x13, 0x14), 0x1000)];
    let objects = objects.map(|(name, size)| ObjectEntry::of(name, size)).to_vec();
    let extents = vec![manifest::Extent::cleared(Addr(0x10), 0x40), extent];
    let header = ManifestHeader { base: 0x16, ..header };
    let raw = manifest::encode(header, &Body::Changes(objects, extents));
    let text = ManifestHeader::read(&raw).unwrap().fields_text();
    let value = manifest::decode(&raw, 0x17).unwrap();
    let name = "bucket-manifest of changes";
    golden.value(name, &value, &text, &raw, |raw| manifest::decode(raw, 0x17).ok());
}

/// The geometry of the usage table: two pages, with 1024 segments and with two.
const SHAPE: Geometry = Geometry { segment_size: 1 << 20, segments: 1026, inode_size: 512 };

fn usage(golden: &mut Golden) {
    let of = Expected { geometry: &SHAPE, volume: VOLUME, epoch: 0x77 };
    let entry = UsageEntry { live: U48::new(0x1122), kind: SegKind::Data, sealed: true };
    golden.layout("usage-entry", &entry);
    golden.layout("usage-total", &Total { segments: 0x11, live: 0x22 });
    let open = UsageEntry { live: U48::new(0x3344), kind: SegKind::Meta, sealed: false };
    let page = UsagePage { number: 1, epoch: 0x66, entries: vec![entry, open] };
    let raw = page.encode(VOLUME);
    let text = PageHead::read(&raw).unwrap().fields_text();
    let back = |raw: &[u8]| UsagePage::decode(raw, Addr(0), 1, &of).ok();
    golden.value("usage-page", &page, &text, &raw, back);
    let at = |n: u64, len: usize| Ptr::sealed(Addr(n << 20), 0x50 + n, len as u32, 0x60 + n);
    let pages = vec![at(1, usage::PAGE_MAX), at(2, raw.len())];
    let index = UsageIndex { number: 0, epoch: 0x55, pages };
    let raw = index.encode(VOLUME);
    let text = IndexHead::read(&raw).unwrap().fields_text();
    let back = |raw: &[u8]| UsageIndex::decode(raw, Addr(0), 0, &of).ok();
    golden.value("usage-index", &index, &text, &raw, back);
    let mut table = UsageTable::blank(&SHAPE, [1, 2, 3, 4, 5].map(|n| Addr(n << 20)));
    table.enter(&page);
    let (positions, totals) = (table.positions, table.totals());
    let root = UsageRoot { epoch: 0x77, positions, totals, indexes: vec![at(3, raw.len())] };
    let raw = root.encode(VOLUME, SHAPE.segments);
    let text = RootHead::read(&raw).unwrap().fields_text();
    let back = |raw: &[u8]| UsageRoot::decode(raw, Addr(0), &of).ok();
    golden.value("usage-root", &root, &text, &raw, back);
}

fn trees(golden: &mut Golden) {
    let mut raw = Vec::new();
    let coding = node().encode(Compression::NONE, 0x44, NODE.root, &mut raw);
    stamp_node(&mut raw, Addr(0x33_3338));
    let text = NodeHeader::read(&raw).unwrap().fields_text();
    let entries = |node: Node| -> Vec<(Key, Vec<u8>)> {
        (0..node.count()).map(|i| (node.key(i), node.value(i).to_vec())).collect()
    };
    let back = |raw: &[u8]| {
        let place = (NODE, Some(0), Addr(0x33_3338));
        Node::decode(raw, coding, Node::frame(), place).ok().map(entries)
    };
    golden.value("node", &entries(node()), &text, &raw, back);
    golden.layout("slot", &Slot { key: Key::new(0x11, 0x22), offset: 0x33, len: 0x44 });
    golden.layout("imap-entry", &ImapEntry { ptr: ptr(1), free: 0x5566_7788 });
    let (raw, coding) = block();
    let text = BlockHeader::read(&raw).unwrap().fields_text();
    let mut inodes = vec![Inode::default(); 32];
    (inodes[0], inodes[30]) = (inode(), Inode::free(0x1234));
    let back = |raw: &[u8]| decode_block(raw, coding, BLOCK, Addr(0xaaaa_aaa8)).ok();
    golden.value("inode-block", &inodes, &text, &raw, back);
    golden.layout("inode", &core());
    golden.layout("time", &stamp(1));
    let entry = Dirent { child: Ino::new(ROOT, 0x1122), kind: 8, name: b"a name" };
    let mut raw = Vec::new();
    entry.encode(ROOT, &mut raw);
    golden.layout("dirent", &DirentHeader { child: entry.child, kind: entry.kind });
    let text = entry.to_text();
    golden.value("dirent with its name", &text, &text, &raw, |raw| {
        Dirent::decode(ROOT, raw).map(|entry| entry.to_text())
    });
    let sums = Sums::decode(0..1, &[0x91, 0x92, 0x93, 0x94]).unwrap();
    let extent =
        Extent { len: 0x11, skip: 0x22, ptr: plain(3), offset: 0x44, sums: sums.only(0..1) };
    let mut raw = Vec::new();
    extent.encode_value(&mut raw);
    golden.value("extent", &extent, &extent.to_text(), &raw, extent_of);
    let header = DataHeader {
        len: U24::new(0x11),
        codec: Codec::Lz4,
        index: U48::new(0x2233),
        origin: RootId(0x44),
        offset: 0x55,
    };
    let back = |raw: &[u8]| DataHeader::decode(raw, VOLUME);
    golden.value("data-object", &header, &header.fields_text(), &header.encode(VOLUME), back);
}

/// Decodes an extent without verifying it: its lengths exceed those of an object, so that no two
/// are alike.
fn extent_of(raw: &[u8]) -> Option<Extent> {
    let (fixed, sums) = raw.split_first_chunk()?;
    let sums = Sums::decode(0..1, sums)?;
    Some(Extent { offset: 0x44, sums, ..Extent::load(fixed).ok()? })
}

fn attributes(golden: &mut Golden) {
    golden.layout("attribute", &AttrHeader { space: 2, name_len: 3, value_len: 0x0405 });
    let link = Link { dir: Ino::new(ROOT, 0x1122), generation: 0x33 };
    golden.layout("parent-pointer", &link);
    let remote = Ptr::sealed(Addr(0x1118), 0x22, 4096, 0x44);
    let value = link.encode(ROOT);
    let attrs = [
        ("attribute, local", Namespace::Trusted, Value::Local(b"value")),
        ("attribute, remote", Namespace::User, Value::Remote(remote)),
        ("attribute, parent pointer", Namespace::Parent, Value::Local(&value)),
    ];
    for (what, space, value) in attrs {
        let attr = Attr { space, name: b"a name", value };
        let text = attr.to_text(ROOT);
        golden.value(what, &text, &text, &attr.to_bytes(), |raw| {
            Attr::decode_whole(raw).map(|attr| attr.to_text(ROOT))
        });
    }
    let raw = attr::parent_bytes(ROOT, link, b"a name");
    assert!(golden.text.contains(&hex(&raw)), "built in another way, the same bytes");
}

/// Adds a journal item.
fn item(golden: &mut Golden, item: &Item<'_>) {
    let mut raw = Vec::new();
    item.encode(&mut raw);
    let mut r = Reader::new(&raw);
    assert_eq!(Item::decode(&mut r).as_ref(), Some(item), "does not read back");
    assert!(r.is_empty());
    let name = format!("item-{}", item.number());
    let text = format!("{item:?}");
    golden.value(&name, &raw, &text, &raw, |raw| Some(raw.to_vec()));
}

fn items(golden: &mut Golden) {
    let (ino, dir, root) = (Ino::new(ROOT, 0x1122), Ino::new(ROOT, 0x3344), ROOT);
    let key = Key::new(0x5566, 0x7788);
    let entry = Dirent { child: Ino::new(ROOT, 0xbbcc), kind: 4, name: b"a name" };
    let all = [
        Item::Core { ino, core: core() },
        Item::DataFork { ino, form: Form::Inline, bytes: b"data" },
        Item::AttrFork { ino, form: Form::Tree, bytes: b"attrs" },
        Item::DirTouch { ino, nlink: 0x11, size: 0x22, stamp: stamp(3) },
        Item::Free { ino, generation: 0x11 },
        Item::TreePut { root, tree: TreeId::Extents, key, value: b"value" },
        Item::TreeDel { root, tree: TreeId::Attrs, key },
        Item::TreeDelRange { root, tree: TreeId::Dirents, key, end: 0x99 },
        Item::OrphanAdd { ino },
        Item::OrphanDel { ino },
        Item::Links { ino, nlink: 0x11, ctime: stamp(2) },
        Item::IntentLog { id: 0x11, body: b"intent" },
        Item::IntentProgress { id: 0x22, body: b"progress" },
        Item::IntentDone { id: 0x33 },
        Item::Root { ino, state: RootState::Deleted, floor: 0x11, name: b"root" },
        Item::Named { dir, generation: 0x11, lo: 0x22, entry },
        Item::Unnamed { dir, generation: 0x33, lo: 0x44, entry },
        Item::Moved { ino, bytes: 0x5566 },
    ];
    all.iter().for_each(|one| item(golden, one));
}

fn enumerations(golden: &mut Golden) {
    golden.numbers("kinds of batches", &BatchKind::ALL);
    golden.numbers("kinds of objects in a bucket", &ObjectKind::ALL);
    golden.numbers("kinds of manifests", &ManifestKind::ALL);
    golden.numbers("codecs", &Codec::ALL);
    golden.numbers("forms of a fork", &Form::ALL);
    golden.numbers("namespaces", &Namespace::ALL);
    golden.numbers("states of roots", &RootState::ALL);
    golden.numbers("trees", &TreeId::ALL);
    golden.numbers("kinds of segments", &SegKind::ALL);
}

#[test]
fn every_structure_has_the_bytes_that_it_had() {
    let mut golden = Golden::default();
    outer(&mut golden);
    usage(&mut golden);
    trees(&mut golden);
    attributes(&mut golden);
    items(&mut golden);
    enumerations(&mut golden);
    for table in TABLES.iter().chain(item::TABLES) {
        assert!(golden.names.iter().any(|name| name == table.name), "{} has none", table.name);
    }
    if std::env::var_os("GOLDEN").is_some_and(|what| what == "write") {
        std::fs::write(FILE, &golden.text).unwrap();
    }
    let known = std::fs::read_to_string(FILE).unwrap();
    let blocks = |text: &str| -> Vec<String> { text.split("\n\n").map(str::to_owned).collect() };
    for (now, then) in blocks(&golden.text).iter().zip(&blocks(&known)) {
        assert_eq!(now, then, "not what it was in {FILE}");
    }
    assert_eq!(golden.text.len(), known.len(), "{FILE} has other structures");
}
