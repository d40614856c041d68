//! POSIX access control lists: in step with the mode, asked for permissions, inherited.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use shoal_engine::*;
use std::sync::Arc;

const ROOT: Ino = Ino::ROOT;
const ANY: XattrFlags = XattrFlags { create: false, replace: false, clear_set_group_id: false };
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const NO_ID: u32 = u32::MAX;

/// `u::rwx` and so on as `(tag, permissions, id)`.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&perm.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    out
}

/// Owner rwx, user 5 `user`, group `group`, mask `mask`, others nothing.
fn list(user: u16, group: u16, mask: u16) -> Vec<u8> {
    acl(&[(1, 7, NO_ID), (2, user, 5), (4, group, NO_ID), (16, mask, NO_ID), (32, 0, NO_ID)])
}

fn volume(options: &OpenOptions) -> (Arc<MemDevice>, Volume) {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = Volume::open_on(device.clone(), options).unwrap();
    (device, volume)
}

fn options() -> OpenOptions {
    OpenOptions { background: false, ..OpenOptions::default() }
}

fn assert_clean(volume: &Volume) {
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, vec![], "{report:?}");
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.unwrap_err().code()
}

fn mode(volume: &Volume, ino: Ino) -> u32 {
    volume.getattr(ino).unwrap().mode & 0o7777
}

#[test]
fn modes_and_lists_are_in_step() {
    let (device, volume) = volume(&options());
    let (root, owner, other) = (Caller::root(), Caller::user(9, 9), Caller::user(8, 8));
    let f = volume.create(&owner, ROOT, b"f", 0o600).map(|a| a.ino);
    assert_eq!(code(f), Code::Access);
    let f = volume.create(&root, ROOT, b"f", 0o640).unwrap().ino;
    volume
        .setattr(&root, f, &SetAttr { uid: Some(9), gid: Some(9), ..SetAttr::default() })
        .unwrap();
    let get = || volume.getxattr(&owner, f, ACCESS);
    assert_eq!(code(get()), Code::NoData);
    assert_eq!(code(volume.setxattr(&other, f, ACCESS, &list(6, 5, 6), ANY)), Code::NotPermitted);
    volume.setxattr(&owner, f, ACCESS, &list(6, 5, 6), ANY).unwrap();
    assert_eq!((get().unwrap(), mode(&volume, f)), (list(6, 5, 6), 0o760));
    let chmod = SetAttr { mode: Some(0o654), ..SetAttr::default() };
    volume.setattr(&owner, f, &chmod).unwrap();
    let changed = acl(&[(1, 6, NO_ID), (2, 6, 5), (4, 5, NO_ID), (16, 5, NO_ID), (32, 4, NO_ID)]);
    assert_eq!((get().unwrap(), mode(&volume, f)), (changed, 0o654));
    // What a mode can say is not stored.
    let plain = acl(&[(1, 6, NO_ID), (4, 4, NO_ID), (32, 4, NO_ID)]);
    volume.setxattr(&owner, f, ACCESS, &plain, ANY).unwrap();
    assert_eq!((code(get()), mode(&volume, f)), (Code::NoData, 0o644));
    assert_eq!(volume.listxattr(&root, f).unwrap(), b"");
    assert_eq!(code(volume.setxattr(&owner, f, ACCESS, b"junk", ANY)), Code::NotSupported);
    assert_eq!(code(volume.setxattr(&owner, f, ACCESS, &list(6, 5, 6)[..9], ANY)), Code::Invalid);
    assert_eq!(code(volume.setxattr(&owner, f, DEFAULT, &list(6, 5, 6), ANY)), Code::Access);
    let link = volume.symlink(&root, ROOT, b"l", b"f").unwrap().ino;
    assert_eq!(code(volume.setxattr(&root, link, ACCESS, &plain, ANY)), Code::NotSupported);
    // Many entries: the list is a value in a data object.
    let mut entries = vec![(1, 7, NO_ID)];
    entries.extend((100..400).map(|id| (2, 4, id)));
    entries.extend([(4, 0, NO_ID), (16, 7, NO_ID), (32, 0, NO_ID)]);
    volume.setxattr(&owner, f, ACCESS, &acl(&entries), ANY).unwrap();
    volume.access(&Caller::user(250, 1), f, 4).unwrap();
    assert_eq!(code(volume.access(&Caller::user(450, 1), f, 4)), Code::Access);
    volume.setattr(&owner, f, &SetAttr { mode: Some(0o700), ..SetAttr::default() }).unwrap();
    assert_eq!(code(volume.access(&Caller::user(250, 1), f, 4)), Code::Access);
    assert_clean(&volume);
    volume.sync().unwrap();
    drop(volume);
    let volume = Volume::open_on(device, &options()).unwrap();
    assert_eq!(mode(&volume, f), 0o700);
    volume.removexattr(&owner, f, ACCESS).unwrap();
    assert_clean(&volume);
}

/// The kernel checks, and says who is outside the file's group.
#[test]
fn the_kernel_may_say_that_the_set_group_id_bit_goes() {
    let (_device, volume) = volume(&options());
    let root = Caller::root();
    let checked = Caller { checked: true, ..Caller::user(9, 9) };
    let f = volume.create(&root, ROOT, b"f", 0o640).unwrap().ino;
    let owned = SetAttr { uid: Some(9), gid: Some(7), ..SetAttr::default() };
    volume.setattr(&root, f, &owned).unwrap();
    for (flags, wanted) in [(ANY, 0o2760), (XattrFlags { clear_set_group_id: true, ..ANY }, 0o760)]
    {
        volume.setattr(&root, f, &SetAttr { mode: Some(0o2640), ..SetAttr::default() }).unwrap();
        volume.setxattr(&checked, f, ACCESS, &list(6, 5, 6), flags).unwrap();
        assert_eq!(mode(&volume, f), wanted);
    }
    // Other attributes leave it.
    let flags = XattrFlags { clear_set_group_id: true, ..ANY };
    volume.setattr(&root, f, &SetAttr { mode: Some(0o2640), ..SetAttr::default() }).unwrap();
    volume.setxattr(&checked, f, b"user.a", b"1", flags).unwrap();
    assert_eq!(mode(&volume, f), 0o2640);
    assert_clean(&volume);
}

#[test]
fn permissions_ask_the_list() {
    let (_device, volume) = volume(&options());
    let (root, five, group, other) =
        (Caller::root(), Caller::user(5, 1), Caller::user(6, 9), Caller::user(7, 1));
    let dir = volume.mkdir(&root, ROOT, b"d", 0o700).unwrap().ino;
    volume.setattr(&root, dir, &SetAttr { gid: Some(9), ..SetAttr::default() }).unwrap();
    volume.setxattr(&root, dir, ACCESS, &list(7, 5, 7), ANY).unwrap();
    let f = volume.create(&five, dir, b"f", 0o644).unwrap().ino;
    assert_eq!(code(volume.create(&group, dir, b"g", 0o644)), Code::Access);
    assert_eq!(volume.lookup(&group, dir, b"f").unwrap().ino, f);
    assert_eq!(code(volume.lookup(&other, dir, b"f")), Code::Access);
    assert_eq!(code(volume.unlink(&group, dir, b"f")), Code::Access);
    volume.link(&five, f, dir, b"h").unwrap();
    volume.rename(&five, dir, b"h", dir, b"i", RenameFlags::default()).unwrap();
    // The mask limits everybody but the owner.
    volume.setattr(&root, dir, &SetAttr { mode: Some(0o750), ..SetAttr::default() }).unwrap();
    assert_eq!(code(volume.unlink(&five, dir, b"i")), Code::Access);
    volume.lookup(&five, dir, b"i").unwrap();
    volume.setattr(&root, dir, &SetAttr { mode: Some(0o770), ..SetAttr::default() }).unwrap();
    volume.unlink(&five, dir, b"i").unwrap();
    assert_clean(&volume);
}

#[test]
fn defaults_are_inherited_in_the_same_transaction() {
    for attr_intents in [false, true] {
        let (device, volume) = volume(&OpenOptions { attr_intents, ..options() });
        let root = Caller { umask: 0o077, ..Caller::root() };
        let dir = volume.mkdir(&root, ROOT, b"d", 0o755).unwrap().ino;
        volume.setxattr(&root, dir, DEFAULT, &list(6, 5, 7), ANY).unwrap();
        let before = volume.staged_lsn();
        let f = volume.create(&root, dir, b"f", 0o666).unwrap().ino;
        assert!(volume.staged_lsn() > before);
        // Not the umask but the list decides, together with the mode asked for.
        let inherited =
            acl(&[(1, 6, NO_ID), (2, 6, 5), (4, 5, NO_ID), (16, 6, NO_ID), (32, 0, NO_ID)]);
        assert_eq!(
            (volume.getxattr(&root, f, ACCESS).unwrap(), mode(&volume, f)),
            (inherited, 0o660)
        );
        assert_eq!(code(volume.getxattr(&root, f, DEFAULT)), Code::NoData);
        let sub = volume.mkdir(&root, dir, b"sub", 0o777).unwrap().ino;
        assert_eq!(volume.getxattr(&root, sub, DEFAULT).unwrap(), list(6, 5, 7));
        assert_eq!(
            (volume.getxattr(&root, sub, ACCESS).unwrap(), mode(&volume, sub)),
            (list(6, 5, 7), 0o770)
        );
        let l = volume.symlink(&root, dir, b"l", b"x").unwrap().ino;
        assert_eq!(volume.listxattr(&root, l).unwrap(), b"");
        let t = volume.tmpfile(&root, dir, 0o666).unwrap().ino;
        assert_eq!(mode(&volume, t), 0o660);
        volume.link(&root, t, dir, b"t").unwrap();
        volume.release(t, 1);
        assert_eq!(volume.paths_of(t).unwrap(), [b"/d/t".to_vec()]);
        // A default that a mode can say leaves no list.
        volume
            .setxattr(&root, sub, DEFAULT, &acl(&[(1, 7, 0), (4, 4, 0), (32, 4, 0)]), ANY)
            .unwrap();
        let g = volume.create(&root, sub, b"g", 0o666).unwrap().ino;
        assert_eq!((mode(&volume, g), volume.listxattr(&root, g).unwrap().len()), (0o644, 0));
        assert_clean(&volume);
        volume.sync().unwrap();
        drop(volume);
        let volume = Volume::open_on(device, &options()).unwrap();
        assert_clean(&volume);
        assert_eq!(mode(&volume, f), 0o660);
        assert_eq!(volume.getxattr(&root, sub, ACCESS).unwrap(), list(6, 5, 7));
    }
}
