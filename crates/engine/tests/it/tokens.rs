//! Tokens (`openg`, `openfh`): every reason to refuse one, what it grants, and that it survives a
//! restart and a crash. The speed, which decides no test:
//!
//! `cargo test --release -p shoal-engine --test it -- tokens:: --ignored --nocapture`

use crate::common;

use crate::common::{Dying, copy, flip, open, options, repair};
use proptest::prelude::*;
use shoal_engine::*;
use shoal_skip::property;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn root() -> Caller {
    Caller::root()
}

fn device_as(id: [u8; 16]) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions { id: Some(id), ..MkfsOptions::default() }).unwrap();
    device
}

fn device() -> Arc<MemDevice> {
    device_as([7; 16])
}

fn file(volume: &Volume, name: &str, mode: u32) -> Attr {
    volume.namespace().create(&root(), Ino::ROOT, name.as_bytes(), mode).unwrap()
}

fn handle(attr: &Attr) -> Handle {
    Handle { ino: attr.ino, generation: attr.generation }
}

fn issue(volume: &Volume, attr: &Attr, rights: Rights) -> Token {
    volume.tokens().issue(&root(), handle(attr), rights, HOUR).unwrap()
}

/// The errno of a token that is refused; 0 for a valid one of this file.
fn redeem(volume: &Volume, token: &Token, attr: &Attr) -> i32 {
    match volume.tokens().redeem(token) {
        Ok(found) => {
            assert_eq!((found.ino, found.generation), (attr.ino, attr.generation));
            0
        }
        Err(e) => e.errno(),
    }
}

const ACCES: i32 = 13;
const STALE: i32 = 116;
const ROFS: i32 = 30;

#[test]
fn a_token_opens_its_file_whatever_becomes_of_path_and_permissions() {
    let volume = open(&device());
    let who = Caller::user(1000, 1000);
    let dir = volume.namespace().mkdir(&root(), Ino::ROOT, b"dir", 0o777).unwrap().ino;
    let made = volume.namespace().create(&who, dir, b"file", 0o600).unwrap();
    let rights = Rights::READ | Rights::WRITE;
    let token = volume.tokens().issue(&who, handle(&made), rights, HOUR).unwrap();
    assert_eq!(token.rights(), rights);
    assert_eq!(redeem(&volume, &token, &made), 0);
    let flags = RenameFlags::default();
    volume.namespace().rename(&root(), dir, b"file", Ino::ROOT, b"moved", flags).unwrap();
    let set = SetAttr { mode: Some(0), ..SetAttr::default() };
    volume.attributes().setattr(&root(), made.ino, &set).unwrap();
    assert_eq!(redeem(&volume, &token, &made), 0);
    let text: Token = token.to_string().parse().unwrap();
    assert_eq!(redeem(&volume, &text, &made), 0);
}

#[test]
fn a_token_is_for_those_who_have_the_rights_themselves() {
    let volume = open(&device());
    let made = file(&volume, "file", 0o644);
    let who = Caller::user(1000, 1000);
    let code = |rights, file| {
        let issued = volume.tokens().issue(&who, file, rights, HOUR);
        issued.map_or_else(|e| e.errno(), |_| 0)
    };
    assert_eq!(code(Rights::READ, handle(&made)), 0);
    assert_eq!(code(Rights::WRITE, handle(&made)), ACCES);
    assert_eq!(code(Rights::READ | Rights::EXECUTE, handle(&made)), ACCES);
    let other = Generation(made.generation.0 + 1);
    assert_eq!(code(Rights::READ, Handle { generation: other, ..handle(&made) }), STALE);
    let top = volume.attributes().getattr(Ino::ROOT).unwrap();
    assert_eq!(code(Rights::READ, handle(&top)), Code::IsDirectory.errno());
    let link = volume.namespace().symlink(&root(), Ino::ROOT, b"link", b"file").unwrap();
    assert_eq!(code(Rights::READ, handle(&link)), Code::Invalid.errno());
    let long = volume.tokens().issue(&who, handle(&made), Rights::READ, Duration::MAX);
    assert_eq!(long.unwrap_err().errno(), Code::Invalid.errno());
    assert!([0, 8, 255].iter().all(|bits| Rights::from_bits(*bits).is_err()));
    assert_eq!(format!("{:?}", Rights::READ | Rights::EXECUTE), "r-x");
}

#[test]
fn expired_and_foreign_tokens_are_refused() {
    let (volume, other) = (open(&device()), open(&device_as([8; 16])));
    let (made, same) = (file(&volume, "file", 0o600), file(&other, "file", 0o600));
    assert_eq!(handle(&made), handle(&same));
    let token = issue(&volume, &made, Rights::READ);
    let ended = volume.tokens().issue(&root(), handle(&made), Rights::READ, Duration::ZERO);
    assert_eq!(redeem(&volume, &ended.unwrap(), &made), ACCES);
    assert_eq!(redeem(&other, &token, &made), ACCES, "it has no key");
    let theirs = issue(&other, &same, Rights::READ);
    assert_eq!(redeem(&other, &token, &made), ACCES, "it has another key");
    assert_eq!(redeem(&volume, &theirs, &made), ACCES);
    assert_eq!(redeem(&volume, &token, &made), 0);
}

#[test]
fn rotation_revokes_all_tokens_before_it() {
    let device = device();
    let volume = open(&device);
    let made = file(&volume, "file", 0o600);
    volume.tokens().revoke(&root()).unwrap();
    let old = issue(&volume, &made, Rights::READ);
    let denied = volume.tokens().revoke(&Caller::user(7, 7)).unwrap_err();
    assert_eq!(denied.errno(), Code::NotPermitted.errno());
    assert_eq!(redeem(&volume, &old, &made), 0);
    volume.tokens().revoke(&root()).unwrap();
    // Durable: also after a crash at this moment.
    let crashed = open(&copy(&device));
    let new = issue(&volume, &made, Rights::READ);
    for volume in [&volume, &crashed] {
        assert_eq!(redeem(volume, &old, &made), ACCES);
        assert_eq!(redeem(volume, &new, &made), 0);
    }
}

#[test]
fn a_removed_file_is_stale_also_when_its_number_is_reused() {
    let volume = open(&device());
    let made = file(&volume, "file", 0o600);
    let token = issue(&volume, &made, Rights::READ);
    volume.namespace().link(&root(), made.ino, Ino::ROOT, b"again").unwrap();
    volume.namespace().unlink(&root(), Ino::ROOT, b"file").unwrap();
    assert_eq!(redeem(&volume, &token, &made), 0, "it has another name");
    volume.references().hold(made.ino, 1).unwrap();
    volume.namespace().unlink(&root(), Ino::ROOT, b"again").unwrap();
    assert_eq!(redeem(&volume, &token, &made), STALE, "still open");
    volume.references().release(made.ino, 1);
    assert_eq!(redeem(&volume, &token, &made), STALE);
    let reused = (0..200).any(|i| file(&volume, &format!("new-{i}"), 0o600).ino == made.ino);
    assert!(reused, "the number is in use again");
    assert_eq!(redeem(&volume, &token, &made), STALE);
    // And in a subvolume that has been deleted.
    let top = volume.subvolumes().create(&root(), b"sub", 0o755).unwrap().ino;
    let inside = volume.namespace().create(&root(), top, b"file", 0o600).unwrap();
    let token = issue(&volume, &inside, Rights::READ);
    assert_eq!(redeem(&volume, &token, &inside), 0);
    volume.subvolumes().delete(&root(), b"sub").unwrap();
    assert_eq!(redeem(&volume, &token, &inside), STALE);
}

#[test]
fn a_read_only_volume_grants_no_writing() {
    let device = device();
    let volume = open(&device);
    let made = file(&volume, "file", 0o600);
    volume.close().unwrap();
    let read_only = |device: &Arc<MemDevice>| {
        let options = OpenOptions { read_only: true, ..options() };
        Volume::open_on(device.clone(), &options).unwrap()
    };
    let closed = read_only(&device);
    let first = closed.tokens().issue(&root(), handle(&made), Rights::READ, HOUR);
    assert_eq!(first.unwrap_err().errno(), ROFS, "there is no key, and none can be made");
    assert_eq!(closed.tokens().revoke(&root()).map_err(|e| e.errno()), Ok(()));
    drop(closed);
    let volume = open(&device);
    let reads = issue(&volume, &made, Rights::READ);
    let writes = issue(&volume, &made, Rights::READ | Rights::WRITE);
    volume.close().unwrap();
    let closed = read_only(&device);
    assert_eq!(redeem(&closed, &reads, &made), 0);
    assert_eq!(redeem(&closed, &writes, &made), ROFS);
    let again = closed.tokens().issue(&root(), handle(&made), Rights::READ, HOUR).unwrap();
    assert_eq!(redeem(&closed, &again, &made), 0);
    let write = closed.tokens().issue(&root(), handle(&made), Rights::WRITE, HOUR);
    assert_eq!(write.unwrap_err().errno(), ROFS);
    assert_eq!(closed.tokens().revoke(&root()).unwrap_err().errno(), ROFS);
}

/// Invariant 1: the state of the device at the moment when the first, and a later, token is issued.
#[test]
fn a_token_survives_a_crash_right_after_it_was_issued() {
    let device = device();
    let volume = open(&device);
    let mut tokens = Vec::new();
    for i in 0..3 {
        let made = file(&volume, &format!("file-{i}"), 0o600);
        if i == 0 {
            // Only the key is to be made durable.
            volume.sync().unwrap();
        }
        tokens.push((issue(&volume, &made, Rights::READ), made));
        let crashed = open(&copy(&device));
        for (token, made) in &tokens {
            assert_eq!(redeem(&crashed, token, made), 0);
        }
        // The number and generation of a file that a token names are not given to another one.
        let next = file(&crashed, "next", 0o600);
        assert!(tokens.iter().all(|(_, made)| made.ino != next.ino));
    }
    volume.close().unwrap();
    let volume = open(&device);
    for (token, made) in &tokens {
        assert_eq!(redeem(&volume, token, made), 0);
    }
}

/// The device fails after each number of writes: either no token was issued, or it is valid.
#[test]
fn a_token_is_issued_with_a_durable_key_or_not_at_all() {
    let mut issued = 0;
    for writes in 0..40 {
        let device = device();
        let dying = Arc::new(Dying::after(&device, writes));
        let Ok(volume) = Volume::open_on(dying, &options()) else { continue };
        let Ok(made) = volume.namespace().create(&root(), Ino::ROOT, b"file", 0o600) else {
            continue;
        };
        let token = volume.tokens().issue(&root(), handle(&made), Rights::READ, HOUR);
        let crashed = open(&copy(&device));
        if let Ok(token) = token {
            issued += 1;
            assert_eq!(redeem(&crashed, &token, &made), 0, "after {writes} writes");
        }
    }
    assert!((1..40).contains(&issued), "{issued} of 40: both cases must occur");
}

#[test]
fn no_call_shows_or_changes_the_key() {
    let device = device();
    let volume = open(&device);
    let made = file(&volume, "file", 0o600);
    let attributes = volume.attributes();
    let plain = XattrFlags::default();
    attributes.setxattr(&root(), Ino::ROOT, b"user.mine", b"1", plain).unwrap();
    let before = attributes.listxattr(&root(), Ino::ROOT).unwrap();
    let token = issue(&volume, &made, Rights::READ);
    assert_eq!(attributes.listxattr(&root(), Ino::ROOT).unwrap(), before);
    assert_eq!(before, b"user.mine\0");
    for name in ["system.shoal.token-key", "shoal.token-key", "trusted.shoal.token-key"] {
        let name = name.as_bytes();
        let got = attributes.getxattr(&root(), Ino::ROOT, name).unwrap_err();
        assert!(matches!(got.errno(), 61 | 95), "{got}");
        let removed = attributes.removexattr(&root(), Ino::ROOT, name).unwrap_err();
        assert!(matches!(removed.errno(), 61 | 95), "{removed}");
    }
    let set = attributes.setxattr(&root(), Ino::ROOT, b"system.shoal.token-key", b"1", plain);
    assert_eq!(set.unwrap_err().errno(), Code::NotSupported.errno());
    // Attributes beside it that need more than the inode has, and a check of the volume.
    for i in 0..20 {
        let name = format!("user.{i}");
        attributes.setxattr(&root(), Ino::ROOT, name.as_bytes(), &[b'x'; 500], plain).unwrap();
    }
    assert_eq!(
        attributes.listxattr(&root(), Ino::ROOT).unwrap().iter().filter(|b| **b == 0).count(),
        21
    );
    assert_eq!(redeem(&volume, &token, &made), 0);
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    volume.close().unwrap();
    // A repair of other damage keeps it.
    let blocks = common::blocks(&device);
    let leaf = blocks["dirents leaf"][0];
    flip(&device, leaf.addr.0 + 64);
    repair(&device);
    let volume = open(&device);
    assert_eq!(redeem(&volume, &token, &made), 0);
    assert!(volume.check(&mut |_, _| {}).unwrap().problems.is_empty());
}

#[test]
fn threads_that_make_the_first_token_make_one_key() {
    let volume = &open(&device());
    let made = &file(volume, "file", 0o600);
    let tokens: Vec<Token> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(|| issue(volume, made, Rights::READ))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for token in &tokens {
        assert_eq!(redeem(volume, token, made), 0);
    }
    let epochs: HashSet<_> = tokens.iter().map(|token| token.to_bytes()[30..34].to_vec()).collect();
    assert_eq!(epochs, HashSet::from([vec![1, 0, 0, 0]]));
}

#[test]
fn messages_do_not_show_the_code() {
    let volume = open(&device());
    let made = file(&volume, "file", 0o600);
    let token = issue(&volume, &made, Rights::READ);
    assert_eq!(format!("{token:?}"), "Token(r--)");
}

proptest! {
    #![proptest_config(property(8))]

    #[test]
    fn a_volume_refuses_every_token_with_a_flipped_bit(name in "[a-z]{1,8}", mode in 0u32..0o777) {
        let volume = open(&device());
        let made = file(&volume, &name, mode);
        let token = issue(&volume, &made, Rights::READ);
        for bit in 0..8 * Token::SIZE {
            let mut bytes = token.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let code = match Token::from_bytes(&bytes) {
                Ok(changed) => redeem(&volume, &changed, &made),
                Err(e) => e.errno(),
            };
            prop_assert_eq!(code, ACCES, "bit {}", bit);
        }
        prop_assert_eq!(redeem(&volume, &token, &made), 0);
    }
}
