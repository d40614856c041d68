//! Structures that a volume contains, counted below the calls and before any recovery: what a
//! frozen image is for. Nothing is written.
//!
//! A kind of structure has a name (`file, data in the tree`; `journal, open intent`), which stands
//! in the text file beside an image and in the rows of `rows.rs`. New names can be added at any
//! time: images made before do not list them.

use shoal::raw::{Device, JournalDump, MemDevice};
use shoal_base::Ino;
use shoal_format::attr::{Attr, Attrs, Value};
use shoal_format::bytes::Reader;
use shoal_format::checkpoint::RootState;
use shoal_format::claim::{self, ClaimBlock, OwnerClaim};
use shoal_format::dirent::Dirent;
use shoal_format::extent::Extent;
use shoal_format::features::{self, Word};
use shoal_format::inode::{
    FLAG_ACL, FLAG_CAPABILITY, FLAG_DEFAULT_ACL, FLAG_TMPFILE, FLAG_TRUNCATING, Form, Inode,
};
use shoal_format::node::{Key, TreeId};
use shoal_format::{Label, Ptr};
use shoal_txn::{Image, Root, Store, StoreOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bit of an entry's type: another name of the same hash follows.
const CHAINED: u8 = 0x80;

/// Numbers of structures, by kind.
pub(super) type Counts = BTreeMap<String, u64>;

/// Counts what the volume on a device contains. Of a volume that was not closed: what its newest
/// checkpoint and its journal lead to, before intents are completed and orphans freed.
pub(super) fn contents(device: &Arc<MemDevice>) -> Counts {
    let mut counts = Counts::new();
    tables(device, &mut counts);
    journal(device, &mut counts);
    let store = store(device);
    count(&mut counts, "orphan slot in use", store.orphans().len() as u64);
    for root in store.roots().iter() {
        root_contents(root, &mut counts);
    }
    counts
}

fn count(counts: &mut Counts, name: &str, n: u64) {
    if n > 0 {
        *counts.entry(name.to_owned()).or_default() += n;
    }
}

/// The volume after replay in memory, opened below the calls to be looked at.
pub(super) fn store(device: &Arc<MemDevice>) -> Store {
    let options = StoreOptions {
        read_only: true,
        cache_bytes: 64 << 20,
        commit_interval_ms: 5000,
        checkpoint_bytes: u64::MAX,
        background: false,
        flush_rolls: false,
        discard: false,
        recent: 0,
        segments: 0,
    };
    let shoal_txn::Opened { store, recovery } = shoal_txn::open(device.clone(), options).unwrap();
    recovery.run(&store).unwrap();
    store
}

/// Counts the objects of the checkpoint, and the claim.
fn tables(device: &Arc<MemDevice>, counts: &mut Counts) {
    let sb = shoal_txn::read_superblock(&**device).unwrap();
    count(counts, if sb.clean { "superblock, clean" } else { "superblock, not clean" }, 1);
    count(counts, &format!("inode size {}", sb.geometry.inode_size), 1);
    count(counts, &format!("segment size {}", sb.geometry.segment_size), 1);
    if sb.label != Label::NONE {
        count(counts, &format!("label, of {} bytes", sb.label.as_str().len()), 1);
    }
    let words = [
        (Word::Compat, sb.compat),
        (Word::ReadOnlyCompat, sb.ro_compat),
        (Word::Incompat, sb.incompat),
    ];
    for (word, bits) in words {
        for (bit, name) in features::names(word, bits) {
            let name = name.map_or(format!("{word:?} bit {bit}"), str::to_owned);
            count(counts, &format!("feature {name}"), 1);
        }
    }
    let checkpoint = shoal_txn::read_checkpoint(&**device, &sb).unwrap();
    let image = Image::read(&**device, &sb, checkpoint, &mut |_, e| panic!("{e}")).unwrap();
    image.for_each_object(&mut |kind, ptr| {
        count(counts, &format!("checkpoint, {}", kind.name()), 1);
        coded(counts, "checkpoint", ptr);
    });
    let mut raw = vec![0; claim::SIZE];
    device.read_at(&mut raw, claim::ADDR).unwrap();
    if matches!(OwnerClaim::decode(&raw), ClaimBlock::Claim(_)) {
        count(counts, "owner claim", 1);
    }
}

/// Counts a pointer by the codec of its object, and the object if it is coded.
fn coded(counts: &mut Counts, object: &str, ptr: Ptr) {
    count(counts, &format!("pointer, codec {}", ptr.codec.name()), 1);
    count(counts, &format!("{object}, coded"), u64::from(ptr.is_coded()));
}

/// Counts records and items, a torn tail, and intents open in the journal or at the checkpoint.
fn journal(device: &Arc<MemDevice>, counts: &mut Counts) {
    let dump = JournalDump::find(&**device).unwrap();
    count(counts, "checkpoint, open intent", dump.open().len() as u64);
    let end = dump.read(&mut |record| {
        count(counts, "journal, record", 1);
        for item in &record.items {
            count(counts, &format!("journal, item {}", item.kind), 1);
        }
        true
    });
    let end = end.unwrap().expect("read to its end");
    count(counts, "journal, torn tail", u64::from(end.torn.is_some()));
    count(counts, "journal, open intent", end.open.len() as u64);
    for intent in end.open.values() {
        count(counts, &format!("journal, intent {}", intent.state), 1);
    }
}

fn root_contents(root: &Root, counts: &mut Counts) {
    let state = root.state();
    if state == RootState::Vacant {
        return;
    }
    count(counts, &format!("root, {state:?}").to_lowercase(), 1);
    for tree in TreeId::ALL {
        let mut nodes = 0;
        let mut node = |ptr| {
            nodes += 1;
            coded(counts, "node", ptr);
        };
        root.tree(tree).for_each_node(&mut node).unwrap();
        if nodes > 0 {
            let most = counts.entry(format!("nodes of the largest {} tree", tree.name()));
            most.and_modify(|most| *most = nodes.max(*most)).or_insert(nodes);
        }
    }
    let each_block = &mut |_, ptr, _| {
        coded(counts, "inode block", ptr);
        count(counts, "inode block", 1);
        Ok(true)
    };
    root.table.for_each_block(each_block).unwrap();
    for block in 0..root.table.next_block() {
        for slot in 0..32 {
            let ino = Ino::new(root.id, block * 32 + slot);
            let Ok(found) = root.table.get(ino) else { continue };
            let inode = found.read().inode.clone();
            if inode.core.in_use() {
                let keys = (Key::of(ino, 0), Key::behind(ino));
                InodeAt { root, inode: &inode, counts }.count_all(keys);
            } else if inode.core.generation > 0 {
                count(counts, "inode, free with a generation", 1);
            }
        }
    }
}

/// An inode in use, whose parts are counted.
struct InodeAt<'a> {
    root: &'a Root,
    inode: &'a Inode,
    counts: &'a mut Counts,
}

impl InodeAt<'_> {
    fn count(&mut self, name: &str) {
        count(self.counts, name, 1);
    }

    fn count_all(&mut self, keys: (Key, Key)) {
        let core = &self.inode.core;
        let kind = kind_name(core.kind());
        self.count(&format!("{kind}, data {}", form_name(core.data_form)));
        self.count(&format!("inode, attributes {}", form_name(core.attr_form)));
        let flags = [
            (FLAG_TMPFILE, "inode, made without a name"),
            (FLAG_ACL, "inode, access list"),
            (FLAG_DEFAULT_ACL, "inode, default access list"),
            (FLAG_CAPABILITY, "inode, capabilities"),
            (FLAG_TRUNCATING, "inode, being cut"),
        ];
        for (_, name) in flags.into_iter().filter(|(flag, _)| core.flags & flag != 0) {
            self.count(name);
        }
        match core.nlink {
            0 => self.count(&format!("{kind}, without a name")),
            1 => {}
            _ if !core.is_dir() => self.count(&format!("{kind}, several names")),
            _ => {}
        }
        if core.generation > 1 {
            self.count("inode, generation above 1");
        }
        self.extents(keys);
        self.attributes(keys);
        self.entries(keys);
    }

    fn extents(&mut self, (from, to): (Key, Key)) {
        let mut all = Vec::new();
        match self.inode.core.data_form {
            Form::Extents => {
                let mut r = Reader::new(&self.inode.data);
                while !r.is_empty() {
                    all.push(Extent::decode_inline(&mut r).expect("an extent"));
                }
            }
            Form::Tree => {
                let each = &mut |key: Key, raw: &[u8]| {
                    all.push(Extent::decode_value(key.lo, raw).expect("an extent"));
                    Ok(true)
                };
                self.root.extents.for_each(from, to, each).unwrap();
            }
            Form::Empty | Form::Inline => {}
        }
        all.iter().for_each(|extent| self.extent(extent));
        let mapped: u64 = all.iter().map(|extent| u64::from(extent.len)).sum();
        if !all.is_empty() && mapped < self.inode.core.size {
            self.count("file, holes");
        }
        if all.last().is_some_and(|last| last.end() > self.inode.core.size) {
            self.count("file, space behind its end");
        }
    }

    fn extent(&mut self, extent: &Extent) {
        if extent.is_prealloc() {
            return self.count("extent, preallocated");
        }
        coded(self.counts, "extent", extent.ptr);
        self.count(match extent.pieces().len() {
            0 => "extent, one checksum",
            _ => "extent, checksums of pieces",
        });
        let part = extent.len < extent.ptr.logical.get();
        if part {
            self.count("extent, part of an object");
        }
        match (extent.ptr.is_coded(), part, extent.skip > 0) {
            (true, false, _) => self.count("extent, whole coded object"),
            (true, true, false) => self.count("extent, start of a coded object"),
            (true, true, true) => self.count("extent, behind the start of a coded object"),
            (false, ..) => {}
        }
    }

    fn attributes(&mut self, (from, to): (Key, Key)) {
        let root = self.root;
        match self.inode.core.attr_form {
            Form::Inline => {
                for attr in Attrs::new(&self.inode.attr) {
                    self.attribute(&attr.expect("an attribute"), "in the inode");
                }
            }
            Form::Tree => {
                let each = &mut |key: Key, raw: &[u8]| {
                    self.attribute(&Attr::decode_whole(raw).expect("an attribute"), "in the tree");
                    if key.lo & shoal_format::attr::SUFFIX_MASK != 0 {
                        self.count("attribute, hash collides");
                    }
                    Ok(true)
                };
                root.attrs.for_each(from, to, each).unwrap();
            }
            Form::Empty | Form::Extents => {}
        }
    }

    fn attribute(&mut self, attr: &Attr<'_>, place: &str) {
        let space = format!("{:?}", attr.space).to_lowercase();
        self.count(&format!("attribute, {space} {place}"));
        if let Value::Remote(ptr) = attr.value {
            coded(self.counts, "attribute value", ptr);
            self.count(&format!("attribute, value elsewhere, {place}"));
        }
    }

    fn entries(&mut self, (from, to): (Key, Key)) {
        let root = self.root;
        let each = &mut |_: Key, raw: &[u8]| {
            let entry = Dirent::decode(root.id, raw).expect("an entry");
            self.count("entry");
            if entry.name.len() == 255 {
                self.count("entry, longest name");
            }
            if entry.child.root() != root.id {
                self.count("entry, of another root");
            }
            if entry.kind & CHAINED != 0 {
                self.count("entry, hash collides");
            }
            Ok(true)
        };
        root.dirents.for_each(from, to, each).unwrap();
    }
}

fn form_name(form: Form) -> &'static str {
    match form {
        Form::Empty => "none",
        Form::Inline => "in the inode",
        Form::Extents => "in extents",
        Form::Tree => "in the tree",
    }
}

fn kind_name(kind: u8) -> &'static str {
    use shoal::raw::FileKind::*;
    match shoal::raw::FileKind::from_dirent_type(kind) {
        Some(Fifo) => "fifo",
        Some(CharDevice | BlockDevice) => "device",
        Some(Directory) => "directory",
        Some(Regular) => "file",
        Some(Symlink) => "symlink",
        Some(Socket) => "socket",
        None => "inode of no type",
    }
}
