//! A full volume: `ENOSPC` comes from the call that needs the space, removing always works, and
//! freed space can be used again.

use crate::common::*;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// Writes files of `size` bytes until the volume is full; returns how many are complete.
fn fill(m: &TestMount, dir: &str, size: usize) -> usize {
    if stat(m.path(dir)).is_err() {
        mkdir(m.path(dir), 0o755).unwrap();
    }
    let data = pattern(size, 3);
    for number in 0.. {
        let path = m.path(&format!("{dir}/{number}"));
        let fd = match create(&path, OFlags::WRONLY, 0o600) {
            Ok(fd) => fd,
            Err(errno) => {
                assert_eq!(errno, Errno::NOSPC);
                return number;
            }
        };
        let mut sent = 0;
        while sent < size {
            match rustix::io::write(&fd, &data[sent..]) {
                Ok(n) => sent += n,
                Err(errno) => {
                    assert_eq!(errno, Errno::NOSPC);
                    drop(fd);
                    unlink(&path).unwrap();
                    return number;
                }
            }
        }
    }
    unreachable!();
}

/// With files of `size` bytes on a volume of `volume` bytes.
fn fill_and_refill(size: usize, volume: u64) {
    let Some(mut m) = mount_only("") else { return };
    m.stop();
    std::fs::remove_file(m.volume()).unwrap();
    make_volume(&m.volume(), volume);
    m.start(0);
    let first = fill(&m, "first", size);
    let bytes = (first * size) as u64;
    println!("{first} files of {size} bytes");
    assert!(bytes > volume * 2 / 5 || size < 4096, "{bytes} bytes of {volume}");
    // Complete files are intact.
    m.remount();
    let data = pattern(size, 3);
    for number in (0..first).step_by(1 + first / 50) {
        assert!(std::fs::read(m.path(&format!("first/{number}"))).unwrap() == data);
    }
    // Half of it removed, file by file, on a full volume; then all.
    for number in (0..first).step_by(2) {
        unlink(m.path(&format!("first/{number}"))).unwrap();
    }
    let second = fill(&m, "second", size);
    assert!(second > first / 4, "{second} after half of {first} was removed");
    for number in (1..first).step_by(2).step_by(1 + first / 50) {
        assert!(std::fs::read(m.path(&format!("first/{number}"))).unwrap() == data);
    }
    std::fs::remove_dir_all(m.path("first")).unwrap();
    std::fs::remove_dir_all(m.path("second")).unwrap();
    let third = fill(&m, "third", size);
    assert!(third > first / 10 * 9, "{third} of {first}");
}

#[test]
fn large_files() {
    fill_and_refill(4 << 20, 256 << 20);
}

#[test]
fn middling_files() {
    fill_and_refill(100_000, 256 << 20);
}

#[test]
fn small_files() {
    fill_and_refill(3000, 64 << 20);
}

/// A file unlinked while open keeps its space until it is closed.
#[test]
fn unlinked_files_give_their_space_back() {
    let Some(m) = mount_only("") else { return };
    let data = pattern(1 << 20, 2);
    let write = |name: &str| {
        let fd = create(m.path(name), OFlags::RDWR, 0o600).unwrap();
        let mut sent = 0;
        while sent < 150 << 20 {
            match rustix::io::write(&fd, &data) {
                Ok(n) => sent += n,
                Err(errno) => {
                    assert_eq!(errno, Errno::NOSPC);
                    return (fd, false);
                }
            }
        }
        (fd, true)
    };
    let (fd, complete) = write("first");
    assert!(complete);
    unlink(m.path("first")).unwrap();
    assert!(!write("second").1, "the first still takes its space");
    unlink(m.path("second")).unwrap();
    assert_eq!(pread(&fd, 100 << 20, 1 << 20), data);
    drop(fd);
    // The kernel takes its time to report that nobody has the file any more.
    shoal_skip::wait_until("the first has given its space back", || {
        let (_, complete) = write("third");
        complete || unlink(m.path("third")).is_err()
    });
}

/// Changes that need no room, or little, work on a full volume.
#[test]
fn small_changes_on_a_full_volume() {
    let Some(m) = mount_only("") else { return };
    // Afterwards there may be no room for a directory.
    mkdir(m.path("first"), 0o755).unwrap();
    mkdir(m.path("second"), 0o755).unwrap();
    touch(m.path("second/before"));
    fill(&m, "first", 1 << 20);
    let files = fill(&m, "second", 1000);
    for number in 0..files.min(100) {
        let path = m.path(&format!("second/{number}"));
        truncate(&path, 10).unwrap();
        unlink(&path).unwrap();
    }
    std::fs::remove_dir_all(m.path("second")).unwrap();
    truncate(m.path("first/0"), 0).unwrap();
    shoal_fuse::sync(&m.dir).unwrap();
    std::fs::remove_dir_all(m.path("first")).unwrap();
    assert!(list(&m.dir).is_empty());
}
