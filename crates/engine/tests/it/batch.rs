//! Batches: the result must be that of the single calls, or no change, for readers and after a
//! crash.

use crate::common::rng::Rng;
use crate::common::*;
use shoal_engine::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A change with owned arguments.
#[derive(Clone, Debug)]
enum Owned {
    File(String, u32, Vec<u8>, bool),
    Dir(String, u32),
    Symlink(String, String),
    Link(String, String),
    Rename(String, String, RenameFlags),
    Remove(String),
    RemoveDir(String),
    SetAttr(String, SetAttr),
    Xattr(String, &'static str, Option<Vec<u8>>),
}

impl Owned {
    fn op(&self) -> BatchOp<'_> {
        match self {
            Owned::File(path, mode, contents, replace) => {
                let (path, replace) = (path.as_bytes(), *replace);
                BatchOp::File { path, mode: *mode, contents, replace }
            }
            Owned::Dir(path, mode) => BatchOp::Dir { path: path.as_bytes(), mode: *mode },
            Owned::Symlink(path, target) => {
                BatchOp::Symlink { path: path.as_bytes(), target: target.as_bytes() }
            }
            Owned::Link(from, to) => BatchOp::Link { from: from.as_bytes(), to: to.as_bytes() },
            Owned::Rename(from, to, flags) => {
                BatchOp::Rename { from: from.as_bytes(), to: to.as_bytes(), flags: *flags }
            }
            Owned::Remove(path) => BatchOp::Remove { path: path.as_bytes() },
            Owned::RemoveDir(path) => BatchOp::RemoveDir { path: path.as_bytes() },
            Owned::SetAttr(path, set) => BatchOp::SetAttr { path: path.as_bytes(), set: *set },
            Owned::Xattr(path, name, value) => {
                let (path, name) = (path.as_bytes(), name.as_bytes());
                BatchOp::SetXattr { path, name, value: value.as_deref() }
            }
        }
    }

    /// Performs the equivalent single calls.
    fn alone(&self, volume: &Volume, who: &Caller) -> Result<()> {
        fn at<'p>(volume: &Volume, who: &Caller, path: &'p str) -> Result<(Ino, &'p [u8])> {
            volume.namespace().parent_beneath(who, Ino::ROOT, path.as_bytes())
        }
        let at = |path| at(volume, who, path);
        match self {
            Owned::File(path, mode, contents, replace) => {
                let (dir, name) = at(path)?;
                let mut who = who.clone();
                let mut mode = *mode;
                if *replace && let Ok(old) = volume.namespace().lookup(&who, dir, name) {
                    match old.kind {
                        FileKind::Regular => {
                            volume.attributes().access(&who, old.ino, 2)?;
                            mode = old.mode & 0o777;
                            who.umask = 0;
                        }
                        FileKind::Directory => return Err(Code::IsDirectory.into()),
                        // It is replaced, whatever its permissions.
                        _ => {}
                    }
                    volume.namespace().unlink(&who, dir, name)?;
                }
                let file = volume.namespace().create(&who, dir, name, mode)?;
                assert_eq!(volume.files().write(file.ino, 0, contents, false)?, contents.len());
            }
            Owned::Dir(path, mode) => {
                let (dir, name) = at(path)?;
                volume.namespace().mkdir(who, dir, name, *mode)?;
            }
            Owned::Symlink(path, target) => {
                let (dir, name) = at(path)?;
                volume.namespace().symlink(who, dir, name, target.as_bytes())?;
            }
            Owned::Link(from, to) => {
                let (dir, name) = at(from)?;
                let file = volume.namespace().lookup(who, dir, name)?;
                let (dir, name) = at(to)?;
                volume.namespace().link(who, file.ino, dir, name)?;
            }
            Owned::Rename(from, to, flags) => {
                let (from_dir, from) = at(from)?;
                let (to_dir, to) = at(to)?;
                volume.namespace().rename(who, from_dir, from, to_dir, to, *flags)?;
            }
            Owned::Remove(path) => {
                let (dir, name) = at(path)?;
                volume.namespace().unlink(who, dir, name)?;
            }
            Owned::RemoveDir(path) => {
                let (dir, name) = at(path)?;
                volume.namespace().rmdir(who, dir, name)?;
            }
            Owned::SetAttr(path, set) => {
                let found =
                    volume.namespace().resolve_beneath(who, Ino::ROOT, path.as_bytes(), true)?;
                volume.attributes().setattr(who, found.ino, set)?;
            }
            Owned::Xattr(path, name, value) => {
                let found =
                    volume.namespace().resolve_beneath(who, Ino::ROOT, path.as_bytes(), true)?;
                let (ino, name, any) = (found.ino, name.as_bytes(), XattrFlags::default());
                match value {
                    Some(value) => volume.attributes().setxattr(who, ino, name, value, any)?,
                    None => volume.attributes().removexattr(who, ino, name)?,
                }
            }
        }
        Ok(())
    }
}

/// Returns a path of a few names, usually an existing one.
fn path(rng: &mut Rng, known: &[String]) -> String {
    if rng.below(3) > 0 && !known.is_empty() {
        return rng.pick(known).clone();
    }
    let long = "long-name-".repeat(20);
    let names = ["a", "b", "c", "d", &long, "link", "."];
    let above = match rng.below(3) {
        0 => String::new(),
        _ if known.is_empty() => String::new(),
        _ => format!("{}/", rng.pick(known)),
    };
    format!("{above}{}", rng.pick(&names))
}

/// Draws a change of permissions, of directories as a rule.
fn change_of_rights(rng: &mut Rng, known: &[String]) -> Owned {
    let modes =
        [0, 0o100, 0o300, 0o500, 0o600, 0o700, 0o710, 0o750, 0o755, 0o770, 0o777, 0o1777, 0o2775];
    let mode = [None, Some(*rng.pick(&modes)), Some(*rng.pick(&modes))][rng.below(3)];
    let uid = [None, None, None, Some(0), Some(1000), Some(1001)][rng.below(6)];
    let gid = [None, None, None, Some(1000), Some(1001), Some(2000)][rng.below(6)];
    Owned::SetAttr(path(rng, known), SetAttr { mode, uid, gid, ..SetAttr::default() })
}

/// Draws a change; of a hundred, so many are changes of permissions.
fn change(rng: &mut Rng, known: &[String], of_rights: usize) -> Owned {
    if rng.below(100) < of_rights {
        return change_of_rights(rng, known);
    }
    let contents = |rng: &mut Rng| {
        let len = *rng.pick(&[0, 1, 60, 300, 5000, 140_000, 400_000]);
        vec![rng.below(256) as u8; rng.below(len + 1)]
    };
    match rng.below(23) {
        0..=5 => Owned::File(path(rng, known), 0o640, contents(rng), rng.below(3) > 0),
        6..=8 => Owned::Dir(path(rng, known), *rng.pick(&[0o755, 0o777, 0o1777, 0o700])),
        9 => Owned::Symlink(path(rng, known), rng.pick(&["a", "b/c", "../d", "/a"]).to_string()),
        10 | 11 => Owned::Link(path(rng, known), path(rng, known)),
        12..=15 => {
            let flags = [
                RenameFlags::default(),
                RenameFlags::default(),
                RenameFlags { exchange: true, ..RenameFlags::default() },
                RenameFlags { noreplace: true, ..RenameFlags::default() },
                RenameFlags { whiteout: true, ..RenameFlags::default() },
            ];
            Owned::Rename(path(rng, known), path(rng, known), *rng.pick(&flags))
        }
        16 | 17 => Owned::Remove(path(rng, known)),
        18 => Owned::RemoveDir(path(rng, known)),
        20..=22 => {
            let names = ["user.a", "user.b", "security.c", "trusted.d", "other.e"];
            let (path, name) = (path(rng, known), *rng.pick(&names));
            let len = *rng.pick(&[0, 5, 60, 300, 1024, 1025, 9000]);
            let value = (rng.below(4) > 0).then(|| vec![rng.below(256) as u8; len]);
            Owned::Xattr(path, name, value)
        }
        _ => {
            let uid = [None, Some(1000), Some(0)][rng.below(3)];
            let set =
                SetAttr { mode: Some(0o600 + rng.below(64) as u32), uid, ..SetAttr::default() };
            Owned::SetAttr(path(rng, known), set)
        }
    }
}

/// Visible state of a file: type, mode, owner, links, size, space, contents or target, its names,
/// its extended attributes.
type Facts = (FileKind, u32, (u32, u32), u32, u64, u64, Vec<u8>, BTreeSet<Vec<u8>>, Xattrs);
type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

fn facts(volume: &Volume, ino: Ino) -> Facts {
    let attr = volume.attributes().getattr(ino).unwrap();
    let mut bytes = match attr.kind {
        FileKind::Regular => vec![0; attr.size as usize],
        FileKind::Symlink => volume.namespace().readlink(ino).unwrap(),
        _ => Vec::new(),
    };
    if attr.kind == FileKind::Regular {
        assert_eq!(volume.files().read(ino, 0, &mut bytes).unwrap(), bytes.len());
    }
    let paths = volume.paths().paths_of(ino).unwrap().into_iter().collect();
    let Attr { kind, mode, uid, gid, nlink, size, blocks, .. } = attr;
    (kind, mode, (uid, gid), nlink, size, blocks, bytes, paths, xattrs(volume, ino))
}

fn xattrs(volume: &Volume, ino: Ino) -> Xattrs {
    let (who, attributes) = (Caller::root(), volume.attributes());
    let names = attributes.listxattr(&who, ino).unwrap();
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| (name.to_vec(), attributes.getxattr(&who, ino, name).unwrap())).collect()
}

fn tree(volume: &Volume) -> BTreeMap<String, Facts> {
    fn walk(volume: &Volume, dir: Ino, above: &str, all: &mut BTreeMap<String, Facts>) {
        let mut entries = Vec::new();
        let mut each = |e: DirEntry<'_>| {
            entries.push((String::from_utf8(e.name.to_vec()).unwrap(), e.ino, e.kind));
            true
        };
        volume.directories().readdir(dir, 2, &mut each).unwrap();
        for (name, ino, kind) in entries {
            let path = format!("{above}{name}");
            all.insert(path.clone(), facts(volume, ino));
            if kind == FileKind::Directory {
                walk(volume, ino, &format!("{path}/"), all);
            }
        }
    }
    let mut all = BTreeMap::from([("/".to_owned(), facts(volume, Ino::ROOT))]);
    walk(volume, Ino::ROOT, "", &mut all);
    all
}

fn fresh() -> (Arc<MemDevice>, Volume) {
    let device = Arc::new(MemDevice::new(32 << 20));
    let make = MkfsOptions { root_mode: 0o777, ..MkfsOptions::default() };
    mkfs_on(device.clone(), &make).unwrap();
    let volume = open(&device);
    (device, volume)
}

fn assert_clean(volume: &Volume, why: &dyn std::fmt::Debug) {
    let report = volume.check(&mut |_, _| {}).unwrap();
    let first: Vec<_> = report.problems.iter().take(5).collect();
    assert!(first.is_empty(), "{first:?} after {why:?}");
}

fn find(volume: &Volume, path: &str) -> Ino {
    volume
        .namespace()
        .resolve_beneath(&Caller::root(), Ino::ROOT, path.as_bytes(), false)
        .unwrap()
        .ino
}

/// Draws a batch, and makes its changes one by one on `other`. Returns how that ends.
fn draw(
    rng: &mut Rng,
    known: &[String],
    other: &Volume,
    who: &Caller,
    of_rights: usize,
) -> (Vec<Owned>, Result<()>) {
    let (mut changes, mut expected) = (Vec::new(), Ok(()));
    let mut known = known.to_vec();
    for _ in 0..1 + rng.below(20) {
        let change = change(rng, &known, of_rights);
        match (change.alone(other, who), rng.below(16)) {
            (Ok(()), _) => {
                if let Owned::Dir(path, _) = &change {
                    known.push(path.clone());
                }
                changes.push(change);
            }
            // A batch that fails ends so: the others are not to be seen.
            (Err(e), 0) => {
                changes.push(change);
                expected = Err(e);
                break;
            }
            // Most are refused, for a name that is there or one that is not.
            (Err(_), _) => {}
        }
    }
    (changes, expected)
}

/// Gives a directory lists that name user 1000 and group 2000, with random permissions.
fn set_lists(rng: &mut Rng, volume: &Volume, path: &str) {
    let mut list = 2u32.to_le_bytes().to_vec();
    let entries = [(1u16, 0), (2, 1000), (4, 0), (8, 2000), (16, 0), (32, 0)];
    for (tag, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend((rng.below(8) as u16).to_le_bytes());
        list.extend(u32::to_le_bytes(if id == 0 { u32::MAX } else { id }));
    }
    let (dir, any) = (find(volume, path), XattrFlags::default());
    for name in [&b"system.posix_acl_access"[..], b"system.posix_acl_default"] {
        if rng.below(2) == 0 {
            volume.attributes().setxattr(&Caller::root(), dir, name, &list, any).unwrap();
        }
    }
}

fn caller(rng: &mut Rng, of_rights: usize) -> Caller {
    let umask = *rng.pick(&[0, 0o022, 0o077]);
    match rng.below(3) {
        0 => Caller { umask: 0o022, ..Caller::user(1000, 1000) },
        _ if of_rights == 0 => Caller::root(),
        1 => Caller { umask, groups: Arc::from([2000]), ..Caller::user(1000, 1000) },
        _ => Caller { umask, groups: Arc::from([1000, 2000]), ..Caller::user(1001, 1001) },
    }
}

/// Runs batches of a seed beside their single calls. Of a hundred changes, `of_rights` change
/// permissions; if there are any, all callers are ordinary users, and directories have lists.
fn run_seed(seed: u64, rounds: usize, of_rights: usize) -> (usize, usize) {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut device, mut volume) = fresh();
    let (mut done, mut refused) = (0, 0);
    for round in 0..rounds {
        let mut before = tree(&volume);
        let known: Vec<String> = before.keys().filter(|path| *path != "/").cloned().collect();
        let who = caller(&mut rng, of_rights);
        let is_dir = |path: &&String| before[*path].0 == FileKind::Directory;
        let dirs: Vec<&String> = known.iter().filter(is_dir).collect();
        if of_rights > 0 && rng.below(2) == 0 && !dirs.is_empty() {
            let dir = (*rng.pick(&dirs)).clone();
            set_lists(&mut rng, &volume, &dir);
            before = tree(&volume);
        }
        // Some files are open, and unlinked but in use.
        let held: Vec<Ino> =
            known.iter().filter(|_| rng.below(8) == 0).map(|path| find(&volume, path)).collect();
        held.iter().for_each(|ino| volume.references().hold(*ino, 1).unwrap());

        volume.sync().unwrap();
        let other = open(&copy(&device));
        let (changes, expected) = draw(&mut rng, &known, &other, &who, of_rights);
        let why = (seed, round, &who, &changes);
        let ops: Vec<BatchOp<'_>> = changes.iter().map(Owned::op).collect();
        let result = volume.batch(&who, Ino::ROOT, &ops);
        // The only unsupported case: two changes of an inode whose attributes do not fit.
        let twice =
            |e: &Error| e.code() == Code::NotSupported && e.to_string().contains("one change");
        match &expected {
            _ if result.as_ref().is_err_and(twice) => {
                assert_eq!(tree(&volume), before, "{why:?}");
                refused += 1;
            }
            Ok(()) => {
                assert_eq!(result, Ok(()), "{why:?}");
                assert_eq!(tree(&volume), tree(&other), "{why:?}");
                done += 1;
            }
            Err(e) => {
                let code = result.as_ref().err().map(Error::code);
                assert_eq!(code, Some(e.code()), "{why:?}: {result:?}");
                assert_eq!(tree(&volume), before, "{why:?}");
                refused += 1;
            }
        }
        let after = tree(&volume);
        // A crash: synced changes survive, and the batch is there as a whole or not at all.
        if rng.below(4) == 0 {
            volume.sync().unwrap();
        }
        let crashed = tree(&open(&copy(&device)));
        assert!(crashed == after || crashed == before, "{why:?}");
        held.iter().for_each(|ino| volume.references().release(*ino, 1));
        while volume.maintenance().reap_some().unwrap() {}
        assert_clean(&volume, &why);
        assert_eq!(tree(&volume), after, "{why:?}");
        // Sometimes continues with the recovered volume.
        if rng.below(5) == 0 {
            volume.sync().unwrap();
            let next = copy(&device);
            drop(volume);
            (volume, device) = (open(&next), next);
            assert_eq!(tree(&volume), after, "{why:?}");
            assert_clean(&volume, &why);
        }
    }
    (done, refused)
}

#[test]
fn a_batch_does_what_its_single_calls_do_or_nothing() {
    let seeds = std::env::var("SHOAL_BATCH_SEEDS").map_or(6, |n| n.parse().unwrap());
    let first = std::env::var("SHOAL_BATCH_SEED").map_or(1, |n| n.parse().unwrap());
    let (mut done, mut refused) = (0, 0);
    for seed in first..first + seeds {
        let counts = run_seed(seed, 60, 0);
        (done, refused) = (done + counts.0, refused + counts.1);
    }
    println!("{done} batches done, {refused} refused");
    assert!(done >= seeds as usize * 15 && refused >= seeds as usize * 5, "{done}, {refused}");
}

/// The same for ordinary users who change the permissions of directories and work in them after it:
/// later paths were walked with the permissions before the batch.
#[test]
fn a_batch_walks_with_the_permissions_that_it_has_set() {
    let seeds = std::env::var("SHOAL_BATCH_SEEDS").map_or(6, |n| n.parse().unwrap());
    let first = std::env::var("SHOAL_BATCH_SEED").map_or(1, |n| n.parse().unwrap());
    let (mut done, mut refused) = (0, 0);
    for seed in first..first + seeds {
        let counts = run_seed(seed, 60, 35);
        (done, refused) = (done + counts.0, refused + counts.1);
    }
    println!("{done} batches done, {refused} refused");
    assert!(done >= seeds as usize * 15 && refused >= seeds as usize * 5, "{done}, {refused}");
}

/// A name, a batch, and which change of it fails, if one does.
type Case<'a> = (&'a str, Vec<BatchOp<'a>>, Option<(usize, Code)>);

fn file(path: &str) -> BatchOp<'_> {
    BatchOp::File { path: path.as_bytes(), mode: 0o644, contents: b"", replace: true }
}

fn mode(path: &'static [u8], mode: u32) -> BatchOp<'static> {
    BatchOp::SetAttr { path, set: SetAttr { mode: Some(mode), ..SetAttr::default() } }
}

fn cases_of_changed_directories() -> Vec<Case<'static>> {
    use BatchOp::Link;
    vec![
        ("opened, then used", vec![mode(b"mine/shut", 0o700), file("mine/shut/new")], None),
        (
            "opened, and a path through it",
            vec![mode(b"mine/shut", 0o700), file("mine/shut/in/new")],
            None,
        ),
        (
            "closed, then used",
            vec![file("mine/open/new"), mode(b"mine/open", 0o600), file("mine/open/new")],
            Some((3, Code::Access)),
        ),
        (
            "closed, and a path through it",
            vec![file("mine/open/in/x"), mode(b"mine/open", 0), file("mine/open/in/y")],
            Some((3, Code::Access)),
        ),
        (
            "closed and opened",
            vec![mode(b"mine/open", 0), mode(b"mine/open", 0o700), file("mine/open/in/y")],
            None,
        ),
        (
            "not writable",
            vec![mode(b"mine/open", 0o500), file("mine/open/new")],
            Some((2, Code::Access)),
        ),
        (
            "of a closed directory nothing is known, not even what the batch made",
            vec![
                file("mine/open/new"),
                mode(b"mine/open", 0o600),
                Link { from: b"mine/open/new", to: b"mine/b" },
            ],
            Some((3, Code::Access)),
        ),
    ]
}

fn cases_of_new_and_sticky_directories() -> Vec<Case<'static>> {
    use BatchOp::{Dir, Remove, Rename};
    let flags = RenameFlags::default();
    vec![
        (
            "a new directory without search permission",
            vec![Dir { path: b"mine/new", mode: 0o600 }, file("mine/new/x")],
            Some((2, Code::Access)),
        ),
        (
            "a path through a new directory without search permission",
            vec![Dir { path: b"mine/new", mode: 0o600 }, Remove { path: b"mine/new/in/x" }],
            Some((2, Code::Access)),
        ),
        (
            "a new directory, closed under its new name",
            vec![
                Dir { path: b"mine/new", mode: 0o700 },
                file("mine/new/x"),
                Rename { from: b"mine/new", to: b"mine/other", flags },
                mode(b"mine/other", 0),
                Remove { path: b"mine/other/x" },
            ],
            Some((5, Code::Access)),
        ),
        (
            "sticky: what the batch has moved there is its owner's",
            vec![
                Rename { from: b"mine/open/theirs", to: b"sticky/moved", flags },
                Remove { path: b"sticky/mine" },
                Remove { path: b"sticky/moved" },
            ],
            Some((3, Code::NotPermitted)),
        ),
        (
            "another's",
            vec![mode(b"mine/open", 0o750), mode(b"theirs", 0o777)],
            Some((2, Code::NotPermitted)),
        ),
    ]
}

/// Named cases of permissions within a batch, of a user who owns `mine` and what is in it.
#[test]
fn permissions_within_a_batch_are_those_after_the_changes_before() {
    let (user, root) = (Caller::user(1000, 1000), Caller::root());
    let cases =
        cases_of_changed_directories().into_iter().chain(cases_of_new_and_sticky_directories());
    for (name, ops, fails) in cases {
        let (_device, volume) = fresh();
        let names = volume.namespace();
        let set = |ino, uid, mode| {
            let set =
                SetAttr { uid: Some(uid), gid: Some(uid), mode: Some(mode), ..SetAttr::default() };
            volume.attributes().setattr(&root, ino, &set).unwrap();
        };
        let dir = |above, name: &[u8], uid, mode| {
            let ino = names.mkdir(&root, above, name, 0o755).unwrap().ino;
            set(ino, uid, mode);
            ino
        };
        let mine = dir(Ino::ROOT, b"mine", 1000, 0o755);
        let shut = dir(mine, b"shut", 1000, 0);
        let open = dir(mine, b"open", 1000, 0o755);
        let sticky = dir(Ino::ROOT, b"sticky", 1001, 0o1777);
        dir(Ino::ROOT, b"theirs", 1001, 0o777);
        dir(shut, b"in", 1000, 0o755);
        dir(open, b"in", 1000, 0o755);
        for (dir, name, uid) in
            [(open, &b"theirs"[..], 1001), (sticky, b"mine", 1000), (sticky, b"theirs", 1001)]
        {
            set(names.create(&root, dir, name, 0o644).unwrap().ino, uid, 0o644);
        }
        let before = tree(&volume);
        let result = volume.batch(&user, Ino::ROOT, &ops);
        match (fails, result) {
            (None, Ok(())) => {}
            (Some((number, code)), Err(e)) => {
                assert_eq!(e.code(), code, "{name}: {e}");
                assert!(e.to_string().starts_with(&format!("change {number} of ")), "{name}: {e}");
                assert_eq!(tree(&volume), before, "{name}");
            }
            (_, result) => panic!("{name}: {result:?}"),
        }
        assert_clean(&volume, &name);
    }
}

/// A volume that fills up: each batch is there whole or refused for want of space, and removing
/// works to the end.
#[test]
fn a_full_volume_refuses_whole_batches() {
    let device = Arc::new(MemDevice::new(16 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let (volume, who) = (open(&device), Caller::root());
    let contents = vec![3; 60_000];
    let name = |n: usize| [format!("dir-{n}"), format!("dir-{n}/a"), format!("dir-{n}/b")];
    let mut made = 0;
    loop {
        let [dir, a, b] = name(made);
        let ops = [
            BatchOp::Dir { path: dir.as_bytes(), mode: 0o755 },
            BatchOp::File { path: a.as_bytes(), mode: 0o644, contents: &contents, replace: false },
            BatchOp::File { path: b.as_bytes(), mode: 0o644, contents: b"short", replace: false },
        ];
        let before = tree(&volume).len();
        match volume.batch(&who, Ino::ROOT, &ops) {
            Ok(()) => made += 1,
            Err(e) => {
                assert_eq!(e.code(), Code::NoSpace, "{e}");
                assert_eq!(tree(&volume).len(), before);
                break;
            }
        }
        assert!(made < 1000, "no end");
    }
    assert!(made > 20, "{made}");
    assert_clean(&volume, &made);
    for n in 0..made {
        let [dir, a, b] = name(n);
        let ops = [
            BatchOp::Remove { path: a.as_bytes() },
            BatchOp::Remove { path: b.as_bytes() },
            BatchOp::RemoveDir { path: dir.as_bytes() },
        ];
        volume.batch(&who, Ino::ROOT, &ops).unwrap();
    }
    assert_eq!(tree(&volume).len(), 1);
    assert_clean(&volume, &"all removed");
}

/// A batch is limited by its record and by its directories, and says so.
#[test]
fn a_batch_that_is_too_large_is_refused() {
    let (_device, volume) = fresh();
    let who = Caller::root();
    let dirs: Vec<String> = (0..2000).map(|n| format!("dir-{n}")).collect();
    for path in &dirs {
        let ops = [BatchOp::Dir { path: path.as_bytes(), mode: 0o755 }];
        volume.batch(&who, Ino::ROOT, &ops).unwrap();
    }
    let files: Vec<String> = dirs.iter().map(|dir| format!("{dir}/f")).collect();
    let ops: Vec<BatchOp<'_>> = files
        .iter()
        .map(|path| BatchOp::File {
            path: path.as_bytes(),
            mode: 0o644,
            contents: b"",
            replace: false,
        })
        .collect();
    let refused = volume.batch(&who, Ino::ROOT, &ops).unwrap_err();
    assert_eq!(refused.code(), Code::TooBig);
    assert!(refused.to_string().contains("1025 directories"), "{refused}");
    volume.batch(&who, Ino::ROOT, &ops[..1024]).unwrap();
    let symlink = vec![b'x'; 250];
    let names: Vec<String> = (0..4000).map(|n| format!("dir-7/link-{n}")).collect();
    let ops: Vec<BatchOp<'_>> = names
        .iter()
        .map(|path| BatchOp::Symlink { path: path.as_bytes(), target: &symlink })
        .collect();
    let refused = volume.batch(&who, Ino::ROOT, &ops).unwrap_err();
    assert_eq!(refused.code(), Code::TooBig);
    assert!(refused.to_string().contains("bytes of journal"), "{refused}");
    let largest = |name| volume.record_sizes().into_iter().find(|kind| kind.name == name).unwrap();
    volume.batch(&who, Ino::ROOT, &ops[..900]).unwrap();
    assert!(largest("batch").bytes_largest > 300_000, "{:?}", largest("batch"));
    assert_clean(&volume, &"large batches");
}

/// A file found by a batch may be removed before the batch has locked it, and its number may be
/// that of another file then.
#[test]
fn attributes_are_set_of_the_file_that_the_path_means() {
    let (_device, volume) = fresh();
    let who = Caller::root();
    let done = AtomicBool::new(false);
    let set = AtomicU64::new(0);
    let private = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    std::thread::scope(|scope| {
        let batches = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let change = [BatchOp::SetAttr { path: b"old", set: private }];
                match volume.batch(&who, Ino::ROOT, &change) {
                    Ok(()) => _ = set.fetch_add(1, Ordering::Relaxed),
                    Err(e) => assert!(matches!(e.code(), Code::NotFound | Code::Busy), "{e}"),
                }
            }
        });
        let _end = OnDrop(|| done.store(true, Ordering::Relaxed));
        let names = volume.namespace();
        for round in 0..4000 {
            let before = set.load(Ordering::Relaxed);
            let unseen = || set.load(Ordering::Relaxed) == before && !batches.is_finished();
            names.create(&who, Ino::ROOT, b"old", 0o644).unwrap();
            // Only some rounds wait for the batch, so that in the others it is late.
            while round % 16 == 0 && unseen() {
                std::thread::yield_now();
            }
            names.unlink(&who, Ino::ROOT, b"old").unwrap();
            let other = names.create(&who, Ino::ROOT, b"other", 0o644).unwrap();
            std::thread::yield_now();
            let mode = volume.attributes().getattr(other.ino).unwrap().mode & 0o7777;
            assert_eq!(mode, 0o644, "round {round}");
            names.unlink(&who, Ino::ROOT, b"other").unwrap();
        }
    });
    assert_clean(&volume, &"after all");
}
