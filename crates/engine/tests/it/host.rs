//! The host's storage: a sparse file shrinks after removals, and a full host causes an ordinary
//! `ENOSPC`.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use shoal_engine::*;
use shoal_skip::wait_until;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A separate directory for a test, on a separate small filesystem if it can be mounted.
struct Place {
    path: PathBuf,
    mounted: bool,
}

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("shoal-host-{name}.{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place { path, mounted: false }
    }

    /// Returns `None` with a message if mounting fails: only root can mount.
    fn limited(name: &str, options: &std::ffi::CStr) -> Option<Place> {
        let mut place = Place::new(name);
        match mount("shoal-test", &place.path, "tmpfs", MountFlags::empty(), options) {
            Ok(()) => {
                place.mounted = true;
                Some(place)
            }
            Err(errno) => {
                shoal_skip::skipped(&format!("a tmpfs cannot be mounted: {errno}"));
                None
            }
        }
    }

    fn volume(&self) -> PathBuf {
        self.path.join("volume")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.mounted {
            let _ = unmount(&self.path, UnmountFlags::DETACH);
        }
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn mkfs_of(path: &Path, size: u64) {
    mkfs(path, &MkfsOptions { size, ..MkfsOptions::default() }).unwrap();
}

fn open(path: &Path) -> Volume {
    let options = OpenOptions { cache_bytes: 64 << 20, ..OpenOptions::default() };
    Volume::open(path, &options).unwrap()
}

fn name(n: usize) -> Vec<u8> {
    format!("f{n}").into_bytes()
}

fn contents(n: usize) -> Vec<u8> {
    (0..100_000_usize).map(|at| (at / 7 + n) as u8).collect()
}

fn put(volume: &Volume, n: usize) -> Result<()> {
    let file = volume.namespace().create(&Caller::root(), Ino::ROOT, &name(n), 0o644)?;
    let mut at = 0;
    let data = contents(n);
    while at < data.len() {
        at += volume.files().write(file.ino, at as u64, &data[at..], false)?;
    }
    Ok(())
}

fn verify(volume: &Volume, n: usize) {
    let file = volume.namespace().lookup(&Caller::root(), Ino::ROOT, &name(n)).unwrap();
    let mut back = vec![0; 100_000];
    volume.files().read(file.ino, 0, &mut back).unwrap();
    assert!(back == contents(n), "file {n}");
}

fn allocated(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

fn remove(volume: &Volume, n: usize) -> Result<()> {
    volume.namespace().unlink(&Caller::root(), Ino::ROOT, &name(n)).map(drop)
}

/// A report can tell a full volume from a full host.
#[test]
fn a_volume_knows_what_limits_it() {
    for (size, limited) in [(1 << 30, true), (32 << 20, false)] {
        let Some(place) = Place::limited("limits", c"size=128m") else { return };
        mkfs_of(&place.volume(), size);
        let volume = open(&place.volume());
        assert_eq!(volume.info().limited_by_host, limited, "{:?}", volume.statfs());
        assert!(!volume.info().unlinked);
        std::fs::remove_file(place.volume()).unwrap();
        assert!(volume.info().unlinked);
        volume.close().unwrap();
    }
}

/// After most files are removed, the volume's file soon shrinks to the size of the live data, even
/// if that is scattered over the whole file. With `nodiscard` the size does not change.
#[test]
fn the_volume_file_shrinks() {
    for discard in [true, false] {
        let place = Place::new(&format!("shrink-{discard}"));
        mkfs_of(&place.volume(), 1 << 30);
        let options = OpenOptions { cache_bytes: 64 << 20, discard, ..OpenOptions::default() };
        let volume = Volume::open(&place.volume(), &options).unwrap();
        let files = 4000;
        (0..files).for_each(|n| put(&volume, n).unwrap());
        volume.sync().unwrap();
        let full = allocated(&place.volume());
        assert!(full > 390_000_000, "{full}");
        (0..files).filter(|n| n % 100 != 0).for_each(|n| remove(&volume, n).unwrap());
        let live = 40 * 100_000;
        let goal = live + (64 << 20);
        if discard {
            wait_until("the file shrinks", || allocated(&place.volume()) <= goal);
        } else {
            // Time to do what must not be done.
            volume.maintenance().checkpoint().unwrap();
            std::thread::sleep(Duration::from_secs(2));
            let after = allocated(&place.volume());
            assert!(after >= full, "{after} of {full} bytes");
        }
        (0..files).step_by(100).for_each(|n| verify(&volume, n));
        if !discard {
            let mut bytes = 0;
            // A checkpoint that is being written still needs some of what is dead.
            wait_until("the file shrinks by a trim", || {
                bytes += volume.maintenance().trim(true, u64::MAX).unwrap();
                allocated(&place.volume()) <= goal
            });
            assert!(bytes > 300 << 20, "{bytes} were discarded");
        }
        volume.close().unwrap();
        let volume = open(&place.volume());
        (0..files).step_by(100).for_each(|n| verify(&volume, n));
        volume.close().unwrap();
    }
}

/// A full volume of which everything is removed: whole segments are dead, nothing must be moved,
/// and nothing else requests the checkpoint that frees them.
#[test]
fn the_file_of_a_full_volume_shrinks() {
    let place = Place::new("shrink-full");
    mkfs_of(&place.volume(), 256 << 20);
    let volume = open(&place.volume());
    let full = |error: &Error| error.is(Code::NoSpace);
    let files =
        (0..).take_while(|n| put(&volume, *n).map_err(|e| assert!(full(&e), "{e}")).is_ok());
    // The last one, which is incomplete, has a name too.
    let files = files.count() + 1;
    volume.sync().unwrap();
    let before = allocated(&place.volume());
    (0..files).for_each(|n| drop(remove(&volume, n)));
    volume.sync().unwrap();
    assert!(before > 200 << 20, "{before}");
    wait_until("the file shrinks", || allocated(&place.volume()) <= 64 << 20);
    volume.close().unwrap();
}

/// Another file fills the host's disk: calls fail with `ENOSPC`, no acknowledged data is lost, and
/// removals work at once. When there is space again, everything works, also after reopening.
#[test]
fn a_full_host_is_a_lack_of_space() {
    let Some(place) = Place::limited("full", c"size=160m") else { return };
    mkfs_of(&place.volume(), 1 << 30);
    let volume = open(&place.volume());
    let mut files = 0;
    while files < 300 {
        put(&volume, files).unwrap();
        files += 1;
    }
    volume.sync().unwrap();
    assert!(volume.statfs().bytes_available < 160 << 20, "{:?}", volume.statfs());
    // Another file uses the rest.
    let other = place.path.join("other");
    let fill = |path: &Path| {
        let mut file = std::fs::File::create(path).unwrap();
        while std::io::Write::write_all(&mut file, &[1; 64 << 10]).is_ok() {}
    };
    fill(&other);
    // Open segments still have some space; then calls are refused, and stay so.
    let mut refused = 0;
    while refused < 400 {
        match put(&volume, files) {
            Ok(()) => files += 1,
            Err(e) => {
                assert_eq!(e.code(), Code::NoSpace, "{e}");
                let _ = remove(&volume, files);
                refused += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        assert_eq!(volume.read_only_reason(), None);
    }
    wait_until("little is said to be left", || volume.statfs().bytes_available < 16 << 20);
    volume.sync().unwrap();
    (0..files).step_by(7).for_each(|n| verify(&volume, n));
    drop(volume);
    // As after a crash, with the host as full as before.
    let volume = open(&place.volume());
    (0..files).for_each(|n| verify(&volume, n));
    for n in 0..files / 2 {
        remove(&volume, n).unwrap_or_else(|e| panic!("removing {n}: {e}"));
    }
    volume.sync().unwrap();
    put(&volume, 0).unwrap();
    assert_eq!(volume.read_only_reason(), None);
    volume.close().unwrap();
    let volume = open(&place.volume());
    verify(&volume, 0);
    // There is space again.
    std::fs::remove_file(&other).unwrap();
    let more = files + 200;
    (files..more).for_each(|n| put(&volume, n).unwrap());
    (files..more).for_each(|n| verify(&volume, n));
    volume.close().unwrap();
}
