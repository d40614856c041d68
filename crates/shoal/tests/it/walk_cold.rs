//! Walks over trees that are not in memory. The speed on a device with 1 ms per read, which decides
//! no test:
//!
//! `cargo test --release -p shoal --test it -- walk_cold:: --ignored --nocapture`

#[path = "../../../engine/tests/it/common/slow.rs"]
mod slow;

use shoal::{Credentials, Dir, Volume};
use slow::Slow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

fn open(slow: &Arc<Slow>) -> (Volume, Dir) {
    let volume = Volume::options().cache(512 << 20).open_on(slow.clone()).unwrap();
    let root = volume.root(Credentials::root());
    (volume, root)
}

#[test]
fn a_walk_that_waits_for_the_device_gets_more_threads() {
    let slow = Slow::with_volume(128 << 20);
    let (volume, root) = open(&slow);
    // Each directory's inode block is far from the next one's.
    for i in 0..300 {
        let dir = root.create_dir(format!("d{i}")).unwrap();
        for file in 0..80 {
            dir.write(format!("{file}"), b"x").unwrap();
        }
    }
    drop(root);
    volume.close().unwrap();
    slow.read_us.store(20_000, Ordering::SeqCst);
    let (_volume, root) = open(&slow);
    slow.forget();
    assert_eq!(root.walk().into_iter().filter(Result::is_ok).count(), 300 * 81);
    let most = slow.reads_at_a_time();
    assert!(most > 4, "{most} reads at a time");
}

/// Makes 3,221 directories with 169 files, as in a large maildir tree: one after another, or all of
/// them in turn.
fn maildir(root: &Dir, in_turn: bool) -> u64 {
    const DIRS: usize = 3221;
    const FILES: usize = 169;
    let dirs: Vec<Dir> = (0..DIRS).map(|i| root.create_dir(format!("d{i}")).unwrap()).collect();
    for n in 0..DIRS * FILES {
        let (dir, file) = if in_turn { (n % DIRS, n / DIRS) } else { (n / FILES, n % FILES) };
        dirs[dir].create_new(format!("{file}.host:2,S")).unwrap();
    }
    (DIRS * (FILES + 1)) as u64
}

#[test]
#[ignore = "a measurement: run it in release"]
fn a_maildir_tree_at_1_ms_a_read() {
    for in_turn in [false, true] {
        let slow = Slow::with_volume(1 << 30);
        let (volume, root) = open(&slow);
        let entries = maildir(&root, in_turn);
        drop(root);
        volume.close().unwrap();
        for micros in [0, 1000] {
            for threads in [Some(1), None] {
                slow.read_us.store(micros, Ordering::SeqCst);
                let (_volume, root) = open(&slow);
                slow.forget();
                let mut walk = root.walk();
                if let Some(threads) = threads {
                    walk = walk.threads(threads);
                }
                let begun = Instant::now();
                assert_eq!(walk.into_iter().filter(Result::is_ok).count() as u64, entries);
                println!(
                    "in turn {in_turn}, {micros} us a read, threads {threads:?}: {:.2} s, {} reads",
                    begun.elapsed().as_secs_f64(),
                    slow.reads()
                );
            }
        }
    }
}
