//! Notices of changes: a front end that caches names, attributes and data is told each.

use shoal::raw::{
    self, Attr, BatchOp, Caller, Fallocate, Ino, Local, RenameFlags, SetAttr, TreeCheck, XattrFlags,
};
use shoal_session::{AT_END, Calls, How, Node, Told};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Notices(Mutex<Vec<String>>);

impl Notices {
    fn add(&self, notice: String) {
        self.0.lock().unwrap().push(notice);
    }
}

impl Told for Notices {
    fn name(&self, dir: Ino, name: &[u8]) {
        self.add(format!("name {dir} {}", name.escape_ascii()));
    }
    fn attributes(&self, ino: Ino) {
        self.add(format!("attributes {ino}"));
    }
    fn data(&self, ino: Ino, at: u64, len: u64) {
        self.add(format!("data {ino} {at} {len}"));
    }
    fn tree(&self, dir: Ino, name: &[u8], top: &Attr) {
        self.add(format!("tree {dir} {} {}", name.escape_ascii(), top.ino));
    }
}

struct Scene {
    calls: Local,
    told: Arc<Notices>,
    who: Caller,
}

impl Scene {
    fn new() -> Scene {
        let device = Arc::new(raw::MemDevice::new(64 << 20));
        raw::mkfs_on(device.clone(), &raw::MkfsOptions::default()).unwrap();
        let volume = raw::Volume::open_on(device, &raw::OpenOptions::default()).unwrap();
        let told = Arc::new(Notices::default());
        let calls = Local::new(Arc::new(volume)).telling(told.clone());
        Scene { calls, told, who: Caller::root() }
    }

    /// Compares the notices since the last time, in any order and without repetitions.
    #[track_caller]
    fn told(&self, wanted: &[String]) {
        let mut told = std::mem::take(&mut *self.told.0.lock().unwrap());
        let mut wanted = wanted.to_vec();
        told.sort();
        told.dedup();
        wanted.sort();
        assert_eq!(told, wanted);
    }

    fn ino(&self, path: &str) -> Ino {
        self.calls.find(&self.who, Node::TOP, path.as_bytes(), false).unwrap().ino
    }
}

fn name(dir: Ino, name: &str) -> String {
    format!("name {dir} {name}")
}

fn attributes(ino: Ino) -> String {
    format!("attributes {ino}")
}

const NEW: How = How {
    read: true,
    write: true,
    append: false,
    truncate: false,
    create: true,
    create_new: false,
    mode: 0o644,
};
const TOP: Ino = Ino::ROOT;

#[test]
fn names_are_told_with_their_directories_and_inodes() {
    let scene = Scene::new();
    let (calls, who) = (&scene.calls, &scene.who);
    let dir = calls.make_dirs(who, Node::TOP, b"a/b", 0o755).unwrap();
    let (a, b) = (scene.ino("a"), dir.attr.ino);
    scene.told(&[name(TOP, "a"), attributes(TOP), name(a, "b"), attributes(a)]);

    let file = calls.open_file(who, dir.node, b"f", NEW).unwrap();
    let f = file.attr.ino;
    scene.told(&[name(b, "f"), attributes(b)]);
    // It is there now: nothing changes.
    calls.close(who, calls.open_file(who, dir.node, b"f", NEW).unwrap().node).unwrap();
    calls.make_dirs(who, Node::TOP, b"a/b", 0o755).unwrap();
    calls.find(who, Node::TOP, b"a/b/f", true).unwrap();
    scene.told(&[]);

    calls.link(who, dir.node, b"f", Node::TOP, b"g").unwrap();
    scene.told(&[name(TOP, "g"), attributes(TOP), attributes(f)]);
    calls.symlink(who, Node::TOP, b"s", b"a/b/new").unwrap();
    scene.told(&[name(TOP, "s"), attributes(TOP)]);
    // Made where the link leads.
    calls.put(who, Node::TOP, b"s", NEW, b"123").unwrap();
    let new = scene.ino("a/b/new");
    scene.told(&[name(b, "new"), attributes(b), format!("data {new} 0 3")]);

    let flags = RenameFlags::default();
    calls.rename(who, dir.node, b"new", Node::TOP, b"g", flags).unwrap();
    let both = [name(b, "new"), attributes(b), name(TOP, "g"), attributes(TOP)];
    let inodes = [attributes(new), attributes(f)];
    scene.told(&[&both[..], &inodes[..]].concat());
    calls.unlink(who, Node::TOP, b"g").unwrap();
    scene.told(&[name(TOP, "g"), attributes(TOP), attributes(new)]);

    // What fails is not told.
    calls.remove_dir(who, Node::TOP, b"a").unwrap_err();
    calls.unlink(who, Node::TOP, b"g").unwrap_err();
    calls.rename(who, Node::TOP, b"a", dir.node, b"x", flags).unwrap_err();
    scene.told(&[]);

    calls.remove_tree(who, Node::TOP, b"a", TreeCheck::Tree).unwrap();
    scene.told(&[format!("tree {TOP} a {a}"), name(TOP, "a"), attributes(TOP)]);
    calls.make_node(who, Node::TOP, b"pipe", 0o010_644, 0).unwrap();
    scene.told(&[name(TOP, "pipe"), attributes(TOP)]);
}

#[test]
fn data_and_attributes_are_told() {
    let scene = Scene::new();
    let (calls, who) = (&scene.calls, &scene.who);
    let file = calls.open_file(who, Node::TOP, b"f", NEW).unwrap();
    let (node, f) = (file.node, file.attr.ino);
    scene.told(&[name(TOP, "f"), attributes(TOP)]);
    let data = |at: u64, len: u64| [format!("data {f} {at} {len}")];

    assert_eq!(calls.write(who, node, 10, b"12345").unwrap(), (10, 5));
    scene.told(&data(10, 5));
    assert_eq!(calls.write(who, node, AT_END, b"67").unwrap(), (15, 2));
    scene.told(&data(15, 2));
    calls.set_size(who, node, 12).unwrap();
    scene.told(&data(12, 0));
    calls.allocate(who, node, Fallocate::PunchHole, 0, 11).unwrap();
    scene.told(&data(0, 11));
    calls.open_file(who, Node::TOP, b"f", How { truncate: true, ..NEW }).unwrap();
    scene.told(&data(0, 0));

    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    calls.set_attr(who, Node::TOP, b"f", true, set).unwrap();
    scene.told(&[attributes(f)]);
    let set = SetAttr { size: Some(7), ..SetAttr::default() };
    calls.set_attr(who, node, b"", true, set).unwrap();
    scene.told(&data(7, 0));
    let flags = XattrFlags::default();
    calls.set_xattr(who, Node::TOP, b"f", true, b"user.a", b"1", flags).unwrap();
    scene.told(&[attributes(f)]);
    calls.remove_xattr(who, node, b"", true, b"user.a").unwrap();
    scene.told(&[attributes(f)]);
    calls.remove_xattr(who, node, b"", true, b"user.a").unwrap_err();
    calls.read(who, node, 0, &mut [0; 10]).unwrap();
    calls.get(who, Node::TOP, b"f", &mut Vec::new()).unwrap();
    scene.told(&[]);

    let changes = [BatchOp::Remove { path: b"f" }];
    calls.batch(who, Node::TOP, &changes).unwrap();
    scene.told(&[name(TOP, "f"), attributes(TOP), attributes(f)]);

    let sub = calls.make_subvolume(who, b"sub", 0o755).unwrap();
    scene.told(&[name(TOP, "sub"), attributes(TOP)]);
    calls.delete_subvolume(who, b"sub").unwrap();
    scene.told(&[format!("tree {TOP} sub {}", sub.attr.ino), name(TOP, "sub"), attributes(TOP)]);
}
