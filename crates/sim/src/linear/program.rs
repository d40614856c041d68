//! The operations of a history: what it begins with, what its threads do, what is asked at last.

use crate::op::{Change, Data, Op, Place, SLOTS, Target, Who};
use crate::rng::Rng;
use shoal::raw::RenameFlags;

/// Names in each directory.
pub const NAMES: [&[u8]; 3] = [b"x", b"y", b"z"];
/// Directories that the threads have a handle of, at most: the first slots.
pub const DIRS: usize = 4;
/// Handles in all: a slot each, the directories, then two files.
pub const HANDLES: usize = SLOTS;

/// Bytes of the start of a file that are written alone: they fit in an inode.
pub const HEAD: u32 = 100;
/// Bytes that are written else: they do not.
pub const WHOLE: u32 = 6000;
/// The same on a mount, whose kernel reads each page by itself: within one.
const IN_PAGE: u32 = 3000;

const ROOT: Who = Who::Root;

/// The name of this number in the directory of a handle.
pub fn at(dir: usize, name: usize) -> Place {
    Place { dir: Target::Slot(dir), name: NAMES[name].to_vec() }
}

/// Looks a name up.
pub fn lookup(at: Place) -> Op {
    Op::Lookup { who: ROOT, at }
}

/// Asks for the attributes of a handle.
pub fn stat(handle: usize) -> Op {
    Op::Getattr { file: Target::Slot(handle) }
}

/// Lists the directory of a handle.
pub fn list(dir: usize) -> Op {
    Op::Readdir { dir: Target::Slot(dir), page: 1000 }
}

/// Reads all of the file of a handle.
pub fn read(file: usize) -> Op {
    Op::Read { file: Target::Slot(file), offset: 0, len: 2 * u64::from(WHOLE) }
}

/// Writes to the start of the file of a handle; which bytes, and how many, follows from a value.
pub fn write(file: usize, value: u64) -> Op {
    let len = if value.is_multiple_of(2) { WHOLE } else { HEAD };
    // Noise, of which no two are alike (see `Data::bytes`).
    let data = Data { seed: value * 8 + 3, len };
    Op::Write { file: Target::Slot(file), offset: 0, data, kill_priv: false }
}

/// The operations that make what a history begins with, in an empty directory: directories `a` with
/// the file `x` and a directory at `z`, and `b` likewise. With trees, the second directory is in
/// the first at `y` instead, and `b/x` has another name there, `x`.
pub fn making(trees: bool) -> Vec<Op> {
    let place = |dir: &str, name: &str| Place { dir: Target::Path(dir.into()), name: name.into() };
    let mkdir = |dir, name| Op::Mkdir { who: ROOT, at: place(dir, name), mode: 0o777 };
    let create = |dir| Op::Create { who: ROOT, at: place(dir, "x"), mode: 0o666 };
    let mut ops = vec![mkdir("", "a"), mkdir("", "b"), create("a"), create("b"), mkdir("a", "z")];
    if trees {
        ops.push(mkdir("a/z", "y"));
        let from = Target::Path(b"b/x".to_vec());
        ops.push(Op::Link { who: ROOT, from, at: place("a/z", "x") });
    } else {
        ops.push(mkdir("b", "z"));
    }
    ops
}

/// Paths of the handles after [`making`].
pub fn paths(trees: bool) -> [&'static str; HANDLES] {
    let fourth = if trees { "a/z/y" } else { "b/z" };
    ["a", "b", "a/z", fourth, "a/x", "b/x"]
}

/// Returns whether the threads have this handle: with trees, nobody has those of the directories in
/// the tree.
pub fn is_held(trees: bool, handle: usize) -> bool {
    !(trees && (2..DIRS).contains(&handle))
}

/// Kind of history: the operations it has, and on how many names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flavour {
    /// Handles of directories that are used.
    pub dirs: u8,
    /// Names that are used.
    pub names: u8,
    /// With removals of trees. Then the third directory holds the fourth and a name of the second
    /// file, and nobody has a handle of either: what is found in a removed tree until it is freed
    /// is nobody's business.
    pub trees: bool,
    /// Little but making, replacing and looking up: what is replaced goes while it is looked up.
    pub replacing: bool,
    /// With contents of files.
    pub data: bool,
    /// With batches. Not beside removals of trees; and no system call makes them.
    pub batches: bool,
}

/// Changes of a batch, at most.
pub const CHANGES_MAX: u64 = 3;

impl Flavour {
    /// Two names in two directories, and calls of all kinds but those that others are for.
    pub const PLAIN: Flavour =
        Flavour { dirs: 2, names: 2, trees: false, replacing: false, data: false, batches: false };

    /// Draws one.
    pub fn draw(rng: &mut Rng, with_trees: bool) -> Flavour {
        let small = Flavour::PLAIN;
        match rng.below(8) {
            0 => Flavour { dirs: 1, ..small },
            7 => Flavour { dirs: 1, replacing: true, ..small },
            1 => small,
            2 if with_trees => Flavour { names: 3, trees: true, ..small },
            3 => Flavour { dirs: 3, names: 3, ..small },
            _ => Flavour { dirs: 4, names: 3, ..small },
        }
    }

    /// The same, in a share of the seeds with batches. What the other seeds draw is what it is
    /// without.
    pub fn with_batches(self, seed: u64) -> Flavour {
        let batches = Rng::new(seed).fork(0xBA7C).chance(25);
        Flavour { batches: batches && !self.trees && !self.replacing, ..self }
    }

    fn at(self, rng: &mut Rng) -> Place {
        let name = rng.below(u64::from(self.names)) as usize;
        // All three are used so that what is at the last one moves too.
        let name = if self.names == 2 && name == 1 && !self.replacing { 2 } else { name };
        at(rng.below(u64::from(self.dirs)) as usize, name)
    }

    fn file(rng: &mut Rng) -> usize {
        DIRS + rng.below(2) as usize
    }

    fn rename(self, rng: &mut Rng, noreplace: bool, exchange: bool) -> Op {
        let (from, to) = (self.at(rng), self.at(rng));
        Op::Rename {
            who: ROOT,
            from,
            to,
            flags: RenameFlags { noreplace, exchange, whiteout: false },
        }
    }

    /// A batch in two directories, whose own names stay, or in one.
    fn batch(self, rng: &mut Rng) -> Op {
        let both = self.dirs > 1 && rng.chance(70);
        let start = match both {
            true => Target::Path(Vec::new()),
            false => Target::Slot(rng.below(u64::from(self.dirs)) as usize),
        };
        let path = |rng: &mut Rng| {
            let name = self.at(rng).name;
            match both {
                true => [*rng.pick(&[b"a/", b"b/"]), &name[..]].concat(),
                false => name,
            }
        };
        let change = |rng: &mut Rng| {
            let (path, other) = (path(rng), path(rng));
            match rng.below(12) {
                0..4 => {
                    let data = Data { seed: rng.next(), len: *rng.pick(&[0, HEAD, WHOLE]) };
                    Change::File { path, mode: 0o666, data, replace: rng.chance(50) }
                }
                4 => Change::Dir { path, mode: 0o777 },
                5 => Change::Link { from: path, to: other },
                6..9 => {
                    let flags = RenameFlags { exchange: rng.chance(30), ..RenameFlags::default() };
                    Change::Rename { from: path, to: other, flags }
                }
                9..11 => Change::Remove { path },
                _ => Change::RemoveDir { path },
            }
        };
        let changes = (0..rng.range(1, CHANGES_MAX)).map(|_| change(rng)).collect();
        Op::Batch { who: ROOT, start, changes }
    }

    /// Draws an operation.
    pub fn op(self, rng: &mut Rng) -> Op {
        if self.batches && rng.chance(35) {
            return self.batch(rng);
        }
        if self.data && rng.chance(40) {
            let file = Self::file(rng);
            return match rng.below(8) {
                0..4 => write(file, rng.range(1, 200)),
                4 => {
                    let size = if rng.chance(50) { u64::from(HEAD) } else { 0 };
                    let file = Target::Slot(file);
                    Op::Truncate { who: ROOT, file, size, by_handle: false }
                }
                _ => read(file),
            };
        }
        let who = ROOT;
        if self.replacing {
            return match rng.below(10) {
                0..3 => Op::Create { who, at: self.at(rng), mode: 0o666 },
                3..6 => self.rename(rng, false, false),
                6..9 => lookup(self.at(rng)),
                _ => list(0),
            };
        }
        match rng.below(100) {
            0..12 => Op::Create { who, at: self.at(rng), mode: 0o666 },
            12..19 => Op::Mkdir { who, at: self.at(rng), mode: 0o777 },
            19..31 => Op::Unlink { who, at: self.at(rng) },
            31..39 if self.trees => Op::RemoveTree { who, at: self.at(rng) },
            31..39 => Op::Rmdir { who, at: self.at(rng) },
            39..60 => self.rename(rng, false, false),
            60..65 => self.rename(rng, true, false),
            65..71 => self.rename(rng, false, true),
            71..79 => {
                let from = Target::Slot(Self::file(rng));
                Op::Link { who, from, at: self.at(rng) }
            }
            79..90 => lookup(self.at(rng)),
            90..95 => list(rng.below(u64::from(self.dirs)) as usize),
            _ => match rng.chance(50) {
                true => stat(Self::file(rng)),
                false => stat(rng.below(u64::from(self.dirs)) as usize),
            },
        }
    }

    /// Returns the questions that are asked once all threads have ended, one after the other:
    /// everything that can be seen.
    pub fn epilogue(self) -> Vec<Op> {
        let dirs = if self.trees { 2 } else { DIRS };
        let mut ops = Vec::new();
        for dir in 0..dirs {
            ops.extend((0..NAMES.len()).map(|name| lookup(at(dir, name))));
            ops.push(stat(dir));
        }
        ops.extend((DIRS..HANDLES).map(stat));
        if self.data {
            ops.extend((DIRS..HANDLES).map(read));
        }
        ops
    }
}

/// Operations of each thread of a history, each with the turns that it spins before.
#[derive(Clone, Debug)]
pub struct Program {
    /// Kind of history.
    pub flavour: Flavour,
    /// By thread.
    pub threads: Vec<Vec<(u32, Op)>>,
}

impl Program {
    /// Draws the program of a seed. `spin` bounds the delays. Only in the library are there trees
    /// that are removed as one, and batches.
    pub fn draw(seed: u64, in_library: bool, spin: u64) -> Program {
        let mut rng = Rng::new(seed).fork(0x11EA);
        let mut flavour = Flavour::draw(&mut rng, in_library);
        if in_library {
            flavour = flavour.with_batches(seed);
        }
        let ops = |rng: &mut Rng| {
            let count = rng.range(3, 6);
            (0..count).map(|_| (rng.below(spin) as u32, flavour.op(rng))).collect()
        };
        let threads = (0..rng.range(2, 4)).map(|_| ops(&mut rng)).collect();
        Program { flavour, threads }
    }

    /// Draws the program of a seed for both doors of a mount. Removals of trees and batches are for
    /// the threads with sessions; contents of files are there in a share of the seeds.
    pub fn draw_for_doors(seed: u64, spin: u64) -> Program {
        let mut rng = Rng::new(seed).fork(0xD002);
        let flavour = Flavour::draw(&mut rng, true).with_batches(seed);
        let data = !flavour.trees && !flavour.replacing && rng.chance(40);
        let flavour = Flavour { data, ..flavour };
        let op = |rng: &mut Rng, thread: usize| loop {
            let op = flavour.op(rng);
            let is_call = !matches!(op, Op::RemoveTree { .. } | Op::Batch { .. });
            if is_call || is_by_session(seed, thread) {
                return in_page(op);
            }
        };
        let ops = |rng: &mut Rng, thread: usize| {
            let count = rng.range(3, 6);
            (0..count).map(|_| (rng.below(spin) as u32, op(rng, thread))).collect()
        };
        let threads = (0..rng.range(2, 4)).map(|thread| ops(&mut rng, thread as usize)).collect();
        Program { flavour, threads }
    }
}

/// Returns whether a thread of a history on both doors has a session; the others make system calls.
/// There are always some of both.
pub fn is_by_session(seed: u64, thread: usize) -> bool {
    (seed ^ thread as u64) & 1 == 1
}

/// The operation, with no more contents than fit in a page.
fn in_page(mut op: Op) -> Op {
    let cut = |data: &mut Data| data.len = data.len.min(IN_PAGE);
    match &mut op {
        Op::Write { data, .. } => cut(data),
        Op::Batch { changes, .. } => changes.iter_mut().for_each(|change| {
            if let Change::File { data, .. } = change {
                cut(data);
            }
        }),
        _ => {}
    }
    op
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_program() {
        let text = |seed| format!("{:?}", Program::draw(seed, true, 100));
        assert_eq!(text(3), text(3));
        assert_ne!(text(3), text(4));
    }
}
