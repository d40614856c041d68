//! Files opened by tokens on a mount, as names in a directory that does not exist.

use crate::common::*;
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};
use shoal::raw::{Caller, Handle, Ino, OpenOptions, Rights, Token, Volume};
use shoal_session::Node;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const BOTH: fn() -> Rights = || Rights::READ | Rights::WRITE;

/// A mount with a file that nobody but root can reach by its path, once for each side that may
/// check permissions.
fn each(test: impl Fn(&mut TestMount)) {
    for options in ["allow_other,open", "allow_other,no_default_permissions"] {
        let Some(mut m) = mount_only(options) else { return };
        chmod(&m.dir, 0o755);
        mkdir(m.path("secret"), 0o700).unwrap();
        std::fs::write(m.path("secret/file"), "contents").unwrap();
        chmod(m.path("secret/file"), 0o600);
        test(&mut m);
    }
}

/// Makes a token for an open file, by the ioctl.
fn share(opened: impl AsFd, rights: Rights, lifetime: Duration) -> Res<Token> {
    errno(calls(opened).share(&Caller::root(), Node::TOP, b"", rights, lifetime))
}

/// Makes a token for a path.
fn token(m: &TestMount, path: &str, rights: Rights) -> Token {
    share(open(m.path(path), OFlags::RDONLY).unwrap(), rights, HOUR).unwrap()
}

fn by(m: &TestMount, token: &Token) -> PathBuf {
    m.path(".shoal-open").join(token.to_string())
}

fn read(path: &Path) -> Res<Vec<u8>> {
    std::fs::read(path).map_err(|error| Errno::from_io_error(&error).unwrap())
}

#[test]
fn a_token_to_read_reads_without_permission_and_does_nothing_else() {
    each(|m| {
        let name = by(m, &token(m, "secret/file", Rights::READ));
        as_user(USER, &[], || {
            fails!(ACCESS, read(&m.path("secret/file")));
            assert_eq!(read(&name).unwrap(), b"contents");
            let found = stat(&name).unwrap();
            assert_eq!((found.st_mode, found.st_size, found.st_uid), (0o100_444, 8, 0));
            fails!(ACCESS, open(&name, OFlags::WRONLY));
            fails!(ACCESS, open(&name, OFlags::RDWR));
            fails!(ACCESS, open(&name, OFlags::RDONLY | OFlags::TRUNC));
            fails!(ACCESS, truncate(&name, 0));
            fails!(PERM, try_chmod(&name, 0o777));
        });
        // Nor does the superuser get more by it.
        fails!(ACCESS, open(&name, OFlags::WRONLY));
        fails!(ACCESS, open(&name, OFlags::RDWR | OFlags::TRUNC));
        fails!(ACCESS, truncate(&name, 0));
        fails!(PERM, try_chmod(&name, 0o777));
        fails!(PERM, try_chown(&name, Some(USER), None));
        assert_eq!(read(&m.path("secret/file")).unwrap(), b"contents");
        let (mode, ino) = (mode(m.path("secret/file")), stat(&name).unwrap().st_ino);
        assert_eq!((mode, ino), (0o600, stat(m.path("secret/file")).unwrap().st_ino));
    });
}

#[test]
fn a_token_to_write_writes_what_the_path_reads() {
    each(|m| {
        let (path, name) = (m.path("secret/file"), by(m, &token(m, "secret/file", BOTH())));
        // The page cache of the path has the old contents.
        let opened = std::fs::File::open(&path).unwrap();
        let mut seen = [0; 8];
        opened.read_exact_at(&mut seen, 0).unwrap();
        as_user(USER, &[], || {
            let file = std::fs::OpenOptions::new().read(true).write(true).open(&name).unwrap();
            file.write_all_at(b"C", 0).unwrap();
            file.sync_all().unwrap();
            let mut own = [0; 8];
            file.read_exact_at(&mut own, 0).unwrap();
            assert_eq!(&own, b"Contents");
        });
        opened.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(&seen, b"Contents", "through a file that was open before");
        // The other way round, and with the end of the file moved.
        let by_token = open(&name, OFlags::RDWR | OFlags::APPEND).unwrap();
        std::fs::write(&path, "longer contents").unwrap();
        assert_eq!(rustix::io::write(&by_token, b"!").unwrap(), 1);
        assert_eq!(read(&path).unwrap(), b"longer contents!");
        assert_eq!(rustix::fs::seek(&by_token, SeekFrom::End(0)).unwrap(), 16);
        assert_eq!(pread(&by_token, 0, 100), b"longer contents!");
        rustix::fs::ftruncate(&by_token, 6).unwrap();
        assert_eq!(read(&path).unwrap(), b"longer");
        assert_eq!(opened.metadata().unwrap().size(), 6);
        as_user(USER, &[], || std::fs::write(&name, "new").unwrap());
        assert_eq!(read(&path).unwrap(), b"new");
        assert_eq!(mode(&path), 0o600);
    });
}

#[test]
fn a_shared_program_of_a_user_loses_its_set_user_id_bit() {
    each(|m| {
        chmod(m.path("secret/file"), 0o4755);
        let name = by(m, &token(m, "secret/file", BOTH()));
        as_user(USER, &[], || {
            let file = std::fs::OpenOptions::new().write(true).open(&name).unwrap();
            file.write_all_at(b"x", 0).unwrap();
        });
        assert_eq!(mode(m.path("secret/file")), 0o755);
    });
}

fn revoke(opened: impl AsFd) -> Res<()> {
    errno(calls(opened).revoke_tokens(&Caller::root()))
}

#[test]
fn the_invalid_are_refused_and_open_files_stay_open() {
    each(|m| {
        let good = token(m, "secret/file", BOTH());
        let mut bytes = good.to_bytes();
        bytes[65] ^= 1;
        let forged = by(m, &Token::from_bytes(&bytes).unwrap());
        let file = open(m.path("secret/file"), OFlags::RDONLY).unwrap();
        let expired = by(m, &share(&file, Rights::READ, Duration::ZERO).unwrap());
        let name = by(m, &good);
        let opened = open(&name, OFlags::RDWR).unwrap();
        let walked = open(&name, OFlags::PATH).unwrap();
        let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&walked));
        let text = good.to_string();
        for user in [0, USER] {
            as_user(user, &[], || {
                fails!(ACCESS, read(&forged));
                fails!(ACCESS, read(&expired));
                fails!(ACCESS, read(&m.path(".shoal-open/nothing")));
                fails!(ACCESS, read(&m.path(".shoal-open").join(&text[1..])));
                assert_eq!(read(&name).unwrap(), b"contents");
                assert_eq!(read(again.as_ref()).unwrap(), b"contents");
            });
        }
        as_user(USER, &[], || fails!(PERM, revoke(&file)));
        assert_eq!(read(&name).unwrap(), b"contents");
        revoke(&file).unwrap();
        fails!(ACCESS, read(&name));
        fails!(ACCESS, read(again.as_ref()));
        assert_eq!(pread(&opened, 0, 100), b"contents");
        pwrite(&opened, 0, b"C");
        // A new one is good, until its file has no name.
        let name = by(m, &token(m, "secret/file", Rights::READ));
        assert_eq!(read(&name).unwrap(), b"Contents");
        rename(m.path("secret/file"), m.path("secret/renamed")).unwrap();
        assert_eq!(read(&name).unwrap(), b"Contents");
        unlink(m.path("secret/renamed")).unwrap();
        fails!(STALE, read(&name));
        touch(m.path("secret/file"));
        fails!(STALE, read(&name));
        assert_eq!(pread(&opened, 0, 100), b"Contents");
    });
}

#[test]
fn whoever_has_the_rights_may_share_them() {
    each(|m| {
        chmod(&m.dir, 0o777);
        as_user(USER, &[], || std::fs::write(m.path("mine"), "m").unwrap());
        std::fs::write(m.path("public"), "p").unwrap();
        chmod(m.path("public"), 0o644);
        let mine = as_user(USER, &[], || token(m, "mine", BOTH()));
        as_user(USER, &[], || {
            let public = open(m.path("public"), OFlags::RDONLY).unwrap();
            assert_eq!(share(&public, Rights::READ, HOUR).unwrap().rights(), Rights::READ);
            fails!(ACCESS, share(&public, BOTH(), HOUR));
            fails!(ISDIR, share(dir(&m.dir), Rights::READ, HOUR));
        });
        // Nobody shares what was shared with them, nor names it.
        let name = by(m, &mine);
        as_user(OTHER, &[], || {
            let opened = open(&name, OFlags::RDWR).unwrap();
            fails!(INVAL, share(&opened, Rights::READ, HOUR));
        });
        fails!(PERM, link(&name, m.path("linked")));
        // A group of the caller counts.
        chmod(m.path("public"), 0o640);
        chown(m.path("public"), 0, OTHER);
        as_user(USER, &[OTHER], || {
            let public = open(m.path("public"), OFlags::RDONLY).unwrap();
            share(&public, Rights::READ, HOUR).unwrap();
        });
    });
}

#[test]
fn the_directory_is_not_listed_and_takes_nothing() {
    each(|m| {
        let name = by(m, &token(m, "secret/file", Rights::READ));
        let directory = m.path(".shoal-open");
        assert_eq!(list(&m.dir), ["secret"]);
        let found = stat(&directory).unwrap();
        assert_eq!((found.st_mode, found.st_uid), (0o040_711, 0));
        for user in [0, USER] {
            as_user(user, &[], || {
                fails!(ACCESS, open(&directory, OFlags::RDONLY | OFlags::DIRECTORY));
                assert!(touch_fails(&directory.join("new")));
                assert!(mkdir(directory.join("dir"), 0o755).is_err());
                assert!(unlink(&name).is_err());
                assert!(rename(&name, m.path("name")).is_err());
                assert!(rmdir(&directory).is_err());
                assert!(try_chmod(&directory, 0o777).is_err());
            });
        }
        fails!(EXIST, mkdir(&directory, 0o755));
        touch(m.path("file"));
        fails!(ACCESS, rename(m.path("file"), directory.join("file")));
        fails!(ACCESS, link(m.path("file"), directory.join("file")));
        fails!(ACCESS, symlink("file", directory.join("link")));
        assert_eq!(list(&m.dir), ["file", "secret"]);
        assert_eq!(read(&name).unwrap(), b"contents");
        // Below the top it is a name like others.
        assert!(stat(m.path("secret/.shoal-open")).is_err());
        touch(m.path("secret/.shoal-open"));
    });
}

fn touch_fails(path: &Path) -> bool {
    create(path, OFlags::WRONLY, 0o644).is_err()
}

#[test]
fn copies_through_tokens_have_the_contents() {
    each(|m| {
        let (from, to) = (by(m, &token(m, "secret/file", Rights::READ)), m.path("secret/copy"));
        std::fs::copy(&from, &to).unwrap();
        assert_eq!(read(&to).unwrap(), b"contents");
        std::fs::write(&to, "").unwrap();
        let target = by(m, &token(m, "secret/copy", BOTH()));
        let (from, target) = (open(&from, OFlags::RDONLY), open(&target, OFlags::RDWR));
        let (from, target) = (from.unwrap(), target.unwrap());
        let path = open(m.path("secret/file"), OFlags::RDONLY).unwrap();
        for source in [&from, &path] {
            let (mut at, mut to) = (0, 0);
            let end = (Some(&mut at), Some(&mut to));
            let copied = rustix::fs::copy_file_range(source, end.0, &target, end.1, 8).unwrap();
            assert_eq!(copied, 8);
            assert_eq!(pread(&target, 0, 100), b"contents");
            rustix::fs::ftruncate(&target, 0).unwrap();
        }
    });
}

/// Tokens made by the library are good on a mount, and a real file comes before the directory.
#[test]
fn a_real_file_of_that_name_comes_first() {
    each(|m| {
        m.stop();
        let volume = Volume::open(&m.volume(), &OpenOptions::default()).unwrap();
        let root = Caller::root();
        let secret = volume.namespace().lookup(&root, Ino::ROOT, b"secret").unwrap().ino;
        let file = volume.namespace().lookup(&root, secret, b"file").unwrap();
        let handle = Handle { ino: file.ino, generation: file.generation };
        let token = volume.tokens().issue(&root, handle, Rights::READ, HOUR).unwrap();
        volume.close().unwrap();
        m.start(0);
        let name = by(m, &token);
        as_user(USER, &[], || assert_eq!(read(&name).unwrap(), b"contents"));
        m.stop();
        let volume = Volume::open(&m.volume(), &OpenOptions::default()).unwrap();
        volume.namespace().mkdir(&root, Ino::ROOT, b".shoal-open", 0o755).unwrap();
        volume.close().unwrap();
        m.start(0);
        assert_eq!(list(&m.dir), [".shoal-open", "secret"]);
        fails!(NOENT, read(&name));
        touch(m.path(".shoal-open/mine"));
        assert_eq!(list(m.path(".shoal-open")), ["mine"]);
        // By the ioctl alone; and without the directory, tokens are names again.
        let file = open(m.path("secret/file"), OFlags::RDONLY).unwrap();
        share(&file, Rights::READ, HOUR).unwrap();
        unlink(m.path(".shoal-open/mine")).unwrap();
        rmdir(m.path(".shoal-open")).unwrap();
        assert_eq!(read(&name).unwrap(), b"contents");
    });
}

#[test]
fn a_mount_without_opens_has_no_directory() {
    let Some(m) = mount_only("allow_other") else { return };
    touch(m.path("file"));
    let file = open(m.path("file"), OFlags::RDONLY).unwrap();
    let shared = share(&file, Rights::READ, HOUR).unwrap();
    fails!(NOENT, lstat(m.path(".shoal-open")));
    fails!(NOENT, read(&by(&m, &shared)));
    mkdir(m.path(".shoal-open"), 0o755).unwrap();
}

/// The kernel's references decide how long a node lives.
#[test]
fn many_tokens_and_dropped_caches() {
    each(|m| {
        let file = open(m.path("secret/file"), OFlags::RDONLY).unwrap();
        let names: Vec<PathBuf> = (0..300)
            .map(|n| share(&file, Rights::READ, HOUR + Duration::from_secs(n)).unwrap())
            .map(|token| by(m, &token))
            .collect();
        let kept = open(&names[0], OFlags::RDONLY).unwrap();
        for _ in 0..2 {
            for name in &names {
                assert_eq!(read(name).unwrap(), b"contents");
            }
            drop_caches();
        }
        assert_eq!(pread(&kept, 0, 100), b"contents");
        unlink(m.path("secret/file")).unwrap();
        fails!(STALE, read(&names[1]));
        assert_eq!(pread(&kept, 0, 100), b"contents");
    });
}

/// The kernel leaves that to the server for a descriptor that bypasses the page cache.
#[test]
fn a_synchronous_write_is_durable_when_it_returns() {
    let Some(mut m) = mount_only("open") else { return };
    for (name, flags, call) in [
        ("of the file", OFlags::DSYNC, ReadWriteFlags::empty()),
        ("of the call", OFlags::empty(), ReadWriteFlags::DSYNC),
    ] {
        std::fs::write(m.path(name), "-").unwrap();
        let fd = open(by(&m, &token(&m, name, BOTH())), OFlags::WRONLY | flags).unwrap();
        let written = rustix::io::pwritev2(&fd, &[IoSlice::new(name.as_bytes())], 0, call);
        assert_eq!(written.unwrap(), name.len());
        drop(fd);
        m.kill();
        shoal_fuse::unmount_lazy(&m.dir).unwrap();
        m.start(0);
        assert_eq!(std::fs::read(m.path(name)).unwrap(), name.as_bytes());
    }
}
