//! Random operations. The generator looks at the model to hit existing names most of the time and
//! draws names from a small pool, so that operations collide; a seed also chooses a *profile*, so
//! that some runs are mostly renames, some mostly writes, and some make many files.

mod attributes;
mod batch;
mod burst;
mod profile;
mod tree_changes;

pub use profile::{PROFILES, Profile, profile_named, runs_full};

use crate::exec::{Generator, Lockstep};
use crate::memory::Refusal;
use crate::model::{Body, Model};
use crate::op::{Data, Op, Place, SLOTS, Target, Who};
use crate::rng::Rng;
use batch::Batches;
use profile::{FULL, MANY_ROOTS};
use shoal::raw::{Fallocate, FileKind, Ino, RenameFlags, Seek};
use shoal_base::limits::FILE_SIZE_MAX;
use tree_changes::TreeChanges;

/// The source of a run's operations.
#[derive(Clone, Debug)]
pub struct Workload {
    rng: Rng,
    profile: Profile,
    /// Decides which calls are refused memory, if any are.
    refusals: Option<Rng>,
    /// Batches between the other operations, if there are any.
    batches: Option<Batches>,
    /// Changes of trees between the other operations, if there are any.
    tree_changes: Option<TreeChanges>,
    /// The rest of a burst, last first.
    burst: Vec<Op>,
}

impl Generator for Workload {
    fn draw(&mut self, run: &Lockstep) -> Option<Op> {
        Some(self.next(run))
    }
}

impl Workload {
    /// The operations of a seed.
    pub fn new(seed: u64) -> Workload {
        let mut rng = Rng::new(seed).fork(1);
        let drawn = *rng.pick(PROFILES);
        let profile = if runs_full(seed) { FULL } else { drawn };
        Workload::of(rng, profile)
    }

    /// The operations of a seed with a given profile.
    pub fn with_profile(seed: u64, name: &str) -> Workload {
        let profile = profile_named(name).unwrap_or_else(|| panic!("no profile {name}"));
        let rng = Rng::new(seed).fork(1);
        Workload::of(rng, profile)
    }

    fn of(rng: Rng, profile: Profile) -> Workload {
        let (refusals, batches, tree_changes, burst) = (None, None, None, Vec::new());
        Workload { rng, profile, refusals, batches, tree_changes, burst }
    }

    /// The same without crashes and reopening, for those who make their own.
    pub fn without_crashes(mut self) -> Workload {
        self.profile.crashes_per_mille = 0;
        self
    }

    /// The same, with a call now and then that is refused memory. All other operations are what
    /// they are without.
    pub fn with_refusals(mut self, seed: u64) -> Workload {
        self.refusals = Some(Rng::new(seed).fork(9));
        self
    }

    /// The same with batches, in a share of the seeds. What else is drawn is what it is without.
    pub fn with_batches(mut self, seed: u64) -> Workload {
        self.batches = Some(Batches::of_seed(seed, &self.profile));
        self
    }

    /// The same with changes of trees, in a share of the seeds.
    pub fn with_tree_changes(mut self, seed: u64) -> Workload {
        self.tree_changes = Some(TreeChanges::of_seed(seed));
        self
    }

    /// Returns the profile of the run.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// The next operation.
    pub fn next(&mut self, run: &Lockstep) -> Op {
        if let Some(rng) = &mut self.refusals
            && run.refusal.is_none()
            && rng.chance(2)
        {
            // Few allocations or many: calls make from one to some thousands.
            let most = *rng.pick(&[2, 8, 30, 400]);
            let (after, count) = (rng.below(most) as u32, *rng.pick(&[1, 1, 1, 5, 1000]));
            return Op::NoMemory(Refusal { after, count });
        }
        // Not in the middle of a burst, or there would hardly be one that is whole.
        if let Some(op) = self.burst.pop() {
            return op;
        }
        if let Some(batch) = self.batch(run) {
            return batch;
        }
        if let Some(change) = self.tree_change(run) {
            return change;
        }
        if self.rng.below(1000) < self.profile.crashes_per_mille {
            let seed = self.rng.next();
            return if self.rng.chance(80) {
                Op::Crash { seed }
            } else {
                Op::Reopen { release: self.rng.chance(50) }
            };
        }
        let p = self.profile;
        let families = [
            (p.make, Workload::make as fn(&mut Workload, &Lockstep) -> Op),
            (p.remove, Workload::remove),
            (p.rename, Workload::rename),
            (p.attributes, Workload::attributes),
            (p.contents, Workload::contents),
            (p.open_files, Workload::open_files),
            (p.questions, Workload::questions),
            (p.durability, Workload::durability),
            (p.roots, Workload::roots),
        ];
        let mut draw = self.rng.below(families.iter().map(|f| f.0).sum());
        for (weight, family) in families {
            if draw < weight {
                return family(self, run);
            }
            draw -= weight;
        }
        unreachable!("the draw is below the sum")
    }

    // ---- families

    fn make(&mut self, run: &Lockstep) -> Op {
        let who = self.who();
        let at = self.place(run, 20);
        let mode = self.mode();
        match self.rng.below(20) {
            0..=8 => Op::Create { who, at, mode },
            9..=13 => Op::Mkdir { who, at, mode: mode & 0o1777 },
            14 => {
                let kinds = [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice];
                let mode = self.rng.pick(&kinds).mode_bits() | mode & 0o777;
                Op::Mknod { who, at, mode, rdev: self.rng.below(1 << 20) as u32 }
            }
            15..=16 => Op::Symlink { who, at, target: self.link_target(run) },
            _ => Op::Link { who, from: self.file(run), at },
        }
    }

    fn remove(&mut self, run: &Lockstep) -> Op {
        let (who, at) = (self.who(), self.place(run, 90));
        if self.rng.chance(self.profile.trees) {
            return Op::RemoveTree { who, at };
        }
        let is_dir = self.kind_at(run, &at) == Some(FileKind::Directory);
        // Mostly the right call, now and then the other.
        if is_dir != self.rng.chance(5) { Op::Rmdir { who, at } } else { Op::Unlink { who, at } }
    }

    fn rename(&mut self, run: &Lockstep) -> Op {
        let (who, from) = (self.who(), self.place(run, 95));
        let mut to = self.place(run, 50);
        if self.rng.chance(30) {
            to.dir = from.dir.clone();
        }
        Op::Rename { who, from, to, flags: self.rename_flags() }
    }

    fn rename_flags(&mut self) -> RenameFlags {
        let way = self.rng.below(10);
        RenameFlags { noreplace: way == 0, exchange: matches!(way, 1 | 2), whiteout: way == 3 }
    }

    fn attributes(&mut self, run: &Lockstep) -> Op {
        let (who, file) = (self.who(), self.any(run));
        let ids = [None, Some(0), Some(100), Some(1000), Some(1001)];
        match self.rng.below(8) {
            4..=7 => self.xattr(run),
            0 if self.kind_of(run, &file) != Some(FileKind::Symlink) => {
                Op::Chmod { who, file, mode: self.mode() }
            }
            0 | 1 => {
                let uid = *self.rng.pick(&ids);
                let gid = *self.rng.pick(&ids);
                let gid = if uid.is_none() { gid.or(Some(1000)) } else { gid };
                Op::Chown { who, file, uid, gid }
            }
            2 => self.utimes(who, file),
            _ => self.truncate(run),
        }
    }

    fn contents(&mut self, run: &Lockstep) -> Op {
        let file = if self.rng.chance(95) { self.file(run) } else { self.any(run) };
        if self.profile.bursts > 0 && self.rng.chance(self.profile.bursts) {
            return self.begin_burst(file);
        }
        let offset = self.offset(run, &file);
        let kill_priv = self.rng.chance(50);
        let len = self.length();
        match self.rng.below(16) {
            0..=7 => Op::Write { file, offset, data: self.data(), kill_priv },
            8..=11 => Op::Append { file, data: self.data(), kill_priv },
            12..=13 => {
                let mode = *self.rng.pick(&[
                    Fallocate::Allocate { keep_size: false },
                    Fallocate::Allocate { keep_size: true },
                    Fallocate::PunchHole,
                    Fallocate::PunchHole,
                    Fallocate::ZeroRange { keep_size: false },
                    Fallocate::ZeroRange { keep_size: true },
                ]);
                Op::Fallocate { file, mode, offset, len }
            }
            14 => {
                let from = self.file(run);
                let to = if self.rng.chance(30) { from.clone() } else { self.file(run) };
                if [&from, &to].iter().any(|f| self.kind_of(run, f) != Some(FileKind::Regular)) {
                    return self.truncate(run);
                }
                let (from_offset, to_offset) = (self.offset(run, &from), self.offset(run, &to));
                Op::CopyRange { from, from_offset, to, to_offset, len }
            }
            _ => self.truncate(run),
        }
    }

    fn open_files(&mut self, run: &Lockstep) -> Op {
        let slot = self.rng.below(SLOTS as u64) as usize;
        if run.slots[slot].is_some() {
            return Op::Close { slot };
        }
        if self.rng.chance(25) {
            let (who, mode) = (self.who(), self.mode() & 0o777);
            return Op::Tmpfile { who, dir: self.dir(run), mode, slot };
        }
        Op::Open { file: self.any(run), slot }
    }

    fn questions(&mut self, run: &Lockstep) -> Op {
        let who = self.who();
        match self.rng.below(15) {
            12 => Op::GetXattr { who, file: self.any(run), name: self.xattr_name() },
            13 => Op::ListXattr { who, file: self.any(run) },
            14 => Op::Paths { file: self.any(run) },
            0 => Op::Lookup { who, at: self.place(run, 70) },
            1 => Op::Getattr { file: self.any(run) },
            2 => Op::Access { who, file: self.any(run), mask: self.rng.range(1, 7) as u32 },
            3 => Op::Readlink { file: self.any(run) },
            4..=5 => {
                let dir = if self.rng.chance(95) { self.dir(run) } else { self.any(run) };
                Op::Readdir { dir, page: self.rng.range(1, 40) as usize }
            }
            6 => {
                let what = if self.rng.chance(50) { Seek::Data } else { Seek::Hole };
                let file = self.file(run);
                Op::Seek { offset: self.offset(run, &file), file, what }
            }
            7 => Op::Stale { which: self.rng.next() as usize % 1000 },
            8 => {
                let (start, path) = (self.dir(run), self.link_target(run));
                Op::Resolve { who, start, path, follow: self.rng.chance(50) }
            }
            _ => {
                let file = if self.rng.chance(95) { self.file(run) } else { self.any(run) };
                Op::Read { offset: self.offset(run, &file), file, len: self.length() }
            }
        }
    }

    fn durability(&mut self, run: &Lockstep) -> Op {
        match self.rng.below(10) {
            0..=5 => Op::Fsync { file: self.any(run), datasync: self.rng.chance(30) },
            6..=7 => Op::Sync,
            _ => Op::Checkpoint,
        }
    }

    /// Roots are the volume's: not for a run that has only a directory of it.
    fn roots(&mut self, run: &Lockstep) -> Op {
        if run.model.root() != Ino::ROOT {
            return self.durability(run);
        }
        let who = if self.rng.chance(90) { Who::Root } else { self.who() };
        let roots = run.model.roots();
        let (many, draw) = (self.profile.name == MANY_ROOTS.name, self.rng.below(10));
        match draw {
            0..=8 if (many || draw < 5) && roots.len() < self.profile.roots_max => {
                let long = |n: u64| format!("{n:x>255}").into_bytes();
                let name = if many { long(self.rng.below(1 << 20)) } else { self.name() };
                Op::RootCreate { who, name, mode: self.mode() }
            }
            0..=6 if !roots.is_empty() && self.rng.chance(90) => {
                Op::RootDelete { who, name: self.rng.pick(&roots).clone() }
            }
            0..=6 => Op::RootDelete { who, name: self.place(run, 90).name },
            _ => Op::Reap { slices: self.rng.below(3) },
        }
    }

    // ---- parts

    fn who(&mut self) -> Who {
        if self.rng.chance(50) { Who::Root } else { *self.rng.pick(&Who::ALL) }
    }

    fn mode(&mut self) -> u32 {
        match self.rng.below(8) {
            0 => self.rng.below(0o10000) as u32,
            1 => 0o1777,
            2 => 0o2775,
            3 => 0o700,
            4 => 0o4755,
            _ => *self.rng.pick(&[0o777, 0o755, 0o666, 0o644]),
        }
    }

    fn data(&mut self) -> Data {
        let len = self.length() as u32;
        Data { seed: self.rng.next(), len }
    }

    /// Lengths around the borders that matter: inline, page, extent.
    fn length(&mut self) -> u64 {
        match self.rng.below(12) {
            0 => 0,
            1..=3 => self.rng.range(1, 64),
            4..=5 => self.rng.range(65, 600),
            6 => *self.rng.pick(&[4095, 4096, 4097, 8192]),
            7 => self.rng.range(131_000, 131_200),
            _ => self.rng.range(1, self.profile.write_max),
        }
    }

    fn offset(&mut self, run: &Lockstep, file: &Target) -> u64 {
        let size = run.resolve(file).and_then(|i| run.model.node(i)).map_or(0, |n| n.size());
        let offset = match self.rng.below(12) {
            0..=2 => 0,
            3..=4 => size,
            5 => size.saturating_add(self.rng.below(10_000)),
            6 => size.saturating_sub(self.rng.below(200)),
            7 => *self.rng.pick(&[4096, 65_536, 131_072, 1 << 20]),
            8 => self.rng.below(1 << 22),
            9 if self.rng.chance(10) => FILE_SIZE_MAX - self.rng.below(3),
            _ => self.rng.below(size.saturating_add(1)),
        };
        // No system call can pass more.
        offset.min(FILE_SIZE_MAX)
    }

    fn name(&mut self) -> Vec<u8> {
        match self.rng.below(60) {
            0 => vec![b'L'; 255],
            1 => vec![b'L'; 256],
            2 => vec![b'm'; self.rng.range(100, 254) as usize],
            3 => b"\xff\xfe \n".to_vec(),
            4 => b".".repeat(self.rng.range(1, 3) as usize),
            _ => format!("n{}", self.rng.below(self.profile.names)).into_bytes(),
        }
    }

    /// A place; in `percent` of cases one whose name exists, if the directory has any.
    fn place(&mut self, run: &Lockstep, percent: u64) -> Place {
        let dir = self.dir(run);
        let known = run.resolve(&dir).and_then(|ino| run.model.entries(ino).ok());
        let name = match known {
            Some(entries) if !entries.is_empty() && self.rng.chance(percent) => {
                let n = self.rng.below(entries.len() as u64) as usize;
                entries.keys().nth(n).expect("counted").clone()
            }
            _ => loop {
                let name = self.name();
                // What the dots mean to other calls than creation is the front end's affair.
                if percent <= 20 || !matches!(&name[..], b"." | b"..") {
                    break name;
                }
            },
        };
        Place { dir, name }
    }

    /// A directory: the top, or some way down.
    fn dir(&mut self, run: &Lockstep) -> Target {
        if self.rng.chance(3) {
            return Target::Slot(self.rng.below(SLOTS as u64) as usize);
        }
        let mut path = Vec::new();
        let mut at = run.model.root();
        while self.rng.chance(60) {
            let is_dir = |ino: &Ino| matches!(body(&run.model, *ino), Some(Body::Dir(_)));
            let Some((name, ino)) = self.draw(run, at, is_dir) else { break };
            push(&mut path, &name);
            at = ino;
        }
        Target::Path(path)
    }

    /// A regular file, if one is found quickly.
    fn file(&mut self, run: &Lockstep) -> Target {
        self.inside(run, |model, ino| matches!(body(model, ino), Some(Body::File(_))))
    }

    /// Anything.
    fn any(&mut self, run: &Lockstep) -> Target {
        if self.rng.chance(10) { self.dir(run) } else { self.inside(run, |_, _| true) }
    }

    fn inside(&mut self, run: &Lockstep, wanted: fn(&Model, Ino) -> bool) -> Target {
        if self.rng.chance(15) {
            return Target::Slot(self.rng.below(SLOTS as u64) as usize);
        }
        for _ in 0..4 {
            let dir = self.dir(run);
            let (Some(ino), Target::Path(path)) = (run.resolve(&dir), &dir) else { continue };
            if let Some((name, _)) = self.draw(run, ino, |ino| wanted(&run.model, *ino)) {
                let mut path = path.clone();
                push(&mut path, &name);
                return Target::Path(path);
            }
        }
        Target::Path(Vec::new())
    }

    /// A random entry of `dir` that is `wanted`, from a random start onwards.
    fn draw(
        &mut self,
        run: &Lockstep,
        dir: Ino,
        wanted: impl Fn(&Ino) -> bool,
    ) -> Option<(Vec<u8>, Ino)> {
        let entries = run.model.entries(dir).ok()?;
        let start = self.rng.below(entries.len() as u64) as usize;
        let mut from_start = entries.iter().skip(start).chain(entries.iter().take(start));
        from_start.find(|(_, ino)| wanted(ino)).map(|(name, ino)| (name.clone(), *ino))
    }

    /// A path of names, dots and slashes, for symlinks and path walks.
    fn link_target(&mut self, run: &Lockstep) -> Vec<u8> {
        if self.rng.chance(5) {
            return vec![b't'; self.rng.range(400, 4000) as usize];
        }
        let mut path = Vec::new();
        if self.rng.chance(50) {
            path.push(b'/');
        }
        for part in 0..self.rng.range(1, 4) {
            if part > 0 {
                path.push(b'/');
            }
            match self.rng.below(6) {
                0 => path.extend_from_slice(b".."),
                1 => path.push(b'.'),
                _ => match self.inside(run, |_, _| true) {
                    Target::Path(inner) if !inner.is_empty() => path.extend_from_slice(&inner),
                    _ => path.push(b'x'),
                },
            }
        }
        if self.rng.chance(8) {
            path.push(b'/');
        }
        path
    }

    fn kind_of(&self, run: &Lockstep, target: &Target) -> Option<FileKind> {
        Some(run.model.node(run.resolve(target)?)?.kind)
    }

    fn kind_at(&self, run: &Lockstep, at: &Place) -> Option<FileKind> {
        let child = run.model.entries(run.resolve(&at.dir)?).ok()?.get(&at.name)?;
        Some(run.model.node(*child)?.kind)
    }
}

fn body(model: &Model, ino: Ino) -> Option<&Body> {
    model.node(ino).map(|node| &node.body)
}

fn push(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}
