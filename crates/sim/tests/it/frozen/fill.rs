//! Contents of the images: something of every form that the engine stores differently.
//! Nothing here is random, and nearly all contents are text that repeats, so that an image stays
//! small.

use shoal::raw::{
    Caller, Fallocate, Ino, OpenOptions, RenameFlags, SetAttr, SetTime, Time, Volume, XattrFlags,
};
use shoal_base::limits::NAME_MAX;
use shoal_format::attr::Namespace;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Size of a segment of the images, the smallest.
pub(super) const SEGMENT: u64 = 1 << 20;
/// Size of most images, the smallest.
pub(super) const SIZE: u64 = 16 * SEGMENT;

const NO_ID: u32 = u32::MAX;
const ANY: XattrFlags = XattrFlags { create: false, replace: false, clear_set_group_id: false };
/// Names of a file whose parent pointers do not fit in its inode.
const MANY_LINKS: usize = 40;

/// Options of every session: nothing happens by the clock or in another thread.
pub(super) fn session() -> OpenOptions {
    OpenOptions {
        cache_bytes: 64 << 20,
        commit_interval_ms: 1 << 40,
        checkpoint_bytes: 1 << 40,
        background: false,
        ..OpenOptions::default()
    }
}

/// `len` bytes of text that says whose it is.
pub(super) fn text(who: &str, len: usize) -> Vec<u8> {
    format!("contents of {who}. ").into_bytes().into_iter().cycle().take(len).collect()
}

/// `len` bytes that no codec makes shorter, the same each time.
fn noise(len: usize) -> Vec<u8> {
    (0..len.div_ceil(8) as u64).flat_map(|n| xxh3_64_with_seed(b"noise", n).to_le_bytes()).collect()
}

/// A volume being filled, as the superuser.
pub(super) struct Fill<'v> {
    pub volume: &'v Volume,
    pub who: Caller,
    /// Seed of the hashes of names.
    pub seed: u64,
}

impl Fill<'_> {
    pub(super) fn new(volume: &Volume, id: [u8; 16]) -> Fill<'_> {
        let seed = u64::from_le_bytes(*id.first_chunk().expect("16 bytes"));
        Fill { volume, who: Caller::root(), seed }
    }

    pub(super) fn dir(&self, above: Ino, name: &str) -> Ino {
        self.volume.namespace().mkdir(&self.who, above, name.as_bytes(), 0o755).unwrap().ino
    }

    /// An empty file.
    pub(super) fn file(&self, dir: Ino, name: &str) -> Ino {
        self.named(dir, name.as_bytes())
    }

    fn named(&self, dir: Ino, name: &[u8]) -> Ino {
        self.volume.namespace().create(&self.who, dir, name, 0o644).unwrap().ino
    }

    /// A file with so many bytes.
    pub(super) fn filled(&self, dir: Ino, name: &str, len: usize) -> Ino {
        let ino = self.file(dir, name);
        self.write(ino, 0, &text(name, len));
        ino
    }

    pub(super) fn write(&self, ino: Ino, at: u64, bytes: &[u8]) {
        let written = self.volume.files().write(ino, at, bytes, false).unwrap();
        assert_eq!(written, bytes.len());
    }

    pub(super) fn set(&self, ino: Ino, name: &str, value: &[u8]) {
        self.volume.attributes().setxattr(&self.who, ino, name.as_bytes(), value, ANY).unwrap();
    }

    pub(super) fn resize(&self, ino: Ino, size: u64) {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.volume.attributes().setattr(&self.who, ino, &set).unwrap();
    }

    pub(super) fn allocate(&self, ino: Ino, mode: Fallocate, at: u64, len: u64) {
        self.volume.files().fallocate(ino, mode, at, len).unwrap();
    }

    pub(super) fn unlink(&self, dir: Ino, name: &str) {
        self.volume.namespace().unlink(&self.who, dir, name.as_bytes()).unwrap();
    }

    /// Fills a directory with everything.
    pub(super) fn everything(&self, top: Ino) {
        self.data(self.dir(top, "data"));
        self.attributes(self.dir(top, "attributes"));
        self.names(self.dir(top, "names"));
        self.kinds(self.dir(top, "kinds"));
    }

    /// Makes a file with each form of data.
    pub(super) fn data(&self, dir: Ino) {
        self.file(dir, "empty");
        self.filled(dir, "in the inode", 60);
        self.filled(dir, "one piece", 3000);
        self.filled(dir, "pieces with checksums", 20_000);
        self.filled(dir, "two objects", 200_000);
        let several = self.file(dir, "several extents");
        (0..4).for_each(|n| self.write(several, n << 14, &text("several", 5000)));
        let many = self.file(dir, "extents in the tree");
        (0..60).for_each(|n| self.write(many, n << 13, &text("many", 100 + n as usize)));
        let parts = self.filled(dir, "parts of an object", 100_000);
        self.write(parts, 30_000, &text("overwritten", 9000));
        self.allocate(parts, Fallocate::PunchHole, 60_000, 8192);
        self.allocate(parts, Fallocate::ZeroRange { keep_size: true }, 80_000, 5000);
        let sparse = self.file(dir, "sparse");
        self.write(sparse, (1 << 40) - 7, b"the end");
        let grown = self.file(dir, "grown");
        for n in 0..12 {
            self.volume.files().append(grown, &text("appended", 700 + n), false).unwrap();
            self.volume.sync().unwrap();
        }
        self.write(self.file(dir, "incompressible"), 0, &noise(9000));
        self.resize(self.filled(dir, "made shorter", 50_000), 10_001);
        self.resize(self.filled(dir, "made longer", 500), 70_000);
        self.preallocated(dir);
    }

    fn preallocated(&self, dir: Ino) {
        let kept = Fallocate::Allocate { keep_size: true };
        let all = self.file(dir, "preallocated");
        self.allocate(all, Fallocate::Allocate { keep_size: false }, 0, 300_000);
        self.write(all, 100_000, &text("in preallocated space", 4096));
        let behind = self.filled(dir, "preallocated behind the end", 1000);
        self.allocate(behind, kept, 0, 100_000);
    }

    /// Sets attributes of each form, in every namespace.
    pub(super) fn attributes(&self, dir: Ino) {
        let small = self.filled(dir, "in the inode", 20);
        self.set(small, "user.small", b"value");
        self.set(small, "user.empty", b"");
        self.set(small, "trusted.one", b"for privileged processes");
        let far = self.file(dir, "value elsewhere");
        self.set(far, "user.far", &text("a value", 5000));
        let tree = self.filled(dir, "in the tree", 9000);
        for n in 0..30 {
            self.set(tree, &format!("user.{n}"), &text("attribute", 100 + n));
        }
        self.set(tree, "user.far", &text("another value", 40_000));
        self.set(tree, "security.one", b"of a security module");
        let longest = format!("user.{}", "n".repeat(NAME_MAX - "user.".len()));
        self.set(tree, &longest, b"the longest name");
        for name in colliding(self.seed ^ Namespace::User as u64, 3) {
            let name = [&b"user."[..], &name].concat();
            self.volume.attributes().setxattr(&self.who, tree, &name, b"collides", ANY).unwrap();
        }
        // Permitted and inheritable: CAP_NET_RAW.
        let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let program = self.filled(dir, "with capabilities", 100);
        self.set(program, "security.capability", &capability);
        self.lists(dir);
    }

    /// Access control lists: of a file, of a directory, inherited.
    fn lists(&self, dir: Ino) {
        self.set(self.file(dir, "access list"), "system.posix_acl_access", &list(6, 5));
        let above = self.dir(dir, "default list");
        self.set(above, "system.posix_acl_default", &list(7, 4));
        self.file(above, "inherited");
        self.dir(above, "inherits too");
    }

    /// Makes names: long, of any bytes, that collide; several of one file.
    pub(super) fn names(&self, dir: Ino) {
        self.named(dir, &[b'l'; NAME_MAX]);
        self.named(dir, b"any bytes: \x01\xff\xfe\n*");
        for name in colliding(self.seed, 5) {
            self.named(dir, &name);
        }
        // The one in the middle goes: the last takes its place.
        self.volume.namespace().unlink(&self.who, dir, &colliding(self.seed, 5)[2]).unwrap();
        let (one, two) = (self.dir(dir, "one"), self.dir(dir, "two"));
        let linked = self.filled(one, "three names", 10);
        for (dir, name) in [(one, "second"), (two, "third")] {
            self.volume.namespace().link(&self.who, linked, dir, name.as_bytes()).unwrap();
        }
        let many = self.file(two, "many names");
        for n in 0..MANY_LINKS {
            let name = format!("name {n} of many, which are too long for the inode together");
            self.volume.namespace().link(&self.who, many, two, name.as_bytes()).unwrap();
        }
        self.file(one, "to be moved");
        self.dir(one, "to be moved too");
        let plain = RenameFlags::default();
        for (from, to) in [("to be moved", "moved"), ("to be moved too", "moved too")] {
            let (from, to) = (from.as_bytes(), to.as_bytes());
            self.volume.namespace().rename(&self.who, one, from, two, to, plain).unwrap();
        }
    }

    /// Makes a file of each type; owners, modes and times.
    pub(super) fn kinds(&self, dir: Ino) {
        let special = [
            ("fifo", 0o010_600, 0),
            ("socket", 0o140_777, 0),
            ("character device", 0o020_620, 0x0103),
            ("block device", 0o060_660, 0x0800_0001),
        ];
        for (name, mode, rdev) in special {
            self.volume.namespace().mknod(&self.who, dir, name.as_bytes(), mode, rdev).unwrap();
        }
        self.volume.namespace().symlink(&self.who, dir, b"symlink", b"../data/empty").unwrap();
        self.volume.namespace().symlink(&self.who, dir, b"long symlink", &[b'/'; 4000]).unwrap();
        self.dir(dir, "empty directory");
        let times = self.file(dir, "times");
        let to = |sec, nsec| Some(SetTime::To(Time { sec, nsec }));
        let set = SetAttr {
            mode: Some(0o4751),
            uid: Some(1000),
            gid: Some(0xffff_fffe),
            // Before 1970, and behind what 32 bits can say.
            atime: to(1 << 33, 999_999_999),
            mtime: to(-12_345, 1),
            ..SetAttr::default()
        };
        self.volume.attributes().setattr(&self.who, times, &set).unwrap();
        let shared = self.dir(dir, "shared");
        let set = SetAttr { mode: Some(0o3777), gid: Some(100), ..SetAttr::default() };
        self.volume.attributes().setattr(&self.who, shared, &set).unwrap();
        let user = Caller { umask: 0o027, ..Caller::user(1001, 1001) };
        self.volume.namespace().create(&user, shared, b"of a user", 0o666).unwrap();
    }

    /// Makes files, removes them and makes them again, so that numbers have been used before. The
    /// volume is checkpointed if `apart`, as numbers are taken again from blocks that are written.
    pub(super) fn used_again(&self, dir: Ino, apart: bool) {
        for generation in 0..3 {
            for n in 0..70 {
                self.file(dir, &format!("again {n}"));
            }
            if generation < 2 {
                (0..70).for_each(|n| self.unlink(dir, &format!("again {n}")));
                if apart {
                    self.volume.maintenance().checkpoint().unwrap();
                }
            }
        }
    }

    /// Leaves unlinked files that are still open: with contents in the tree, with attributes in the
    /// tree, one that never had a name.
    pub(super) fn orphans(&self, dir: Ino) {
        let many = self.file(dir, "orphan");
        (0..60).for_each(|n| self.write(many, n << 14, &text("orphan", 300)));
        let attributes = self.file(dir, "orphan with attributes");
        for n in 0..60 {
            self.set(attributes, &format!("user.{n}"), &text("orphan", 200));
        }
        for (ino, name) in [(many, "orphan"), (attributes, "orphan with attributes")] {
            self.volume.references().hold(ino, 1).unwrap();
            self.unlink(dir, name);
        }
        let unnamed = self.volume.namespace().tmpfile(&self.who, dir, 0o600).unwrap().ino;
        self.write(unnamed, 0, &text("unnamed", 2000));
    }
}

/// An access list: owner rwx, user 5 `user`, group `group`, mask rwx, others nothing.
fn list(user: u16, group: u16) -> Vec<u8> {
    let entries = [(1, 7, NO_ID), (2, user, 5), (4, group, NO_ID), (16, 7, NO_ID), (32, 0, NO_ID)];
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend(u16::to_le_bytes(tag));
        out.extend(u16::to_le_bytes(perm));
        out.extend(u32::to_le_bytes(id));
    }
    out
}

/// Word of a name of 8 bytes whose XXH3-64 is `hash`, but for what the seed mixes in: XXH3 of 8
/// bytes is a permutation of 64 bits, which is undone here step by step.
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

/// Names of 8 bytes that differ only in the lowest 9 bits of their hash, which a key does not have.
fn colliding(seed: u64, count: usize) -> Vec<[u8; 8]> {
    let first = *b"collides";
    let word = |name: [u8; 8]| u64::from_le_bytes(name).rotate_left(32);
    let hash = xxh3_64_with_seed(&first, seed);
    let mixed_in = unmixed(hash) ^ word(first);
    let names = (0..=0x1ff).map(|low| unmixed(hash & !0x1ff | low) ^ mixed_in);
    let names = names.map(|word| word.rotate_left(32).to_le_bytes());
    names.filter(|name| !name.contains(&0) && !name.contains(&b'/')).take(count).collect()
}
