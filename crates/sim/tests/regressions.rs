//! What once went wrong, kept: shortened lists of operations, named after the symptom, and whole
//! seeds. A new one goes at the end of its kind.

use shoal_sim::deadline::within;
use shoal_sim::op::{Data, Op, Place, Target, Who};
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
    Place { dir: path(""), name: name.into() }
}

fn path(path: &str) -> Target {
    Target::Path(path.into())
}

fn works(what: &'static str, ops: Vec<Op>) {
    works_in_steps(what, 2048, ops);
}

/// With so many records removed in a transaction.
fn works_in_steps(what: &'static str, step_records: usize, ops: Vec<Op>) {
    within(60, what, move || {
        let mut settings = Settings { explain: true, ..Settings::small(32 << 20) };
        settings.open.step_records = step_records;
        settings.open.attr_intents_flushed = true;
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
    let what = shoal::Seek::Data;
    works(
        "seek",
        vec![
            Op::Create { who: Who::Root, at: top("f"), mode: 0o644 },
            truncate,
            Op::Seek { file: path("f"), offset: 5, what },
        ],
    );
}

/// An open file whose last name is gone has lost its space to the record that freed it; it must not
/// come back. Only a file that never had a name may be given its first.
#[test]
fn an_unlinked_file_is_not_linked_again() {
    works(
        "link",
        vec![
            Op::Create { who: Who::Root, at: top("f"), mode: 0o644 },
            Op::Open { file: path("f"), slot: 0 },
            Op::Unlink { who: Who::Root, at: top("f") },
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
    works("copy", vec![Op::Create { who: Who::Root, at: top("f"), mode: 0o644 }, copy]);
}

/// Looking for loops, rename walked up from a removed directory that was still open, past a parent
/// that was gone as well.
#[test]
fn renaming_out_of_a_removed_directory_whose_parent_is_gone() {
    let inner = Place { dir: path("a"), name: b"b".to_vec() };
    let nowhere = Place { dir: Target::Slot(0), name: b"x".to_vec() };
    works(
        "rename",
        vec![
            Op::Mkdir { who: Who::Root, at: top("c"), mode: 0o755 },
            Op::Mkdir { who: Who::Root, at: top("a"), mode: 0o755 },
            Op::Mkdir { who: Who::Root, at: inner.clone(), mode: 0o755 },
            Op::Open { file: path("a/b"), slot: 0 },
            Op::Rmdir { who: Who::Root, at: inner },
            Op::Rmdir { who: Who::Root, at: top("a") },
            Op::Rename {
                who: Who::Root,
                from: nowhere,
                to: top("c"),
                flags: shoal::RenameFlags::default(),
            },
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
    let cut = Op::Truncate { who: Who::Root, file: Target::Slot(0), size: 100, by_handle: true };
    let mut ops = vec![
        Op::Create { who: Who::Root, at: top("f"), mode: 0o644 },
        Op::Open { file: path("f"), slot: 0 },
    ];
    ops.extend((0..20).map(|i| write(i << 20)));
    ops.extend([Op::Unlink { who: Who::Root, at: top("f") }, cut, Op::Crash { seed: 1 }]);
    works_in_steps("cut", 2, ops);
}

/// A removed directory that is open was freed with its inode when its last entry went, but not its
/// attributes in the tree.
#[test]
fn an_open_directory_of_a_removed_tree_takes_its_attributes_along() {
    let inner = Place { dir: path("a"), name: b"b".to_vec() };
    let attribute = Op::SetXattr {
        who: Who::Root,
        file: path("a"),
        name: b"user.a".to_vec(),
        data: Data { seed: 77, len: 900 },
        flags: Default::default(),
    };
    for step_records in [1, 2048] {
        let ops = vec![
            Op::Mkdir { who: Who::Root, at: top("a"), mode: 0o755 },
            Op::Mkdir { who: Who::Root, at: inner.clone(), mode: 0o755 },
            attribute.clone(),
            Op::Open { file: path("a"), slot: 0 },
            Op::RemoveTree { who: Who::Root, at: top("a") },
            Op::Crash { seed: 1 },
        ];
        works_in_steps("attributes", step_records, ops);
    }
}
