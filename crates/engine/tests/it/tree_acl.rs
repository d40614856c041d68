//! `setfacl -R` as one call: the result is that of single calls, also after a crash between any two
//! steps, and on a full volume.

use crate::common;

use shoal_engine::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

const ANY: XattrFlags = XattrFlags { create: false, replace: false, clear_set_group_id: false };
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

fn steps_of(step_records: usize) -> OpenOptions {
    let lab = Lab { step_records, ..Lab::default() };
    OpenOptions { lab, ..common::options() }
}

fn fresh(bytes: u64, options: &OpenOptions) -> (Arc<MemDevice>, Volume) {
    let device = Arc::new(MemDevice::new(bytes));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = Volume::open_on(device.clone(), options).unwrap();
    (device, volume)
}

/// A tree with files, symlinks, a file without room for a list in its inode, and one whose
/// attributes are in the tree.
fn tree(volume: &Volume) -> Ino {
    let who = Caller::root();
    let (names, files) = (volume.namespace(), volume.files());
    let top = names.mkdir(&who, Ino::ROOT, b"top", 0o750).unwrap().ino;
    for n in 0..3 {
        let dir = names.mkdir(&who, top, format!("d{n}").as_bytes(), 0o751).unwrap().ino;
        for mode in [0o640, 0o755, 0o600, 0o604] {
            let name = format!("f{mode:o}");
            names.create(&who, dir, name.as_bytes(), mode).unwrap();
        }
        names.symlink(&who, dir, b"link", b"f640").unwrap();
        let full = names.create(&who, dir, b"full", 0o644).unwrap().ino;
        files.write(full, 0, &[7; 1900], false).unwrap();
        let wide = names.create(&who, dir, b"wide", 0o644).unwrap().ino;
        for attr in 0..5 {
            let name = format!("user.{attr}");
            volume.attributes().setxattr(&who, wide, name.as_bytes(), &[1; 900], ANY).unwrap();
        }
    }
    top
}

/// The inodes below a directory by path, itself included.
fn inodes(volume: &Volume, top: Ino) -> BTreeMap<String, Attr> {
    let mut found = BTreeMap::from([(String::new(), volume.attributes().getattr(top).unwrap())]);
    let mut below = vec![(top, String::new())];
    while let Some((dir, path)) = below.pop() {
        let each = &mut |entry: DirEntry<'_>, attr: Result<&Attr>| {
            let attr = attr.unwrap();
            let path = format!("{path}/{}", String::from_utf8_lossy(entry.name));
            if attr.kind == FileKind::Directory {
                below.push((attr.ino, path.clone()));
            }
            found.insert(path, *attr);
            true
        };
        volume.directories().readdirplus(dir, 2, each).unwrap();
    }
    found
}

/// Mode and lists of each inode.
type Lists = BTreeMap<String, (u32, [Option<Vec<u8>>; 2])>;

fn lists(volume: &Volume, top: Ino) -> Lists {
    let list = |ino, name| volume.attributes().getxattr(&Caller::root(), ino, name).ok();
    let about = |attr: &Attr| (attr.mode, [ACCESS, DEFAULT].map(|name| list(attr.ino, name)));
    inodes(volume, top).iter().map(|(path, attr)| (path.clone(), about(attr))).collect()
}

fn of_acl(acl: AclChange) -> TreeChange {
    TreeChange { acl: Some(acl), ..TreeChange::default() }
}

fn changes() -> [AclChange; 5] {
    let (access, default) = (AclChange::of_access, AclChange::of_default);
    [
        access().set("u:1000:rwX,g:7:rX,m::rwx").unwrap(),
        default().set("u:1000:rwX").unwrap(),
        access().remove("g:7").unwrap().set("o::-,u:1:x").unwrap(),
        default().set("g::-").unwrap().keep_mask(),
        access().clear(),
    ]
}

fn assert_clean(volume: &Volume) {
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, vec![], "{report:?}");
    let info = volume.info();
    assert_eq!((info.orphans, info.tree_changes), (0, 0));
}

#[test]
fn the_result_is_that_of_single_calls_also_after_a_crash_between_any_steps() {
    let who = Caller::root();
    for (step_records, attr_intents) in [(1, false), (7, false), (256, false), (7, true)] {
        let lab = Lab { step_records, attr_intents, ..Lab::default() };
        let options = OpenOptions { lab, ..common::options() };
        let (device, volume) = fresh(64 << 20, &options);
        let (_, single) = fresh(64 << 20, &options);
        let (top, top_of_single) = (tree(&volume), tree(&single));
        for change in changes() {
            let only_dirs = is_default(&change);
            for attr in inodes(&single, top_of_single).values() {
                let is_dir = attr.kind == FileKind::Directory;
                if attr.kind != FileKind::Symlink && (is_dir || !only_dirs) {
                    single.attributes().change_acl(&who, attr.ino, &change).unwrap();
                }
            }
            let expected = lists(&single, top_of_single);
            let images = Mutex::new(vec![]);
            let crash = |step: &TreeStep<'_>| {
                assert!(step.failures.is_empty());
                volume.sync().unwrap();
                images.lock().unwrap().push(common::copy(&device));
                ControlFlow::Continue(())
            };
            let tree_changes = volume.tree_changes();
            let done = tree_changes.change_tree(&who, top, &of_acl(change), 1, &crash).unwrap();
            let count = if only_dirs { 4 } else { 4 + 3 * 6 };
            assert_eq!((done.inodes, done.failures), (count, 0));
            assert_same(&lists(&volume, top), &expected);
            assert_clean(&volume);
            for image in images.into_inner().unwrap() {
                let volume = Volume::open_on(image, &options).unwrap();
                assert_same(&lists(&volume, top), &expected);
                assert_clean(&volume);
            }
        }
    }
}

fn assert_same(found: &Lists, expected: &Lists) {
    assert_eq!(found.len(), expected.len());
    for (path, lists) in expected {
        assert_eq!(found.get(path), Some(lists), "{path}");
    }
}

fn is_default(change: &AclChange) -> bool {
    format!("{change:?}").contains("default: true")
}

/// A directory with a list is a step of its own: a crash must not leave out its contents.
#[test]
fn a_crash_after_a_directory_with_a_list_leaves_out_nothing() {
    let who = Caller::root();
    for step_records in [1, 7, 256] {
        let (device, volume) = fresh(64 << 20, &steps_of(step_records));
        let top = tree(&volume);
        for attr in inodes(&volume, top).values() {
            if attr.kind == FileKind::Directory {
                let list = AclChange::of_access().set("u:1000:rwx").unwrap();
                volume.attributes().change_acl(&who, attr.ino, &list).unwrap();
            }
        }
        let images = Mutex::new(vec![]);
        let crash = |_: &TreeStep<'_>| {
            volume.sync().unwrap();
            images.lock().unwrap().push(common::copy(&device));
            ControlFlow::Continue(())
        };
        // Not idempotent: what is done again would differ too.
        let mode = ModeChange::parse("u=g,g=o,o=u");
        let change = TreeChange { mode, ..TreeChange::default() };
        volume.tree_changes().change_tree(&who, top, &change, 2, &crash).unwrap();
        let expected = lists(&volume, top);
        assert_ne!(expected["/d0/f640"].0 & 0o777, 0o640);
        for image in images.into_inner().unwrap() {
            let volume = Volume::open_on(image, &steps_of(step_records)).unwrap();
            assert_same(&lists(&volume, top), &expected);
            assert_clean(&volume);
        }
    }
}

#[test]
fn each_file_is_checked_and_a_list_that_cannot_be_is_reported() {
    let (_, volume) = fresh(64 << 20, &steps_of(3));
    let (who, ada) = (Caller::root(), Caller::user(1000, 1000));
    let top = volume.namespace().mkdir(&who, Ino::ROOT, b"top", 0o777).unwrap().ino;
    volume.namespace().create(&ada, top, b"own", 0o2640).unwrap();
    volume.namespace().create(&who, top, b"other", 0o644).unwrap();
    let named = of_acl(AclChange::of_access().set("u:5:rwx").unwrap());
    let none = |_: &TreeStep<'_>| ControlFlow::Continue(());
    let done = volume.tree_changes().change_tree(&ada, top, &named, 1, &none).unwrap();
    assert_eq!((done.inodes, done.failures), (1, 2));
    let found = lists(&volume, top);
    assert!(found["/own"].1[0].is_some() && found["/other"].1[0].is_none());
    // The mask of a list with named entries cannot go.
    let codes = Mutex::new(vec![]);
    let note = |step: &TreeStep<'_>| {
        codes.lock().unwrap().extend(step.failures.iter().map(|failure| failure.error.code()));
        ControlFlow::Continue(())
    };
    let no_mask = of_acl(AclChange::of_access().remove("m").unwrap());
    let done = volume.tree_changes().change_tree(&who, top, &no_mask, 1, &note).unwrap();
    assert_eq!((done.inodes, done.failures), (2, 1));
    assert_eq!(*codes.lock().unwrap(), [Code::Invalid]);
    assert_eq!(lists(&volume, top)["/own"], found["/own"]);
    // A list is changed by itself, and has at most as many changes as a state has room for.
    let both = TreeChange { uid: Some(5), ..named.clone() };
    let call = |change: &TreeChange| {
        volume.tree_changes().change_tree(&who, top, change, 1, &none).unwrap_err().code()
    };
    assert_eq!(call(&both), Code::Invalid);
    let long = vec!["u:5:r"; 25].join(",");
    assert_eq!(call(&of_acl(AclChange::of_access().set(&long).unwrap())), Code::TooBig);
    let file = volume.namespace().lookup(&who, top, b"own").unwrap().ino;
    let default = AclChange::of_default().set("u:5:r").unwrap();
    let error = volume.attributes().change_acl(&who, file, &default).unwrap_err();
    assert_eq!(error.code(), Code::Access);
    assert_clean(&volume);
}

/// A user may give a file the longest list that there is.
#[test]
fn the_longest_list_cannot_get_longer() {
    let (_, volume) = fresh(64 << 20, &common::options());
    let who = Caller::root();
    let top = volume.namespace().mkdir(&who, Ino::ROOT, b"top", 0o777).unwrap().ino;
    let file = volume.namespace().create(&who, top, b"file", 0o644).unwrap().ino;
    let mut list = 2_u32.to_le_bytes().to_vec();
    let named = (0..8187).map(|id| (2_u16, id));
    for (tag, id) in [(1, !0)].into_iter().chain(named).chain([(4, !0), (16, !0), (32, !0)]) {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&4_u16.to_le_bytes());
        list.extend_from_slice(&u32::to_le_bytes(id));
    }
    volume.attributes().setxattr(&who, file, ACCESS, &list, ANY).unwrap();
    let change = AclChange::of_access().set("u:9999:r").unwrap();
    let error = volume.attributes().change_acl(&who, file, &change).unwrap_err();
    assert_eq!(error.code(), Code::TooBig);
    let none = |_: &TreeStep<'_>| ControlFlow::Continue(());
    let done = volume.tree_changes().change_tree(&who, top, &of_acl(change), 1, &none).unwrap();
    assert_eq!((done.inodes, done.failures), (1, 1));
    assert_eq!(volume.attributes().getxattr(&who, file, ACCESS).unwrap(), list);
    let other = AclChange::of_access().set("u:5:rwx").unwrap();
    let done = volume.tree_changes().change_tree(&who, top, &of_acl(other), 1, &none).unwrap();
    assert_eq!((done.inodes, done.failures), (2, 0));
    assert_clean(&volume);
}

#[test]
fn on_a_full_volume_files_are_reported_and_the_change_ends() {
    let (_, volume) = fresh(16 << 20, &common::options());
    let who = Caller::root();
    let top = volume.namespace().mkdir(&who, Ino::ROOT, b"top", 0o755).unwrap().ino;
    for n in 0..50 {
        volume.namespace().create(&who, top, format!("{n}").as_bytes(), 0o644).unwrap();
    }
    // It has no list, so that it is no failure.
    volume.namespace().symlink(&who, top, b"link", b"0").unwrap();
    let large = volume.namespace().create(&who, Ino::ROOT, b"large", 0o600).unwrap().ino;
    let (mut at, piece) = (0, vec![9; 64 << 10]);
    while volume.files().write(large, at, &piece, false).is_ok() {
        at += piece.len() as u64;
    }
    let change = of_acl(AclChange::of_access().set("u:5:rwx").unwrap());
    let codes = Mutex::new(vec![]);
    let note = |step: &TreeStep<'_>| {
        codes.lock().unwrap().extend(step.failures.iter().map(|failure| failure.error.code()));
        ControlFlow::Continue(())
    };
    let done = volume.tree_changes().change_tree(&who, top, &change, 1, &note).unwrap();
    assert_eq!(done.inodes + done.failures, 51);
    let codes = codes.into_inner().unwrap();
    assert!(codes.len() as u64 == done.failures && codes.iter().all(|c| *c == Code::NoSpace));
    assert_clean(&volume);
}
