//! POSIX access control lists: agreement with the mode, permission checks, inheritance.

use shoal_engine::*;
use std::sync::Arc;

const ROOT: Ino = Ino::ROOT;
const ANY: XattrFlags = XattrFlags { create: false, replace: false, clear_set_group_id: false };
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const NO_ID: u32 = u32::MAX;

/// Encodes a list of `(tag, permissions, id)`.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&perm.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    out
}

/// Returns a list: owner rwx, user 5 `user`, group `group`, mask `mask`, others nothing.
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
    volume.attributes().getattr(ino).unwrap().mode & 0o7777
}

#[test]
fn modes_and_lists_are_in_step() {
    let (device, volume) = volume(&options());
    let (root, owner, other) = (Caller::root(), Caller::user(9, 9), Caller::user(8, 8));
    let f = volume.namespace().create(&owner, ROOT, b"f", 0o600).map(|a| a.ino);
    assert_eq!(code(f), Code::Access);
    let f = volume.namespace().create(&root, ROOT, b"f", 0o640).unwrap().ino;
    volume
        .attributes()
        .setattr(&root, f, &SetAttr { uid: Some(9), gid: Some(9), ..SetAttr::default() })
        .unwrap();
    let get = || volume.attributes().getxattr(&owner, f, ACCESS);
    assert_eq!(code(get()), Code::NoData);
    assert_eq!(
        code(volume.attributes().setxattr(&other, f, ACCESS, &list(6, 5, 6), ANY)),
        Code::NotPermitted
    );
    volume.attributes().setxattr(&owner, f, ACCESS, &list(6, 5, 6), ANY).unwrap();
    assert_eq!((get().unwrap(), mode(&volume, f)), (list(6, 5, 6), 0o760));
    let chmod = SetAttr { mode: Some(0o654), ..SetAttr::default() };
    volume.attributes().setattr(&owner, f, &chmod).unwrap();
    let changed = acl(&[(1, 6, NO_ID), (2, 6, 5), (4, 5, NO_ID), (16, 5, NO_ID), (32, 4, NO_ID)]);
    assert_eq!((get().unwrap(), mode(&volume, f)), (changed, 0o654));
    // A list that is equivalent to a mode is not stored.
    let plain = acl(&[(1, 6, NO_ID), (4, 4, NO_ID), (32, 4, NO_ID)]);
    volume.attributes().setxattr(&owner, f, ACCESS, &plain, ANY).unwrap();
    assert_eq!((code(get()), mode(&volume, f)), (Code::NoData, 0o644));
    assert_eq!(volume.attributes().listxattr(&root, f).unwrap(), b"");
    assert_eq!(
        code(volume.attributes().setxattr(&owner, f, ACCESS, b"junk", ANY)),
        Code::NotSupported
    );
    assert_eq!(
        code(volume.attributes().setxattr(&owner, f, ACCESS, &list(6, 5, 6)[..9], ANY)),
        Code::Invalid
    );
    assert_eq!(
        code(volume.attributes().setxattr(&owner, f, DEFAULT, &list(6, 5, 6), ANY)),
        Code::Access
    );
    let link = volume.namespace().symlink(&root, ROOT, b"l", b"f").unwrap().ino;
    assert_eq!(
        code(volume.attributes().setxattr(&root, link, ACCESS, &plain, ANY)),
        Code::NotSupported
    );
    // Many entries: the list is stored in a data object.
    let mut entries = vec![(1, 7, NO_ID)];
    entries.extend((100..400).map(|id| (2, 4, id)));
    entries.extend([(4, 0, NO_ID), (16, 7, NO_ID), (32, 0, NO_ID)]);
    volume.attributes().setxattr(&owner, f, ACCESS, &acl(&entries), ANY).unwrap();
    volume.attributes().access(&Caller::user(250, 1), f, 4).unwrap();
    assert_eq!(code(volume.attributes().access(&Caller::user(450, 1), f, 4)), Code::Access);
    volume
        .attributes()
        .setattr(&owner, f, &SetAttr { mode: Some(0o700), ..SetAttr::default() })
        .unwrap();
    assert_eq!(code(volume.attributes().access(&Caller::user(250, 1), f, 4)), Code::Access);
    assert_clean(&volume);
    volume.sync().unwrap();
    drop(volume);
    let volume = Volume::open_on(device, &options()).unwrap();
    assert_eq!(mode(&volume, f), 0o700);
    volume.attributes().removexattr(&owner, f, ACCESS).unwrap();
    assert_clean(&volume);
}

/// The kernel does the checks, and indicates callers outside the file's group.
#[test]
fn the_kernel_may_say_that_the_set_group_id_bit_goes() {
    let (_device, volume) = volume(&options());
    let root = Caller::root();
    let checked = Caller { checked: true, ..Caller::user(9, 9) };
    let f = volume.namespace().create(&root, ROOT, b"f", 0o640).unwrap().ino;
    let owned = SetAttr { uid: Some(9), gid: Some(7), ..SetAttr::default() };
    volume.attributes().setattr(&root, f, &owned).unwrap();
    for (flags, wanted) in [(ANY, 0o2760), (XattrFlags { clear_set_group_id: true, ..ANY }, 0o760)]
    {
        volume
            .attributes()
            .setattr(&root, f, &SetAttr { mode: Some(0o2640), ..SetAttr::default() })
            .unwrap();
        volume.attributes().setxattr(&checked, f, ACCESS, &list(6, 5, 6), flags).unwrap();
        assert_eq!(mode(&volume, f), wanted);
    }
    // Other attributes do not change it.
    let flags = XattrFlags { clear_set_group_id: true, ..ANY };
    volume
        .attributes()
        .setattr(&root, f, &SetAttr { mode: Some(0o2640), ..SetAttr::default() })
        .unwrap();
    volume.attributes().setxattr(&checked, f, b"user.a", b"1", flags).unwrap();
    assert_eq!(mode(&volume, f), 0o2640);
    assert_clean(&volume);
}

#[test]
fn permissions_ask_the_list() {
    let (_device, volume) = volume(&options());
    let (root, five, group, other) =
        (Caller::root(), Caller::user(5, 1), Caller::user(6, 9), Caller::user(7, 1));
    let dir = volume.namespace().mkdir(&root, ROOT, b"d", 0o700).unwrap().ino;
    volume
        .attributes()
        .setattr(&root, dir, &SetAttr { gid: Some(9), ..SetAttr::default() })
        .unwrap();
    volume.attributes().setxattr(&root, dir, ACCESS, &list(7, 5, 7), ANY).unwrap();
    let f = volume.namespace().create(&five, dir, b"f", 0o644).unwrap().ino;
    assert_eq!(code(volume.namespace().create(&group, dir, b"g", 0o644)), Code::Access);
    assert_eq!(volume.namespace().lookup(&group, dir, b"f").unwrap().ino, f);
    assert_eq!(code(volume.namespace().lookup(&other, dir, b"f")), Code::Access);
    assert_eq!(code(volume.namespace().unlink(&group, dir, b"f")), Code::Access);
    volume.namespace().link(&five, f, dir, b"h").unwrap();
    volume.namespace().rename(&five, dir, b"h", dir, b"i", RenameFlags::default()).unwrap();
    // The mask limits everybody except the owner.
    volume
        .attributes()
        .setattr(&root, dir, &SetAttr { mode: Some(0o750), ..SetAttr::default() })
        .unwrap();
    assert_eq!(code(volume.namespace().unlink(&five, dir, b"i")), Code::Access);
    volume.namespace().lookup(&five, dir, b"i").unwrap();
    volume
        .attributes()
        .setattr(&root, dir, &SetAttr { mode: Some(0o770), ..SetAttr::default() })
        .unwrap();
    volume.namespace().unlink(&five, dir, b"i").unwrap();
    assert_clean(&volume);
}

#[test]
fn defaults_are_inherited_in_the_same_transaction() {
    for attr_intents in [false, true] {
        let (device, volume) =
            volume(&OpenOptions { lab: Lab { attr_intents, ..Lab::default() }, ..options() });
        let root = Caller { umask: 0o077, ..Caller::root() };
        let dir = volume.namespace().mkdir(&root, ROOT, b"d", 0o755).unwrap().ino;
        volume.attributes().setxattr(&root, dir, DEFAULT, &list(6, 5, 7), ANY).unwrap();
        let before = volume.staged_lsn();
        let f = volume.namespace().create(&root, dir, b"f", 0o666).unwrap().ino;
        assert!(volume.staged_lsn() > before);
        // The list decides, together with the requested mode, not the umask.
        let inherited =
            acl(&[(1, 6, NO_ID), (2, 6, 5), (4, 5, NO_ID), (16, 6, NO_ID), (32, 0, NO_ID)]);
        assert_eq!(
            (volume.attributes().getxattr(&root, f, ACCESS).unwrap(), mode(&volume, f)),
            (inherited, 0o660)
        );
        assert_eq!(code(volume.attributes().getxattr(&root, f, DEFAULT)), Code::NoData);
        let sub = volume.namespace().mkdir(&root, dir, b"sub", 0o777).unwrap().ino;
        assert_eq!(volume.attributes().getxattr(&root, sub, DEFAULT).unwrap(), list(6, 5, 7));
        assert_eq!(
            (volume.attributes().getxattr(&root, sub, ACCESS).unwrap(), mode(&volume, sub)),
            (list(6, 5, 7), 0o770)
        );
        let l = volume.namespace().symlink(&root, dir, b"l", b"x").unwrap().ino;
        assert_eq!(volume.attributes().listxattr(&root, l).unwrap(), b"");
        let t = volume.namespace().tmpfile(&root, dir, 0o666).unwrap().ino;
        assert_eq!(mode(&volume, t), 0o660);
        volume.namespace().link(&root, t, dir, b"t").unwrap();
        volume.references().release(t, 1);
        assert_eq!(volume.paths().paths_of(t).unwrap(), [b"/d/t".to_vec()]);
        // A default list that is equivalent to a mode leaves no list.
        volume
            .attributes()
            .setxattr(&root, sub, DEFAULT, &acl(&[(1, 7, 0), (4, 4, 0), (32, 4, 0)]), ANY)
            .unwrap();
        let g = volume.namespace().create(&root, sub, b"g", 0o666).unwrap().ino;
        assert_eq!(
            (mode(&volume, g), volume.attributes().listxattr(&root, g).unwrap().len()),
            (0o644, 0)
        );
        assert_clean(&volume);
        volume.sync().unwrap();
        drop(volume);
        let volume = Volume::open_on(device, &options()).unwrap();
        assert_clean(&volume);
        assert_eq!(mode(&volume, f), 0o660);
        assert_eq!(volume.attributes().getxattr(&root, sub, ACCESS).unwrap(), list(6, 5, 7));
    }
}
