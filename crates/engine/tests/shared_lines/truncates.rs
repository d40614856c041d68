//! Cache lines that move between two threads which truncate, each a file of its own, a byte at a
//! time: as Shoal does it, with a slot of the orphan table for each truncate, and with a list under
//! a mutex. Two processors are too few for a mutex to show in a time; a line that moves is what
//! makes it slow with more.

use crate::lines::{CALLS, Line, mkfs_options, moves};
use crate::trace::{Access, in_turn, traced};
use shoal_engine::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of the files.
const BYTES: u64 = 4096;
/// Truncates before those that are traced.
const WARM: u64 = 8;

/// Traces all three, prints the moves, and panics if the table's slots share lines, or the list
/// shares none.
pub(crate) fn run() {
    let [needed, table, list] = [
        ("needed", TruncateTracking::AsNeeded),
        ("table", TruncateTracking::Table),
        ("list", TruncateTracking::List),
    ]
    .map(|(name, tracking)| of(name, tracking));
    // The records are longer with a slot: a record of one thread more often ends in a line in which
    // one of the other thread begins.
    assert!(table <= needed + 0.75, "slots of two threads share lines: {table} after {needed}");
    assert!(list >= table + 1.0, "a mutex and its list do not move: {list} after {table}");
}

/// Returns the moves of a truncate.
fn of(name: &str, truncate_tracking: TruncateTracking) -> f64 {
    let device = Arc::new(MemDevice::new(1 << 28));
    mkfs_on(device.clone(), &mkfs_options(0)).unwrap();
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    let lab = Lab { truncate_tracking, ..options.lab };
    let volume = Arc::new(Volume::open_on(device, &OpenOptions { lab, ..options }).unwrap());
    let root = Caller::root();
    let files = ["a", "b"].map(|dir| {
        let dir = volume.namespace().mkdir(&root, Ino::ROOT, dir.as_bytes(), 0o755).unwrap().ino;
        let file = volume.namespace().create(&root, dir, b"file", 0o644).unwrap().ino;
        volume.files().write(file, 0, &[7; BYTES as usize], false).unwrap();
        file
    });
    let logs = std::thread::scope(|scope| {
        let volume = &volume;
        let threads = [0, 1].map(|me| scope.spawn(move || work(volume, me, files[me])));
        threads.map(|thread| thread.join().unwrap())
    });
    let lines: BTreeMap<usize, Line> = moves(&logs);
    let calls = 2 * CALLS;
    let moved = f64::from(lines.values().map(|line| line.moves).sum::<u32>()) / f64::from(calls);
    println!(
        "{{\"workload\":\"shared-lines\",\"call\":\"truncate\",\"tracking\":\"{name}\",\
         \"ops\":{calls},\"moves\":{moved:.3}}}"
    );
    moved
}

/// Returns the accesses of each of a thread's truncates.
fn work(volume: &Volume, me: usize, file: Ino) -> Vec<Vec<Access>> {
    let truncate = |n: u64| {
        let size = Some(BYTES - n);
        let set = SetAttr { size, ..SetAttr::default() };
        volume.attributes().setattr(&Caller::root(), file, &set).map(drop).unwrap();
    };
    let mut logs = Vec::new();
    for n in 1..=WARM {
        in_turn(me, 2, || truncate(n));
    }
    for n in 0..u64::from(CALLS) {
        in_turn(me, 2, || {
            let ((), log) = traced(|| truncate(WARM + 1 + n));
            logs.push(log);
        });
    }
    // Waits until the other thread is done too.
    in_turn(me, 2, || {});
    logs
}
