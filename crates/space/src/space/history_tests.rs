//! Random histories of the space manager, against a model that remembers every object.

use super::page_tests::Disk;
use super::tests::{GEOMETRY, SIZE, publish, seg_of};
use super::*;
use crate::*;
use proptest::prelude::*;
use shoal_skip::property;
use std::collections::{BTreeMap, BTreeSet};

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Alloc { stream: u8, len: u32, reserved: bool },
    Drop(usize),
    Grow(usize, u32),
    Journal,
    Freeze,
    Rewrite(usize),
    Commit,
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let alloc = (0..5u8, 1..300_000u32, any::<bool>())
        .prop_map(|(stream, len, reserved)| Step::Alloc { stream, len, reserved });
    let step = prop_oneof![
        12 => alloc,
        8 => any::<usize>().prop_map(Step::Drop),
        8 => (any::<usize>(), 1..100_000u32).prop_map(|(n, by)| Step::Grow(n, by)),
        1 => Just(Step::Journal),
        2 => Just(Step::Freeze),
        3 => any::<usize>().prop_map(Step::Rewrite),
        3 => Just(Step::Commit),
        1 => Just(Step::Crash),
    ];
    proptest::collection::vec(step, 1..150)
}

/// Address to length and whether it is metadata.
type Objects = BTreeMap<u64, (u32, bool)>;

/// The true state, kept in a simple form.
#[derive(Default)]
struct Model {
    now: Objects,
    /// State of the checkpoint in progress, and of the newest durable one with its table.
    frozen: Option<(Objects, Frozen)>,
    durable: Option<(Objects, UsageTable)>,
    disk: Disk,
    /// Data to which records since the durable checkpoint, or since the freeze, point.
    since_durable: Objects,
    since_freeze: Objects,
    journal: BTreeSet<u32>,
}

impl Model {
    fn add(&mut self, addr: Addr, len: u32, meta: bool) {
        assert!(addr.0.is_multiple_of(8));
        self.nobodys(addr, len);
        self.now.insert(addr.0, (len, meta));
    }

    /// Checks bytes that were just allocated.
    fn nobodys(&self, addr: Addr, len: u32) {
        let end = addr.0 + u64::from(len);
        assert!(addr.0 >= SIZE && seg_of(addr) == seg_of(Addr(end - 1)));
        // Nothing may be overwritten that is in use, or that a crash would restore.
        let durable = self.durable.iter().flat_map(|(objects, _)| objects);
        let frozen = self.frozen.iter().flat_map(|(objects, _)| objects);
        let all = self.now.iter().chain(durable).chain(frozen);
        for (start, (other, _)) in all.chain(&self.since_durable).chain(&self.since_freeze) {
            assert!(
                end <= *start || start + u64::from(*other) <= addr.0,
                "overwrites a live object"
            );
        }
        assert!(!self.journal.contains(&seg_of(addr).0));
    }

    /// Ordinary transactions create and drop data; only checkpoints change metadata.
    fn step(&mut self, space: &mut Space, step: &Step) {
        match step {
            Step::Alloc { stream, len, reserved } => self.alloc(space, *stream, *len, *reserved),
            Step::Drop(n) => self.drop_data(space, *n),
            Step::Grow(n, by) => self.grow(space, *n, *by),
            Step::Journal => {
                if let Ok(seg) = space.take_journal_segment() {
                    assert!(self.journal.insert(seg.0), "taken twice");
                    assert!(self.now.keys().all(|addr| seg_of(Addr(*addr)) != seg));
                }
            }
            Step::Freeze if self.frozen.is_none() => {
                self.frozen = Some((self.now.clone(), space.checkpointing().freeze()));
                self.since_freeze.clear();
            }
            Step::Freeze => {}
            Step::Rewrite(n) => self.rewrite(space, *n),
            Step::Commit => self.commit(space),
            Step::Crash => self.crash(space),
        }
        let live: u64 = self.now.values().map(|(len, _)| u64::from(*len)).sum();
        assert_eq!(space.counts().live_bytes(), live);
        assert_eq!(space.counts().accounting_errors(), 0);
    }

    fn alloc(&mut self, space: &Space, stream: u8, len: u32, reserved: bool) {
        let class = if reserved { Class::Reserved } else { Class::Ordinary };
        let meta = stream == 0;
        if meta && self.frozen.is_none() {
            return;
        }
        let stream = if meta { Stream::Meta } else { Stream::Data(stream - 1) };
        let before = space.counts().free_segments();
        let Ok(addr) = space.alloc(stream, len, class) else { return };
        assert!(reserved || before == space.counts().free_segments() || before > 1 + 6);
        self.add(addr, len, meta);
        match self.frozen.as_mut() {
            Some((objects, frozen)) if meta => {
                space.checkpointing().meta_add(frozen, addr, len);
                objects.insert(addr.0, (len, meta));
            }
            _ => {
                space.add_live(addr, len);
                self.since_durable.insert(addr.0, (len, meta));
                self.since_freeze.insert(addr.0, (len, meta));
            }
        }
    }

    /// An object grows: a record points to all of it, the previous one to less.
    fn grow(&mut self, space: &Space, n: usize, by: u32) {
        let data: Vec<u64> = self.now.iter().filter(|(_, o)| !o.1).map(|(a, _)| *a).collect();
        let Some(addr) = data.get(n % data.len().max(1)).copied() else { return };
        let len = self.now[&addr].0;
        let end = Addr(addr + u64::from(len));
        let Some(hold) = space.sectors().extend(end, by) else { return };
        self.nobodys(end, by);
        let longer = (len + by, false);
        space.sub_live(Addr(addr), len);
        space.add_live(Addr(addr), longer.0);
        drop(hold);
        for objects in [&mut self.now, &mut self.since_durable, &mut self.since_freeze] {
            objects.insert(addr, longer);
        }
    }

    fn drop_data(&mut self, space: &Space, n: usize) {
        let data: Vec<u64> = self.now.iter().filter(|(_, o)| !o.1).map(|(a, _)| *a).collect();
        if data.is_empty() {
            return;
        }
        let addr = data[n % data.len()];
        let (len, _) = self.now.remove(&addr).unwrap();
        space.sub_live(Addr(addr), len);
    }

    /// The checkpoint moves a piece of metadata.
    fn rewrite(&mut self, space: &Space, n: usize) {
        let old: Vec<u64> = self.now.iter().filter(|(_, o)| o.1).map(|(a, _)| *a).collect();
        if old.is_empty() || self.frozen.is_none() {
            return;
        }
        let addr = old[n % old.len()];
        let len = self.now[&addr].0;
        let Ok(new) = space.alloc(Stream::Meta, len, Class::Reserved) else { return };
        self.add(new, len, true);
        self.now.remove(&addr);
        if let Some((objects, frozen)) = self.frozen.as_mut() {
            space.checkpointing().meta_add(frozen, new, len);
            space.checkpointing().meta_sub(frozen, Addr(addr), len);
            objects.remove(&addr);
            objects.insert(new.0, (len, true));
        }
    }

    fn commit(&mut self, space: &Space) {
        let Some((objects, mut frozen)) = self.frozen.take() else { return };
        let whole = frozen.table(space);
        publish(space, frozen, &mut self.disk);
        let table = self.disk.read(&GEOMETRY, whole.positions);
        assert_eq!(table, whole, "what is not due is on the device already");
        self.check_table(&table, &objects);
        self.durable = Some((objects, table));
        self.since_durable = std::mem::take(&mut self.since_freeze);
        let journal: Vec<SegNo> =
            std::mem::take(&mut self.journal).into_iter().map(SegNo).collect();
        space.release_journal_segments(&journal);
    }

    /// Checks that the table contains every object of the checkpoint and nothing else.
    fn check_table(&self, table: &UsageTable, objects: &Objects) {
        let mut live = vec![0; GEOMETRY.segments as usize];
        for (addr, (len, meta)) in objects {
            let seg = seg_of(Addr(*addr)).0 as usize;
            live[seg] += len;
            let kind = if *meta { SegKind::Meta } else { SegKind::Data };
            assert_eq!(table.entries[seg].kind, kind);
        }
        let found: Vec<u32> = table.entries.iter().map(|e| e.live.get() as u32).collect();
        assert_eq!(found, live);
    }

    /// Restores the durable checkpoint, then replays: data objects of later records are restored.
    fn crash(&mut self, space: &mut Space) {
        let Some((objects, table)) = &self.durable else { return };
        *space = Space::load(GEOMETRY, table.clone());
        // A stream in its last sector has ended: an empty segment that it leaves is free next time.
        let is_free = |row: &(SegNo, SegKind, u64, bool)| row.1 == SegKind::Free;
        let ended = |row: &(SegNo, SegKind, u64, bool)| row.2 == 0 && row.3;
        let again = Space::load(GEOMETRY, table.clone());
        let again = Space::load(GEOMETRY, again.checkpointing().freeze().table(&again));
        for (now, then) in space.usage().iter().zip(again.usage()) {
            assert!(*now == then || is_free(&then) && ended(now), "load(table): {now:?}, {then:?}");
        }
        for seg in &self.journal {
            space.recovery().claim(SegNo(*seg), SegKind::Journal).unwrap();
        }
        let mut now = objects.clone();
        for (addr, (len, _)) in &self.since_durable {
            space.recovery().claim(seg_of(Addr(*addr)), SegKind::Data).unwrap();
            space.recovery().bump(Addr(addr + u64::from(*len)));
            if let Some((shorter, _)) = objects.get(addr) {
                space.sub_live(Addr(*addr), *shorter);
            }
            space.add_live(Addr(*addr), *len);
        }
        now.extend(&self.since_durable);
        // Replay drops again what was dropped: here, all data that is not there now.
        let gone: Vec<u64> = now
            .iter()
            .filter(|(a, o)| !o.1 && !self.now.contains_key(a))
            .map(|(a, _)| *a)
            .collect();
        for addr in gone {
            let (len, _) = now.remove(&addr).unwrap();
            space.sub_live(Addr(addr), len);
        }
        self.now = now;
        self.frozen = None;
        self.since_freeze.clear();
    }
}

/// Plays a history. The model checks each step.
fn play(steps: &[Step]) {
    let mut space = Space::fresh(GEOMETRY);
    let mut model = Model::default();
    for step in steps {
        model.step(&mut space, step);
    }
    // In the end everything can be freed except what the open segments hold.
    let data: Vec<u64> = model.now.iter().filter(|(_, o)| !o.1).map(|(a, _)| *a).collect();
    (0..data.len()).for_each(|_| model.drop_data(&space, 0));
    for _ in 0..3 {
        model.step(&mut space, &Step::Freeze);
        model.step(&mut space, &Step::Commit);
    }
    let meta: BTreeSet<SegNo> = model.now.keys().map(|a| seg_of(Addr(*a))).collect();
    let open = STREAMS;
    assert!(space.counts().free_segments() as usize + meta.len() + open >= 19);
}

proptest! {
    #![proptest_config(property(400))]

    #[test]
    fn random_histories_never_overwrite_what_a_crash_would_need(steps in steps()) {
        play(&steps);
    }
}

/// Found by a search.
#[test]
fn a_history_of_objects_that_grow_before_a_crash() {
    use Step::{Commit, Crash, Drop, Freeze, Grow};
    let alloc = |stream, len| Step::Alloc { stream, len, reserved: false };
    play(&[
        alloc(0, 1),
        alloc(0, 1),
        Drop(0),
        alloc(1, 1),
        alloc(2, 69217),
        alloc(3, 1),
        Drop(1_166_179_009_634_006_193),
        alloc(3, 1),
        Drop(2_969_272_796_436_725_869),
        alloc(2, 198982),
        alloc(3, 1),
        Drop(11_235_478_575_351_654_006),
        Grow(320_394_153_206_541_631, 56255),
        alloc(3, 1),
        Drop(1_560_847_073_257_906_550),
        alloc(3, 1),
        Grow(16_021_874_681_250_916_373, 68350),
        Grow(385_109_210_699_242_441, 3270),
        alloc(2, 269777),
        alloc(2, 38537),
        alloc(2, 136657),
        Drop(0),
        Drop(0),
        alloc(2, 203401),
        Drop(0),
        Drop(0),
        Drop(0),
        alloc(0, 1),
        Drop(3_699_274_877_875_934_793),
        Drop(3_257_334_281_604_770_039),
        Freeze,
        Commit,
        Crash,
    ]);
}
