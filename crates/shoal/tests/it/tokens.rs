//! Tokens, as programs use them: what an opened file may do, and where a token comes from.

use shoal::{Credentials, Rights, Token, Volume};
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn volume() -> Volume {
    crate::place::volume(Volume::options().size(64 << 20))
}

fn io(error: shoal::Error) -> ErrorKind {
    std::io::Error::from(error).kind()
}

#[test]
fn a_token_to_read_reads_and_does_nothing_else() {
    let volume = volume();
    let root = volume.root(Credentials::root());
    root.write("file", b"contents").unwrap();
    // Everybody could write to it by its path.
    root.set_permissions("file", 0o666).unwrap();
    root.open("file").unwrap().set_xattr("user.a", b"1").unwrap();
    let token = root.share("file", Rights::READ, HOUR).unwrap();
    let file = volume.open_token(&token).unwrap();
    let mut text = String::new();
    (&file).read_to_string(&mut text).unwrap();
    assert_eq!(text, "contents");
    assert_eq!(file.xattr("user.a").unwrap().as_deref(), Some(&b"1"[..]));
    let bad = shoal::raw::Code::BadHandle.errno();
    let refused = [
        file.write_at(b"x", 0).map(drop),
        file.set_len(0),
        file.allocate(0, 100),
        file.punch_hole(0, 4),
        file.set_xattr("user.a", b"2"),
        file.remove_xattr("user.a"),
    ];
    for result in refused {
        assert_eq!(result.unwrap_err().errno(), bad);
    }
    assert_eq!(root.read("file").unwrap(), b"contents");
    assert_eq!(file.metadata().unwrap().len(), 8);
}

#[test]
fn a_token_to_write_does_not_read() {
    let volume = volume();
    let root = volume.root(Credentials::root());
    root.write("file", b"contents").unwrap();
    // Nobody but the superuser could by its path; and a write clears the set-user-ID bit.
    root.set_permissions("file", 0o4700).unwrap();
    let token = root.share("file", Rights::WRITE, HOUR).unwrap();
    let mut file = volume.open_token(&token).unwrap();
    let bad = shoal::raw::Code::BadHandle.errno();
    assert_eq!(file.read_at(&mut [0; 8], 0).unwrap_err().errno(), bad);
    assert_eq!(file.xattrs().unwrap_err().errno(), bad);
    file.write_all(b"C").unwrap();
    file.set_len(5).unwrap();
    assert_eq!(root.read("file").unwrap(), b"Conte");
    assert_eq!(root.metadata("file").unwrap().permissions(), 0o700);
}

#[test]
fn only_files_that_the_credentials_reach_are_shared() {
    let volume = volume();
    let root = volume.root(Credentials::root());
    let dir = root.create_dir("closed").unwrap();
    dir.write("file", b"").unwrap();
    dir.set_permissions("file", 0o644).unwrap();
    root.set_permissions("closed", 0o700).unwrap();
    let user = volume.root(Credentials::user(1000, 1000));
    let share = |path: &str, rights| io(user.share(path, rights, HOUR).unwrap_err());
    assert_eq!(share("closed/file", Rights::READ), ErrorKind::PermissionDenied);
    root.set_permissions("closed", 0o711).unwrap();
    assert_eq!(share("closed/file", Rights::READ | Rights::WRITE), ErrorKind::PermissionDenied);
    assert_eq!(share("closed", Rights::EXECUTE), ErrorKind::IsADirectory);
    assert_eq!(share("missing", Rights::READ), ErrorKind::NotFound);
    let token = user.share("closed/file", Rights::READ, HOUR).unwrap();
    root.set_permissions("closed", 0).unwrap();
    assert!(volume.open_token(&token).is_ok());
}

#[test]
fn a_token_is_valid_in_another_process_until_it_is_revoked() {
    let path = std::env::temp_dir().join(format!("shoal-token-{}", std::process::id()));
    let volume = Volume::options().create(true).size(64 << 20).open(&path).unwrap();
    let root = volume.root(Credentials::root());
    root.write("file", b"1").unwrap();
    let text = root.share("file", Rights::READ, HOUR).unwrap().to_string();
    drop(root);
    volume.close().unwrap();
    let volume = Volume::open(&path).unwrap();
    let token: Token = text.parse().unwrap();
    assert_eq!(Token::from_bytes(&token.to_bytes()).unwrap(), token);
    let file = volume.open_token(&token).unwrap();
    volume.revoke_tokens().unwrap();
    assert_eq!(io(volume.open_token(&token).unwrap_err()), ErrorKind::PermissionDenied);
    let mut buf = [0];
    assert_eq!(file.read_at(&mut buf, 0).unwrap(), 1, "an open file stays open");
    let root = volume.root(Credentials::root());
    let token = root.share("file", Rights::READ, HOUR).unwrap();
    root.remove_file("file").unwrap();
    let stale = shoal::raw::Code::Stale.errno();
    assert_eq!(volume.open_token(&token).unwrap_err().errno(), stale);
    assert!("no token".parse::<Token>().is_err());
    drop((root, file));
    volume.close().unwrap();
    std::fs::remove_file(&path).unwrap();
}
