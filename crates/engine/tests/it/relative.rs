//! The trees and inode blocks of a subvolume do not contain its number: the same operations leave
//! the same bytes in two subvolumes, and blocks written by one can be read through the other. Only
//! the headers have the number, which is enough for a repair to keep subvolumes apart.

use crate::common::*;
use shoal_base::{Addr, RootId, checksum};
use shoal_engine::*;
use shoal_format::Ptr;
use shoal_format::attr::{Attr, Attrs, HEADER as ATTR, Value};
use shoal_format::bytes::{Reader, u16_at};
use shoal_format::dirent::Dirent;
use shoal_format::extent::{DataHeader, Extent, HEADER as OBJECT};
use shoal_format::inode::{BLOCK_HEADER, CORE, Core, FREED, Form};
use shoal_format::node::{Key, TreeId};
use shoal_format::root::{RootPage, RootRecord};
use shoal_format::superblock::COPIES;
use shoal_txn::Store;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Creates all kinds of structures in a subvolume; data and values consist of `mark`.
fn fill(volume: &Volume, top: Ino, mark: u8) {
    let who = Caller::root();
    let set = |ino: Ino, name: &str, len: usize| {
        let value = vec![mark; len];
        volume
            .attributes()
            .setxattr(&who, ino, name.as_bytes(), &value, XattrFlags::default())
            .unwrap();
    };
    let dir = volume.namespace().mkdir(&who, top, b"dir", 0o755).unwrap().ino;
    let deep = volume.namespace().mkdir(&who, dir, b"deep", 0o700).unwrap().ino;
    let first = volume.namespace().create(&who, dir, b"first", 0o644).unwrap().ino;
    for n in 0..600u32 {
        let above = if n % 3 == 0 { deep } else { dir };
        let name = format!("file-{n}-{}", "x".repeat(n as usize % 60));
        let file = volume.namespace().create(&who, above, name.as_bytes(), 0o640).unwrap().ino;
        if n % 4 == 0 {
            volume.files().write(file, 0, &vec![mark; n as usize * 5], false).unwrap();
        }
        if n % 50 == 7 {
            for e in 0..30u64 {
                volume.files().write(file, e * 9000, &[mark ^ e as u8; 3000], false).unwrap();
                set(file, &format!("user.{e}"), 90);
            }
        }
        if n % 10 == 3 {
            volume.namespace().unlink(&who, above, name.as_bytes()).unwrap();
        }
    }
    for n in 0..150 {
        volume.namespace().link(&who, first, deep, format!("link-{n}").as_bytes()).unwrap();
    }
    set(first, "user.long", 5000);
    let other = volume.namespace().create(&who, deep, b"other", 0o600).unwrap().ino;
    set(other, "user.long", 3000);
    volume.namespace().symlink(&who, deep, b"symlink", b"../first").unwrap();
    volume.namespace().symlink(&who, deep, b"far", &[b'/'; 2000]).unwrap();
    volume.namespace().mknod(&who, dir, b"device", 0o020_600, 0x1234).unwrap();
    let flags = RenameFlags::default();
    volume.namespace().rename(&who, dir, b"deep", top, b"moved", flags).unwrap();
}

fn two_roots(marks: [u8; 2]) -> (Arc<MemDevice>, [Ino; 2]) {
    let device = Arc::new(MemDevice::new(128 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let (volume, who) = (open(&device), Caller::root());
    let tops = [b"one", b"two"].map(|name| {
        let top = volume.subvolumes().create(&who, name, 0o755).unwrap().ino;
        volume.sync().unwrap();
        top
    });
    for (top, mark) in tops.into_iter().zip(marks) {
        fill(&volume, top, mark);
        // The second has the newer blocks.
        volume.maintenance().checkpoint().unwrap();
    }
    volume.close().unwrap();
    (device, tops)
}

fn blank(bytes: &mut [u8]) {
    bytes.fill(0);
}

/// Clears the addresses in a value of a tree.
fn masked(tree: TreeId, value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    match tree {
        TreeId::Imap => blank(&mut value[..Ptr::SIZE]),
        TreeId::Dirents => {}
        TreeId::Attrs => mask_attrs(&mut value),
        TreeId::Extents => blank(&mut value[8..24]),
    }
    value
}

/// Clears the addresses of values in data objects.
fn mask_attrs(fork: &mut [u8]) {
    let whole = fork.to_vec();
    let (mut attrs, mut start) = (Attrs::new(&whole), 0);
    while let Some(attr) = attrs.next() {
        let attr: Attr<'_> = attr.unwrap();
        if let Value::Remote(_) = attr.value {
            let at = start + ATTR + attr.name.len();
            blank(&mut fork[at..at + 16]);
        }
        start = attrs.position();
    }
}

/// Clears the fields of an inode block that depend on its writer, place and time: some of the
/// header, times, LSNs and addresses.
fn masked_block(mut raw: Vec<u8>) -> Vec<u8> {
    blank(&mut raw[6..8]);
    blank(&mut raw[24..40]);
    let lens: Vec<usize> =
        (0..32).map(|i| usize::from(u16_at(&raw, BLOCK_HEADER + 2 * i))).collect();
    let mut at = BLOCK_HEADER + 64;
    for len in lens {
        let inode = &mut raw[at..at + len];
        at += len;
        if len <= FREED {
            continue;
        }
        let core = Core::decode(RootId(0), &mut Reader::new(inode)).unwrap();
        blank(&mut inode[48..104]);
        let (data, attr) = inode[CORE..].split_at_mut(usize::from(core.data_len));
        if core.data_form == Form::Extents {
            let (whole, mut at) = (data.to_vec(), 0);
            while at < whole.len() {
                let mut r = Reader::new(&whole[at..]);
                Extent::decode_inline(&mut r).unwrap();
                blank(&mut data[at + 16..at + 32]);
                at = whole.len() - r.rest().len();
            }
        }
        mask_attrs(attr);
    }
    assert_eq!(at, raw.len());
    raw
}

/// Contents of a subvolume, by tree and key; inode blocks by number.
type Held = BTreeMap<(&'static str, Key), Vec<u8>>;

fn held(store: &Store, top: Ino) -> Held {
    let root = store.root(top).unwrap();
    let mut held = Held::new();
    for tree in TreeId::ALL {
        let mut entry = |key: Key, value: &[u8]| {
            held.insert((tree.name(), key), masked(tree, value));
            Ok(true)
        };
        root.tree(tree).for_each(Key::MIN, Key::MAX, &mut entry).unwrap();
    }
    let mut block = |number: u64, ptr: Ptr, _: u32| {
        let mut raw = vec![0; ptr.len as usize];
        store.device().read_at(&mut raw, ptr.addr.0)?;
        held.insert(("block", Key::new(number, 0)), masked_block(raw));
        Ok(true)
    };
    root.table.for_each_block(&mut block).unwrap();
    held
}

#[test]
fn the_same_operations_leave_the_same_bytes_in_two_roots() {
    let (device, tops) = two_roots([7, 7]);
    let store = store_as(&device, true);
    let [mut one, mut two] = tops.map(|top| held(&store, top));
    for tree in ["imap", "dirents", "attrs", "extents", "block"] {
        let count = one.keys().filter(|(of, _)| *of == tree).count();
        assert!(count > 10, "{count} of {tree}");
    }
    // The tops have different names in subvolume 0, and so different parent pointers.
    let first = ("block", Key::MIN);
    let [top_one, top_two] = [&mut one, &mut two].map(|held| held.remove(&first).unwrap());
    assert_eq!(top_one.len(), top_two.len());
    let differ = top_one.iter().zip(&top_two).filter(|(a, b)| a != b).count();
    // The name, a byte of the parent in the core, and one of the parent in the parent pointer.
    assert_eq!(differ, 3 + 1 + 1);
    assert_eq!(one.keys().collect::<Vec<_>>(), two.keys().collect::<Vec<_>>());
    for (key, value) in &one {
        assert_eq!(*value, two[key], "{key:?}");
    }
}

#[test]
fn data_objects_say_index_and_origin() {
    let (device, tops) = two_roots([7, 7]);
    let store = store_as(&device, true);
    let [one, two] = tops.map(|top| {
        let mut headers = Vec::new();
        let mut record = |key: Key, value: &[u8]| {
            let extent = Extent::decode_value(key.lo, value).unwrap();
            let mut raw = [0; OBJECT];
            store.device().read_at(&mut raw, extent.ptr.addr.0 - OBJECT as u64)?;
            let header = DataHeader::decode(&raw, store.volume()).unwrap();
            assert_eq!((header.origin, header.index.get()), (top.root(), key.hi));
            assert_eq!(header.ino(), key.ino(top.root()));
            headers.push((header.index, header.offset, header.len));
            Ok(true)
        };
        store.root(top).unwrap().extents.for_each(Key::MIN, Key::MAX, &mut record).unwrap();
        headers
    });
    assert!(one.len() > 200 && one == two, "{} objects", one.len());
}

/// Changes the first root page, with correct checksums.
fn change_roots(device: &MemDevice, change: impl FnOnce(&mut [RootRecord])) {
    let mut sb = shoal_txn::read_superblock(device).unwrap();
    let mut checkpoint = shoal_txn::read_checkpoint(device, &sb).unwrap();
    let place = &mut checkpoint.pages[0];
    let mut raw = vec![0; place.first.len as usize];
    device.read_at(&mut raw, place.first.addr.0).unwrap();
    let mut page = RootPage::decode(&raw, place.first.addr, sb.volume()).unwrap();
    change(&mut page.roots);
    let raw = page.encode();
    place.first.checksum = checksum(&raw);
    for addr in [place.first.addr, place.second] {
        device.write_at(&raw, addr.0).unwrap();
    }
    let raw = checkpoint.encode();
    sb.checkpoint.checksum = checksum(&raw);
    device.write_at(&raw, sb.checkpoint.addr.0).unwrap();
    COPIES.iter().for_each(|addr| device.write_at(&sb.encode(), *addr).unwrap());
}

/// Makes the trees of subvolume `from` those of subvolume `of` too.
fn share_trees(device: &MemDevice, from: RootId, of: RootId) {
    change_roots(device, |roots| {
        let from = roots.iter().find(|root| root.id == from).unwrap().clone();
        let root = roots.iter_mut().find(|root| root.id == of).unwrap();
        (root.trees, root.next_block, root.inodes) = (from.trees, from.next_block, from.inodes);
    });
}

/// Returns the visible contents of two subvolumes. Reading must not change anything, such as access
/// times.
fn shown_in(device: &Arc<MemDevice>, tops: [Ino; 2]) -> [Below; 2] {
    let options = OpenOptions { read_only: true, ..options() };
    let volume = Volume::open_on(device.clone(), &options).unwrap();
    tops.map(|top| below(&volume, top))
}

type Below = BTreeMap<Vec<u8>, (u64, Vec<u8>, Vec<Parent>)>;

/// Returns the visible contents of a directory, without subvolume numbers.
fn below(volume: &Volume, dir: Ino) -> Below {
    let mut entries = Vec::new();
    let mut each = |entry: DirEntry<'_>| {
        entries.push((entry.name.to_vec(), entry.ino));
        true
    };
    volume.directories().readdir(dir, 2, &mut each).unwrap();
    let mut all = BTreeMap::new();
    for (name, ino) in entries {
        assert_eq!(ino.root(), dir.root());
        let attr = volume.attributes().getattr(ino).unwrap();
        let mut parents = volume.paths().parents_of(ino).unwrap();
        for parent in &mut parents {
            assert_eq!(parent.dir.root(), dir.root());
            parent.dir = Ino(parent.dir.index());
        }
        let mut bytes = Vec::new();
        match attr.kind {
            FileKind::Directory => {
                assert_eq!(volume.directories().parent_of(ino).unwrap(), dir);
                for (inside, found) in below(volume, ino) {
                    all.insert([&name[..], b"/", &inside].concat(), found);
                }
            }
            FileKind::Regular => {
                bytes.resize(attr.size as usize, 0);
                assert_eq!(volume.files().read(ino, 0, &mut bytes).unwrap(), bytes.len());
                bytes.extend(
                    volume
                        .attributes()
                        .getxattr(&Caller::root(), ino, b"user.9")
                        .unwrap_or_default(),
                );
            }
            FileKind::Symlink => bytes = volume.namespace().readlink(ino).unwrap(),
            _ => bytes = attr.rdev.to_le_bytes().to_vec(),
        }
        all.insert(name, (ino.index(), bytes, parents));
    }
    all
}

#[test]
fn a_tree_that_one_root_has_written_is_read_through_another() {
    let (device, [one, two]) = two_roots([7, 9]);
    let [first, second] = shown_in(&device, [one, two]);
    assert!(first != second && first.len() > 500);
    share_trees(&device, one.root(), two.root());
    let [first_now, second_now] = shown_in(&device, [one, two]);
    assert!(first_now == first, "root one is as it was");
    assert!(second_now == first, "root two is now the same, with its own numbers");
}

/// Every node and block of the shared trees has the writer's subvolume in its header. Those of
/// another volume must be refused, however they are reached.
#[test]
fn blocks_of_another_volume_are_refused() {
    let (device, [one, two]) = two_roots([7, 9]);
    let record = roots(&device).into_iter().find(|root| root.id == one.root()).unwrap();
    share_trees(&device, one.root(), two.root());
    for tree in [TreeId::Dirents, TreeId::Imap] {
        let device = copy(&device);
        let ptr = record.trees[tree as usize];
        let mut raw = vec![0; ptr.len as usize];
        device.read_at(&mut raw, ptr.addr.0).unwrap();
        assert_eq!(u16_at(&raw, 6), one.root().0);
        raw[8] ^= 1;
        device.write_at(&raw, ptr.addr.0).unwrap();
        change_roots(&device, |roots| {
            let trees = roots.iter_mut().map(|root| &mut root.trees[tree as usize]);
            let shared = trees.filter(|at| **at == ptr).map(|at| at.checksum = checksum(&raw));
            assert_eq!(shared.count(), 2);
        });
        let options = OpenOptions { read_only: true, ..options() };
        let volume = Volume::open_on(device, &options).unwrap();
        for top in [one, two] {
            let read = volume.directories().readdir(top, 2, &mut |_| true);
            let said = format!("{:?}", read.unwrap_err());
            assert!(said.contains("another volume"), "{tree:?} of {top}: {said}");
        }
    }
}

/// The nodes above a subvolume's leaves are lost. Those of another subvolume, newer and with the
/// same keys, are adjacent on the device.
#[test]
fn a_repair_does_not_take_the_leaves_of_another_root() {
    for tree in [TreeId::Extents, TreeId::Attrs, TreeId::Imap] {
        let (device, [one, two]) = two_roots([7, 9]);
        let before = shown_in(&device, [one, two]);
        let record = roots(&device).into_iter().find(|root| root.id == one.root()).unwrap();
        let Ptr { addr: Addr(at), len, .. } = record.trees[tree as usize];
        device.write_at(&vec![0xee; len as usize], at).unwrap();
        let report = repair(&device);
        assert!(!report.found.is_empty(), "{tree:?}");
        assert_eq!(report.left, vec![], "{tree:?}: {:#?}", report.actions);
        let again = repair(&device);
        assert_eq!((again.found, again.written), (vec![], false), "{tree:?}: a second repair");
        let after = shown_in(&device, [one, two]);
        assert!(after[1] == before[1], "{tree:?}: the other root is as it was");
        assert!(after[0] == before[0], "{tree:?}: what was below the lost node is found");
        let said = |a: &Action| a.message.contains(&format!("inode {two}"));
        assert!(!report.actions.iter().any(said), "{:#?}", report.actions);
    }
}

/// Only the references between subvolumes contain absolute numbers.
#[test]
fn tops_know_each_other_by_absolute_numbers() {
    let (device, [one, two]) = two_roots([7, 9]);
    let store = store_as(&device, true);
    let root = store.root(Ino::ROOT).unwrap();
    let mut named = Vec::new();
    let mut entry = |_: Key, value: &[u8]| {
        // In subvolume 0 relative numbers are absolute.
        let raw = u64::from_le_bytes(value[..8].try_into().unwrap());
        named.push(raw);
        assert_eq!(Dirent::decode(RootId(0), value).unwrap().child.0, raw);
        Ok(true)
    };
    root.dirents.for_each(Key::of(Ino::ROOT, 0), Key::behind(Ino::ROOT), &mut entry).unwrap();
    named.sort_unstable();
    assert_eq!(named, [one.0, two.0]);
    for top in [one, two] {
        let place = store.root(top).unwrap().table.get(top).unwrap();
        assert_eq!(Ino(place.read().inode.core.parent_or_rdev), Ino::ROOT);
        let slot = place.read();
        let link = Attr::decode_whole(&slot.inode.attr).unwrap().link(top.root()).unwrap();
        assert_eq!(link.dir, Ino::ROOT);
        assert_eq!(Ino::ROOT.relative_to(top.root()), top.0);
    }
}
