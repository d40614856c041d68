//! Extended attributes and access control lists, by system calls and by the usual programs.

use crate::common::*;
use rustix::fs::{XattrFlags, getxattr, lgetxattr, listxattr, removexattr, setxattr};
use std::path::Path;
use std::process::Command;

fn get(path: &Path, name: &str) -> Res<Vec<u8>> {
    let mut value = vec![0; 65536];
    let len = getxattr(path, name, value.as_mut_slice())?;
    value.truncate(len);
    Ok(value)
}

fn set(path: &Path, name: &str, value: &[u8]) -> Res<()> {
    setxattr(path, name, value, XattrFlags::empty())
}

fn names(path: &Path) -> Vec<String> {
    let mut list = vec![0; 65536];
    let len = listxattr(path, list.as_mut_slice()).unwrap();
    let mut names: Vec<String> = list[..len]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8(name.to_vec()).unwrap())
        .collect();
    names.sort();
    names
}

/// A number for each change of a file, where times are equal.
#[test]
fn each_change_has_a_version() {
    let Some(m) = mount("") else { return };
    let file = m.path("f");
    touch(&file);
    let version = || {
        let text = String::from_utf8(get(&file, "shoal.version").unwrap()).unwrap();
        text.parse::<u64>().unwrap()
    };
    let mut last = version();
    for n in 0..100 {
        std::fs::write(&file, n.to_string()).unwrap();
        let now = version();
        assert!(now > last && version() == now);
        last = now;
    }
    chmod(&file, 0o600);
    assert!(version() > last);
    assert!(names(&file).is_empty());
    fails!(OPNOTSUPP, set(&file, "shoal.version", b"1"));
    fails!(OPNOTSUPP, removexattr(&file, "shoal.version"));
}

#[test]
fn set_get_list_remove() {
    let Some(mut m) = mount("") else { return };
    let file = m.path("f");
    touch(&file);
    fails!(NODATA, get(&file, "user.none"));
    fails!(OPNOTSUPP, set(&file, "nothing.x", b"1"));
    fails!(OPNOTSUPP, set(&file, "parent.x", b"1"));
    for (name, len) in [("user.a", 0), ("user.b", 10), ("trusted.c", 5000), ("security.d", 65536)] {
        set(&file, name, &vec![7; len]).unwrap();
    }
    fails!(EXIST, setxattr(&file, "user.a", b"x", XattrFlags::CREATE));
    fails!(NODATA, setxattr(&file, "user.z", b"x", XattrFlags::REPLACE));
    setxattr(&file, "user.b", b"replaced", XattrFlags::REPLACE).unwrap();
    for _ in 0..2 {
        let file = m.path("f");
        assert_eq!(get(&file, "user.a").unwrap(), b"");
        assert_eq!(get(&file, "user.b").unwrap(), b"replaced");
        assert_eq!(get(&file, "security.d").unwrap(), vec![7; 65536]);
        assert_eq!(names(&file), ["security.d", "trusted.c", "user.a", "user.b"]);
        let mut small = [0; 3];
        fails!(RANGE, getxattr(&file, "user.b", &mut small[..]));
        m.remount();
    }
    removexattr(&file, "user.b").unwrap();
    fails!(NODATA, removexattr(&file, "user.b"));
    assert_eq!(names(&file), ["security.d", "trusted.c", "user.a"]);
}

#[test]
fn on_directories_symlinks_and_many_on_one_file() {
    let Some(m) = mount("") else { return };
    let dir = m.path("d");
    std::fs::create_dir(&dir).unwrap();
    set(&dir, "user.dir", b"yes").unwrap();
    symlink("d", m.path("link")).unwrap();
    fails!(PERM, rustix::fs::lsetxattr(m.path("link"), "user.x", b"1", XattrFlags::empty()));
    rustix::fs::lsetxattr(m.path("link"), "trusted.x", b"1", XattrFlags::empty()).unwrap();
    let mut value = [0; 8];
    assert_eq!(lgetxattr(m.path("link"), "trusted.x", &mut value[..]).unwrap(), 1);
    assert_eq!(get(&m.path("link"), "user.dir").unwrap(), b"yes");
    let file = m.path("many");
    touch(&file);
    for i in 0..1000 {
        set(&file, &format!("user.number-{i}"), format!("value {i}").as_bytes()).unwrap();
    }
    assert_eq!(names(&file).len(), 1000);
    for i in (0..1000).step_by(7) {
        assert_eq!(
            get(&file, &format!("user.number-{i}")).unwrap(),
            format!("value {i}").as_bytes()
        );
    }
}

/// Runs a program; `None`: it is not installed, and the skip is recorded.
fn run(program: &str, args: &[&str]) -> Option<String> {
    match Command::new(program).args(args).output() {
        Ok(out) => {
            let errors = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(out.status.success(), "{program} {args:?}: {errors}");
            Some(String::from_utf8(out.stdout).unwrap())
        }
        Err(_) => {
            skipped(&format!("{program} is not installed"));
            None
        }
    }
}

#[test]
fn access_control_lists_grant_deny_and_are_inherited() {
    for options in ["", "allow_other"] {
        let Some(m) = mount(options) else { return };
        let dir = m.path("d");
        std::fs::create_dir(&dir).unwrap();
        let path = dir.to_str().unwrap();
        let grant = format!("u:{USER}:rx,d:u:{USER}:rw,d:g::r,d:o::-");
        if run("setfacl", &["-m", &grant, path]).is_none() {
            return;
        }
        let file = dir.join("f");
        std::fs::write(&file, b"text").unwrap();
        let shown = run("getfacl", &["-cnp", file.to_str().unwrap()]).unwrap();
        assert!(shown.contains(&format!("user:{USER}:rw-")), "{options:?}: {shown}");
        assert!(shown.contains("other::---"), "{options:?}: {shown}");
        // On a mount for root alone no other user comes in at all.
        if options == "allow_other" {
            std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o750))
                .unwrap();
            as_user(USER, &[], || assert_eq!(std::fs::read(&file).unwrap(), b"text"));
            as_user(OTHER, &[], || assert!(std::fs::read(&file).is_err()));
        }
        // A chmod of the group class changes the mask.
        chmod(&file, 0o600);
        let shown = run("getfacl", &["-cnp", file.to_str().unwrap()]).unwrap();
        assert!(shown.contains("mask::---"), "{options:?}: {shown}");
        run("setfacl", &["-b", file.to_str().unwrap()]).unwrap();
        assert_eq!(lstat(&file).unwrap().st_mode & 0o777, 0o600, "{options:?}");
    }
}

/// Returns an access control list that gives `USER` the right to read.
fn acl() -> Vec<u8> {
    let none = u32::MAX;
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in
        [(1u16, 7u16, none), (2, 4, USER), (4, 5, none), (16, 5, none), (32, 0, none)]
    {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&perm.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// Returns the modes of files with set-id bits after their owner, root, or nobody has set an access
/// list.
fn modes_after_lists(dir: &Path) -> Option<Vec<(String, u32)>> {
    const FOREIGN: u32 = 4242;
    let mut modes = Vec::new();
    for (who, groups) in [(USER, &[][..]), (USER, &[FOREIGN][..]), (0, &[][..])] {
        for group in [USER, FOREIGN] {
            for mode in [0o2755, 0o6755, 0o2644] {
                let name = format!("{who}-{}-{group}-{mode:o}", groups.len());
                let file = dir.join(&name);
                touch(&file);
                chown(&file, USER, group);
                chmod(&file, mode);
                let list = acl();
                let set = as_user(who, groups, || set(&file, "system.posix_acl_access", &list));
                match set {
                    Err(rustix::io::Errno::OPNOTSUPP) => return None,
                    set => set.unwrap(),
                }
                modes.push((name, lstat(&file).unwrap().st_mode & 0o7777));
            }
        }
    }
    Some(modes)
}

/// A user outside a file's group cannot give it to a list's users with the set-group-ID bit.
#[test]
fn a_list_takes_the_set_group_id_bit_as_on_the_kernels_filesystems() {
    let native = Path::new("/dev/shm").join(format!("shoal-acl-{}", std::process::id()));
    std::fs::create_dir_all(&native).unwrap();
    chmod(&native, 0o777);
    let wanted = modes_after_lists(&native);
    std::fs::remove_dir_all(&native).unwrap();
    if wanted.is_none() {
        skipped("no access control lists on /dev/shm: compared with what XFS does");
    }
    for options in ["allow_other", "allow_other,no_default_permissions"] {
        let Some(m) = mount(options) else { return };
        chmod(&m.dir, 0o777);
        let modes = modes_after_lists(&m.dir).unwrap();
        let mode = |name: &str| modes.iter().find(|(it, _)| it == name).unwrap().1;
        assert_eq!(mode(&format!("{USER}-0-4242-2755")), 0o0750, "{options}");
        assert_eq!(mode(&format!("{USER}-1-4242-2755")), 0o2750, "{options}");
        assert_eq!(mode(&format!("{USER}-0-{USER}-6755")), 0o6750, "{options}");
        if let Some(wanted) = &wanted {
            assert_eq!(&modes, wanted, "{options}");
        }
    }
}

#[test]
fn cp_and_rsync_keep_them() {
    let Some(m) = mount("") else { return };
    let from = m.path("from");
    std::fs::create_dir(&from).unwrap();
    for i in 0..20 {
        let file = from.join(i.to_string());
        std::fs::write(&file, vec![i; 100]).unwrap();
        set(&file, "user.tag", &[i; 3]).unwrap();
        if run("setfacl", &["-m", "u:1234:r", file.to_str().unwrap()]).is_none() {
            return;
        }
    }
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    run("cp", &["-a", &text(&from), &text(&m.path("copied"))]).unwrap();
    let mut copies = vec![m.path("copied")];
    let source = format!("{}/", text(&from));
    if run("rsync", &["-aAX", &source, &text(&m.path("synced"))]).is_some() {
        copies.push(m.path("synced"));
    }
    for copy in copies {
        for i in 0..20u8 {
            let file = copy.join(i.to_string());
            assert_eq!(get(&file, "user.tag").unwrap(), [i; 3]);
            assert!(get(&file, "system.posix_acl_access").is_ok());
        }
    }
}

#[test]
fn without_attributes_the_kernel_stops_asking() {
    let Some(m) = mount("no_xattr") else { return };
    touch(m.path("f"));
    fails!(OPNOTSUPP, set(&m.path("f"), "user.a", b"1"));
    fails!(OPNOTSUPP, get(&m.path("f"), "user.a"));
}
