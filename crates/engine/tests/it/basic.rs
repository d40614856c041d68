//! A volume in memory, from mkfs to reopening.

use shoal_engine::*;
use std::sync::Arc;

fn options() -> OpenOptions {
    OpenOptions { background: false, ..OpenOptions::default() }
}

fn fresh(bytes: u64) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(bytes));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    device
}

fn assert_clean(volume: &Volume) {
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, vec![], "{report:?}");
}

#[test]
fn an_empty_volume_is_clean() {
    let device = fresh(64 << 20);
    let volume = Volume::open_on(device.clone(), &options()).unwrap();
    assert_clean(&volume);
    volume.close().unwrap();
    let volume = Volume::open_on(device, &options()).unwrap();
    assert!(!volume.info().recovery.needed);
    assert_clean(&volume);
}

#[test]
fn files_survive_close_and_crash() {
    let device = fresh(256 << 20);
    let root = Caller::root();
    let mut contents = Vec::new();
    for round in 0..4 {
        let volume = Volume::open_on(device.clone(), &options()).unwrap();
        assert_clean(&volume);
        for (name, data) in &contents {
            let path: &String = name;
            let data: &Vec<u8> = data;
            let entry =
                volume.namespace().resolve(&root, Ino::ROOT, path.as_bytes(), true).unwrap();
            let mut buf = vec![0; data.len() + 10];
            let n = volume.files().read(entry.ino, 0, &mut buf).unwrap();
            assert_eq!(&buf[..n], &data[..], "{path}");
        }
        let dir = format!("d{round}");
        let d = volume.namespace().mkdir(&root, Ino::ROOT, dir.as_bytes(), 0o755).unwrap();
        for i in 0..2000usize {
            let name = format!("file-{i}");
            let f = volume.namespace().create(&root, d.ino, name.as_bytes(), 0o644).unwrap();
            let data: Vec<u8> = (0..i * 37 % 9000).map(|b| (b * i) as u8).collect();
            volume.files().write(f.ino, 0, &data, false).unwrap();
            if i % 3 == 0 {
                volume.namespace().unlink(&root, d.ino, name.as_bytes()).unwrap();
            } else {
                contents.push((format!("/{dir}/{name}"), data));
            }
        }
        if round == 2 {
            volume.maintenance().checkpoint().unwrap();
        }
        assert_clean(&volume);
        if round % 2 == 0 {
            volume.close().unwrap();
        } else {
            volume.sync().unwrap(); // and a crash
        }
    }
}

#[test]
fn appending_leaves_few_extents() {
    let device = fresh(256 << 20);
    let root = Caller::root();
    let volume = Volume::open_on(device, &options()).unwrap();
    let f = volume.namespace().create(&root, Ino::ROOT, b"log", 0o644).unwrap();
    for i in 0..1000u64 {
        assert_eq!(
            volume.files().append(f.ino, &[i as u8; 4096], false).unwrap(),
            (i * 4096, 4096)
        );
        if i % 10 == 0 {
            volume.files().fsync(f.ino, false).unwrap();
        }
    }
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, vec![]);
    assert!(report.extents < 60, "{} extents", report.extents);
    assert_eq!(volume.attributes().getattr(f.ino).unwrap().size, 4096 * 1000);
}

#[test]
fn listing_and_renaming() {
    let device = fresh(256 << 20);
    let who = Caller::root();
    let volume = Volume::open_on(device, &options()).unwrap();
    let a = volume.namespace().mkdir(&who, Ino::ROOT, b"a", 0o755).unwrap().ino;
    let b = volume.namespace().mkdir(&who, Ino::ROOT, b"b", 0o755).unwrap().ino;
    for i in 0..500 {
        volume.namespace().create(&who, a, format!("f{i}").as_bytes(), 0o600).unwrap();
    }
    let flags = RenameFlags::default();
    for i in 0..250 {
        let name = format!("f{i}");
        volume.namespace().rename(&who, a, name.as_bytes(), b, name.as_bytes(), flags).unwrap();
    }
    let c = volume.namespace().mkdir(&who, a, b"c", 0o755).unwrap().ino;
    let into_itself = volume.namespace().rename(&who, Ino::ROOT, b"a", c, b"x", flags);
    assert_eq!(into_itself, Err(Error::Code(Code::Invalid)));
    volume.namespace().rename(&who, a, b"c", b, b"c", flags).unwrap();
    assert_eq!(volume.directories().parent_of(c).unwrap(), b);
    let mut names = 0;
    volume
        .directories()
        .readdirplus(b, 0, &mut |entry, attr| {
            assert_eq!(Ok(entry.ino), attr.map(|attr| attr.ino));
            names += 1;
            true
        })
        .unwrap();
    assert_eq!(names, 250 + 1 + 2);
    let exchange = RenameFlags { exchange: true, ..flags };
    volume.namespace().rename(&who, b, b"c", a, b"f400", exchange).unwrap();
    assert_eq!(volume.namespace().lookup(&who, a, b"f400").unwrap().kind, FileKind::Directory);
    assert_clean(&volume);
}

#[test]
fn held_files_outlive_their_names() {
    let device = fresh(64 << 20);
    let who = Caller::root();
    let volume = Volume::open_on(device.clone(), &options()).unwrap();
    let f = volume.namespace().create(&who, Ino::ROOT, b"f", 0o600).unwrap();
    volume.files().write(f.ino, 0, &[7; 100_000], false).unwrap();
    volume.references().hold(f.ino, 2).unwrap();
    volume.namespace().unlink(&who, Ino::ROOT, b"f").unwrap();
    assert_clean(&volume);
    let mut buf = [0; 10];
    assert_eq!(volume.files().read(f.ino, 99_995, &mut buf).unwrap(), 5);
    volume.references().release(f.ino, 1);
    assert!(volume.attributes().getattr(f.ino).is_ok());
    volume.references().release(f.ino, 1);
    assert_eq!(volume.attributes().getattr(f.ino), Err(Error::Code(Code::Stale)));
    let t = volume.namespace().tmpfile(&who, Ino::ROOT, 0o600).unwrap();
    volume.files().write(t.ino, 0, &[7; 100_000], false).unwrap();
    volume.sync().unwrap();
    drop(volume);
    let volume = Volume::open_on(device, &options()).unwrap();
    assert_eq!(volume.info().recovery.orphans, 1);
    assert_eq!(volume.attributes().getattr(t.ino), Err(Error::Code(Code::Stale)));
    assert_clean(&volume);
}

#[test]
fn a_full_volume_can_be_emptied_and_filled_again() {
    let device = fresh(32 << 20);
    let who = Caller::root();
    let volume = Volume::open_on(device, &options()).unwrap();
    for round in 0..4 {
        let mut made = 0;
        loop {
            let name = format!("r{round}-{made}");
            let f = match volume.namespace().create(&who, Ino::ROOT, name.as_bytes(), 0o600) {
                Ok(f) => f,
                Err(e) => {
                    assert_eq!(e, Error::Code(Code::NoSpace));
                    break;
                }
            };
            made += 1;
            match volume.files().write(f.ino, 0, &vec![made as u8; 50_000], false) {
                Ok(n) => assert_eq!(n, 50_000),
                Err(e) => {
                    assert_eq!(e, Error::Code(Code::NoSpace));
                    break;
                }
            }
        }
        assert!(made > 100, "round {round}: only {made} files: {:?}", volume.info());
        assert_clean(&volume);
        for i in 0..made {
            volume.namespace().unlink(&who, Ino::ROOT, format!("r{round}-{i}").as_bytes()).unwrap();
        }
    }
}

#[test]
fn a_checkpoint_fits_after_many_removals_on_a_full_volume() {
    let device = fresh(64 << 20);
    let who = Caller::root();
    let volume = Volume::open_on(device.clone(), &options()).unwrap();
    let d = volume.namespace().mkdir(&who, Ino::ROOT, b"d", 0o755).unwrap().ino;
    let mut made = 0;
    while let Ok(f) = volume.namespace().create(&who, d, made.to_string().as_bytes(), 0o600) {
        if volume.files().write(f.ino, 0, &[7; 1000], false).is_err() {
            break;
        }
        made += 1;
    }
    assert!(made > 10_000, "{made}");
    volume.close().unwrap();
    let volume = Volume::open_on(device, &options()).unwrap();
    for i in (0..made).step_by(2) {
        volume.namespace().unlink(&who, d, i.to_string().as_bytes()).unwrap();
    }
    volume.maintenance().checkpoint().unwrap();
    assert_clean(&volume);
    assert!(volume.statfs().bytes_available > 4 << 20, "{:?}", volume.statfs());
    // The freed space is scattered over all segments: the cleaner must collect it.
    for i in 0..made / 4 {
        let name = format!("again-{i}");
        let f = volume.namespace().create(&who, d, name.as_bytes(), 0o600).unwrap();
        volume.files().write(f.ino, 0, &[8; 1000], false).unwrap();
    }
    assert_clean(&volume);
}
