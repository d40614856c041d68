//! Changes of trees: crashes after every device operation, with steps of every size, on inodes that
//! hold their state and on those that do not. What recovery leaves is the whole change, or nothing.

use crate::common::crash_at_every_point;
use shoal::raw::{ModeChange, TreeChange};
use shoal_sim::op::make::{
    at, change_modes, change_owners, create, link, mkdir, open, path, remove_tree, setxattr, write,
};
use shoal_sim::op::{Op, Who};
use shoal_sim::runner::Settings;

fn settings(step_records: usize, attr_intents: bool, inode_size: u32) -> Settings {
    let mut settings = Settings { explain: true, ..Settings::small(32 << 20) };
    settings.open.lab.step_records = step_records;
    settings.open.lab.attr_intents = attr_intents;
    settings.open.lab.attr_intents_flushed = true;
    settings.mkfs.inode_size = inode_size;
    settings
}

/// Runs `ops` with steps of every size, and crashes at every point of each run.
fn crash_everywhere(name: &'static str, ops: &[Op]) {
    for (step, intents, inode) in
        [(1, false, 512), (2, true, 512), (3, false, 256), (64, true, 1024)]
    {
        crash_at_every_point(name, step, settings(step, intents, inode), ops);
    }
}

/// Files of several modes and owners, hard links within and to outside, an open file, attributes
/// outside the inode, and directories deeper than a state has levels.
fn tree() -> Vec<Op> {
    let mut ops = vec![mkdir("", "t"), mkdir("", "keep"), create("keep", "f")];
    let mut dir = "t".to_owned();
    for depth in 0..15 {
        for (n, mode) in [(0, 0o641), (1, 0o4752)] {
            let at = at(&dir, &format!("f{n}"));
            ops.push(Op::Create { who: Who::ALL[(depth + n) % 3], at, mode });
        }
        ops.push(mkdir(&dir, "d"));
        dir += "/d";
        ops.push(Op::Chmod { who: Who::Root, file: path(&dir), mode: 0o777 });
    }
    ops.extend([
        link("keep/f", "t", "other"),
        link("t/d/f0", "t/d/d", "twice"),
        setxattr("t/d", "user.large", 3_000),
        write(path("t/f0"), 0, 5_000),
        open("t/f0", 0),
    ]);
    ops
}

#[test]
fn modes_move_from_class_to_class_once() {
    let mut ops = tree();
    ops.extend([
        Op::Sync,
        change_modes("t", "u=g,g=o,o=u"),
        create("keep", "after"),
        Op::Sync,
        change_modes("", "g=u,u-s"),
        Op::Checkpoint,
        change_modes("t/d", "u=o,o=g"),
        remove_tree("", "t"),
        Op::Sync,
    ]);
    crash_everywhere("modes", &ops);
}

#[test]
fn users_change_what_they_may() {
    let mut ops = tree();
    let mode = |who, mode| {
        let change = TreeChange { mode: ModeChange::parse(mode), ..TreeChange::default() };
        Op::ChangeTree { who, top: path(""), change }
    };
    ops.extend([
        Op::Sync,
        mode(Who::One, "u=g,g=o"),
        mode(Who::Two, "g=u,g+s"),
        Op::Sync,
        change_owners("t/d", 1000, 100),
        mode(Who::One, "u+rwx,go="),
        mode(Who::Two, "u=g,o+r"),
        Op::Sync,
    ]);
    crash_everywhere("users", &ops);
}
