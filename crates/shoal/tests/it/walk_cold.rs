//! Walks over trees that are not in memory.

#[path = "../../../engine/tests/it/common/slow.rs"]
mod slow;

use shoal::{Credentials, Dir, Volume};
use slow::Slow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
