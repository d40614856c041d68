//! Calls on an open descriptor: every kind of object, opened in every way, times every call; also
//! after its name was removed.

use super::Case;
use super::sys;
use super::sys::{Fd, both_times, describe, names, open_at};
use crate::common::Res;
use libc::AT_FDCWD;
use std::ffi::{CStr, CString};
use std::sync::Arc;

type FdCall = Box<dyn Fn(&Fd) -> Res<String> + Send + Sync>;

struct Call {
    name: String,
    run: FdCall,
}

#[derive(Default)]
struct Calls(Vec<Call>);

impl Calls {
    fn add(
        &mut self,
        name: impl Into<String>,
        run: impl Fn(&Fd) -> Res<String> + Send + Sync + 'static,
    ) {
        self.0.push(Call { name: name.into(), run: Box::new(run) });
    }
}

/// Objects and ways to open them; with `true` the name is removed afterwards.
fn opened() -> Vec<(&'static CStr, &'static str, i32, bool)> {
    use libc::*;
    let mut list = Vec::new();
    for path in [c"shared", c"suid", c"alice", c"one"] {
        for (how, flags) in [
            ("O_RDONLY", O_RDONLY),
            ("O_WRONLY", O_WRONLY),
            ("O_RDWR", O_RDWR),
            ("O_RDWR|O_APPEND", O_RDWR | O_APPEND),
            ("O_PATH", O_PATH),
        ] {
            list.push((path, how, flags, false));
        }
    }
    for path in [c"open", c"dir", c"setgid", c"."] {
        list.push((path, "O_RDONLY", O_RDONLY | O_DIRECTORY, false));
        list.push((path, "O_PATH", O_PATH, false));
    }
    for path in [c"tofile", c"fifo", c"socket", c"device"] {
        list.push((path, "O_PATH|O_NOFOLLOW", O_PATH | O_NOFOLLOW, false));
    }
    list.push((c"fifo", "O_RDWR", O_RDWR, false));
    list.push((c"open", "O_TMPFILE|O_RDWR", O_TMPFILE | O_RDWR, false));
    list.push((c"open", "O_TMPFILE|O_EXCL", O_TMPFILE | O_RDWR | O_EXCL, false));
    list.push((c"open/inner", "O_RDWR", O_RDWR, true));
    list.push((c"one", "O_RDWR", O_RDWR, true));
    list.push((c"empty", "O_RDONLY", O_RDONLY | O_DIRECTORY, true));
    list.push((c"todir", "O_PATH|O_NOFOLLOW", O_PATH | O_NOFOLLOW, true));
    list
}

/// Returns every call with every descriptor.
pub(super) fn cases() -> Vec<Case> {
    let mut calls = Calls::default();
    reading(&mut calls);
    writing(&mut calls);
    sizing(&mut calls);
    seeking(&mut calls);
    metadata(&mut calls);
    directories(&mut calls);
    linking(&mut calls);
    locking(&mut calls);
    mapping(&mut calls);
    let mut cases = Vec::new();
    for call in calls.0.into_iter().map(Arc::new) {
        for (path, how, flags, removed) in opened() {
            let call = call.clone();
            let gone = if removed { ", removed" } else { "" };
            let what = format!("{} on {:?} {how}{gone}", call.name, path);
            // A failing write may have moved times.
            let prepares = removed || call.name.contains("bad address");
            let run = move || {
                let fd = open_at(path, flags, 0o600)?;
                if removed {
                    let dir = if path == c"empty" { libc::AT_REMOVEDIR } else { 0 };
                    sys!(libc::SYS_unlinkat, AT_FDCWD, path, dir)?;
                }
                (call.run)(&fd)
            };
            cases.push(Case { what, prepares, run: Box::new(run) });
        }
    }
    cases
}

fn done(outcome: Res<i64>) -> Res<String> {
    outcome.map(|value| value.to_string())
}

/// Adds the state of the descriptor to the result of a call.
fn then(fd: &Fd, outcome: Res<i64>) -> Res<String> {
    let value = outcome?;
    let at = sys!(libc::SYS_lseek, fd.0, 0, libc::SEEK_CUR).unwrap_or(-1);
    Ok(format!("{value}, at {at}, {}", describe(fd)?))
}

fn reading(calls: &mut Calls) {
    use libc::*;
    for (len, offset) in [(4, 0), (100, 2), (0, 0), (4, 1 << 40), (4, i64::MAX), (4, -1)] {
        calls.add(format!("pread {len} {offset}"), move |fd| {
            let mut room = [0u8; 100];
            let got = sys!(SYS_pread64, fd.0, room.as_mut_ptr(), len, offset)?;
            Ok(String::from_utf8_lossy(&room[..got as usize]).into_owned())
        });
    }
    calls.add("read", |fd| {
        let mut room = [0u8; 4];
        let got = sys!(SYS_read, fd.0, room.as_mut_ptr(), 4);
        then(fd, got)
    });
    calls.add("read to a bad address", |fd| done(sys!(SYS_read, fd.0, 0, 4)));
    calls.add("readahead", |fd| done(sys!(SYS_readahead, fd.0, 0i64, 100)));
    for advice in [0, 3, 4, 9] {
        calls.add(format!("fadvise {advice}"), move |fd| {
            done(sys!(SYS_fadvise64, fd.0, 0i64, 100i64, advice))
        });
    }
    calls.add("getfl", |fd| {
        let flags = sys!(SYS_fcntl, fd.0, F_GETFL)?;
        Ok(format!("{:o}", flags & !i64::from(O_NOATIME)))
    });
    for (name, flags) in [("O_APPEND", O_APPEND), ("nothing", 0), ("O_NOATIME", O_NOATIME)] {
        calls.add(format!("setfl {name}"), move |fd| {
            sys!(SYS_fcntl, fd.0, F_SETFL, flags)?;
            then(fd, sys!(SYS_write, fd.0, c"Z", 1))
        });
    }
}

fn writing(calls: &mut Calls) {
    use libc::*;
    for (len, offset) in [(2, 0), (2, 3), (2, 100), (0, 50), (2, -1), (2, i64::MAX - 1)] {
        calls.add(format!("pwrite {len} {offset}"), move |fd| {
            then(fd, sys!(SYS_pwrite64, fd.0, c"XY", len, offset))
        });
    }
    calls.add("write", |fd| then(fd, sys!(SYS_write, fd.0, c"XY", 2)));
    calls.add("write nothing", |fd| then(fd, sys!(SYS_write, fd.0, c"", 0)));
    calls.add("write from a bad address", |fd| done(sys!(SYS_write, fd.0, 0, 4)));
    for (name, number) in
        [("fsync", SYS_fsync), ("fdatasync", SYS_fdatasync), ("syncfs", SYS_syncfs)]
    {
        calls.add(name, move |fd| done(sys!(number, fd.0)));
    }
    for flags in [0, 7, 8] {
        calls.add(format!("sync_file_range {flags}"), move |fd| {
            done(sys!(SYS_sync_file_range, fd.0, 0i64, 4i64, flags))
        });
    }
    // From, to, length, flags.
    for (from, to, len, flags) in
        [(0, 0, 4, 0), (0, 4, 4, 0), (2, 100, 4, 0), (100, 0, 4, 0), (0, 0, 4, 1), (-1, 0, 4, 0)]
    {
        calls.add(format!("copy_file_range to file from {from} to {to} of {len} flags {flags}"), {
            move |fd| {
                let out = open_at(c"toshared", O_RDWR, 0)?;
                let (mut from, mut to) = (from as i64, to as i64);
                let (from, to) = (&raw mut from, &raw mut to);
                done(sys!(SYS_copy_file_range, fd.0, from, out.0, to, len, flags))
            }
        });
        calls.add(format!("copy_file_range within from {from} to {to} of {len} flags {flags}"), {
            move |fd| {
                let (mut from, mut to) = (from as i64, to as i64);
                let (from, to) = (&raw mut from, &raw mut to);
                then(fd, sys!(SYS_copy_file_range, fd.0, from, fd.0, to, len, flags))
            }
        });
    }
    calls.add("sendfile", |fd| {
        let out = open_at(c"toshared", O_RDWR, 0)?;
        done(sys!(SYS_sendfile, out.0, fd.0, 0, 4))
    });
}

fn sizing(calls: &mut Calls) {
    use libc::*;
    for size in [0, 3, 100, -1, i64::MAX] {
        calls.add(format!("ftruncate {size}"), move |fd| then(fd, sys!(SYS_ftruncate, fd.0, size)));
    }
    for (name, mode) in [
        ("allocate", 0),
        ("KEEP_SIZE", 1),
        ("PUNCH_HOLE", 2),
        ("PUNCH_HOLE|KEEP_SIZE", 3),
        ("COLLAPSE", 8),
        ("ZERO", 0x10),
        ("ZERO|KEEP_SIZE", 0x11),
        ("INSERT", 0x20),
        ("UNSHARE", 0x40),
        ("unknown mode", 0x4000),
    ] {
        for (offset, len) in [(0, 4), (2, 100), (0, 0), (-1, 4), (4, -1), (i64::MAX, 4)] {
            calls.add(format!("fallocate {name} {offset} {len}"), move |fd| {
                then(fd, sys!(SYS_fallocate, fd.0, mode, offset, len))
            });
        }
    }
}

fn seeking(calls: &mut Calls) {
    use libc::*;
    for (name, whence) in [
        ("SET", SEEK_SET),
        ("CUR", SEEK_CUR),
        ("END", SEEK_END),
        ("DATA", SEEK_DATA),
        ("HOLE", SEEK_HOLE),
        ("9", 9),
    ] {
        for offset in [0, 3, 100, -1, i64::MAX] {
            calls.add(format!("lseek {name} {offset}"), move |fd| {
                done(sys!(SYS_lseek, fd.0, offset, whence))
            });
        }
    }
}

fn metadata(calls: &mut Calls) {
    use libc::*;
    calls.add("fstat", describe);
    for mode in [0o600, 0o6755, 0o1777] {
        calls.add(format!("fchmod {mode:o}"), move |fd| then(fd, sys!(SYS_fchmod, fd.0, mode)));
        calls.add(format!("fchmodat2 EMPTY_PATH {mode:o}"), move |fd| {
            then(fd, sys!(SYS_fchmodat2, fd.0, c"", mode, AT_EMPTY_PATH))
        });
    }
    for (uid, gid) in [(-1, -1), (1000, -1), (-1, 100), (1001, 1001), (0, 0)] {
        calls.add(format!("fchown {uid} {gid}"), move |fd| {
            then(fd, sys!(SYS_fchown, fd.0, uid, gid))
        });
        calls.add(format!("fchownat EMPTY_PATH {uid} {gid}"), move |fd| {
            then(fd, sys!(SYS_fchownat, fd.0, c"", uid, gid, AT_EMPTY_PATH))
        });
    }
    for (name, access, change) in [
        ("now", (0, UTIME_NOW), (0, UTIME_NOW)),
        ("omit", (0, UTIME_OMIT), (0, UTIME_OMIT)),
        ("5, 6", (5, 0), (6, 0)),
        ("omit, now", (0, UTIME_OMIT), (0, UTIME_NOW)),
    ] {
        calls.add(format!("futimens {name}"), move |fd| {
            let times = both_times(access, change);
            then(fd, sys!(SYS_utimensat, fd.0, 0, times.as_ptr(), 0))
        });
    }
    for name in [c"user.new", c"user.old", c"trusted.x", c"other.x"] {
        let text = name.to_string_lossy();
        calls.add(format!("fsetxattr {text}"), move |fd| {
            done(sys!(SYS_fsetxattr, fd.0, name, c"abc", 3, 0))
        });
        calls.add(format!("fgetxattr {text}"), move |fd| {
            let mut room = [0u8; 16];
            done(sys!(SYS_fgetxattr, fd.0, name, room.as_mut_ptr(), 16))
        });
        calls.add(format!("fremovexattr {text}"), move |fd| {
            done(sys!(SYS_fremovexattr, fd.0, name))
        });
    }
    calls.add("flistxattr", |fd| {
        let mut room = [0u8; 256];
        done(sys!(SYS_flistxattr, fd.0, room.as_mut_ptr(), 256))
    });
}

fn directories(calls: &mut Calls) {
    use libc::*;
    calls.add("getdents", |fd| Ok(names(fd)?.join(" ")));
    calls.add("getdents into 8 bytes", |fd| {
        let mut room = [0u8; 8];
        done(sys!(SYS_getdents64, fd.0, room.as_mut_ptr(), 8))
    });
    calls.add("getdents twice", |fd| {
        let first = names(fd)?.len();
        Ok(format!("{first} {}", names(fd)?.len()))
    });
    calls.add("getdents, back, getdents", |fd| {
        names(fd)?;
        sys!(SYS_lseek, fd.0, 0, SEEK_SET)?;
        Ok(names(fd)?.join(" "))
    });
    calls.add("fchdir", |fd| done(sys!(SYS_fchdir, fd.0)));
    for path in [c"inner", c"new", c"", c"..", c"sub/new", c"inner/x"] {
        let text = path.to_string_lossy();
        calls.add(format!("openat {text}"), move |fd| {
            Fd(sys!(SYS_openat, fd.0, path, O_RDONLY | O_NONBLOCK, 0)?);
            Ok(String::new())
        });
        calls.add(format!("openat O_CREAT {text}"), move |fd| {
            Fd(sys!(SYS_openat, fd.0, path, O_CREAT | O_WRONLY | O_NONBLOCK, 0o666)?);
            Ok(String::new())
        });
        calls.add(format!("mkdirat {text}"), move |fd| done(sys!(SYS_mkdirat, fd.0, path, 0o755)));
        calls.add(format!("symlinkat {text}"), move |fd| {
            done(sys!(SYS_symlinkat, c"x", fd.0, path))
        });
        calls.add(format!("unlinkat {text}"), move |fd| done(sys!(SYS_unlinkat, fd.0, path, 0)));
        calls.add(format!("statat {text}"), move |fd| sys::stat_words(fd.0, path, 0));
        calls.add(format!("renameat to shared's {text}"), move |fd| {
            done(sys!(SYS_renameat2, AT_FDCWD, c"shared", fd.0, path, 0))
        });
        calls.add(format!("linkat to {text}"), move |fd| {
            done(sys!(SYS_linkat, AT_FDCWD, c"shared", fd.0, path, 0))
        });
    }
}

fn linking(calls: &mut Calls) {
    use libc::*;
    calls.add("readlinkat of itself", |fd| {
        let mut room = [0u8; 64];
        let len = sys!(SYS_readlinkat, fd.0, c"", room.as_mut_ptr(), 64)? as usize;
        Ok(String::from_utf8_lossy(&room[..len]).into_owned())
    });
    for path in [c"open/linked", c"dir/linked", c"shared"] {
        let text = path.to_string_lossy();
        calls.add(format!("linkat EMPTY_PATH {text}"), move |fd| {
            then(fd, sys!(SYS_linkat, fd.0, c"", AT_FDCWD, path, AT_EMPTY_PATH))
        });
        calls.add(format!("linkat /proc/self/fd {text}"), move |fd| {
            let by = CString::new(format!("/proc/thread-self/fd/{}", fd.0)).unwrap();
            then(fd, sys!(SYS_linkat, AT_FDCWD, &*by, AT_FDCWD, path, AT_SYMLINK_FOLLOW))
        });
    }
    calls.add("open again by /proc/self/fd", |fd| {
        let by = CString::new(format!("/proc/thread-self/fd/{}", fd.0)).unwrap();
        describe(&open_at(&by, O_RDONLY, 0)?)
    });
    calls.add("open again O_RDWR|O_TRUNC by /proc/self/fd", |fd| {
        let by = CString::new(format!("/proc/thread-self/fd/{}", fd.0)).unwrap();
        describe(&open_at(&by, O_RDWR | O_TRUNC, 0)?)
    });
}

/// A lock of bytes 2 to 5.
fn region(kind: i32) -> libc::flock {
    // SAFETY: all bits zero are a valid `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_start = 2;
    lock.l_len = 4;
    lock
}

fn locking(calls: &mut Calls) {
    use libc::*;
    for (name, how) in [("SH", LOCK_SH), ("EX", LOCK_EX), ("UN", LOCK_UN), ("bad", 0)] {
        calls.add(format!("flock {name}, and again through another open"), move |fd| {
            done(sys!(SYS_flock, fd.0, how | LOCK_NB))?;
            let by = CString::new(format!("/proc/thread-self/fd/{}", fd.0)).unwrap();
            let other = open_at(&by, O_RDONLY, 0)?;
            done(sys!(SYS_flock, other.0, LOCK_SH | LOCK_NB))
        });
    }
    for (name, kind) in [("RDLCK", F_RDLCK), ("WRLCK", F_WRLCK), ("UNLCK", F_UNLCK), ("bad", 9)] {
        for (call, command) in [("SETLK", F_SETLK), ("OFD_SETLK", F_OFD_SETLK)] {
            calls.add(format!("{call} {name}, and again as another owner"), move |fd| {
                let lock = region(kind);
                sys!(SYS_fcntl, fd.0, command, &raw const lock)?;
                let by = CString::new(format!("/proc/thread-self/fd/{}", fd.0)).unwrap();
                let other = open_at(&by, O_RDWR, 0)?;
                // Locks of bytes belong to the table of descriptors, or to the open file. The
                // thread closes its copy of the table when it ends.
                let again = || {
                    sys!(SYS_unshare, CLONE_FILES)?;
                    done(sys!(SYS_fcntl, other.0, command, &raw const lock))
                };
                std::thread::scope(|scope| scope.spawn(again).join().unwrap())
            });
        }
    }
    calls.add("GETLK", |fd| {
        let mut lock = region(F_WRLCK);
        sys!(SYS_fcntl, fd.0, F_GETLK, &raw mut lock)?;
        Ok(format!("{} {} {}", lock.l_type, lock.l_start, lock.l_len))
    });
    for (name, kind) in [("RDLCK", F_RDLCK), ("WRLCK", F_WRLCK), ("UNLCK", F_UNLCK)] {
        calls.add(format!("SETLEASE {name}"), move |fd| {
            done(sys!(SYS_fcntl, fd.0, F_SETLEASE, kind))
        });
    }
    calls.add("ioctl FS_IOC_GETFLAGS", |fd| {
        let mut flags = 0u64;
        done(sys!(SYS_ioctl, fd.0, 0x8008_6601u64, &raw mut flags))
    });
    calls.add("ioctl FIONREAD", |fd| {
        let mut ready = 0u64;
        sys!(SYS_ioctl, fd.0, 0x541b, &raw mut ready)?;
        Ok(ready.to_string())
    });
    calls.add("ioctl FICLONE", |fd| {
        let from = open_at(c"toshared", O_RDONLY, 0)?;
        done(sys!(SYS_ioctl, fd.0, 0x4004_9409, from.0))
    });
    calls.add("ioctl TCGETS", |fd| {
        let mut room = [0u8; 256];
        done(sys!(SYS_ioctl, fd.0, 0x5401, room.as_mut_ptr()))
    });
}

fn mapping(calls: &mut Calls) {
    use libc::*;
    for (name, protection, flags) in [
        ("shared to read", PROT_READ, MAP_SHARED),
        ("shared to write", PROT_READ | PROT_WRITE, MAP_SHARED),
        ("private to write", PROT_READ | PROT_WRITE, MAP_PRIVATE),
        ("to execute", PROT_READ | PROT_EXEC, MAP_PRIVATE),
        ("MAP_SYNC", PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC),
    ] {
        calls.add(format!("mmap {name}"), move |fd| {
            let at = sys!(SYS_mmap, 0, 4096, protection, flags, fd.0, 0)?;
            if protection & PROT_WRITE != 0 && sys!(SYS_lseek, fd.0, 0, SEEK_END)? > 0 {
                // SAFETY: just mapped to be written, and the file is not empty.
                unsafe { (at as *mut u8).write_volatile(b'M') };
                sys!(SYS_msync, at, 4096, MS_SYNC)?;
            }
            sys!(SYS_munmap, at, 4096)?;
            describe(fd)
        });
    }
    calls.add("mmap at a bad offset", |fd| {
        sys!(SYS_mmap, 0, 4096, PROT_READ, MAP_SHARED, fd.0, 1)?;
        Ok("mapped".to_owned())
    });
}
