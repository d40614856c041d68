//! Extended attributes: the calls, the storage forms, and the state after a crash.

use shoal_engine::*;
use shoal_skip::tick;
use std::collections::BTreeMap;
use std::sync::Arc;

const ROOT: Ino = Ino::ROOT;
const ANY: XattrFlags = XattrFlags { create: false, replace: false, clear_set_group_id: false };
const CREATE: XattrFlags = XattrFlags { create: true, ..ANY };
const REPLACE: XattrFlags = XattrFlags { replace: true, ..ANY };

fn options() -> OpenOptions {
    OpenOptions { background: false, ..OpenOptions::default() }
}

fn open(device: &Arc<MemDevice>, options: &OpenOptions) -> Volume {
    Volume::open_on(device.clone(), options).unwrap()
}

fn fresh(bytes: u64, inode_size: u32) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(bytes));
    mkfs_on(device.clone(), &MkfsOptions { inode_size, ..MkfsOptions::default() }).unwrap();
    device
}

fn assert_clean(volume: &Volume) {
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, vec![], "{report:?}");
}

fn counter(volume: &Volume, name: &str) -> u64 {
    volume.info().counters.iter().find(|(n, _)| *n == name).unwrap().1
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.unwrap_err().code()
}

fn names(volume: &Volume, who: &Caller, ino: Ino) -> Vec<String> {
    let raw = volume.attributes().listxattr(who, ino).unwrap();
    let mut names: Vec<String> = raw
        .split(|b| *b == 0)
        .filter(|n| !n.is_empty())
        .map(|n| String::from_utf8(n.to_vec()).unwrap())
        .collect();
    names.sort();
    names
}

type Model = BTreeMap<String, Vec<u8>>;

fn assert_same(volume: &Volume, ino: Ino, model: &Model) {
    let root = Caller::root();
    assert_eq!(names(volume, &root, ino), model.keys().cloned().collect::<Vec<_>>());
    for (name, value) in model {
        assert_eq!(
            &volume.attributes().getxattr(&root, ino, name.as_bytes()).unwrap(),
            value,
            "{name}"
        );
    }
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[test]
fn set_get_list_remove() {
    let device = fresh(64 << 20, 512);
    let volume = open(&device, &options());
    let root = Caller::root();
    let f = volume.namespace().create(&root, ROOT, b"f", 0o644).unwrap().ino;
    assert_eq!(code(volume.attributes().getxattr(&root, f, b"user.a")), Code::NoData);
    assert_eq!(
        code(volume.attributes().setxattr(&root, f, b"user.a", b"1", REPLACE)),
        Code::NoData
    );
    volume.attributes().setxattr(&root, f, b"user.a", b"1", CREATE).unwrap();
    assert_eq!(code(volume.attributes().setxattr(&root, f, b"user.a", b"2", CREATE)), Code::Exists);
    volume.attributes().setxattr(&root, f, b"user.a", b"two", REPLACE).unwrap();
    volume.attributes().setxattr(&root, f, b"trusted.b", b"", ANY).unwrap();
    assert_eq!(volume.attributes().getxattr(&root, f, b"user.a").unwrap(), b"two");
    assert_eq!(names(&volume, &root, f), ["trusted.b", "user.a"]);
    let long = [&b"user."[..], &[b'n'; 250]].concat();
    volume.attributes().setxattr(&root, f, &long, b"x", ANY).unwrap();
    for (name, want) in [
        (&b""[..], Code::Range),
        (&[b'u'; 256], Code::Range),
        (b"user.", Code::Invalid),
        (b"parent.f", Code::NotSupported),
        (b"nonsense", Code::NotSupported),
        (b"system.other", Code::NotSupported),
    ] {
        assert_eq!(code(volume.attributes().setxattr(&root, f, name, b"", ANY)), want, "{name:?}");
        assert_eq!(code(volume.attributes().getxattr(&root, f, name)), want, "{name:?}");
        assert_eq!(code(volume.attributes().removexattr(&root, f, name)), want, "{name:?}");
    }
    let big = vec![1; 65_537];
    assert_eq!(code(volume.attributes().setxattr(&root, f, b"user.a", &big, ANY)), Code::TooBig);
    volume.attributes().setxattr(&root, f, b"user.big", &big[1..], ANY).unwrap();
    assert_eq!(volume.attributes().getxattr(&root, f, b"user.big").unwrap(), &big[1..]);
    assert_clean(&volume);
    volume.attributes().removexattr(&root, f, b"user.big").unwrap();
    assert_eq!(code(volume.attributes().removexattr(&root, f, b"user.big")), Code::NoData);
    assert_clean(&volume);
    volume.namespace().unlink(&root, ROOT, b"f").unwrap();
    assert_eq!(code(volume.attributes().getxattr(&root, f, b"user.a")), Code::Stale);
    assert_clean(&volume);
}

#[test]
fn who_may() {
    let device = fresh(64 << 20, 512);
    let volume = open(&device, &options());
    let (root, user, other) = (Caller::root(), Caller::user(5, 5), Caller::user(6, 6));
    let dir = volume.namespace().mkdir(&root, ROOT, b"d", 0o1777).unwrap().ino;
    let f = volume.namespace().create(&user, dir, b"f", 0o640).unwrap().ino;
    let link = volume.namespace().symlink(&root, dir, b"l", b"f").unwrap().ino;
    let set =
        |who: &Caller, ino, name: &[u8]| volume.attributes().setxattr(who, ino, name, b"v", ANY);
    set(&user, f, b"user.x").unwrap();
    assert_eq!(code(set(&other, f, b"user.x")), Code::Access);
    assert_eq!(code(volume.attributes().getxattr(&other, f, b"user.x")), Code::Access);
    assert_eq!(code(set(&user, f, b"trusted.x")), Code::NotPermitted);
    assert_eq!(code(set(&user, f, b"security.x")), Code::NotPermitted);
    assert_eq!(code(set(&user, f, b"strange.x")), Code::NotSupported);
    assert_eq!(code(set(&other, f, b"strange.x")), Code::Access);
    set(&root, f, b"trusted.x").unwrap();
    set(&root, f, b"security.x").unwrap();
    assert_eq!(code(volume.attributes().getxattr(&user, f, b"trusted.x")), Code::NoData);
    assert_eq!(volume.attributes().getxattr(&other, f, b"security.x").unwrap(), b"v");
    assert_eq!(names(&volume, &user, f), ["security.x", "user.x"]);
    assert_eq!(names(&volume, &root, f), ["security.x", "trusted.x", "user.x"]);
    // Symlinks: only trusted and security. A sticky directory: only the owner.
    assert_eq!(code(set(&root, link, b"user.x")), Code::NotPermitted);
    assert_eq!(code(volume.attributes().getxattr(&root, link, b"user.x")), Code::NoData);
    set(&root, link, b"trusted.x").unwrap();
    assert_eq!(code(set(&user, dir, b"user.x")), Code::NotPermitted);
    set(&root, dir, b"user.x").unwrap();
    assert_clean(&volume);
}

#[test]
fn a_change_shows_in_ctime_and_survives() {
    let device = fresh(64 << 20, 512);
    let volume = open(&device, &options());
    let root = Caller::root();
    let f = volume.namespace().create(&root, ROOT, b"f", 0o644).unwrap();
    tick();
    volume.attributes().setxattr(&root, f.ino, b"user.a", b"1", ANY).unwrap();
    let attr = volume.attributes().getattr(f.ino).unwrap();
    assert!(attr.ctime > f.ctime && attr.mtime == f.mtime);
    volume.sync().unwrap();
    drop(volume);
    let volume = open(&device, &options());
    assert_eq!(volume.attributes().getattr(f.ino).unwrap().ctime, attr.ctime);
    assert_eq!(volume.attributes().getxattr(&root, f.ino, b"user.a").unwrap(), b"1");
}

/// Every form and every transition between them, compared with a model, with checkpoints, closing
/// and crashes, with and without the shortcut.
fn storm(seed: u64, inode_size: u32, intents: bool) {
    let device = fresh(64 << 20, inode_size);
    let options = OpenOptions { lab: Lab { attr_intents: intents, ..Lab::default() }, ..options() };
    let mut volume = open(&device, &options);
    let root = Caller::root();
    let mut rng = Rng(seed * 7919 + 1);
    let mut files: Vec<(Ino, Model, Vec<u8>)> = Vec::new();
    for i in 0..4 {
        let f =
            volume.namespace().create(&root, ROOT, format!("file-{i}").as_bytes(), 0o644).unwrap();
        files.push((f.ino, Model::new(), Vec::new()));
    }
    for step in 0..600 {
        let (ino, model, data) = &mut files[rng.below(4) as usize];
        let space = ["user", "trusted", "security"][rng.below(3) as usize];
        let name = format!("{space}.{}", "n".repeat(1 + rng.below(12) as usize));
        let len = match rng.below(10) {
            0..=5 => rng.below(60),
            6..=7 => rng.below(1100),
            _ => rng.below(65_537),
        };
        let value = vec![step as u8; len as usize];
        match rng.below(14) {
            0..=6 => {
                volume.attributes().setxattr(&root, *ino, name.as_bytes(), &value, ANY).unwrap();
                model.insert(name, value);
            }
            7..=10 => {
                let got = volume.attributes().removexattr(&root, *ino, name.as_bytes());
                assert_eq!(got.is_ok(), model.remove(&name).is_some());
            }
            11 => {
                // Data competes for the space.
                let len = rng.below(300) as usize;
                *data = vec![!(step as u8); len];
                let set = SetAttr { size: Some(0), ..SetAttr::default() };
                volume.attributes().setattr(&root, *ino, &set).unwrap();
                volume.files().write(*ino, 0, data, false).unwrap();
            }
            12 => volume.maintenance().checkpoint().unwrap(),
            _ => {
                match rng.below(2) {
                    0 => volume.close().unwrap(),
                    _ => {
                        volume.sync().unwrap();
                        drop(volume);
                    }
                }
                volume = open(&device, &options);
                assert_clean(&volume);
            }
        }
        if step % 20 == 0 {
            for (ino, model, data) in &files {
                assert_same(&volume, *ino, model);
                let mut found = vec![0; 1000];
                let n = volume.files().read(*ino, 0, &mut found).unwrap();
                assert_eq!(&found[..n], &data[..]);
                assert_eq!(volume.paths().parents_of(*ino).unwrap().len(), 1);
            }
        }
    }
    assert_clean(&volume);
    for i in 0..4 {
        volume.namespace().unlink(&root, ROOT, format!("file-{i}").as_bytes()).unwrap();
    }
    assert_clean(&volume);
    volume.close().unwrap();
    assert_clean(&open(&device, &options));
}

#[test]
fn forms_against_a_model() {
    for seed in 0..3 {
        storm(seed, 512, false);
        storm(seed, 256, false);
    }
    storm(7, 2048, false);
}

#[test]
fn forms_against_a_model_by_intents_alone() {
    storm(1, 512, true);
    storm(2, 256, true);
}

#[test]
fn the_shortcut_is_taken_when_the_result_fits() {
    let device = fresh(64 << 20, 512);
    let volume = open(&device, &options());
    let root = Caller::root();
    let f = volume.namespace().create(&root, ROOT, b"f", 0o644).unwrap().ino;
    let set = |name: &[u8], len| {
        volume.attributes().setxattr(&root, f, name, &vec![7; len], ANY).unwrap()
    };
    set(b"user.a", 100);
    set(b"user.a", 100);
    set(b"user.a", 150);
    set(b"user.a", 10);
    // A value in a data object needs no intent either: the pointer fits.
    set(b"user.a", 50_000);
    volume.attributes().removexattr(&root, f, b"user.a").unwrap();
    assert_eq!(counter(&volume, "attr_intents"), 0);
    assert_eq!(counter(&volume, "attr_shortcuts"), 6);
    set(b"user.b", 300);
    set(b"user.c", 300);
    assert_eq!(counter(&volume, "attr_intents"), 1);
    volume.attributes().removexattr(&root, f, b"user.b").unwrap();
    volume.attributes().removexattr(&root, f, b"user.c").unwrap();
    assert_eq!(counter(&volume, "attr_intents"), 3);
    set(b"user.d", 10);
    assert_eq!(counter(&volume, "attr_intents"), 3, "back in the inode");
    assert_clean(&volume);
}

#[test]
fn thousands_on_one_file() {
    let device = fresh(256 << 20, 512);
    let volume = open(&device, &options());
    let root = Caller::root();
    let f = volume.namespace().create(&root, ROOT, b"f", 0o644).unwrap().ino;
    let mut model = Model::new();
    for i in 0..3000 {
        let (name, value) = (format!("user.{i}"), vec![i as u8; i % 200]);
        volume.attributes().setxattr(&root, f, name.as_bytes(), &value, CREATE).unwrap();
        model.insert(name, value);
    }
    volume.sync().unwrap();
    drop(volume);
    let volume = open(&device, &options());
    assert_same(&volume, f, &model);
    assert_clean(&volume);
    for i in (0..3000).rev() {
        volume.attributes().removexattr(&root, f, format!("user.{i}").as_bytes()).unwrap();
    }
    assert_same(&volume, f, &Model::new());
    assert_clean(&volume);
}

#[test]
fn a_full_volume_keeps_the_old_value() {
    let device = fresh(24 << 20, 512);
    let volume = open(&device, &options());
    let root = Caller::root();
    let f = volume.namespace().create(&root, ROOT, b"f", 0o644).unwrap().ino;
    volume.attributes().setxattr(&root, f, b"user.keep", &[5; 30_000], ANY).unwrap();
    let mut full = 0;
    for i in 0..4000 {
        let name = format!("user.{}", i % 700);
        match volume.attributes().setxattr(&root, f, name.as_bytes(), &vec![i as u8; 60_000], ANY) {
            Ok(()) => {}
            Err(e) => {
                assert_eq!(e.code(), Code::NoSpace);
                full += 1;
                if full > 3 {
                    break;
                }
            }
        }
    }
    assert!(full > 3, "the volume did not fill");
    assert_eq!(
        code(volume.attributes().setxattr(&root, f, b"user.keep", &[6; 60_000], ANY)),
        Code::NoSpace
    );
    assert_eq!(volume.attributes().getxattr(&root, f, b"user.keep").unwrap(), [5; 30_000]);
    assert_clean(&volume);
    // Removal works and frees space: the values' space was accounted for.
    for i in 0..700 {
        let _ = volume.attributes().removexattr(&root, f, format!("user.{i}").as_bytes());
    }
    assert_eq!(names(&volume, &root, f), ["user.keep"]);
    volume.attributes().setxattr(&root, f, b"user.keep", &[6; 60_000], ANY).unwrap();
    assert_clean(&volume);
}

/// The cleaner moves values: a volume of few segments is overwritten several times.
#[test]
fn values_are_moved_by_the_cleaner() {
    let device = fresh(32 << 20, 512);
    let volume = open(&device, &options());
    let root = Caller::root();
    let mut rng = Rng(42);
    let mut models = Vec::new();
    for i in 0..40 {
        let f =
            volume.namespace().create(&root, ROOT, format!("f{i}").as_bytes(), 0o644).unwrap().ino;
        models.push((f, Model::new()));
    }
    for step in 0..3000 {
        let (ino, model) = &mut models[rng.below(40) as usize];
        // Some inline, some in the tree: up to eight values per file.
        let name = format!("user.{}", "v".repeat(1 + rng.below(40) as usize));
        if model.len() > 8 || rng.below(3) == 0 {
            if let Some(name) = model.keys().next().cloned() {
                volume.attributes().removexattr(&root, *ino, name.as_bytes()).unwrap();
                model.remove(&name);
            }
        } else {
            let value = vec![step as u8; 2000 + rng.below(40_000) as usize];
            volume.attributes().setxattr(&root, *ino, name.as_bytes(), &value, ANY).unwrap();
            model.insert(name, value);
        }
    }
    assert!(counter(&volume, "bytes_moved") > 0, "nothing was cleaned");
    models.iter().for_each(|(ino, model)| assert_same(&volume, *ino, model));
    assert_clean(&volume);
    volume.close().unwrap();
    let volume = open(&device, &options());
    models.iter().for_each(|(ino, model)| assert_same(&volume, *ino, model));
    assert_clean(&volume);
}

#[test]
fn capabilities_go_when_contents_change() {
    let device = fresh(64 << 20, 512);
    let volume = open(&device, &options());
    let root = Caller::root();
    let f = volume.namespace().create(&root, ROOT, b"f", 0o755).unwrap().ino;
    let set =
        || volume.attributes().setxattr(&root, f, b"security.capability", &[1; 20], ANY).unwrap();
    let there = || volume.attributes().getxattr(&root, f, b"security.capability").is_ok();
    set();
    volume
        .attributes()
        .setattr(&root, f, &SetAttr { mode: Some(0o700), ..SetAttr::default() })
        .unwrap();
    assert!(there());
    volume.files().write(f, 0, b"x", false).unwrap();
    assert!(!there());
    set();
    volume
        .attributes()
        .setattr(&root, f, &SetAttr { size: Some(0), ..SetAttr::default() })
        .unwrap();
    assert!(!there());
    set();
    volume.attributes().setattr(&root, f, &SetAttr { uid: Some(7), ..SetAttr::default() }).unwrap();
    assert!(!there());
    assert_clean(&volume);
}

/// Damage in one file's attributes: an error with the number of that file. Others are not affected,
/// and the check reports it.
#[test]
fn a_corrupt_attribute_is_an_error_of_that_file_alone() {
    let device = fresh(64 << 20, 512);
    let volume = open(&device, &options());
    let root = Caller::root();
    let f = volume.namespace().create(&root, ROOT, b"f", 0o644).unwrap().ino;
    let g = volume.namespace().create(&root, ROOT, b"g", 0o644).unwrap().ino;
    let needle = [0xC7u8; 5000];
    volume.attributes().setxattr(&root, f, b"user.big", &needle, ANY).unwrap();
    volume.attributes().setxattr(&root, g, b"user.big", &[1; 5000], ANY).unwrap();
    volume.close().unwrap();
    let mut raw = vec![0; 64 << 20];
    device.read_at(&mut raw, 0).unwrap();
    let at = raw.windows(64).position(|w| w == &needle[..64]).unwrap();
    device.write_at(&[0; 8], at as u64 + 100).unwrap();
    let volume = open(&device, &options());
    let error = volume.attributes().getxattr(&root, f, b"user.big").unwrap_err();
    assert_eq!(error.code(), Code::Io);
    assert!(error.to_string().contains(&format!("inode {f}")), "{error}");
    assert_eq!(volume.attributes().getxattr(&root, g, b"user.big").unwrap(), [1; 5000]);
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems.iter().map(|p| p.rule).collect::<Vec<_>>(), ["value-checksum"]);
    // It can be replaced.
    volume.attributes().setxattr(&root, f, b"user.big", b"new", ANY).unwrap();
    assert_clean(&volume);
}
