//! The images, a row each: how it is made, and what it must contain. An image of another option of
//! `mkfs` is one more row, of a codec for example:
//!
//! ```text
//! Row { name: "lz4", mkfs: || MkfsOptions { compression: Compression::LZ4, ..small() },
//!       make: clean, contains: &[("pointer, codec lz4", 10)], … }
//! ```

use super::contents::Counts;
use super::fill::{Fill, SEGMENT, SIZE, session, text};
use super::workshop::Workshop;
use shoal::raw::{Fallocate, Ino, Lab, Label, MkfsOptions, OpenOptions, TreeCheck};
use shoal_format::claim::{self, OwnerClaim};
use shoal_format::{Codec, Compression};
use shoal_sim::image::Image;

/// An image.
pub(super) struct Row {
    /// Name; that of its files has the version of the format in front.
    pub name: &'static str,
    /// Day on which it was declared.
    pub since: &'static str,
    /// One line for README.md.
    pub what: &'static str,
    /// Options of its `mkfs`.
    pub mkfs: fn() -> MkfsOptions,
    /// Makes it.
    pub make: fn(MkfsOptions) -> Image,
    /// Kinds of structures that must be in it (`contents.rs`), and how many at least.
    pub contains: &'static [(&'static str, u64)],
}

/// Every image of the version of the format that is made now.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "clean",
        since: "2026-11-22",
        what: "closed; each kind of file, each form of data, attributes and names; two roots",
        mkfs: small,
        make: clean,
        contains: EVERYTHING,
    },
    Row {
        name: "plain",
        since: "2026-11-22",
        what: "closed; inodes of 256 bytes, no parent pointers",
        mkfs: || MkfsOptions { inode_size: 256, parents: false, ..small() },
        make: clean,
        contains: &[("superblock, clean", 1), ("inode size 256", 1), ("file, data in the tree", 1)],
    },
    Row {
        name: "large",
        since: "2026-11-22",
        what: "closed; inodes of 2048 bytes, segments of 2 MiB",
        mkfs: || MkfsOptions {
            inode_size: 2048,
            segment_size: 2 * SEGMENT,
            size: 2 * SIZE,
            ..small()
        },
        make: clean,
        contains: &[("superblock, clean", 1), ("inode size 2048", 1), ("file, data in extents", 1)],
    },
    Row {
        name: "labelled",
        since: "2026-11-25",
        what: "closed; a label, changed since it was made",
        mkfs: || MkfsOptions { label: label("made with this"), ..small() },
        make: labelled,
        contains: &[("superblock, clean", 1), ("label, of 18 bytes", 1)],
    },
    Row {
        name: "deep",
        since: "2026-11-22",
        what: "closed; several leaves in each tree, three levels of extents; \
               blocks of inodes that are mostly free",
        mkfs: || MkfsOptions { size: 3 * SIZE, ..small() },
        make: deep,
        contains: &[
            ("superblock, clean", 1),
            ("nodes of the largest imap tree", 3),
            ("nodes of the largest dirents tree", 3),
            ("nodes of the largest attrs tree", 3),
            // More leaves than an inner node has room for.
            ("nodes of the largest extents tree", 330),
            ("inode, free with a generation", 5000),
        ],
    },
    Row {
        name: "roots",
        since: "2026-11-22",
        what: "closed; 70 roots, a root table of two pages; one deleted and half freed, numbers of \
               others vacant",
        mkfs: small,
        make: roots,
        contains: &[
            ("superblock, clean", 1),
            ("root, live", 65),
            ("root, deleted", 1),
            ("checkpoint, root page", 2),
            ("checkpoint, root page's second copy", 2),
            ("entry, of another root", 65),
        ],
    },
    Row {
        name: "lz4",
        since: "2026-11-22",
        what: "as clean; compressed with LZ4",
        mkfs: || MkfsOptions { compression: Compression::LZ4, ..small() },
        make: clean,
        contains: &coded("feature lz4", "pointer, codec lz4"),
    },
    Row {
        name: "zstd",
        since: "2026-11-22",
        what: "as clean; compressed with Zstandard, level 3",
        mkfs: || MkfsOptions { compression: ZSTD, ..small() },
        make: clean,
        contains: &coded("feature zstd", "pointer, codec zstd"),
    },
    Row {
        name: "crashed",
        since: "2026-11-22",
        what: "not closed; a journal of every kind of change, orphans, an intent under way, the \
               last batch torn, the claim of the process that died",
        mkfs: small,
        make: crashed,
        contains: CRASHED,
    },
    Row {
        name: "crashed-lz4",
        since: "2026-11-22",
        what: "as crashed; compressed with LZ4",
        mkfs: || MkfsOptions { compression: Compression::LZ4, ..small() },
        make: crashed,
        contains: &[
            ("superblock, not clean", 1),
            ("feature lz4", 1),
            ("pointer, codec lz4", 40),
            ("node, coded", 4),
            ("inode block, coded", 2),
            ("attribute value, coded", 1),
            ("extent, whole coded object", 5),
            ("extent, behind the start of a coded object", 2),
            ("journal, torn tail", 1),
            ("journal, open intent", 1),
            ("orphan slot in use", 3),
        ],
    },
    Row {
        name: "recovering",
        since: "2026-11-22",
        what: "not closed, and the machine stopped again in the recovery: open intents and orphans \
               in the checkpoint",
        mkfs: small,
        make: recovering,
        contains: &[
            ("superblock, not clean", 1),
            ("checkpoint, open intents", 1),
            ("checkpoint, open intent", 2),
            ("checkpoint, orphan list", 1),
            ("checkpoint, orphan block", 1),
            ("orphan slot in use", 3),
        ],
    },
    Row {
        name: "cutting",
        since: "2026-11-22",
        what: "not closed; a file of many extents being cut, in the middle",
        mkfs: small,
        make: cutting,
        contains: &[
            ("superblock, not clean", 1),
            ("inode, being cut", 1),
            ("orphan slot in use", 1),
            ("file, data in the tree", 1),
        ],
    },
    Row {
        name: "reaping",
        since: "2026-11-22",
        what: "not closed; a removed tree half emptied, a deleted root half freed",
        mkfs: small,
        make: reaping,
        contains: &[
            ("superblock, not clean", 1),
            ("root, deleted", 1),
            ("directory, without a name", 2),
            ("orphan slot in use", 2),
            ("inode, free with a generation", 100),
        ],
    },
    Row {
        name: "without-data",
        since: "2026-11-29",
        what: "not closed; in the last batch a record whose data did not arrive, and others behind \
               it: the journal ends there",
        mkfs: small,
        make: without_data,
        contains: &[
            ("superblock, not clean", 1),
            ("feature verified-tail", 1),
            ("journal, item data_fork", 4),
        ],
    },
];

/// Structures of an image of everything.
const EVERYTHING: &[(&str, u64)] = &[
    ("superblock, clean", 1),
    ("feature parent-pointers", 1),
    ("root, live", 3),
    ("checkpoint, usage index", 1),
    ("checkpoint, usage page", 1),
    ("checkpoint, root page's second copy", 1),
    ("file, data none", 1),
    ("file, data in the inode", 1),
    ("file, data in extents", 1),
    ("file, data in the tree", 1),
    ("file, holes", 1),
    ("file, space behind its end", 1),
    ("file, several names", 1),
    ("extent, one checksum", 1),
    ("extent, checksums of pieces", 1),
    ("extent, part of an object", 1),
    ("extent, preallocated", 1),
    ("symlink, data in the inode", 1),
    ("symlink, data in extents", 1),
    ("fifo, data none", 1),
    ("socket, data none", 1),
    ("device, data none", 2),
    ("inode, attributes none", 1),
    ("inode, access list", 1),
    ("inode, default access list", 1),
    ("inode, capabilities", 1),
    ("inode, generation above 1", 1),
    ("attribute, user in the inode", 1),
    ("attribute, user in the tree", 1),
    ("attribute, trusted in the inode", 1),
    ("attribute, security in the inode", 1),
    ("attribute, security in the tree", 1),
    ("attribute, system in the inode", 1),
    ("attribute, parent in the inode", 1),
    ("attribute, parent in the tree", 1),
    ("attribute, value elsewhere, in the inode", 1),
    ("attribute, value elsewhere, in the tree", 1),
    ("attribute, hash collides", 2),
    ("entry, longest name", 1),
    ("entry, hash collides", 3),
    ("entry, of another root", 2),
    ("pointer, codec none", 1),
];

/// Structures of an image with compression: those that are coded, and data that is not.
const fn coded(feature: &'static str, pointers: &'static str) -> [(&'static str, u64); 9] {
    [
        ("superblock, clean", 1),
        (feature, 1),
        (pointers, 40),
        ("node, coded", 4),
        ("inode block, coded", 2),
        ("attribute value, coded", 2),
        ("extent, whole coded object", 5),
        ("extent, behind the start of a coded object", 2),
        ("extent, checksums of pieces", 1),
    ]
}

/// Structures of the image of a crash.
const CRASHED: &[(&str, u64)] = &[
    ("superblock, not clean", 1),
    ("owner claim", 1),
    ("orphan slot in use", 3),
    ("file, without a name", 3),
    ("inode, made without a name", 1),
    ("root, deleted", 1),
    ("journal, torn tail", 1),
    ("journal, open intent", 1),
    ("journal, item core", 1),
    ("journal, item data_fork", 1),
    ("journal, item attr_fork", 1),
    ("journal, item dir_touch", 1),
    ("journal, item free", 1),
    ("journal, item tree_put", 1),
    ("journal, item tree_del", 1),
    ("journal, item tree_del_range", 1),
    ("journal, item orphan_add", 1),
    ("journal, item orphan_del", 1),
    ("journal, item links", 1),
    ("journal, item intent_log", 1),
    ("journal, item intent_progress", 1),
    ("journal, item intent_done", 1),
    ("journal, item root", 2),
    ("journal, item named", 1),
    ("journal, item unnamed", 1),
];

/// Zstandard at its default level.
const ZSTD: Compression = Compression { codec: Codec::Zstd, level: 3 };

/// Options of most images.
fn small() -> MkfsOptions {
    MkfsOptions {
        size: SIZE,
        segment_size: SEGMENT,
        root_uid: 7,
        root_gid: 8,
        id: Some(*b"frozen Shoal, v2"),
        ..MkfsOptions::default()
    }
}

/// Sessions in which transactions of an intent, and steps of what takes several, are written one by
/// one, and steps are small: a crash can come between them.
fn by_steps() -> OpenOptions {
    OpenOptions {
        lab: Lab { attr_intents_flushed: true, step_records: 8, ..Lab::default() },
        ..session()
    }
}

fn has(counts: &Counts, name: &str) -> bool {
    counts.contains_key(name)
}

fn clean(mkfs: MkfsOptions) -> Image {
    let shop = Workshop::new(mkfs);
    shop.session(|fill| {
        fill.everything(Ino::ROOT);
        for name in ["one root", "another root"] {
            let root =
                fill.volume.subvolumes().create(&fill.who, name.as_bytes(), 0o750).unwrap().ino;
            fill.names(fill.dir(root, "names"));
            fill.filled(root, "contents", 5000);
        }
    });
    // Numbers are used again by a later session.
    shop.session(|fill| fill.used_again(fill.dir(Ino::ROOT, "again"), true));
    shop.closed()
}

fn label(text: &str) -> Label {
    Label::new(text).expect("a label")
}

fn labelled(mkfs: MkfsOptions) -> Image {
    let shop = Workshop::new(mkfs);
    shop.session(|fill| {
        fill.names(fill.dir(Ino::ROOT, "names"));
        assert_eq!(fill.volume.info().label, "made with this");
        fill.volume.maintenance().set_label(label("Fische, geschätzt")).unwrap();
    });
    shop.closed()
}

/// Files of which one in 32 stays: blocks of inodes, and entries of the `imap` tree, that are many.
const SCATTERED: usize = 9600;
/// Preallocated pieces: more than two levels of extents hold.
const PIECES: u64 = 90_000;

fn deep(mkfs: MkfsOptions) -> Image {
    let shop = Workshop::new(mkfs);
    shop.session(|fill| {
        let dir = fill.dir(Ino::ROOT, "scattered");
        let name = |n: usize| format!("file {n}");
        for n in 0..SCATTERED {
            fill.file(dir, &name(n));
        }
        (0..SCATTERED).filter(|n| n % 32 != 5).for_each(|n| fill.unlink(dir, &name(n)));
        let attributes = fill.file(Ino::ROOT, "attributes");
        for n in 0..80 {
            fill.set(attributes, &format!("user.{n}"), &text("attribute", 900));
        }
        let pieces = fill.file(Ino::ROOT, "pieces");
        for n in 0..PIECES {
            fill.allocate(pieces, Fallocate::Allocate { keep_size: false }, n << 13, 1);
        }
    });
    shop.closed()
}

fn roots(mkfs: MkfsOptions) -> Image {
    let shop = Workshop::new(mkfs);
    shop.session(|fill| {
        let name = |n: usize| format!("root {n}").into_bytes();
        let make = |n| fill.volume.subvolumes().create(&fill.who, &name(n), 0o755).unwrap().ino;
        let tops: Vec<Ino> = (0..75).map(make).collect();
        for (n, top) in tops.iter().enumerate().filter(|(n, _)| n % 10 == 3) {
            fill.filled(*top, "contents", n * 100);
            fill.dir(*top, "directory");
        }
        // Vacant again, all but what the last keeps.
        for n in (0..75).step_by(20) {
            fill.volume.subvolumes().delete(&fill.who, &name(n)).unwrap();
        }
        fill.volume.maintenance().reap_roots(&mut |_| {}).unwrap();
        half_free_root(fill, tops[33], &name(33));
    });
    shop.closed()
}

/// Deletes a root with more inodes than are freed at a time, and frees so many.
fn half_free_root(fill: &Fill<'_>, top: Ino, name: &[u8]) {
    for n in 0..1100 {
        fill.file(top, &format!("file {n}"));
    }
    fill.volume.subvolumes().delete(&fill.who, name).unwrap();
    assert!(fill.volume.maintenance().reap_some().unwrap(), "a slice of the root is freed");
    let left = fill.volume.subvolumes().list().into_iter().find(|root| root.deleted);
    assert!(left.expect("the deleted root").inodes > 50);
}

/// A volume with everything on it, that was not closed after every kind of change; `last` is the
/// call in the middle of which the machine stops.
fn in_the_middle(shop: &Workshop, options: &OpenOptions, last: impl FnOnce(&Fill<'_>)) -> usize {
    shop.session(|fill| {
        fill.everything(fill.dir(Ino::ROOT, "old"));
        fill.volume.subvolumes().create(&fill.who, b"old root", 0o755).unwrap();
    });
    let volume = shop.open(options);
    let fill = shop.fill(&volume);
    let young = fill.dir(Ino::ROOT, "young");
    fill.everything(young);
    fill.used_again(fill.dir(young, "again"), false);
    let root = volume.subvolumes().create(&fill.who, b"young root", 0o755).unwrap().ino;
    fill.filled(root, "contents", 3000);
    volume.subvolumes().delete(&fill.who, b"old root").unwrap();
    let removed = fill.dir(young, "removed");
    fill.everything(removed);
    volume.namespace().remove_tree(&fill.who, young, b"removed", TreeCheck::Tree).unwrap();
    fill.orphans(young);
    volume.sync().unwrap();
    let position = shop.position();
    last(&fill);
    position
}

fn crashed(mkfs: MkfsOptions) -> Image {
    let shop = Workshop::new(mkfs.clone());
    let from = in_the_middle(&shop, &by_steps(), |fill| {
        let path = b"/young/attributes/in the tree";
        let ino = fill.volume.namespace().resolve(&fill.who, Ino::ROOT, path, true).unwrap().ino;
        // Replaces a value elsewhere by another: the intent has a pointer to it.
        fill.set(ino, "user.far", &text("the new value", 3000));
        fill.set(ino, "user.3", &text("a longer value than fits in one sector", 900));
    });
    let mut image = shop.crash(from, true, |counts| has(counts, "journal, open intent"));
    image.write(&claim_of_the_dead(&mkfs).encode(), claim::ADDR);
    image
}

/// The claim of a process that no machine has.
fn claim_of_the_dead(mkfs: &MkfsOptions) -> OwnerClaim {
    OwnerClaim {
        patience_ms: 2000,
        volume: mkfs.id.expect("a chosen id"),
        owner: [0xa5; 16],
        machine: *b"no such machine.",
        boot: *b"nor such a boot.",
        pid_namespace: 4_026_531_836,
        process_start: 123_456,
        beat: 17,
        since: 1_767_225_601,
        renewed: 1_767_225_609,
        pid: 4321,
        host: "frozen".into(),
        path: "/srv/frozen.shoal".into(),
        command: "shoal mount /srv/frozen.shoal /mnt".into(),
    }
}

fn recovering(mkfs: MkfsOptions) -> Image {
    let shop = Workshop::new(mkfs.clone());
    let mut options = by_steps();
    options.lab.attr_intents = true;
    let from = in_the_middle(&shop, &options, |fill| {
        let path = b"/young/attributes/default list";
        let dir = fill.volume.namespace().resolve(&fill.who, Ino::ROOT, path, true).unwrap().ino;
        // Three intents at once: its parent pointer, and the two lists that it inherits.
        fill.dir(dir, "inherits in steps");
    });
    let several = |counts: &Counts| counts.get("journal, open intent").is_some_and(|n| *n > 1);
    let crashed = shop.crash(from, false, several);
    let shop = Workshop::on(crashed, mkfs);
    drop(shop.open(&session()));
    shop.crash(0, false, |counts| has(counts, "checkpoint, open intent"))
}

fn cutting(mkfs: MkfsOptions) -> Image {
    let shop = Workshop::new(mkfs);
    shop.session(|fill| {
        let file = fill.file(Ino::ROOT, "being cut");
        (0..200).for_each(|n| fill.write(file, n << 13, &text("piece", 200)));
    });
    let volume = shop.open(&by_steps());
    let fill = shop.fill(&volume);
    let file = volume.namespace().lookup(&fill.who, Ino::ROOT, b"being cut").unwrap().ino;
    let from = shop.position();
    fill.resize(file, 5 << 13);
    // About half of the extents are gone.
    let half = |counts: &Counts| counts.get("extent, one checksum").is_some_and(|n| *n > 90);
    shop.crash(from, false, |counts| has(counts, "inode, being cut") && half(counts))
}

fn without_data(mkfs: MkfsOptions) -> Image {
    let shop = Workshop::new(mkfs);
    shop.session(|fill| fill.everything(fill.dir(Ino::ROOT, "old")));
    let volume = shop.open(&session());
    let fill = shop.fill(&volume);
    fill.filled(Ino::ROOT, "durable", 6000);
    volume.sync().unwrap();
    fill.filled(Ino::ROOT, "arrived", 20_000);
    fill.filled(Ino::ROOT, "did not arrive", 20_000);
    fill.filled(Ino::ROOT, "behind it", 20_000);
    let from = shop.position();
    volume.sync().unwrap();
    let mut image = shop.crash(from, false, |_| true);
    // A sector in the middle of it.
    let place = image.find(&text("did not arrive", 64))[0];
    image.zero((place + 9000).next_multiple_of(4096), 4096);
    image
}

fn reaping(mkfs: MkfsOptions) -> Image {
    let shop = Workshop::new(mkfs);
    shop.session(|fill| {
        let top = fill.volume.subvolumes().create(&fill.who, b"deleted", 0o755).unwrap().ino;
        half_free_root(fill, top, b"deleted");
        let tree = fill.dir(Ino::ROOT, "removed");
        for n in 0..5 {
            let dir = fill.dir(tree, &format!("directory {n}"));
            for n in 0..40 {
                fill.filled(dir, &format!("file {n}"), 50);
            }
        }
        fill.everything(fill.dir(tree, "everything"));
        fill.filled(Ino::ROOT, "stays", 4000);
    });
    let volume = shop.open(&by_steps());
    let who = shoal::raw::Caller::root();
    let from = shop.position();
    volume.namespace().remove_tree(&who, Ino::ROOT, b"removed", TreeCheck::Tree).unwrap();
    shop.crash(from, false, |counts| {
        counts.get("directory, without a name").is_some_and(|n| *n > 1)
            && counts.get("file, data in the inode").is_some_and(|n| *n > 60)
    })
}
