//! Repair of volumes with correct checksums and wrong contents: each problem is planted separately,
//! found, and repaired.

use crate::common::*;
use shoal_engine::*;
use shoal_format::attr::{Attr, Link, Namespace, Value, parent_bytes};
use shoal_format::dirent::{Dirent, name_hash};
use shoal_format::extent::Extent;
use shoal_format::inode::{FLAG_ACL, Form, Inode};
use shoal_format::node::Key;
use shoal_txn::Store;
use std::collections::BTreeMap;
use std::sync::Arc;

const ROOT: Ino = Ino::ROOT;

/// The inodes of the sample, by role.
type Cast = BTreeMap<&'static str, Ino>;

fn sample() -> (Arc<MemDevice>, Cast, Shown) {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = open(&device);
    let cast = fill(&volume, ROOT);
    let shown = shown(&volume);
    volume.close().unwrap();
    (device, cast, shown)
}

/// Makes the sample twice, in subvolume 0 and in another one, with the same inode indices. Returns
/// the inodes of the second.
fn sample_in_root() -> (Arc<MemDevice>, Cast, Shown) {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = open(&device);
    let first = fill(&volume, ROOT);
    let top = volume.subvolumes().create(&Caller::root(), b"root", 0o755).unwrap().ino;
    let cast = fill(&volume, top);
    assert!(first.iter().all(|(name, ino)| cast[name].index() == ino.index()));
    let shown = shown(&volume);
    volume.close().unwrap();
    (device, cast, shown)
}

fn fill(volume: &Volume, top: Ino) -> Cast {
    let who = Caller::root();
    let mut cast = Cast::from([("top", top)]);
    let a = volume.namespace().mkdir(&who, top, b"a", 0o755).unwrap().ino;
    let b = volume.namespace().mkdir(&who, a, b"b", 0o755).unwrap().ino;
    let c = volume.namespace().mkdir(&who, b, b"c", 0o755).unwrap().ino;
    let file = volume.namespace().create(&who, b, b"file", 0o644).unwrap().ino;
    volume.files().write(file, 0, &[5; 20_000], false).unwrap();
    volume.namespace().link(&who, file, c, b"hard").unwrap();
    let far = volume.namespace().create(&who, c, b"far", 0o644).unwrap().ino;
    for n in 0..40u64 {
        volume.files().write(far, n * 9000, &[n as u8 + 1; 3000], false).unwrap();
        let name = format!("user.{n}");
        volume
            .attributes()
            .setxattr(&who, far, name.as_bytes(), &[1; 50], XattrFlags::default())
            .unwrap();
    }
    let small = volume.namespace().create(&who, c, b"small", 0o644).unwrap().ino;
    let symlink = volume.namespace().symlink(&who, c, b"symlink", b"far").unwrap().ino;
    cast.insert("symlink", symlink);
    cast.extend([("a", a), ("b", b), ("c", c), ("file", file), ("far", far), ("small", small)]);
    cast
}

/// Returns the inode of this index in the subvolume of the cast.
fn at(cast: &Cast, index: u64) -> Ino {
    Ino::new(cast["top"].root(), index)
}

/// Returns a key of the same inode in another subvolume, as it would appear in the subvolume of the
/// cast: for subvolume 1 one of subvolume 0, where it exists; for 0 one of 1, which does not exist.
fn foreign(ino: Ino, lo: u64) -> Key {
    Key::new(1 << 48 | ino.index(), lo)
}

/// Changes a volume below all consistency checks.
fn plant(device: &Arc<MemDevice>, change: impl FnOnce(&Store)) {
    let store = store(device);
    change(&store);
    store.checkpoints().write_clean().unwrap();
    store.journal().unwrap().shutdown();
}

fn edit(store: &Store, ino: Ino, change: impl FnOnce(&mut Inode)) {
    let table = &store.root(ino).unwrap().table;
    let place = table.get(ino).unwrap();
    change(place.write().edit(table, store.epoch()));
}

fn key(store: &Store, dir: Ino, name: &[u8]) -> Key {
    Key::of(dir, name_hash(store.volume(), name))
}

fn put_entry(store: &Store, key: Key, name: &[u8], child: Ino, kind: u8) {
    let mut value = Vec::new();
    Dirent { child, kind, name }.encode(child.root(), &mut value);
    store.root(child).unwrap().dirents.put(key, &value, store.epoch()).unwrap();
}

fn enter(store: &Store, dir: Ino, name: &[u8], child: Ino, kind: u8) {
    put_entry(store, key(store, dir, name), name, child, kind);
}

fn erase(store: &Store, dir: Ino, name: &[u8]) {
    let dirents = &store.root(dir).unwrap().dirents;
    assert!(dirents.delete(key(store, dir, name), store.epoch()).unwrap());
}

type Plant = fn(&Store, &Cast);

/// Problems whose repair restores every name and all contents.
const RESTORED: &[(&str, Plant)] = &[
    ("entry gone", |s, c| erase(s, c["c"], b"small")),
    ("entry of a directory gone", |s, c| erase(s, c["a"], b"b")),
    ("one hard link gone", |s, c| erase(s, c["c"], b"hard")),
    ("entry names a free inode", |s, c| enter(s, c["a"], b"ghost", at(c, 31), 8)),
    ("entry names what never was", |s, c| enter(s, c["a"], b"ghost", at(c, 1 << 30), 8)),
    ("entry of another type", |s, c| enter(s, c["c"], b"small", c["small"], 10)),
    ("entry under another key", |s, c| {
        erase(s, c["c"], b"small");
        put_entry(s, Key::of(c["c"], 0x4400), b"small", c["small"], 8);
    }),
    ("entry says that others follow", |s, c| enter(s, c["c"], b"small", c["small"], 8 | 0x80)),
    ("entry behind a gap", |s, c| {
        erase(s, c["c"], b"small");
        let base = key(s, c["c"], b"small");
        put_entry(s, Key::new(base.hi, base.lo | 3), b"small", c["small"], 8);
    }),
    ("entry in a file", |s, c| enter(s, c["small"], b"inside", c["file"], 8)),
    ("second name of a directory", |s, c| enter(s, c["top"], b"again", c["c"], 4)),
    ("not an entry", |s, c| {
        let dirents = &s.root(c["top"]).unwrap().dirents;
        dirents.put(Key::of(c["a"], 0x9900), b"xx", s.epoch()).unwrap();
    }),
    ("no parent pointer", |s, c| {
        edit(s, c["small"], |i| (i.attr, i.core.attr_form) = (Box::default(), Form::Empty));
    }),
    ("no parent pointer of a directory", |s, c| {
        edit(s, c["b"], |i| (i.attr, i.core.attr_form) = (Box::default(), Form::Empty));
    }),
    ("parent pointer to nowhere", |s, c| {
        let link = Link { dir: at(c, 31), generation: 1 };
        edit(s, c["small"], |i| i.attr = parent_bytes(link.dir.root(), link, b"small"));
    }),
    ("parent pointer of another generation", |s, c| {
        let link = Link { dir: c["c"], generation: 77 };
        edit(s, c["small"], |i| i.attr = parent_bytes(link.dir.root(), link, b"small"));
    }),
    ("links", |s, c| edit(s, c["file"], |i| i.core.nlink = 9)),
    ("no links", |s, c| edit(s, c["file"], |i| i.core.nlink = 0)),
    ("links of a directory", |s, c| edit(s, c["a"], |i| i.core.nlink = 1)),
    ("entries of a directory", |s, c| edit(s, c["c"], |i| i.core.size = 100)),
    ("directory above", |s, c| edit(s, c["c"], |i| i.core.parent_or_rdev = c["a"].0)),
    ("bytes", |s, c| edit(s, c["file"], |i| i.core.bytes += 1)),
    ("length of a symbolic link", |s, c| edit(s, c["symlink"], |i| i.core.size = 1 << 40)),
    ("flags", |s, c| edit(s, c["file"], |i| i.core.flags |= FLAG_ACL)),
    ("broken attributes", |s, c| edit(s, c["small"], |i| i.attr = [1, 200, 3].into())),
    ("extents of nobody", |s, c| {
        let mut value = Vec::new();
        Extent::prealloc(0, 4096).encode_value(&mut value);
        let extents = &s.root(c["top"]).unwrap().extents;
        extents.put(Key::of(c["small"], 0), &value, s.epoch()).unwrap();
    }),
    ("entry of another root's directory", |s, c| {
        let lo = key(s, c["c"], b"small").lo;
        put_entry(s, foreign(c["c"], lo), b"small", c["small"], 8);
    }),
    ("extent of another root's file", |s, c| {
        let mut value = Vec::new();
        Extent::prealloc(1 << 30, 4096).encode_value(&mut value);
        let extents = &s.root(c["top"]).unwrap().extents;
        extents.put(foreign(c["far"], 1 << 30), &value, s.epoch()).unwrap();
    }),
    ("attribute of another root's file", |s, c| {
        let attr = Attr { space: Namespace::User, name: b"x", value: Value::Local(b"y") };
        let lo = attr.id(c["far"].root()).key(c["far"], s.volume()).lo;
        let attrs = &s.root(c["top"]).unwrap().attrs;
        attrs.put(foreign(c["far"], lo), &attr.to_bytes(), s.epoch()).unwrap();
    }),
    ("not an extent", |s, c| {
        let extents = &s.root(c["top"]).unwrap().extents;
        extents.put(Key::of(c["far"], 1), b"not one", s.epoch()).unwrap();
    }),
    ("attribute of nobody", |s, c| {
        let attr = Attr { space: Namespace::User, name: b"x", value: Value::Local(b"y") };
        let key = attr.id(c["small"].root()).key(c["small"], s.volume());
        s.root(c["top"]).unwrap().attrs.put(key, &attr.to_bytes(), s.epoch()).unwrap();
    }),
    ("attribute under another key", |s, c| {
        let attr = Attr { space: Namespace::User, name: b"x", value: Value::Local(b"y") };
        let key = Key::of(c["far"], 0x1200);
        s.root(c["top"]).unwrap().attrs.put(key, &attr.to_bytes(), s.epoch()).unwrap();
    }),
    ("inode 0", |s, c| edit(s, at(c, 0), |i| i.core.mode = 0o100_644)),
    ("count of inodes", |s, c| s.root(c["top"]).unwrap().table.count_inodes(3)),
    ("a linked orphan", |s, c| drop(s.orphans().take(c["file"]))),
    ("a free orphan", |s, c| drop(s.orphans().take(at(c, 31)))),
    ("live bytes", |s, c| {
        let extents = &s.root(c["top"]).unwrap().extents;
        let decode = |raw: &[u8]| Extent::decode_value(0, raw).unwrap();
        let extent = extents.get(Key::of(c["far"], 0), decode).unwrap().unwrap();
        s.space().sub_live(extent.data_addr(), 1000);
    }),
    ("bytes preallocated", |s, _| {
        s.promises().set(12_345);
    }),
];

/// Regression, found by fuzzing: a terabyte was allocated.
#[test]
fn a_symbolic_link_longer_than_a_path_is_damage() {
    let (device, cast, _) = sample();
    plant(&device, |store| edit(store, cast["symlink"], |i| i.core.size = 1 << 40));
    let volume = open(&device);
    let read = volume.namespace().readlink(cast["symlink"]);
    assert!(matches!(read, Err(Error::Corrupt(_))), "{read:?}");
    volume.close().unwrap();
}

#[test]
fn wrong_things_are_put_right() {
    put_right(sample);
}

/// As in subvolume 0, which must not change, although everything in it has the same numbers.
#[test]
fn wrong_things_in_a_root_are_put_right() {
    put_right(sample_in_root);
}

fn put_right(sample: fn() -> (Arc<MemDevice>, Cast, Shown)) {
    for (what, change) in RESTORED {
        let (device, cast, before) = sample();
        plant(&device, |store| change(store, &cast));
        let report = repair(&device);
        assert_ne!(report.found, vec![], "{what}: not found");
        assert_eq!(report.left, vec![], "{what}: {:#?}", report.actions);
        let again = repair(&device);
        assert_eq!((again.found, again.written), (vec![], false), "{what}: a second repair");
        let volume = open(&device);
        assert!(shown(&volume) == before, "{what}: {:#?}", report.actions);
        volume.close().unwrap();
    }
}

fn repaired(change: impl FnOnce(&Store, &Cast)) -> (Vec<String>, Cast) {
    let (device, cast, _) = sample();
    plant(&device, |store| change(store, &cast));
    let report = repair(&device);
    assert!(!report.found.is_empty() && report.left.is_empty(), "{report:#?}");
    assert!(repair(&device).found.is_empty());
    let volume = open(&device);
    let names = shown(&volume).into_keys().collect();
    volume.close().unwrap();
    (names, cast)
}

#[test]
fn what_nobody_names_is_in_lost_and_found() {
    let (names, cast) = repaired(|s, c| {
        erase(s, c["a"], b"b");
        edit(s, c["b"], |i| (i.attr, i.core.attr_form) = (Box::default(), Form::Empty));
    });
    let b = format!("/lost+found/#{}", cast["b"].index());
    assert!(names.contains(&b) && names.contains(&format!("{b}/c/hard")), "{names:?}");
}

#[test]
fn a_directory_below_itself_is_taken_out() {
    let (names, _) = repaired(|s, c| {
        erase(s, c["a"], b"b");
        enter(s, c["c"], b"b", c["b"], 4);
        let generation =
            s.root(ROOT).unwrap().table.get(c["c"]).unwrap().read().inode.core.generation;
        let link = Link { dir: c["c"], generation };
        edit(s, c["b"], |i| {
            i.attr = parent_bytes(link.dir.root(), link, b"b");
            i.core.parent_or_rdev = c["c"].0;
        });
    });
    let hard = names.iter().filter(|name| name.ends_with("/hard")).count();
    assert_eq!(hard, 1, "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("/lost+found/#")), "{names:?}");
}

#[test]
fn lost_and_found_may_be_taken() {
    let (device, cast, _) = sample();
    let volume = open(&device);
    volume.namespace().create(&Caller::root(), ROOT, b"lost+found", 0o600).unwrap();
    volume.close().unwrap();
    plant(&device, |s| {
        erase(s, cast["c"], b"small");
        edit(s, cast["small"], |i| (i.attr, i.core.attr_form) = (Box::default(), Form::Empty));
    });
    assert_eq!(repair(&device).left, vec![]);
    let volume = open(&device);
    let name = format!("/lost+found.1/#{}", cast["small"].index());
    assert!(shown(&volume).contains_key(&name), "{:?}", shown(&volume).keys());
}

/// The contents of a file leave no space for its parent pointer. They must move out, which needs
/// space, and a repair can only allocate space after its checkpoint.
#[test]
fn a_pointer_for_which_there_is_no_room() {
    let (device, cast, mut before) = sample();
    plant(&device, |s| {
        edit(s, cast["small"], |i| {
            (i.attr, i.core.attr_form) = (Box::default(), Form::Empty);
            i.data = vec![9; 396].into();
            (i.core.data_form, i.core.size) = (Form::Inline, 396);
        });
    });
    before.get_mut("/a/b/c/small").unwrap().2 = vec![9; 396];
    let report = repair(&device);
    assert_eq!(report.left, vec![], "{:#?}", report.actions);
    let said = |a: &&Action| a.message.contains("/a/b/c/small") && a.message.contains("moved out");
    assert_eq!(report.actions.iter().filter(said).count(), 1, "{:#?}", report.actions);
    assert_eq!(repair(&device).found, vec![]);
    let volume = open(&device);
    assert!(shown(&volume) == before);
    assert_eq!(volume.paths().paths_of(cast["small"]).unwrap(), [b"/a/b/c/small".to_vec()]);
    volume.close().unwrap();
}
