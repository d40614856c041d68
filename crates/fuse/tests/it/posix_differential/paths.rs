//! Calls that take one path: every kind of object in every kind of directory, and every way to
//! write a path, times every call.

use super::Case;
use super::sys::{Fd, both_times, describe, names, open_at, stat_words};
use crate::common::Res;
use std::ffi::{CStr, CString};

type PathCall = Box<dyn Fn(&CStr) -> Res<String> + Send + Sync>;

/// A call by name.
struct Call {
    name: String,
    run: PathCall,
}

#[derive(Default)]
struct Calls(Vec<Call>);

impl Calls {
    fn add(
        &mut self,
        name: impl Into<String>,
        run: impl Fn(&CStr) -> Res<String> + Send + Sync + 'static,
    ) {
        self.0.push(Call { name: name.into(), run: Box::new(run) });
    }
}

/// Paths of the cases; some are longer than allowed.
pub(super) fn path_list() -> Vec<(String, CString)> {
    let written = "file shared alice bob bygroup none suid sgid nosgidx one dir open empty alices \
        groups setgid sticky hersticky locked unsearchable hidden readonly fifo socket device \
        tofile toshared todir toempty tolocked dangling loop missing \
        dir/inner dir/new open/inner open/roots open/new open/sub alices/inner alices/new \
        alices/roots groups/inner groups/new setgid/inner setgid/new sticky/alice sticky/bob \
        sticky/alices sticky/link sticky/new hersticky/bob hersticky/new locked/inner locked/new \
        unsearchable/inner unsearchable/new hidden/inner hidden/new readonly/inner \
        readonly/new missing/x file/x file/ shared/ dir/ open/ empty/ missing/ open/new/ tofile/ \
        todir/ toempty/ todir/inner todir/new dangling/ dangling/x loop/ loop/x tofile/x \
        . .. ./ ../ dir/. dir/.. open/sub/. open/sub/.. empty/. empty/.. missing/.. file/.. file/. \
        //open///inner fifo/ fifo/x";
    let mut list: Vec<_> = written.split_whitespace().map(str::to_owned).collect();
    list.push(String::new());
    let mut list: Vec<_> = list.into_iter().map(|path| (format!("\"{path}\""), path)).collect();
    // An absolute path would leave the tree.
    list.iter_mut().for_each(|(_, path)| {
        if path.starts_with('/') {
            *path = format!(".{path}");
        }
    });
    for (name, path) in [
        ("a name of 255 bytes", "n".repeat(255)),
        ("a name of 256 bytes", "n".repeat(256)),
        ("a name of 256 bytes in dir", format!("dir/{}", "n".repeat(256))),
        ("a directory of 256 bytes", format!("{}/x", "n".repeat(256))),
        ("a name of 256 bytes in locked", format!("locked/{}", "n".repeat(256))),
        ("file by 4095 bytes", format!("{}.//file", "./".repeat(2044))),
        ("file by 4096 bytes", format!("{}.///file", "./".repeat(2044))),
    ] {
        list.push((name.to_owned(), path));
    }
    list.into_iter().map(|(name, path)| (name, CString::new(path).unwrap())).collect()
}

/// Returns every call with every path.
pub(super) fn cases() -> Vec<Case> {
    let mut calls = Calls::default();
    opening(&mut calls);
    asking(&mut calls);
    making(&mut calls);
    removing(&mut calls);
    changing(&mut calls);
    timing(&mut calls);
    attributes(&mut calls);
    let calls: Vec<_> = calls.0.into_iter().map(std::sync::Arc::new).collect();
    let mut cases = Vec::new();
    for call in &calls {
        for (name, path) in path_list() {
            let call = call.clone();
            let what = format!("{} {name}", call.name);
            cases.push(Case { what, prepares: false, run: Box::new(move || (call.run)(&path)) });
        }
    }
    cases
}

fn opening(calls: &mut Calls) {
    use libc::*;
    const FLAGS: &[(&str, i32)] = &[
        ("O_RDONLY", O_RDONLY),
        ("O_WRONLY", O_WRONLY),
        ("O_RDWR", O_RDWR),
        ("access mode 3", 3),
        ("O_CREAT|O_WRONLY", O_CREAT | O_WRONLY),
        ("O_CREAT|O_RDONLY", O_CREAT),
        ("O_CREAT|O_EXCL", O_CREAT | O_EXCL | O_RDWR),
        ("O_CREAT|O_TRUNC", O_CREAT | O_TRUNC | O_WRONLY),
        ("O_CREAT|O_NOFOLLOW", O_CREAT | O_NOFOLLOW | O_RDWR),
        ("O_CREAT|O_DIRECTORY", O_CREAT | O_DIRECTORY),
        ("O_CREAT|O_APPEND", O_CREAT | O_APPEND | O_RDWR),
        ("O_EXCL", O_EXCL),
        ("O_TRUNC|O_WRONLY", O_TRUNC | O_WRONLY),
        ("O_TRUNC|O_RDONLY", O_TRUNC),
        ("O_TRUNC|O_APPEND", O_TRUNC | O_APPEND | O_RDWR),
        ("O_APPEND|O_WRONLY", O_APPEND | O_WRONLY),
        ("O_DIRECTORY", O_DIRECTORY),
        ("O_DIRECTORY|O_NOFOLLOW", O_DIRECTORY | O_NOFOLLOW),
        ("O_DIRECTORY|O_WRONLY", O_DIRECTORY | O_WRONLY),
        ("O_NOFOLLOW", O_NOFOLLOW),
        ("O_PATH", O_PATH),
        ("O_PATH|O_NOFOLLOW", O_PATH | O_NOFOLLOW),
        ("O_PATH|O_DIRECTORY", O_PATH | O_DIRECTORY),
        ("O_TMPFILE|O_RDWR", O_TMPFILE | O_RDWR),
        ("O_TMPFILE|O_WRONLY|O_EXCL", O_TMPFILE | O_WRONLY | O_EXCL),
        ("O_TMPFILE|O_RDONLY", O_TMPFILE),
        ("O_NOATIME", O_NOATIME),
        ("O_SYNC|O_RDWR", O_SYNC | O_RDWR),
        ("O_DSYNC|O_WRONLY", O_DSYNC | O_WRONLY),
        ("O_ASYNC", O_ASYNC),
    ];
    for (name, flags) in FLAGS {
        for mode in if flags & O_CREAT != 0 { &[0o666, 0o6777, 0][..] } else { &[0][..] } {
            let call = format!("open {name} {mode:o}");
            calls.add(call, move |path| open_at(path, *flags, *mode).and_then(|fd| describe(&fd)));
        }
    }
    calls.add("open, append", |path| {
        let fd = open_at(path, O_WRONLY | O_APPEND, 0)?;
        let text = c" and more";
        sys!(SYS_write, fd.0, text, 9).map(|sent| sent.to_string())
    });
    calls.add("chdir", |path| done(sys!(SYS_chdir, path)));
    calls.add("list", |path| {
        let fd = open_at(path, O_RDONLY | O_DIRECTORY, 0)?;
        Ok(names(&fd)?.join(" "))
    });
}

fn done(outcome: Res<i64>) -> Res<String> {
    outcome.map(|value| value.to_string())
}

fn asking(calls: &mut Calls) {
    use libc::*;
    calls.add("stat", |path| stat_words(AT_FDCWD.into(), path, 0));
    calls.add("lstat", |path| stat_words(AT_FDCWD.into(), path, AT_SYMLINK_NOFOLLOW));
    calls.add("stat with bad flags", |path| stat_words(AT_FDCWD.into(), path, 1));
    calls.add("stat AT_EMPTY_PATH", |path| stat_words(AT_FDCWD.into(), path, AT_EMPTY_PATH));
    calls.add("readlink", |path| {
        let mut room = [0u8; 64];
        let len = sys!(SYS_readlinkat, AT_FDCWD, path, room.as_mut_ptr(), 64)? as usize;
        Ok(String::from_utf8_lossy(&room[..len]).into_owned())
    });
    calls.add("readlink of 3 bytes", |path| {
        let mut room = [0u8; 3];
        done(sys!(SYS_readlinkat, AT_FDCWD, path, room.as_mut_ptr(), 3))
    });
    calls.add("readlink of no bytes", |path| {
        let mut room = [0u8; 3];
        done(sys!(SYS_readlinkat, AT_FDCWD, path, room.as_mut_ptr(), 0))
    });
    for (name, mode) in [("F", F_OK), ("R", R_OK), ("W", W_OK), ("X", X_OK), ("RW", 6), ("8", 8)] {
        calls.add(format!("access {name}"), move |path| {
            done(sys!(SYS_faccessat, AT_FDCWD, path, mode))
        });
        calls.add(format!("faccessat {name} NOFOLLOW"), move |path| {
            done(sys!(SYS_faccessat2, AT_FDCWD, path, mode, AT_SYMLINK_NOFOLLOW))
        });
    }
    calls.add("statfs", |path| {
        let mut room = [0u64; 64];
        done(sys!(SYS_statfs, path, room.as_mut_ptr()))
    });
    calls.add("connect", |path| with_socket(path, SYS_connect));
}

/// Makes a call that names a socket by a path.
fn with_socket(path: &CStr, number: i64) -> Res<String> {
    // SAFETY: all bits zero are a valid `sockaddr_un`.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let bytes = path.to_bytes();
    // An empty name would be bound to another one, chosen by the kernel.
    if bytes.is_empty() || bytes.len() > 100 {
        return Ok("not tried".to_owned());
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let socket = Fd(sys!(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_DGRAM, 0)?);
    let len = size_of::<libc::sockaddr_un>();
    done(sys!(number, socket.0, &raw const address, len))
}

fn making(calls: &mut Calls) {
    use libc::*;
    for mode in [0o777, 0o2755, 0o1777, 0o4000] {
        calls.add(format!("mkdir {mode:o}"), move |path| {
            done(sys!(SYS_mkdirat, AT_FDCWD, path, mode))
        });
    }
    for (name, mode, device) in [
        ("a file", S_IFREG | 0o6666, 0),
        ("type 0", 0o644, 0),
        ("a FIFO", S_IFIFO | 0o622, 0),
        ("a socket", S_IFSOCK | 0o600, 0),
        ("a character device", S_IFCHR | 0o600, 0x103),
        ("device 0:0", S_IFCHR | 0o600, 0),
        ("a block device", S_IFBLK | 0o600, 0x701),
        ("a directory", S_IFDIR | 0o755, 0),
        ("a link", S_IFLNK | 0o777, 0),
        ("type 3", 0o030_000, 0),
    ] {
        calls.add(format!("mknod {name}"), move |path| {
            done(sys!(SYS_mknodat, AT_FDCWD, path, mode, device))
        });
    }
    for (name, target) in [
        ("to file", "file".to_owned()),
        ("to nothing", String::new()),
        ("to 4095 bytes", "t".repeat(4095)),
        ("to 4096 bytes", "t".repeat(4096)),
    ] {
        let target = CString::new(target).unwrap();
        calls.add(format!("symlink {name}"), move |path| {
            done(sys!(SYS_symlinkat, &*target, AT_FDCWD, path))
        });
    }
    calls.add("bind", |path| with_socket(path, SYS_bind));
}

fn removing(calls: &mut Calls) {
    use libc::*;
    calls.add("unlink", |path| done(sys!(SYS_unlinkat, AT_FDCWD, path, 0)));
    calls.add("rmdir", |path| done(sys!(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR)));
    calls.add("unlinkat with bad flags", |path| done(sys!(SYS_unlinkat, AT_FDCWD, path, 1)));
}

fn changing(calls: &mut Calls) {
    use libc::*;
    for mode in [0o600, 0o4755, 0o2755, 0o2666, 0o6711, 0o1777, 0, 0o100_644] {
        calls.add(format!("chmod {mode:o}"), move |path| {
            done(sys!(SYS_fchmodat, AT_FDCWD, path, mode))
        });
    }
    calls.add("fchmodat NOFOLLOW", |path| {
        done(sys!(SYS_fchmodat2, AT_FDCWD, path, 0o640, AT_SYMLINK_NOFOLLOW))
    });
    const SAME: u32 = u32::MAX;
    for (uid, gid) in [
        (SAME, SAME),
        (1000, SAME),
        (1001, SAME),
        (0, SAME),
        (SAME, 1000),
        (SAME, 1001),
        (SAME, 100),
        (SAME, 0),
        (1000, 1000),
        (1001, 100),
        (0, 0),
    ] {
        for (name, flags) in [("chown", 0), ("lchown", AT_SYMLINK_NOFOLLOW)] {
            calls.add(format!("{name} {} {}", uid as i32, gid as i32), move |path| {
                done(sys!(SYS_fchownat, AT_FDCWD, path, uid, gid, flags))
            });
        }
    }
    for size in [0, 3, 100, -1, 1 << 40, i64::MAX] {
        calls.add(format!("truncate {size}"), move |path| done(sys!(SYS_truncate, path, size)));
    }
}

fn timing(calls: &mut Calls) {
    use libc::*;
    const NOW: i64 = UTIME_NOW;
    const OMIT: i64 = UTIME_OMIT;
    for (name, access, change) in [
        ("now, now", (0, NOW), (0, NOW)),
        ("omit, omit", (0, OMIT), (0, OMIT)),
        ("now, omit", (0, NOW), (0, OMIT)),
        ("omit, now", (0, OMIT), (0, NOW)),
        ("5, 6", (5, 7), (6, 999_999_999)),
        ("5, omit", (5, 7), (0, OMIT)),
        ("omit, 6", (0, OMIT), (6, 0)),
        ("now, 6", (0, NOW), (6, 0)),
        ("bad nanoseconds", (5, 1_000_000_000), (6, 0)),
        ("negative nanoseconds", (5, 0), (6, -1)),
    ] {
        for (how, flags) in [("", 0), (" NOFOLLOW", AT_SYMLINK_NOFOLLOW)] {
            calls.add(format!("utimensat {name}{how}"), move |path| {
                let times = both_times(access, change);
                done(sys!(SYS_utimensat, AT_FDCWD, path, times.as_ptr(), flags))
            });
        }
    }
    calls.add("utimensat without times", |path| done(sys!(SYS_utimensat, AT_FDCWD, path, 0, 0)));
}

fn attributes(calls: &mut Calls) {
    use libc::*;
    let long = |len: usize| CString::new(format!("user.{}", "n".repeat(len - 5))).unwrap();
    for (what, name, len, flags) in [
        ("user.new", c"user.new".to_owned(), 3, 0),
        ("user.old", c"user.old".to_owned(), 3, 0),
        ("empty user.new", c"user.new".to_owned(), 0, 0),
        ("user.old CREATE", c"user.old".to_owned(), 3, XATTR_CREATE),
        ("user.new CREATE", c"user.new".to_owned(), 3, XATTR_CREATE),
        ("user.old REPLACE", c"user.old".to_owned(), 3, XATTR_REPLACE),
        ("user.new REPLACE", c"user.new".to_owned(), 3, XATTR_REPLACE),
        ("user.old with both", c"user.old".to_owned(), 3, 3),
        ("user.old with bad flags", c"user.old".to_owned(), 3, 4),
        ("name of 255", long(255), 3, 0),
        ("name of 256", long(256), 3, 0),
        ("value of 4 KiB", c"user.new".to_owned(), 4096, 0),
        ("value of 64 KiB", c"user.new".to_owned(), 65_536, 0),
        ("value of 64 KiB and 1", c"user.new".to_owned(), 65_537, 0),
        ("no name", c"".to_owned(), 3, 0),
        ("user.", c"user.".to_owned(), 3, 0),
        ("no namespace", c"other".to_owned(), 3, 0),
        ("unknown namespace", c"other.x".to_owned(), 3, 0),
        ("trusted", c"trusted.x".to_owned(), 3, 0),
        ("security", c"security.x".to_owned(), 3, 0),
        ("system", c"system.x".to_owned(), 3, 0),
        ("bad capability", c"security.capability".to_owned(), 3, 0),
        ("bad acl", c"system.posix_acl_access".to_owned(), 3, 0),
    ] {
        calls.add(format!("setxattr {what}"), move |path| {
            let value = vec![b'v'; len];
            done(sys!(SYS_setxattr, path, &*name, value.as_ptr(), len, flags))
        });
    }
    calls.add("lsetxattr", |path| done(sys!(SYS_lsetxattr, path, c"user.new", c"abc", 3, 0)));
    for name in
        [c"user.old", c"user.new", c"", c"other.x", c"trusted.x", c"security.x", c"system.x"]
    {
        let text = name.to_string_lossy();
        for room in [64, 2, 0] {
            calls.add(format!("getxattr {text} into {room}"), move |path| {
                let mut value = [0u8; 64];
                done(sys!(SYS_getxattr, path, name, value.as_mut_ptr(), room))
            });
        }
        calls.add(format!("removexattr {text}"), move |path| {
            done(sys!(SYS_removexattr, path, name))
        });
    }
    for room in [4096, 3, 0] {
        calls.add(format!("listxattr into {room}"), move |path| {
            let mut value = [0u8; 4096];
            done(sys!(SYS_listxattr, path, value.as_mut_ptr(), room))
        });
    }
}
