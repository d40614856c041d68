//! A reader of the journal alone learns every change of a name: directory, name and inode, also for
//! removals.

use crate::common::{copy, options};
use shoal_engine::*;
use shoal_format::batch::RECORD_HEADER;
use shoal_format::bytes::Reader;
use shoal_format::dirent::{SUFFIX_MASK, name_hash};
use shoal_format::item::{Item, size};
use shoal_format::node::{Key, TreeId};
use shoal_journal::JournalPos;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const ROOT: Ino = Ino::ROOT;
const PLAIN: RenameFlags = RenameFlags { noreplace: false, exchange: false, whiteout: false };
const EXCHANGE: RenameFlags = RenameFlags { exchange: true, ..PLAIN };

/// Children by directory and name.
type Names = BTreeMap<(Ino, Vec<u8>), Ino>;

/// A copy of all names, updated by reading records.
#[derive(Default)]
struct Copy {
    names: Names,
    /// Removed names, in order: directory, its generation, name, child, its type.
    gone: Vec<(Ino, u32, Vec<u8>, Ino, u8)>,
    /// Number of entries that moved within a hash chain.
    moved: usize,
}

impl Copy {
    fn record(&mut self, raw: &[u8]) {
        let mut r = Reader::new(raw);
        let mut deleted: BTreeSet<Key> = BTreeSet::new();
        while !r.is_empty() {
            match Item::decode(&mut r).unwrap() {
                Item::Named { dir, entry, .. } => self.put(dir, entry.name, entry.child),
                Item::TreePut { root, tree: TreeId::Dirents, key, value } => {
                    let entry = shoal_format::dirent::Dirent::decode(root, value).unwrap();
                    deleted.retain(|was| was.lo & !SUFFIX_MASK != key.lo & !SUFFIX_MASK);
                    self.put(key.ino(root), entry.name, entry.child);
                }
                Item::Unnamed { dir, generation, entry, .. } => {
                    let was = self.names.remove(&(dir, entry.name.to_vec()));
                    assert_eq!(was, Some(entry.child), "{}", entry.to_text());
                    let name = entry.name.to_vec();
                    self.gone.push((dir, generation, name, entry.child, entry.kind));
                    // A renamed inode has its new name before the old one is removed.
                    if !self.names.values().any(|child| *child == entry.child) {
                        self.below_goes(entry.child);
                    }
                }
                Item::TreeDel { tree: TreeId::Dirents, key, .. } => {
                    self.moved += 1;
                    deleted.insert(key);
                }
                // Entries of removed directories, which disappeared with the name of the top.
                Item::TreeDelRange { root, tree: TreeId::Dirents, key, .. } => {
                    assert!(self.names.keys().all(|(dir, _)| *dir != key.ino(root)));
                }
                _ => {}
            }
        }
        assert!(deleted.is_empty(), "an entry goes that nothing named: {deleted:?}");
    }

    fn put(&mut self, dir: Ino, name: &[u8], child: Ino) {
        self.names.insert((dir, name.to_vec()), child);
    }

    fn below_goes(&mut self, top: Ino) {
        let below: Vec<Ino> = self.names.iter().filter(|(k, _)| k.0 == top).map(|e| *e.1).collect();
        self.names.retain(|(dir, _), _| *dir != top);
        below.into_iter().for_each(|child| self.below_goes(child));
    }
}

/// Reads the journal since the newest checkpoint.
fn read(device: &MemDevice) -> Copy {
    let sb = shoal_txn::read_superblock(device).unwrap();
    let checkpoint = shoal_txn::read_checkpoint(device, &sb).unwrap();
    let start = JournalPos { addr: checkpoint.journal, lsn: checkpoint.lsn };
    let mut copy = Copy::default();
    let mut each = |_, raw: &[u8]| {
        copy.record(raw);
        Ok(())
    };
    let (volume, incarnation) = (sb.volume(), sb.incarnation);
    shoal_journal::scan(device, &sb.geometry, volume, incarnation, start, &mut each).unwrap();
    copy
}

fn listed(volume: &Volume) -> Names {
    let (mut all, mut dirs) = (Names::new(), vec![ROOT]);
    while let Some(dir) = dirs.pop() {
        let mut each = |e: DirEntry<'_>| {
            all.insert((dir, e.name.to_vec()), e.ino);
            if e.kind == FileKind::Directory {
                dirs.push(e.ino);
            }
            true
        };
        volume.directories().readdir(dir, 2, &mut each).unwrap();
    }
    all
}

/// Reverses the mixing of XXH3 for a name of 8 bytes, after its seed has been added.
fn unmixed(hash: u64) -> u64 {
    // The inverse of an odd number modulo 2^64, by Newton's method.
    let inverse = (0..6).fold(1u64, |x, _| {
        x.wrapping_mul(2u64.wrapping_sub(x.wrapping_mul(0x9fb2_1c65_1e98_df25)))
    });
    let mut h = hash ^ hash >> 28 ^ hash >> 56;
    h = h.wrapping_mul(inverse);
    h ^= (h >> 35) + 8;
    h = h.wrapping_mul(inverse);
    // The 64th power of this map is the identity.
    (0..63).fold(h, |h, _| h ^ h.rotate_left(49) ^ h.rotate_left(24))
}

/// Returns names whose hashes collide in this volume.
fn colliding(seed: u64, count: usize) -> Vec<Vec<u8>> {
    use xxhash_rust::xxh3::xxh3_64_with_seed;
    let first = *b"collides";
    let word = |name: [u8; 8]| u64::from_le_bytes(name).rotate_left(32);
    let hash = xxh3_64_with_seed(&first, seed);
    let mixed_in = unmixed(hash) ^ word(first);
    let names = (0..=0x1ff).map(|low| unmixed(hash & !0x1ff | low) ^ mixed_in);
    let names = names.map(|word| word.rotate_left(32).to_le_bytes().to_vec());
    let names: Vec<Vec<u8>> =
        names.filter(|name| !name.contains(&0) && !name.contains(&b'/')).take(count).collect();
    assert!(names.iter().all(|name| name_hash(seed, name) == name_hash(seed, &first)));
    names
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// Makes a random call on names that may exist or not. Returns whether it changed anything.
fn change(volume: &Volume, rng: &mut Rng, names: &[Vec<u8>]) -> bool {
    let who = Caller::root();
    let all = listed(volume);
    let is_dir =
        |ino: &&Ino| volume.attributes().getattr(**ino).unwrap().kind == FileKind::Directory;
    let dirs: Vec<Ino> = [ROOT].iter().chain(all.values().filter(is_dir)).copied().collect();
    let mut pick = || (dirs[rng.below(dirs.len())], names[rng.below(names.len())].clone());
    let ((dir, name), (to, new)) = (pick(), pick());
    let done = match rng.below(12) {
        0..3 => volume.namespace().create(&who, dir, &name, 0o644).map(drop),
        3..5 => volume.namespace().mkdir(&who, dir, &name, 0o755).map(drop),
        5 => match all.get(&(dir, name)) {
            Some(ino) => volume.namespace().link(&who, *ino, to, &new).map(drop),
            None => return false,
        },
        6..8 => volume.namespace().rename(&who, dir, &name, to, &new, PLAIN),
        8 => volume.namespace().rename(&who, dir, &name, to, &new, EXCHANGE),
        9 => volume.namespace().unlink(&who, dir, &name),
        10 => volume.namespace().rmdir(&who, dir, &name),
        _ if rng.below(4) == 0 => volume.namespace().remove_tree(&who, dir, &name, TreeCheck::Tree),
        _ => return false,
    };
    done.is_ok()
}

#[test]
fn the_journal_tells_every_name_that_comes_and_goes() {
    let (mut moved, mut gone) = (0, 0);
    for seed in 1..=8 {
        let device = Arc::new(MemDevice::new(64 << 20));
        let id = Some([seed; 16]);
        mkfs_on(device.clone(), &MkfsOptions { id, ..MkfsOptions::default() }).unwrap();
        let options = OpenOptions {
            checkpoint_bytes: 1 << 40,
            lab: Lab { step_records: 3, ..Lab::default() },
            ..options()
        };
        let volume = Volume::open_on(device.clone(), &options).unwrap();
        let hash_seed = shoal_txn::read_superblock(&*device).unwrap().volume();
        let mut names = colliding(hash_seed, 4);
        names.extend([b"plain".to_vec(), vec![b'n'; 255]]);
        let mut rng = Rng(0x9e37_79b9_7f4a_7c15 >> seed);
        let done = (0..1500).filter(|_| change(&volume, &mut rng, &names)).count();
        assert!(done > 300, "{done} calls did something");
        volume.sync().unwrap();
        let copied = read(&device);
        let shown = listed(&volume);
        assert_eq!(copied.names, shown);
        assert!(copied.gone.iter().all(|(_, generation, ..)| *generation > 0));
        (moved, gone) = (moved + copied.moved, gone + copied.gone.len());
        // After a crash the names must be the same.
        let crashed = copy(&device);
        drop(volume);
        let volume = Volume::open_on(crashed, &options).unwrap();
        assert_eq!(listed(&volume), shown);
        assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, vec![]);
    }
    assert!(moved > 100 && gone > 800, "{moved} moved, {gone} gone");
}

/// Each call that removes a name, and its items.
#[test]
fn each_removal_is_told_once() {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let options = OpenOptions { checkpoint_bytes: 1 << 40, ..options() };
    let volume = Volume::open_on(device.clone(), &options).unwrap();
    let who = Caller::root();
    let make =
        |dir, name: &str| volume.namespace().create(&who, dir, name.as_bytes(), 0o644).unwrap().ino;
    let make_dir =
        |dir, name: &str| volume.namespace().mkdir(&who, dir, name.as_bytes(), 0o755).unwrap();
    let top = volume.attributes().getattr(ROOT).unwrap().generation.0;
    let d = make_dir(ROOT, "d");
    let (dir, of) = (d.ino, d.generation.0);
    let mut told = Vec::new();
    let (file, folder) = (FileKind::Regular as u8, FileKind::Directory as u8);

    let name = "n".repeat(40);
    let (f, staged) = (make(dir, &name), volume.staged_lsn());
    volume.namespace().unlink(&who, dir, name.as_bytes()).unwrap();
    let bytes = volume.staged_lsn().0 - staged.0;
    println!("{bytes} bytes of journal to unlink a name of 40");
    let items = size::named(40) + size::FREE + size::DIR_TOUCH;
    assert_eq!(bytes as usize, RECORD_HEADER + items);
    told.push((dir, of, name.into_bytes(), f, file));

    let e = make_dir(dir, "e").ino;
    volume.namespace().rmdir(&who, dir, b"e").unwrap();
    told.push((dir, of, b"e".to_vec(), e, folder));

    let (a, b) = (make(dir, "a"), make(ROOT, "b"));
    volume.namespace().rename(&who, dir, b"a", ROOT, b"b", PLAIN).unwrap();
    told.push((ROOT, top, b"b".to_vec(), b, file));
    told.push((dir, of, b"a".to_vec(), a, file));

    volume.namespace().link(&who, a, dir, b"second").unwrap();
    volume.namespace().rename(&who, dir, b"second", dir, b"third", PLAIN).unwrap();
    told.push((dir, of, b"second".to_vec(), a, file));
    let other = make(dir, "other");
    volume.namespace().rename(&who, dir, b"third", dir, b"other", EXCHANGE).unwrap();
    volume.namespace().unlink(&who, dir, b"third").unwrap();
    told.push((dir, of, b"third".to_vec(), other, file));

    let sub = volume.subvolumes().create(&who, b"sub", 0o755).unwrap().ino;
    make(sub, "in a root");
    volume.subvolumes().delete(&who, b"sub").unwrap();
    told.push((ROOT, top, b"sub".to_vec(), sub, folder));

    volume.namespace().remove_tree(&who, ROOT, b"d", TreeCheck::Tree).unwrap();
    told.push((ROOT, top, b"d".to_vec(), dir, folder));

    volume.sync().unwrap();
    let copied = read(&device);
    assert_eq!(copied.gone, told);
    assert_eq!(copied.names, listed(&volume));
}
