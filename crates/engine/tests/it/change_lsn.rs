//! The LSN in each inode's core must be that of the record of its last change: in memory, and after
//! a crash and replay.

use crate::common::{copy, options, store, store_as};
use shoal_base::Lsn;
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_engine::*;
use shoal_format::batch::RECORD_HEADER;
use shoal_format::inode::{Inode, Stamp};
use shoal_format::item::{Item, size};
use shoal_itable::Locked;
use shoal_txn::{Need, RecordKind, Txn};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const ROOT: Ino = Ino::ROOT;
const PLAIN: RenameFlags = RenameFlags { noreplace: false, exchange: false, whiteout: false };
const EXCHANGE: RenameFlags = RenameFlags { exchange: true, ..PLAIN };
const ANY: XattrFlags = XattrFlags { create: false, replace: false, clear_set_group_id: false };

/// A volume whose calls record the inodes that they change.
struct Session {
    volume: Volume,
    who: Caller,
    /// By inode: its last call, and the range of LSNs in which that staged its records.
    last: BTreeMap<Ino, (String, Range<u64>)>,
}

impl Session {
    fn new(device: &Arc<MemDevice>, options: &OpenOptions) -> Session {
        let volume = Volume::open_on(device.clone(), options).unwrap();
        Session { volume, who: Caller::root(), last: BTreeMap::new() }
    }

    /// Makes a call that changes exactly these inodes and those that it returns.
    fn call(
        &mut self,
        name: &str,
        changed: &[Ino],
        call: impl FnOnce(&Volume, &Caller) -> Result<Vec<Ino>>,
    ) -> Vec<Ino> {
        let before = self.volume.staged_lsn().0;
        let made = call(&self.volume, &self.who).unwrap_or_else(|e| panic!("{name}: {e}"));
        let records = before..self.volume.staged_lsn().0;
        assert!(!records.is_empty(), "{name}: no record");
        for ino in changed.iter().chain(&made) {
            self.last.insert(*ino, (name.into(), records.clone()));
        }
        made
    }

    fn make(&mut self, name: &str, dir: Ino) -> Ino {
        let make = |v: &Volume, who: &Caller| {
            v.namespace().create(who, dir, name.as_bytes(), 0o644).map(|entry| vec![entry.ino])
        };
        self.call(&format!("create {name}"), &[dir], make)[0]
    }

    fn make_dir(&mut self, name: &str, dir: Ino) -> Ino {
        let make = |v: &Volume, who: &Caller| {
            v.namespace().mkdir(who, dir, name.as_bytes(), 0o755).map(|entry| vec![entry.ino])
        };
        self.call(&format!("mkdir {name}"), &[dir], make)[0]
    }

    fn set(&mut self, name: &str, ino: Ino, set: SetAttr) {
        self.call(name, &[ino], |v, who| {
            v.attributes().setattr(who, ino, &set).map(|_| Vec::new())
        });
    }

    fn xattr(&mut self, ino: Ino, name: &str, value: &[u8]) {
        let what = format!("set {name} to {} bytes", value.len());
        self.call(&what, &[ino], |v, who| {
            v.attributes().setxattr(who, ino, name.as_bytes(), value, ANY).map(|()| Vec::new())
        });
    }

    fn no_xattr(&mut self, ino: Ino, name: &str) {
        self.call(&format!("remove {name}"), &[ino], |v, who| {
            v.attributes().removexattr(who, ino, name.as_bytes()).map(|()| Vec::new())
        });
    }

    fn write(&mut self, ino: Ino, at: u64, bytes: usize) {
        self.call(&format!("write {bytes} at {at}"), &[ino], |v, _| {
            v.files().write(ino, at, &vec![7; bytes], false).map(|_| Vec::new())
        });
    }

    fn rename(
        &mut self,
        (from_dir, from): (Ino, &str),
        (dir, to): (Ino, &str),
        flags: RenameFlags,
        changed: &[Ino],
    ) {
        let changed: Vec<Ino> = changed.iter().copied().chain([from_dir, dir]).collect();
        self.call(&format!("rename {from} to {to}"), &changed, |v, who| {
            v.namespace()
                .rename(who, from_dir, from.as_bytes(), dir, to.as_bytes(), flags)
                .map(|()| Vec::new())
        });
    }

    fn remove(&mut self, dir: Ino, name: &str, changed: &[Ino]) {
        let changed: Vec<Ino> = changed.iter().copied().chain([dir]).collect();
        self.call(&format!("unlink {name}"), &changed, |v, who| {
            v.namespace().unlink(who, dir, name.as_bytes()).map(|()| Vec::new())
        });
    }
}

fn names(session: &mut Session) {
    let (a, b) = (session.make_dir("a", ROOT), session.make_dir("b", ROOT));
    let f = session.make("f", a);
    session.call("link", &[f, b], |v, who| v.namespace().link(who, f, b, b"g").map(|_| vec![]));
    session.remove(b, "g", &[f]);
    session.rename((a, "f"), (a, "f2"), PLAIN, &[f]);
    session.rename((a, "f2"), (b, "f3"), PLAIN, &[f]);
    let (kept, over) = (session.make("kept", a), session.make("over", a));
    session.call("link", &[kept, b], |v, who| {
        v.namespace().link(who, kept, b, b"linked").map(|_| vec![])
    });
    // Over one of two names, and over the only one.
    session.rename((b, "f3"), (a, "kept"), PLAIN, &[f, kept]);
    session.rename((a, "kept"), (a, "over"), PLAIN, &[f]);
    session.last.remove(&over);
    let (d, e) = (session.make_dir("d", a), session.make_dir("e", b));
    session.rename((a, "d"), (b, "d"), PLAIN, &[d]);
    session.rename((b, "d"), (b, "d2"), PLAIN, &[d]);
    session.rename((b, "d2"), (b, "e"), PLAIN, &[d]);
    session.last.remove(&e);
    session.rename((a, "over"), (b, "e"), EXCHANGE, &[f, d]);
    session.rename((b, "e"), (b, "linked"), EXCHANGE, &[f, kept]);
    let gone = session.make_dir("gone", b);
    session.call("rmdir", &[b], |v, who| v.namespace().rmdir(who, b, b"gone").map(|()| vec![]));
    session.last.remove(&gone);
    let short = session.call("symlink", &[a], |v, who| {
        v.namespace().symlink(who, a, b"short", b"target").map(|e| vec![e.ino])
    });
    session.call("long symlink", &[a], |v, who| {
        v.namespace().symlink(who, a, b"long", &[b'x'; 3000]).map(|e| vec![e.ino])
    });
    session.call("link of a symlink", &[short[0], b], |v, who| {
        v.namespace().link(who, short[0], b, b"short").map(|_| vec![])
    });
    session.call("mknod", &[a], |v, who| {
        v.namespace().mknod(who, a, b"fifo", 0o010_644, 0).map(|e| vec![e.ino])
    });
}

fn contents(session: &mut Session) {
    let d = session.make_dir("data", ROOT);
    let f = session.make("inline", d);
    session.write(f, 0, 50);
    session.write(f, 0, 60_000);
    session.write(f, 200_000, 4000);
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    session.set("truncate", f, size(1000));
    session.set("truncate to nothing", f, size(0));
    let pieces = session.make("pieces", d);
    for n in 0..40 {
        session.write(pieces, n * 300_000, 9000);
    }
    let cut = session.make("cut", d);
    for n in 0..40 {
        session.write(cut, n * 300_000, 9000);
    }
    session.set("cut in steps", cut, size(5000));
    let all = Fallocate::Allocate { keep_size: false };
    for (mode, ino) in [(all, f), (Fallocate::PunchHole, pieces)] {
        session.call("fallocate", &[ino], |v, _| {
            v.files().fallocate(ino, mode, 10_000, 50_000).map(|()| vec![])
        });
    }
    let zero = Fallocate::ZeroRange { keep_size: true };
    session.call("zero", &[pieces], |v, _| {
        v.files().fallocate(pieces, zero, 0, 900_000).map(|()| vec![])
    });
    session.call("copy", &[f], |v, _| v.files().copy_range(cut, 0, f, 100, 4000).map(|_| vec![]));
    session.call("append", &[f], |v, _| v.files().append(f, b"end", false).map(|_| vec![]));
    session.set("chmod", f, SetAttr { mode: Some(0o600), ..SetAttr::default() });
    session.set("chown", f, SetAttr { uid: Some(7), gid: Some(8), ..SetAttr::default() });
    session.set("utimes", d, SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() });
    // Capabilities are removed by the next change of contents; group bits change with a chmod of
    // the list.
    session.xattr(f, "security.capability", &[1; 20]);
    session.write(f, 0, 10);
}

fn attributes(session: &mut Session) {
    let d = session.make_dir("attributes", ROOT);
    let f = session.make("f", d);
    session.xattr(f, "user.a", b"inline");
    session.xattr(f, "user.a", b"as long");
    session.xattr(f, "user.long", &[1; 700]);
    session.xattr(f, "user.more", &[2; 900]);
    session.xattr(f, "user.remote", &[3; 9000]);
    session.xattr(f, "user.remote", &[4; 9000]);
    session.no_xattr(f, "user.long");
    session.no_xattr(f, "user.more");
    session.no_xattr(f, "user.remote");
    session.no_xattr(f, "user.a");
    // Data moves out for attributes.
    let full = session.make("full", d);
    session.write(full, 0, 150);
    session.xattr(full, "user.b", &[5; 120]);
    // Many names: the pointers move out of the inode, and back.
    let many = session.make("many", d);
    for n in 0..12 {
        let name = format!("{n:0>100}");
        session.call("link", &[many, d], |v, who| {
            v.namespace().link(who, many, d, name.as_bytes()).map(|_| vec![])
        });
    }
    session.rename((d, &format!("{:0>100}", 3)), (d, "renamed"), PLAIN, &[many]);
    for n in 4..12 {
        session.remove(d, &format!("{n:0>100}"), &[many]);
    }
    let mut acl = vec![2, 0, 0, 0];
    for (tag, perm, id) in [(1u16, 7u16, !0u32), (2, 7, 5), (4, 5, !0), (16, 7, !0), (32, 5, !0)] {
        acl.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    session.xattr(f, "system.posix_acl_access", &acl);
    session.set("chmod of a list", f, SetAttr { mode: Some(0o640), ..SetAttr::default() });
    session.xattr(d, "system.posix_acl_default", &acl);
    let heir = session.make_dir("heir", d);
    session.make("in heir", heir);
    session.no_xattr(d, "system.posix_acl_default");
}

fn orphans(session: &mut Session) {
    let d = session.make_dir("orphans", ROOT);
    let tmp = session.volume.namespace().tmpfile(&session.who, d, 0o600).unwrap().ino;
    session.write(tmp, 0, 100);
    session.call("linkat", &[tmp, d], |v, who| {
        v.namespace().link(who, tmp, d, b"named").map(|_| vec![])
    });
    session.volume.references().release(tmp, 1);
    let tree = session.make_dir("tree", d);
    let below = session.make_dir("below", tree);
    let inside = session.make("inside", below);
    session.call("link out", &[inside, d], |v, who| {
        v.namespace().link(who, inside, d, b"outside").map(|_| vec![])
    });
    session.call("remove tree", &[d, inside], |v, who| {
        v.namespace().remove_tree(who, d, b"tree", TreeCheck::Tree).map(|()| vec![])
    });
    [tree, below].iter().for_each(|gone| {
        session.last.remove(gone);
    });
    let top = session.call("make a root", &[ROOT], |v, who| {
        v.subvolumes().create(who, b"sub", 0o755).map(|e| vec![e.ino])
    })[0];
    session.make("in sub", top);
    let other = session.call("make a root", &[ROOT], |v, who| {
        v.subvolumes().create(who, b"other", 0o755).map(|e| vec![e.ino])
    })[0];
    session.call("delete a root", &[ROOT], |v, who| {
        v.subvolumes().delete(who, b"other").map(|()| vec![])
    });
    session.last.remove(&other);
}

/// Returns all inodes with links.
fn inodes(device: &Arc<MemDevice>) -> BTreeMap<Ino, Inode> {
    let store = store_as(device, true);
    let mut all = BTreeMap::new();
    for root in store.roots().iter().filter(|root| !root.is_free()) {
        let mut next = 0;
        while let Some(block) = root.table.next_in_use(next).unwrap() {
            for slot in 0..INODES_PER_BLOCK as u64 {
                let ino = Ino::new(root.id, block * INODES_PER_BLOCK as u64 + slot);
                let mut inode = root.table.get(ino).unwrap().read().inode.clone();
                if inode.core.in_use() && inode.core.nlink > 0 {
                    // In memory only the forks have their lengths.
                    inode.core.data_len = inode.data.len() as u16;
                    inode.core.attr_len = inode.attr.len() as u16;
                    all.insert(ino, inode);
                }
            }
            next = block + 1;
        }
    }
    all
}

/// Returns the inodes whose LSN is not that of their last call.
fn wrong(session: &Session, inodes: &BTreeMap<Ino, Inode>, when: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (ino, (call, records)) in &session.last {
        let inode = inodes.get(ino);
        let core = inode
            .map(|inode| inode.core)
            .unwrap_or_else(|| panic!("{when}: no inode {ino} after {call}"));
        if !records.contains(&core.lsn) {
            let lsn = core.lsn;
            wrong.push(format!("{when}: {ino} after {call}: {lsn} is not in {records:?}"));
        }
    }
    wrong
}

#[test]
fn replay_leaves_the_lsn_of_the_last_change() {
    for (attr_intents, inode_size) in [(false, 512), (false, 2048), (true, 512)] {
        let device = Arc::new(MemDevice::new(256 << 20));
        mkfs_on(device.clone(), &MkfsOptions { inode_size, ..MkfsOptions::default() }).unwrap();
        let options = OpenOptions {
            lab: Lab { attr_intents, step_records: 8, ..Lab::default() },
            noatime: true,
            checkpoint_bytes: 1 << 40,
            ..options()
        };
        let mut session = Session::new(&device, &options);
        let mut found = Vec::new();
        for part in [names, contents, attributes, orphans] {
            part(&mut session);
            session.volume.sync().unwrap();
            let crashed = copy(&device);
            found.extend(wrong(&session, &inodes(&crashed), "after a crash"));
        }
        let written = replayed_is_written(&session.volume, &device);
        found.extend(wrong(&session, &written, "in memory"));
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}

/// Checks that the inodes in memory, which the next checkpoint writes, are those of a replay.
/// Returns them.
fn replayed_is_written(volume: &Volume, device: &Arc<MemDevice>) -> BTreeMap<Ino, Inode> {
    volume.sync().unwrap();
    let crashed = copy(device);
    volume.maintenance().checkpoint().unwrap();
    let (replayed, written) = (inodes(&crashed), inodes(&copy(device)));
    assert_eq!(replayed.len(), written.len());
    for (ino, inode) in &replayed {
        assert_eq!(inode, &written[ino], "inode {ino}");
    }
    written
}

/// The LSN in memory was that of the journal's end at the time of the change, which is not that of
/// the record if others are staged in between.
#[test]
fn no_record_comes_between_an_inode_and_its_lsn() {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = Volume::open_on(device.clone(), &options()).unwrap();
    let made =
        |name: &[u8]| volume.namespace().create(&Caller::root(), ROOT, name, 0o644).unwrap().ino;
    let inos = [made(b"a"), made(b"b"), made(b"c")];
    volume.close().unwrap();
    let store = store(&device);
    let table = &store.root(ROOT).unwrap().table;
    let kind = RecordKind::new(0, "test", 100);
    let refs = inos.map(|ino| table.get(ino).unwrap());
    let [mut a, mut b, mut c] = refs.each_ref().map(|inode| inode.write());
    let change = |txn: &mut Txn<'_>, inode: &mut Locked<'_>| {
        let ctime = Stamp { sec: 7, nsec: 0 };
        inode.edit(table, txn.epoch()).core.ctime = ctime;
        let item = Item::Links { ino: inode.ino(), nlink: 1, ctime };
        txn.log_core(inode, item);
    };
    let others = |inode: &mut Locked<'_>| {
        let mut txn = store.begin(Need::Release, kind).unwrap();
        change(&mut txn, inode);
        txn.stamp(inode).unwrap();
        let end = txn.commit().unwrap();
        (inode.inode().core.lsn, end)
    };
    let start = |end: Lsn| end.0 - (RECORD_HEADER + size::LINKS) as u64;
    let mut txn = store.begin(Need::Release, kind).unwrap();
    change(&mut txn, &mut a);
    let (before, end_before) = others(&mut b);
    txn.stamp(&mut a).unwrap();
    let (behind, end_behind) = others(&mut c);
    let end = txn.commit().unwrap();
    assert_eq!([before, behind], [end_before, end_behind].map(start));
    assert_eq!(a.inode().core.lsn, start(end));
    assert_eq!((end_before.0, end), (start(end), Lsn(behind)));
}

/// The same with concurrent calls, compared with a replay.
#[test]
fn threads_do_not_come_between_a_change_and_its_lsn() {
    let device = Arc::new(MemDevice::new(256 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let options = OpenOptions { noatime: true, checkpoint_bytes: 1 << 40, ..options() };
    let volume = Volume::open_on(device.clone(), &options).unwrap();
    let who = Caller::root();
    let dirs =
        [b"a", b"b"].map(|name| volume.namespace().mkdir(&who, ROOT, name, 0o755).unwrap().ino);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (volume, who) = (&volume, &who);
            scope.spawn(move || {
                for n in 0..300 {
                    let [one, other, third] = [0, 1, 2].map(|k| format!("{thread}.{n}.{k}"));
                    let f = volume
                        .namespace()
                        .create(who, dirs[n % 2], one.as_bytes(), 0o644)
                        .unwrap()
                        .ino;
                    let (from, to) = (dirs[n % 2], dirs[n / 2 % 2]);
                    volume
                        .namespace()
                        .rename(who, from, one.as_bytes(), to, other.as_bytes(), PLAIN)
                        .unwrap();
                    volume.namespace().link(who, f, from, third.as_bytes()).unwrap();
                    match n % 4 {
                        0 => volume.namespace().unlink(who, to, other.as_bytes()).unwrap(),
                        1 => {
                            volume.attributes().setxattr(who, f, b"user.a", b"value", ANY).unwrap()
                        }
                        2 => drop(volume.files().write(f, 0, &[7; 40], false).unwrap()),
                        _ => {}
                    }
                }
            });
        }
    });
    replayed_is_written(&volume, &device);
}
