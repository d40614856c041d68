//! A volume that becomes read-only at work shows it: in `statvfs`, in the list of mounts, through
//! the mount, and in the log.

use crate::common::*;
use rustix::fs::{OFlags, StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use shoal::raw::Caller;
use shoal_skip::wait_until;
use std::path::{Path, PathBuf};

/// `fusermount3` needs a user with a name.
const NOBODY: u32 = 65534;

fn is_read_only(dir: &Path) -> bool {
    statvfs(dir).unwrap().f_flag.contains(StatVfsMountFlags::RDONLY)
}

/// A bind mount of the same, removed also if the test fails.
struct Bound(PathBuf);

impl Bound {
    fn new(m: &TestMount) -> Bound {
        let dir = m.base().join("other");
        std::fs::create_dir(&dir).unwrap();
        mount_bind(&m.dir, &dir).unwrap();
        Bound(dir)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

/// Options of the super block in `/proc/self/mountinfo`.
fn options(dir: &Path) -> String {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let wanted = format!(" {} ", dir.display());
    let line = table.lines().find(|line| line.contains(&wanted)).unwrap();
    line.rsplit(' ').next().unwrap().to_owned()
}

fn reason(dir: &Path) -> Option<String> {
    calls(open(dir, OFlags::RDONLY).unwrap()).read_only_reason(&Caller::root()).unwrap()
}

/// Makes a change that cannot be flushed.
fn break_it(m: &TestMount) {
    touch(m.path("before"));
    m.fail_flushes();
    let file = open(m.path("before"), OFlags::RDONLY).unwrap();
    let outcome = rustix::fs::fsync(&file);
    assert!(matches!(outcome, Err(Errno::IO | Errno::ROFS)), "{outcome:?}");
}

#[test]
fn it_shows() {
    let Some(mut m) = mount_failing("") else { return };
    let other = Bound::new(&m);
    assert!(!is_read_only(&m.dir) && options(&m.dir).starts_with("rw"));
    assert_eq!(reason(&m.dir), None);
    break_it(&m);
    wait_until("shown as read-only", || is_read_only(&m.dir));
    assert!(is_read_only(&other.0), "wherever it is mounted");
    assert!(options(&m.dir).starts_with("ro"), "{}", options(&m.dir));
    fails!(ROFS, open(m.path("after"), OFlags::CREATE | OFlags::WRONLY));
    fails!(ROFS, open(m.path("before"), OFlags::WRONLY));
    assert!(lstat(m.path("before")).is_ok(), "it can be read");
    let why = reason(&m.dir).expect("a reason");
    assert!(why.contains("journal"), "{why}");
    wait_until("said in the log", || m.log().contains("the mount is read-only now"));
    let log = m.log();
    assert!(log.contains("the volume has become read-only") && log.contains(&why), "{log}");
    drop(other);
    m.stop();
    m.mend();
    m.start(0);
    assert!(!is_read_only(&m.dir) && reason(&m.dir).is_none(), "mounted anew");
}

/// The kernel refuses while a file is open for writing.
#[test]
fn it_shows_once_no_file_is_open_for_writing() {
    let Some(mut m) = mount_failing("") else { return };
    touch(m.path("open"));
    let file = open(m.path("open"), OFlags::WRONLY).unwrap();
    break_it(&m);
    wait_until("tried", || m.log().contains("when no file is open for writing"));
    assert!(!is_read_only(&m.dir));
    fails!(ROFS, rustix::io::write(&file, b"x"));
    drop(file);
    wait_until("tried again", || is_read_only(&m.dir));
    m.stop();
    m.mend();
}

/// The retries do not keep the mount from ending.
#[test]
fn it_ends_while_it_is_still_tried() {
    let Some(mut m) = mount_failing("") else { return };
    touch(m.path("open"));
    let file = open(m.path("open"), OFlags::WRONLY).unwrap();
    break_it(&m);
    wait_until("tried", || m.log().contains("when no file is open for writing"));
    shoal_fuse::unmount_lazy(&m.dir).unwrap();
    drop(file);
    assert!(m.wait_for_server().success());
    m.mend();
}

/// The server of an ordinary user must not change the mount that this user has made.
#[test]
fn an_ordinary_users_server_says_that_it_cannot() {
    let Some(mut m) = mount_failing("") else { return };
    m.stop();
    std::fs::remove_file(m.volume()).unwrap();
    chown(m.base(), NOBODY, NOBODY);
    chown(&m.dir, NOBODY, NOBODY);
    let exe = std::env::current_exe().unwrap();
    let runs = as_user(NOBODY, &[], || std::fs::File::open(&exe).is_ok());
    let device = as_user(NOBODY, &[], || open("/dev/fuse", OFlags::RDWR).is_ok());
    if !(runs && device && Path::new("/usr/bin/fusermount3").exists()) {
        skipped("an ordinary user cannot mount here, or not run this test program");
        return;
    }
    m.start(NOBODY);
    as_user(NOBODY, &[], || break_it(&m));
    wait_until("said", || m.log().contains("the mount is not shown as read-only"));
    as_user(NOBODY, &[], || assert!(!is_read_only(&m.dir) && reason(&m.dir).is_some()));
    m.stop_as(NOBODY);
    m.mend();
}
