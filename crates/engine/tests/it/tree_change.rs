//! Changes of all inodes below a directory: the result is that of single calls, and a crash between
//! any two steps neither leaves out nor repeats anything.

use crate::common;
use crate::common::rng;

use shoal_engine::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const ANY: XattrFlags = XattrFlags { create: false, replace: false, clear_set_group_id: false };

fn lab(lab: Lab) -> OpenOptions {
    OpenOptions { lab, ..common::options() }
}

fn steps_of(step_records: usize) -> OpenOptions {
    lab(Lab { step_records, ..Lab::default() })
}

fn fresh(options: &OpenOptions) -> (Arc<MemDevice>, Volume) {
    let device = Arc::new(MemDevice::new(64 << 20));
    let mkfs = MkfsOptions { root_mode: 0o777, ..MkfsOptions::default() };
    mkfs_on(device.clone(), &mkfs).unwrap();
    let volume = Volume::open_on(device.clone(), options).unwrap();
    (device, volume)
}

fn mkdir(volume: &Volume, dir: Ino, name: &str, mode: u32) -> Ino {
    volume.namespace().mkdir(&Caller::root(), dir, name.as_bytes(), mode).unwrap().ino
}

fn create(volume: &Volume, dir: Ino, name: &str, mode: u32) -> Ino {
    volume.namespace().create(&Caller::root(), dir, name.as_bytes(), mode).unwrap().ino
}

fn mode_of(text: &str) -> TreeChange {
    TreeChange { mode: ModeChange::parse(text), ..TreeChange::default() }
}

fn owner(uid: u32, gid: u32) -> TreeChange {
    TreeChange { uid: Some(uid), gid: Some(gid), ..TreeChange::default() }
}

/// Makes a change without looking at its progress.
fn change(volume: &Volume, who: &Caller, dir: Ino, change: &TreeChange) -> TreeChanged {
    let none = |_: &TreeStep<'_>| ControlFlow::Continue(());
    volume.tree_changes().change_tree(who, dir, change, 1, &none).unwrap()
}

/// Returns every name below a directory with mode and owner of its inode.
fn everything(volume: &Volume, top: Ino) -> BTreeMap<String, (u32, u32, u32)> {
    let mut found = BTreeMap::new();
    let mut below = vec![(top, String::new())];
    let about = |attr: &Attr| (attr.mode, attr.uid, attr.gid);
    found.insert(String::new(), about(&volume.attributes().getattr(top).unwrap()));
    while let Some((dir, path)) = below.pop() {
        let each = &mut |entry: DirEntry<'_>, attr: Result<&Attr>| {
            let attr = attr.unwrap();
            let path = format!("{path}/{}", String::from_utf8_lossy(entry.name));
            if attr.kind == FileKind::Directory {
                below.push((attr.ino, path.clone()));
            }
            found.insert(path, about(attr));
            true
        };
        volume.directories().readdirplus(dir, 2, each).unwrap();
    }
    found
}

fn assert_clean(volume: &Volume) {
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, vec![], "{report:?}");
    let info = volume.info();
    assert_eq!((info.orphans, info.tree_changes), (0, 0));
}

/// A tree with files of many modes, a hard link, symlinks, and directories deeper than a state has
/// levels. Returns its top and the number of names, with that of the top.
fn tree(volume: &Volume) -> (Ino, u64) {
    let top = mkdir(volume, Ino::ROOT, "top", 0o750);
    let (mut dir, mut names) = (top, 1);
    for depth in 0..30_u32 {
        for file in 0..3_u32 {
            create(volume, dir, &format!("f{file}"), (depth * 31 + file * 97) % 0o1000);
            names += 1;
        }
        if depth % 10 == 0 {
            volume.namespace().symlink(&Caller::root(), dir, b"link", b"f0").unwrap();
            let empty = mkdir(volume, dir, "empty", 0o700);
            create(volume, empty, "x", 0o640);
            names += 3;
        }
        dir = mkdir(volume, dir, "d", 0o700 | depth);
        names += 1;
    }
    let linked = create(volume, top, "linked", 0o641);
    volume.namespace().link(&Caller::root(), linked, dir, b"again").unwrap();
    (top, names + 2)
}

/// Returns what single calls make of these names: for each name once.
fn changed_once(
    before: &BTreeMap<String, (u32, u32, u32)>,
    mode: &ModeChange,
) -> BTreeMap<String, (u32, u32, u32)> {
    let apply = |mode_now: u32| mode_now & !0o7777 | mode.apply(mode_now, is_dir(mode_now), 0);
    let change = |(path, (mode, uid, gid)): (&String, &(u32, u32, u32))| {
        let twice = path == "/linked" || path.ends_with("/again");
        let new = match *mode & 0o170_000 == 0o120_000 {
            true => *mode,
            false if twice => apply(apply(*mode)),
            false => apply(*mode),
        };
        (path.clone(), (new, *uid, *gid))
    };
    before.iter().map(change).collect()
}

fn is_dir(mode: u32) -> bool {
    mode & 0o170_000 == 0o040_000
}

#[test]
fn a_crash_between_any_two_steps_repeats_and_leaves_out_nothing() {
    // Not idempotent: the bits move from class to class.
    let rotate = "u=g,g=o,o=u";
    for (step_records, attr_intents) in [(1, false), (7, false), (50, false), (7, true)] {
        let options = lab(Lab { step_records, attr_intents, ..Lab::default() });
        let (device, volume) = fresh(&options);
        let (top, names) = tree(&volume);
        let before = everything(&volume, top);
        let images = Mutex::new(vec![]);
        let crash = |_: &TreeStep<'_>| {
            volume.sync().unwrap();
            images.lock().unwrap().push(common::copy(&device));
            ControlFlow::Continue(())
        };
        let change = mode_of(rotate);
        let done =
            volume.tree_changes().change_tree(&Caller::root(), top, &change, 1, &crash).unwrap();
        let links = before.values().filter(|(mode, ..)| *mode & 0o170_000 == 0o120_000).count();
        assert_eq!((done.inodes, done.failures), (names - links as u64, 0));
        let expected = changed_once(&before, change.mode.as_ref().unwrap());
        assert!(everything(&volume, top) == expected, "steps of {step_records}");
        assert_clean(&volume);
        let images = images.into_inner().unwrap();
        let fewest = names.div_ceil(step_records as u64);
        assert!(images.len() as u64 >= fewest, "{} steps, {names} names", images.len());
        for (at, image) in images.into_iter().enumerate() {
            let volume = Volume::open_on(image, &options).unwrap();
            assert!(everything(&volume, top) == expected, "step {at} of {step_records}");
            assert_clean(&volume);
        }
    }
}

#[test]
fn threads_change_each_inode_once() {
    let options = OpenOptions { background: true, ..steps_of(5) };
    let (_, volume) = fresh(&options);
    let (top, _) = tree(&volume);
    for n in 0..200 {
        let dir = mkdir(&volume, top, &format!("more{n}"), 0o710);
        (0..20).for_each(|file| {
            create(&volume, dir, &file.to_string(), 0o640);
        });
    }
    let before = everything(&volume, top);
    let change = mode_of("u=g,g=o,o=u");
    let (sum, none) = (AtomicU64::new(0), |_: &TreeStep<'_>| ControlFlow::Continue(()));
    for _ in 0..3 {
        let done =
            volume.tree_changes().change_tree(&Caller::root(), top, &change, 4, &none).unwrap();
        sum.fetch_add(done.inodes, Ordering::Relaxed);
    }
    let mode = change.mode.as_ref().unwrap();
    let expected = (0..3).fold(before.clone(), |now, _| changed_once(&now, mode));
    assert!(everything(&volume, top) == expected);
    let links = before.values().filter(|(mode, ..)| *mode & 0o170_000 == 0o120_000).count();
    assert_eq!(sum.into_inner(), 3 * (before.len() - links) as u64);
    assert_clean(&volume);
}

#[test]
fn ordinary_users_change_what_they_may() {
    let (_, volume) = fresh(&steps_of(3));
    let top = mkdir(&volume, Ino::ROOT, "top", 0o777);
    let ada = Caller::user(1000, 1000);
    let own = volume.namespace().mkdir(&ada, top, b"own", 0o300).unwrap().ino;
    volume.namespace().create(&ada, own, b"file", 0o600).unwrap();
    let closed = mkdir(&volume, top, "closed", 0o700);
    create(&volume, closed, "secret", 0o600);
    for n in 0..10 {
        create(&volume, top, &format!("other{n}"), 0o644);
    }
    let failures = Mutex::new(BTreeMap::new());
    let note = |step: &TreeStep<'_>| {
        let mut failures = failures.lock().unwrap();
        for failure in step.failures {
            let path = String::from_utf8(failure.path.clone()).unwrap();
            failures.entry(path).or_insert_with(Vec::new).push(failure.error.code());
        }
        ControlFlow::Continue(())
    };
    let run = |text: &str| {
        let change = mode_of(text);
        volume.tree_changes().change_tree(&ada, top, &change, 2, &note).unwrap()
    };
    // The directory that cannot be listed is changed first, and can then be.
    let done = run("u+rwx");
    assert_eq!((done.inodes, done.failures), (2, 13), "{failures:?}");
    let found = everything(&volume, top);
    assert_eq!(found["/own"].0 & 0o7777, 0o700);
    assert_eq!(found["/own/file"].0 & 0o7777, 0o700);
    assert_eq!(found["/closed/secret"].0 & 0o7777, 0o600);
    let seen = std::mem::take(&mut *failures.lock().unwrap());
    assert_eq!(seen[""], [Code::NotPermitted]);
    assert_eq!(seen["other3"], [Code::NotPermitted]);
    assert_eq!(seen["closed"], [Code::NotPermitted, Code::Access]);
    assert!(!seen.contains_key("closed/secret") && !seen.contains_key("own"));
    // The other way round: nothing in it can be reached any more.
    let done = run("u-x");
    assert_eq!((done.inodes, done.failures), (1, 14));
    assert_eq!(failures.lock().unwrap()["own"], [Code::Access]);
    // A group can be given only if the user is in it, and set-id bits go.
    let change = TreeChange { gid: Some(55), ..TreeChange::default() };
    let none = |_: &TreeStep<'_>| ControlFlow::Continue(());
    let group = Caller { groups: Arc::from([55]), ..ada.clone() };
    run("u+x,g+s");
    let denied = volume.tree_changes().change_tree(&ada, own, &change, 1, &none).unwrap();
    assert_eq!((denied.inodes, denied.failures), (0, 2));
    let done = volume.tree_changes().change_tree(&group, own, &change, 1, &none).unwrap();
    assert_eq!((done.inodes, done.failures), (2, 0));
    assert_eq!(everything(&volume, own)["/file"].2, 55);
    assert_clean(&volume);
}

#[test]
fn a_crash_keeps_the_rights_of_the_caller() {
    let (device, volume) = fresh(&steps_of(1));
    let top = mkdir(&volume, Ino::ROOT, "top", 0o777);
    let ada = Caller { groups: Arc::from([7, 55]), ..Caller::user(1000, 1000) };
    for n in 0..8 {
        let who = if n % 2 == 0 { &ada } else { &Caller::root() };
        volume.namespace().create(who, top, format!("f{n}").as_bytes(), 0o644).unwrap();
    }
    let image = Mutex::new(None);
    let crash = |_: &TreeStep<'_>| {
        volume.sync().unwrap();
        image.lock().unwrap().get_or_insert_with(|| common::copy(&device));
        ControlFlow::Continue(())
    };
    let change = TreeChange { gid: Some(55), ..TreeChange::default() };
    volume.tree_changes().change_tree(&ada, top, &change, 1, &crash).unwrap();
    let found = everything(&volume, top);
    assert_eq!((found["/f0"].2, found["/f1"].2, found[""].2), (55, 0, 0));
    let again = Volume::open_on(image.into_inner().unwrap().unwrap(), &steps_of(1)).unwrap();
    assert!(everything(&again, top) == found);
    assert_clean(&again);
}

#[test]
fn lists_and_capabilities_follow() {
    let (_, volume) = fresh(&common::options());
    let top = mkdir(&volume, Ino::ROOT, "top", 0o755);
    let attributes = volume.attributes();
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in [(1, 7, !0), (2, 7, 5), (4, 5, !0), (16, 7, !0), (32, 0, !0_u32)] {
        list.extend_from_slice(&u16::to_le_bytes(tag));
        list.extend_from_slice(&u16::to_le_bytes(perm));
        list.extend_from_slice(&u32::to_le_bytes(id));
    }
    let acl = b"system.posix_acl_access";
    for n in 0..40 {
        let file = create(&volume, top, &n.to_string(), 0o6755);
        if n % 3 == 0 {
            attributes.setxattr(&Caller::root(), file, acl, &list, ANY).unwrap();
        }
        if n % 4 == 0 {
            attributes
                .setxattr(&Caller::root(), file, b"security.capability", b"cap", ANY)
                .unwrap();
        }
    }
    assert_eq!(change(&volume, &Caller::root(), top, &mode_of("g=r")).inodes, 41);
    let three = volume.namespace().lookup(&Caller::root(), top, b"3").unwrap().ino;
    let raw = attributes.getxattr(&Caller::root(), three, acl).unwrap();
    assert_eq!(raw[4 + 3 * 8 + 2], 4, "the mask is the group class");
    assert_eq!(attributes.getattr(three).unwrap().mode & 0o777, 0o740);
    assert_eq!(change(&volume, &Caller::root(), top, &owner(3, 4)).inodes, 41);
    for n in 0..40 {
        let name = n.to_string();
        let file = volume.namespace().lookup(&Caller::root(), top, name.as_bytes()).unwrap();
        assert_eq!((file.uid, file.gid), (3, 4));
        assert_eq!(file.mode & 0o4000, 0, "a change of the owner clears the set-user-ID bit");
        let found = attributes.getxattr(&Caller::root(), file.ino, b"security.capability");
        assert_eq!(found.unwrap_err().code(), Code::NoData);
    }
    assert_clean(&volume);
}

#[test]
fn times_and_a_single_file() {
    let (_, volume) = fresh(&common::options());
    let (top, names) = tree(&volume);
    let to = Time { sec: 1234, nsec: 5 };
    let touch = TreeChange { mtime: Some(SetTime::To(to)), ..TreeChange::default() };
    assert_eq!(change(&volume, &Caller::root(), top, &touch).inodes, names);
    let file = volume.namespace().lookup(&Caller::root(), top, b"f1").unwrap().ino;
    assert_eq!(volume.attributes().getattr(file).unwrap().mtime, to);
    assert_eq!(change(&volume, &Caller::root(), file, &owner(9, 9)).inodes, 1);
    assert_eq!(volume.attributes().getattr(file).unwrap().uid, 9);
    let wrong = TreeChange {
        mtime: Some(SetTime::To(Time { sec: 0, nsec: 1_000_000_000 })),
        ..TreeChange::default()
    };
    let none = |_: &TreeStep<'_>| ControlFlow::Continue(());
    let call = |who: &Caller, change: &TreeChange| {
        volume.tree_changes().change_tree(who, top, change, 1, &none).unwrap_err().code()
    };
    assert_eq!(call(&Caller::root(), &wrong), Code::Invalid);
    let many = Caller { groups: (0..500).collect(), ..Caller::user(1, 1) };
    assert_eq!(call(&many, &owner(1, 1)), Code::TooBig);
    let long = vec!["u+r"; 100].join(",");
    assert_eq!(call(&Caller::root(), &mode_of(&long)), Code::TooBig);
    assert_clean(&volume);
}

#[test]
fn subvolumes_below_are_changed_too() {
    let (_, volume) = fresh(&steps_of(4));
    create(&volume, Ino::ROOT, "a", 0o600);
    let sub = volume.subvolumes().create(&Caller::root(), b"sub", 0o755).unwrap().ino;
    let dir = mkdir(&volume, sub, "dir", 0o755);
    (0..20).for_each(|n| {
        create(&volume, dir, &n.to_string(), 0o600);
    });
    assert_eq!(change(&volume, &Caller::root(), Ino::ROOT, &owner(5, 6)).inodes, 24);
    assert!(everything(&volume, Ino::ROOT).values().all(|(_, uid, gid)| (*uid, *gid) == (5, 6)));
    assert_clean(&volume);
}

#[test]
fn a_cancelled_change_leaves_nothing_behind() {
    let (device, volume) = fresh(&steps_of(2));
    let (top, names) = tree(&volume);
    let cancel = |step: &TreeStep<'_>| match step.inodes < 60 {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    let done =
        volume.tree_changes().change_tree(&Caller::root(), top, &owner(5, 5), 1, &cancel).unwrap();
    assert!(done.cancelled && (60..names).contains(&done.inodes));
    let found = everything(&volume, top);
    let changed = found.values().filter(|(_, uid, _)| *uid == 5).count() as u64;
    // Two names may be those of one inode.
    assert!((done.inodes..=done.inodes + 1).contains(&changed), "{changed} of {}", done.inodes);
    assert_clean(&volume);
    volume.sync().unwrap();
    let again = Volume::open_on(common::copy(&device), &steps_of(2)).unwrap();
    assert!(everything(&again, top) == found);
    assert_clean(&again);
}

/// A call that leaves its change midway: the rest is made once, by the session or the next one.
#[test]
fn a_change_that_is_left_is_continued() {
    let (device, volume) = fresh(&steps_of(2));
    let (top, names) = tree(&volume);
    let beside = create(&volume, Ino::ROOT, "beside", 0o600);
    volume.sync().unwrap();
    // Made twice it would be another one.
    let shift = mode_of("u=g,g=o,o=");
    let wanted = {
        let whole = Volume::open_on(common::copy(&device), &steps_of(2)).unwrap();
        change(&whole, &Caller::root(), top, &shift);
        everything(&whole, top)
    };
    for after in [0, 1, 60] {
        let volume = Volume::open_on(common::copy(&device), &steps_of(2)).unwrap();
        let begun = AtomicU64::new(0);
        let watch = |step: &TreeStep<'_>| {
            begun.store(step.inodes, Ordering::Relaxed);
            ControlFlow::Continue(())
        };
        let changes = volume.tree_changes();
        let leave = || begun.load(Ordering::Relaxed) > after;
        let left = changes.change_tree_until(&Caller::root(), top, &shift, 2, &watch, &leave);
        assert!(left.is_err_and(|error| error.is(Code::Again)));
        assert!(begun.load(Ordering::Relaxed) < names);
        // The next call completes it first.
        change(&volume, &Caller::root(), beside, &owner(5, 5));
        assert!(everything(&volume, top) == wanted, "{after}");
        assert_clean(&volume);
    }
    let changes = volume.tree_changes();
    let none = |_: &TreeStep<'_>| ControlFlow::Continue(());
    let left = changes.change_tree_until(&Caller::root(), top, &shift, 1, &none, &|| true);
    assert!(left.is_err_and(|error| error.is(Code::Again)), "nothing is begun");
    assert!(everything(&volume, top) != wanted);
}

#[test]
fn who_keeps_attributes_is_told() {
    let (_, volume) = fresh(&steps_of(3));
    let (top, _) = tree(&volume);
    let held = volume.namespace().lookup(&Caller::root(), top, b"f1").unwrap().ino;
    volume.references().hold(held, 1).unwrap();
    let told = Arc::new(Mutex::new(vec![]));
    let all = told.clone();
    volume.references().watch_links(move |inodes, teller| {
        assert_eq!(teller, Teller::Call);
        all.lock().unwrap().extend_from_slice(inodes);
    });
    change(&volume, &Caller::root(), top, &owner(5, 5));
    assert_eq!(*told.lock().unwrap(), [held]);
    volume.references().release(held, 1);
    assert_clean(&volume);
}

#[test]
fn a_repair_leaves_a_sound_volume_and_orphans_tell_the_state() {
    for inode_size in [256, 512] {
        let device = Arc::new(MemDevice::new(64 << 20));
        let mkfs = MkfsOptions { inode_size, ..MkfsOptions::default() };
        mkfs_on(device.clone(), &mkfs).unwrap();
        let volume = Volume::open_on(device.clone(), &steps_of(2)).unwrap();
        let (top, names) = tree(&volume);
        let image = Mutex::new(None);
        let crash = |step: &TreeStep<'_>| {
            let infos = volume.references().orphan_list();
            assert!(infos.iter().all(|info| info.state == OrphanState::Changing), "{infos:?}");
            volume.sync().unwrap();
            if step.inodes > names / 2 {
                image.lock().unwrap().get_or_insert_with(|| common::copy(&device));
            }
            ControlFlow::Continue(())
        };
        volume.tree_changes().change_tree(&Caller::root(), top, &owner(5, 5), 1, &crash).unwrap();
        let image = image.into_inner().unwrap().unwrap();
        let looked = OpenOptions { read_only: true, ..steps_of(2) };
        let again = Volume::open_on(image.clone(), &looked).unwrap();
        assert!(again.info().tree_changes > 0);
        drop(again);
        let report = common::repair(&image);
        let again = Volume::open_on(image, &steps_of(2)).unwrap();
        assert_clean(&again);
        // A repair keeps the state, too: the change is completed.
        assert!(everything(&again, top).values().all(|(_, uid, _)| *uid == 5), "{report:?}");
    }
}

#[test]
fn the_next_call_completes_what_is_left_first() {
    let (device, volume) = fresh(&steps_of(2));
    let (top, _) = tree(&volume);
    let image = Mutex::new(None);
    let crash = |_: &TreeStep<'_>| {
        volume.sync().unwrap();
        image.lock().unwrap().get_or_insert_with(|| common::copy(&device));
        ControlFlow::Continue(())
    };
    volume.tree_changes().change_tree(&Caller::root(), top, &owner(5, 5), 1, &crash).unwrap();
    let image = image.into_inner().unwrap().unwrap();
    // With background threads both continue it.
    let options = OpenOptions { background: true, ..steps_of(2) };
    let again = Volume::open_on(image, &options).unwrap();
    change(&again, &Caller::root(), top, &owner(6, 6));
    assert!(everything(&again, top).values().all(|(_, uid, _)| *uid == 6));
    assert_eq!(again.info().tree_changes, 0);
    again.close().unwrap();
}

struct Stopping<'s>(&'s AtomicU64);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(1, Ordering::Relaxed);
    }
}

#[test]
fn concurrent_removals_and_renames_do_not_disturb() {
    let options = OpenOptions { background: true, ..steps_of(16) };
    let (_, volume) = fresh(&options);
    let (top, _) = tree(&volume);
    let stays = mkdir(&volume, top, "stays", 0o755);
    (0..2000).for_each(|n| {
        create(&volume, stays, &n.to_string(), 0o600);
    });
    let stop = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (stop, volume) = (&stop, &volume);
        // Also when an assertion fails.
        let _stopping = Stopping(stop);
        scope.spawn(move || {
            let busy = mkdir(volume, top, "busy", 0o755);
            let (root, names) = (Caller::root(), volume.namespace());
            while stop.load(Ordering::Relaxed) == 0 {
                create(volume, busy, "a", 0o600);
                names.rename(&root, busy, b"a", stays, b"moved", RenameFlags::default()).unwrap();
                names.unlink(&root, stays, b"moved").unwrap();
                mkdir(volume, busy, "dir", 0o755);
                names.rename(&root, busy, b"dir", top, b"dir", RenameFlags::default()).unwrap();
                names.rmdir(&root, top, b"dir").unwrap();
            }
        });
        for uid in 1..20 {
            let none = |_: &TreeStep<'_>| ControlFlow::Continue(());
            let done =
                volume.tree_changes().change_tree(&Caller::root(), top, &owner(uid, uid), 2, &none);
            assert_eq!(done.unwrap().failures, 0);
            assert!(
                everything(volume, stays).iter().all(|(path, it)| path == "/moved" || it.1 == uid)
            );
        }
    });
    while volume.maintenance().reap_some().unwrap() {}
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, vec![], "{report:?}");
}

#[test]
fn a_full_volume_can_be_changed() {
    let (_, volume) = fresh(&steps_of(8));
    let (top, names) = tree(&volume);
    let full = create(&volume, Ino::ROOT, "full", 0o600);
    let mut noise = rng::Rng(3);
    let bytes: Vec<u8> = (0..1 << 20).map(|_| noise.below(256) as u8).collect();
    let mut at = 0;
    while let Ok(len) = volume.files().write(full, at, &bytes, false) {
        at += len as u64;
    }
    let none = |_: &TreeStep<'_>| ControlFlow::Continue(());
    let call = |change: &TreeChange| {
        volume.tree_changes().change_tree(&Caller::root(), top, change, 1, &none)
    };
    match call(&owner(7, 7)) {
        Ok(done) => assert_eq!(done.inodes, names),
        Err(error) => {
            // Refused before the first change.
            assert_eq!(error.code(), Code::NoSpace);
            assert!(everything(&volume, top).values().all(|(_, uid, _)| *uid == 0));
            volume.namespace().unlink(&Caller::root(), Ino::ROOT, b"full").unwrap();
            assert_eq!(call(&owner(7, 7)).unwrap().inodes, names);
        }
    }
    assert_clean(&volume);
}
