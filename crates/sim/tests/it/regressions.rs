//! Failures of the past, kept: shortened lists of operations, named after the symptom, and whole
//! seeds. A new one goes at the end of its kind.

use shoal::raw::{SetAttr, SetTime};
use shoal_sim::deadline::within;
use shoal_sim::op::make::{
    at, batch, create, mkdir, open, path, remove_tree, rename, rmdir, root_create, setxattr,
    truncate, unlink,
};
use shoal_sim::op::{Change, Data, Op, Place, Target, Who};
use shoal_sim::runner::{Settings, run, run_list};

/// Seeds that once found something: (seed, operations, what it was).
const SEEDS: &[(u64, usize, &str)] = &[
    (21013, 1000, "a checkpoint inside copy_range, then a crash: half of a copy was there"),
    (4_002_673, 1000, "the model took a file with its parent's number for a directory's parent"),
    (103_275, 1000, "a full segment, and a value that an intent and its attribute both held"),
    (202_600, 300, "the model went up from a removed directory to whoever had its parent's number"),
    (200_732, 500, "a root's top moved into a removed tree: what it is comes before where it goes"),
];

#[test]
fn seeds_that_once_failed() {
    for (seed, ops, what) in SEEDS.iter().copied() {
        within(300, what, move || {
            if let Err(failure) = run(seed, ops) {
                panic!("seed {seed} ({what}): {failure}");
            }
        });
    }
}

fn top(name: &str) -> Place {
    at("", name)
}

fn works(what: &'static str, ops: Vec<Op>) {
    works_in_steps(what, 2048, ops);
}

/// With so many records removed in a transaction.
fn works_in_steps(what: &'static str, step_records: usize, ops: Vec<Op>) {
    within(60, what, move || {
        let mut settings = Settings { explain: true, ..Settings::small(32 << 20) };
        settings.open.lab.step_records = step_records;
        settings.open.lab.attr_intents_flushed = true;
        if let Err(failure) = run_list(&settings, &ops) {
            panic!("{what}: {failure}");
        }
    });
}

/// Looking for data went through the hole in steps of 64 MiB.
#[test]
fn seek_in_a_hole_of_eight_exbibytes() {
    let size = i64::MAX as u64;
    let truncate = Op::Truncate { who: Who::Root, file: path("f"), size, by_handle: false };
    let what = shoal::raw::Seek::Data;
    works("seek", vec![create("", "f"), truncate, Op::Seek { file: path("f"), offset: 5, what }]);
}

/// An open file whose last name is gone has lost its space to the record that freed it; it must not
/// come back. Only a file that never had a name may be given its first.
#[test]
fn an_unlinked_file_is_not_linked_again() {
    works(
        "link",
        vec![
            create("", "f"),
            open("f", 0),
            unlink("", "f"),
            Op::Link { who: Who::Root, from: Target::Slot(0), at: top("g") },
        ],
    );
}

/// A user who is not in a directory's group cannot make it set-group-id either.
#[test]
fn set_group_id_needs_membership_on_directories_too() {
    works(
        "chmod",
        vec![
            Op::Mkdir { who: Who::Root, at: top("d"), mode: 0o777 },
            Op::Chown { who: Who::Root, file: path("d"), uid: Some(1001), gid: Some(0) },
            Op::Chmod { who: Who::Two, file: path("d"), mode: 0o2755 },
        ],
    );
}

/// Even when nothing would be copied.
#[test]
fn directories_are_not_copied() {
    let copy =
        Op::CopyRange { from: path(""), from_offset: 100, to: path("f"), to_offset: 0, len: 10 };
    works("copy", vec![create("", "f"), copy]);
}

/// Looking for loops, rename walked up from a removed directory that was still open, past a parent
/// that was gone as well.
#[test]
fn renaming_out_of_a_removed_directory_whose_parent_is_gone() {
    let nowhere = Place { dir: Target::Slot(0), name: b"x".to_vec() };
    works(
        "rename",
        vec![
            mkdir("", "c"),
            mkdir("", "a"),
            mkdir("a", "b"),
            open("a/b", 0),
            rmdir("a", "b"),
            rmdir("", "a"),
            rename(nowhere, top("c")),
        ],
    );
}

/// Cut in several transactions, an unlinked open file took a second slot; the record that ended the
/// cut then took its only one, and what was left of the file was never freed.
#[test]
fn an_unlinked_file_keeps_its_slot_when_it_is_cut() {
    let write = |offset| {
        let data = Data { seed: 1_000_003, len: 700 };
        Op::Write { file: path("f"), offset, data, kill_priv: false }
    };
    let cut = truncate(Target::Slot(0), 100);
    let mut ops = vec![create("", "f"), open("f", 0)];
    ops.extend((0..20).map(|i| write(i << 20)));
    ops.extend([unlink("", "f"), cut, Op::Crash { seed: 1 }]);
    works_in_steps("cut", 2, ops);
}

/// A removed directory that is open was freed with its inode when its last entry went, but not its
/// attributes in the tree.
#[test]
fn an_open_directory_of_a_removed_tree_takes_its_attributes_along() {
    for step_records in [1, 2048] {
        let ops = vec![
            mkdir("", "a"),
            mkdir("a", "b"),
            setxattr("a", "user.a", 900),
            open("a", 0),
            remove_tree("", "a"),
            Op::Crash { seed: 1 },
        ];
        works_in_steps("attributes", step_records, ops);
    }
}

fn new_file(path: &str) -> Change {
    let data = Data { seed: 3, len: 20 };
    Change::File { path: path.into(), mode: 0o644, data, replace: false }
}

fn new_dir(path: &str) -> Change {
    Change::Dir { path: path.into(), mode: 0o755 }
}

fn set_mtime(path: &str) -> Change {
    let mtime = Some(SetTime::To(shoal_sim::op::at(1_000_000, 5)));
    Change::SetAttr { path: path.into(), set: SetAttr { mtime, ..SetAttr::default() } }
}

/// The last item of a directory in a batch's record set both its times to one: after a crash its
/// change time was the modification time that the batch had set.
#[test]
fn a_directory_changed_twice_in_a_batch_keeps_both_times() {
    let both = batch("", vec![new_file("d/x"), set_mtime("d")]);
    works(
        "times",
        vec![mkdir("", "d"), both, Op::Sync, Op::Crash { seed: 1 }, batch("", vec![new_dir("e")])],
    );
}

/// A link to the top of a subvolume in a batch was begun again a thousand times, and was then said
/// to be in somebody's way.
#[test]
fn a_batch_does_not_link_the_top_of_a_subvolume() {
    let link = Change::Link { from: b"R".to_vec(), to: b"n".to_vec() };
    works("link", vec![root_create("R"), batch("", vec![new_file("f"), link])]);
}

/// In a directory that the same batch had made, and as source of a link, a name that is too long
/// was one that is not there.
#[test]
fn names_are_too_long_in_batches_too() {
    let long = "L".repeat(256);
    let link = Change::Link { from: long.clone().into(), to: b"n".to_vec() };
    let below = vec![new_dir("d"), set_mtime(&format!("d/{long}"))];
    works("long names", vec![batch("", vec![link]), batch("", below)]);
}
