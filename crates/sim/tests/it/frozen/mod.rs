//! Frozen images: volumes made once by the version of Shoal that wrote their format, kept for good
//! in `crates/sim/frozen`, and opened, listed, checked, scrubbed, recovered, written to, damaged
//! and repaired here. All that are in the folder, those of older versions too.
//!
//! | module | what |
//! | --- | --- |
//! | `contents` | structures in a volume, counted |
//! | `listing` | what a volume shows, as text |
//! | `kept` | the files |
//! | `fill`, `workshop`, `rows`, `maker` | how images are made |
//!
//! `cargo xtask freeze` makes those of the current version: while it is a draft all of them, later
//! only those that there are not yet (CONTRIBUTING.md, *The format*).

mod contents;
mod fill;
mod kept;
mod listing;
mod maker;
mod rows;
mod workshop;

use contents::contents;
use fill::{session, text};
use kept::Kept;
use listing::listing;
use maker::{DRAFT, NUMBER, format_label, may_replace, name_of};
use rows::ROWS;
use shoal::raw::{
    Caller, Device, FileKind, Ino, MemDevice, OpenOptions, RenameFlags, ScrubAt, ScrubReport,
    TreeCheck, Volume, XattrFlags,
};
use shoal_format::node::TreeId;
use shoal_sim::checks;
use shoal_sim::exec::{Lockstep, Step};
use shoal_sim::op::Op;
use shoal_sim::walk::walk;
use shoal_sim::workload::Workload;
use std::sync::Arc;

/// Operations of a random run on an image.
const STEPS: usize = 200;
/// Bytes that all images may take together.
const ALL_MAX: usize = 3 << 20;

/// Calls `look` with every image that there is.
fn each(look: impl Fn(&Kept)) {
    let names = kept::names();
    assert!(!names.is_empty(), "no images: cargo xtask freeze");
    for name in names {
        // Shown if it fails.
        println!("{name}");
        look(&Kept::read(&name));
    }
}

fn open(device: &Arc<MemDevice>, read_only: bool) -> Volume {
    // The model knows no access times that follow from reading.
    let options = OpenOptions { read_only, noatime: true, ..session() };
    Volume::open_on(device.clone(), &options).unwrap_or_else(|e| panic!("{e}"))
}

/// Asserts that check and scrub find nothing.
fn assert_clean(volume: &Volume) {
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, [], "check");
    let (mut report, mut at) = (ScrubReport::default(), Some(ScrubAt::default()));
    while let Some(here) = at {
        at = volume.maintenance().scrub_step(here, 1 << 20, &mut report).unwrap();
    }
    assert_eq!(report.problems, [], "scrub");
}

/// Asserts the rules that hold without a model, of a volume open for writing; those of parent
/// pointers only where there are any.
fn assert_sound(volume: &Volume) {
    assert_clean(volume);
    let found = walk(volume, Ino::ROOT, true).unwrap();
    let checked = match volume.paths().has_parent_pointers() {
        true => checks::all(volume, &found),
        false => checks::links_are_names(&found.state)
            .and_then(|()| checks::directories_count_entries(&found.state))
            .and_then(|()| checks::inodes_are_counted(volume, &found.state)),
    };
    checked.unwrap_or_else(|e| panic!("{e}"));
}

/// Asserts that two texts are the same; names the first line that is not.
fn assert_same(found: &str, expected: &str, when: &str) {
    if let Some((n, (a, b))) =
        found.lines().zip(expected.lines()).enumerate().find(|(_, (a, b))| a != b)
    {
        panic!("{when}, line {}: shows\n  {a}\nexpected\n  {b}", n + 1);
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{when}: lines");
}

#[test]
fn every_image_has_its_text_and_its_row_and_is_as_it_was_made() {
    let (names, rows) = (kept::names(), kept::rows());
    assert_eq!(names, kept::texts(), "an image without a text, or a text without an image");
    assert!(names.iter().eq(rows.keys()), "README.md has other images than {names:?}");
    each(|kept| {
        let [_, format, _, len, hash, _] = &rows[&kept.name][..] else { panic!("cells of a row") };
        assert_eq!(&kept.hash(), hash, "{} has been changed: it must never be", kept.name);
        assert_eq!(&kept.packed.len().to_string(), len);
        let current = *format == format_label();
        assert!(
            current || !may_replace(format),
            "an image of draft '{format}': cargo xtask freeze"
        );
    });
    let bytes: usize = names.iter().map(|name| Kept::read(name).packed.len()).sum();
    assert!(bytes < ALL_MAX, "the images take {bytes} bytes");
    for row in ROWS {
        assert!(names.contains(&name_of(row)), "{} has no image: cargo xtask freeze", row.name);
    }
    let stale = |name: &&String| {
        let ours = name.strip_prefix(&format!("v{NUMBER}-"));
        DRAFT != 0 && ours.is_some_and(|name| ROWS.iter().all(|row| row.name != name))
    };
    assert_eq!(names.iter().find(stale), None, "an image of the draft without a row");
}

#[test]
fn an_image_contains_what_it_is_for() {
    each(|kept| {
        let found = contents(&kept.device());
        for (name, count) in &kept.contains {
            assert_eq!(found.get(name), Some(count), "{}: {name}", kept.name);
        }
        let row = ROWS.iter().find(|row| name_of(row) == kept.name);
        for (name, wanted) in row.iter().flat_map(|row| row.contains) {
            let there = kept.contains.get(*name).copied().unwrap_or(0);
            assert!(there >= *wanted, "{}: {there} of '{name}', {wanted} wanted", kept.name);
        }
    });
}

#[test]
fn an_image_is_listed_without_being_written_to() {
    each(|kept| {
        let device = kept.device();
        let volume = open(&device, true);
        assert_same(&listing(&volume), &kept.listing, &kept.name);
        assert_clean(&volume);
        drop(volume);
        assert!(bytes_of(&device) == bytes_of(&kept.device()), "{}: written to", kept.name);
    });
}

fn bytes_of(device: &MemDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.capacity() as usize];
    device.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Changes or removes everything that is there, and makes new things beside it.
fn use_it(volume: &Volume) {
    let (who, plain) = (Caller::root(), RenameFlags::default());
    let dir = volume.namespace().mkdir(&who, Ino::ROOT, b"of today", 0o755).unwrap().ino;
    let root = volume.subvolumes().create(&who, b"root of today", 0o755).unwrap().ino;
    for above in [dir, root] {
        let file = volume.namespace().create(&who, above, b"file", 0o644).unwrap().ino;
        volume.files().write(file, 0, &text("file", 30_000), false).unwrap();
        let value = text("value", 2000);
        volume
            .attributes()
            .setxattr(&who, file, b"user.today", &value, XattrFlags::default())
            .unwrap();
        volume.namespace().link(&who, file, above, b"link").unwrap();
        volume.namespace().symlink(&who, above, b"symlink", b"file").unwrap();
    }
    let (mut files, mut changed) = (Vec::new(), 0);
    let each = &mut |entry: shoal::raw::DirEntry<'_>| {
        files.push((entry.name.to_vec(), entry.ino, entry.kind));
        true
    };
    volume.directories().readdir(Ino::ROOT, 2, each).unwrap();
    for (name, ino, kind) in files {
        match kind {
            FileKind::Regular => {
                volume.files().append(ino, b"appended today", false).unwrap();
                let new = [b"moved ", &name[..]].concat();
                volume.namespace().rename(&who, Ino::ROOT, &name, dir, &new, plain).unwrap();
            }
            FileKind::Directory if ino.root() == Ino::ROOT.root() && ino != dir => {
                volume.namespace().remove_tree(&who, Ino::ROOT, &name, TreeCheck::Tree).unwrap();
            }
            _ => continue,
        }
        changed += 1;
    }
    assert!(changed > 0 || volume.subvolumes().list().len() > 1, "nothing there was changed");
    volume.namespace().unlink(&who, dir, b"file").unwrap();
}

/// Takes every access control list away: the model knows none.
fn without_lists(volume: &Volume) {
    let who = Caller::root();
    for (ino, xattrs) in walk(volume, Ino::ROOT, true).unwrap().xattrs {
        for list in xattrs.keys().filter(|name| name.starts_with(b"system.posix_acl")) {
            volume.attributes().removexattr(&who, ino, list).unwrap();
        }
    }
}

/// A random run beside the model, from what the volume shows.
fn random_run(volume: &Volume) {
    without_lists(volume);
    let mut run = Lockstep::of(walk(volume, Ino::ROOT, true).unwrap().model());
    let mut workload = Workload::with_profile(1, "general").without_crashes();
    let mut done = 0;
    for _ in 0..STEPS {
        let op = workload.next(&run);
        if matches!(op, Op::Paths { .. }) && !volume.paths().has_parent_pointers() {
            continue;
        }
        let step = run.step(volume, &op).unwrap_or_else(|e| panic!("{op}: {e}"));
        done += usize::from(step == Step::Done);
    }
    assert!(done > STEPS / 2, "{done} operations of {STEPS}");
    for ino in run.slots.into_iter().flatten() {
        volume.references().release(ino, 1);
    }
}

/// Opens every image for writing, works on it, crashes, opens it again, closes it, opens it again.
fn recovered_and(work: fn(&Volume)) {
    each(|kept| {
        let device = kept.device();
        let volume = open(&device, false);
        assert_same(&listing(&volume), &kept.listing, "after recovery");
        volume.maintenance().reap_roots(&mut |_| {}).unwrap();
        assert_same(&listing(&volume), &kept.listing, "after deleted roots were freed");
        assert_sound(&volume);
        checks::nothing_waits_to_be_freed(&volume).unwrap();
        work(&volume);
        volume.sync().unwrap();
        let shown = listing(&volume);
        assert_sound(&volume);
        drop(volume);
        for crashed in [true, false] {
            let volume = open(&device, false);
            assert_same(&listing(&volume), &shown, "opened again");
            let recovery = volume.info().recovery;
            assert_eq!((recovery.needed, recovery.orphans), (crashed, 0), "orphans came back");
            assert_sound(&volume);
            volume.close().unwrap();
        }
    });
}

#[test]
fn an_image_recovers_and_is_changed() {
    recovered_and(use_it);
}

#[test]
fn an_image_recovers_and_goes_on_as_the_model_does() {
    recovered_and(random_run);
}

/// Leaves of the directory entries of root 0.
fn leaves(device: &Arc<MemDevice>) -> Vec<shoal_format::Ptr> {
    let store = contents::store(device);
    let tree = store.root(Ino::ROOT).unwrap().tree(TreeId::Dirents);
    let mut nodes = Vec::new();
    tree.for_each_node(&mut |ptr| nodes.push(ptr)).unwrap();
    // The first is the root of the tree.
    nodes.split_off(1)
}

/// The part of a listing that a repair must bring back: paths, and all that the inodes hold but
/// for times.
fn without_times(listing: &str) -> String {
    let line = |line: &str| {
        let times = line.find(" m ").zip(line.find(" b ")).filter(|_| line.starts_with('/'));
        let rest = times.map(|(from, to)| (from, &line[to..]));
        rest.map_or(line.to_owned(), |(from, rest)| line[..from].to_owned() + rest)
    };
    listing.lines().map(line).map(|line| line + "\n").collect()
}

/// With parent pointers every name comes back; without them files end in `lost+found`.
#[test]
fn a_damaged_leaf_of_an_image_is_repaired() {
    each(|kept| {
        let device = kept.device();
        let leaf = *leaves(&device).last().expect("a leaf");
        let at = leaf.addr.0 + u64::from(leaf.len) / 2;
        let mut byte = [0];
        device.read_at(&mut byte, at).unwrap();
        device.write_at(&[byte[0] ^ 0x10], at).unwrap();
        let report =
            Volume::repair_on(device.clone(), &session(), &mut |_, _, _| {}, &mut |_| true);
        let report = report.unwrap();
        assert!(report.found.iter().any(|p| p.message.contains("dirents")), "{:?}", report.found);
        assert!(report.written && report.left.is_empty(), "{:?}", report.left);
        let volume = open(&device, false);
        if volume.paths().has_parent_pointers() {
            let (found, expected) = (listing(&volume), &kept.listing);
            assert_same(&without_times(&found), &without_times(expected), "after the repair");
        }
        assert_sound(&volume);
    });
}

#[test]
fn an_image_of_a_released_version_is_not_made_anew() {
    assert!(may_replace("2 draft 1") && !may_replace("2"));
    assert_eq!(may_replace(&format_label()), DRAFT != 0);
}

/// `FROZEN=write`: writes them, too.
#[test]
#[ignore = "makes the images anew: cargo xtask freeze"]
fn make() {
    maker::make_all(std::env::var("FROZEN").is_ok_and(|what| what == "write"));
}
