//! When a checkpoint is due: because of what accumulated since the newest one, in progress or done,
//! began.

use shoal_base::counters::Counter;
use shoal_base::{Ino, Result};
use shoal_device::{Device, MemDevice};
use shoal_format::Compression;
use shoal_format::item::Item;
use shoal_format::superblock::Superblock;
use shoal_format::{Geometry, Label, Ptr};
use shoal_txn::{Need, RecordKind, Store, StoreOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const GEOMETRY: Geometry = Geometry { segment_size: 4 << 20, segments: 64, inode_size: 512 };
/// Journal bytes after which a checkpoint is due.
const DUE: u64 = 256 << 10;
const KIND: RecordKind = RecordKind::new(0, "test", 4096);
/// Bytes of a record.
const RECORD: usize = 1000;

/// A device whose flushes can be made slow, or made to wait. Every checkpoint waits for some.
struct Slow {
    memory: MemDevice,
    flush_ms: AtomicU64,
    /// A flush waits until it can lock this.
    gate: Mutex<()>,
}

impl Device for Slow {
    fn capacity(&self) -> u64 {
        self.memory.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.memory.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.memory.write_at(buf, offset)
    }
    fn flush(&self) -> Result<()> {
        std::thread::sleep(Duration::from_millis(self.flush_ms.load(Ordering::Relaxed)));
        drop(self.gate.lock().unwrap());
        self.memory.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.memory.discard(offset, len)
    }
    fn describe(&self) -> String {
        "slow memory".into()
    }
}

/// A volume whose background thread is the test.
fn store() -> (Arc<Slow>, Store) {
    let memory = MemDevice::new(GEOMETRY.bytes());
    let device = Arc::new(Slow { memory, flush_ms: AtomicU64::new(0), gate: Mutex::new(()) });
    let superblock = Superblock {
        id: [7; 16],
        geometry: GEOMETRY,
        compat: 0,
        ro_compat: 0,
        incompat: 0,
        compression: Compression::NONE,
        sequence: 0,
        incarnation: 1,
        clean: false,
        checkpoint: Ptr::NULL,
        created: 0,
        label: Label::NONE,
    };
    let options = StoreOptions {
        read_only: false,
        cache_bytes: 64 << 20,
        commit_interval_ms: 10_000,
        checkpoint_bytes: DUE,
        background: true,
        flush_rolls: false,
        discard: true,
        recent: 0,
        segments: 0,
    };
    let store = shoal_txn::create(device.clone(), superblock, options).unwrap();
    store.checkpoints().write().unwrap();
    (device, store)
}

fn commit(store: &Store) {
    let mut txn = store.begin(Need::Release, KIND).unwrap();
    let bytes = [1; RECORD];
    let form = shoal_format::inode::Form::Inline;
    txn.log(Item::DataFork { ino: Ino(40), form, bytes: &bytes });
    txn.commit().unwrap();
}

fn commit_until_due(store: &Store) {
    let most = 2 * DUE / RECORD as u64;
    assert!((0..most).any(|_| {
        commit(store);
        store.checkpoints().is_due()
    }));
}

#[test]
fn a_commit_during_a_checkpoint_asks_for_no_other() {
    let (device, store) = store();
    commit_until_due(&store);
    let (during, cut) = (20, store.epoch());
    let closed = device.gate.lock().unwrap();
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| store.checkpoints().write().unwrap());
        while store.epoch() == cut {
            std::thread::yield_now();
        }
        for _ in 0..during {
            commit(&store);
            assert!(!store.checkpoints().is_due());
        }
        assert!(!checkpoint.is_finished(), "it waits for a flush");
        drop(closed);
    });
    assert!(!store.checkpoints().is_due());
    // It is due again when as much has accumulated as for the first.
    let mut more = 0;
    while !store.checkpoints().is_due() {
        commit(&store);
        more += 1;
    }
    assert!((more + during) * (RECORD as u64) < DUE + 2 * RECORD as u64);
    assert!((more + during) * (RECORD as u64 + 100) > DUE);
}

#[test]
fn steady_load_makes_as_many_checkpoints_as_it_fills() {
    const FILLS: u64 = 6;
    let (device, store) = store();
    device.flush_ms.store(20, Ordering::Relaxed);
    let before = store.counters().get(Counter::Checkpoints);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                store.checkpoints().wait_for_request(Duration::from_millis(50));
                if store.checkpoints().is_due() {
                    store.checkpoints().write().unwrap();
                }
            }
        });
        // Slow enough that a checkpoint ends before the next is due.
        for n in 0..FILLS * DUE / RECORD as u64 {
            commit(&store);
            if n % 8 == 0 {
                std::thread::sleep(Duration::from_millis(4));
            }
        }
        stop.store(true, Ordering::Release);
    });
    let made = store.counters().get(Counter::Checkpoints) - before;
    assert!((1..=FILLS + 1).contains(&made), "{made} checkpoints for {FILLS} fills");
}

#[test]
fn beginning_while_a_checkpoint_is_due_wakes_nobody() {
    let (_device, store) = store();
    commit_until_due(&store);
    assert!(store.checkpoints().wait_for_request(Duration::ZERO), "the edge wakes once");
    for _ in 0..10 {
        drop(store.begin(Need::Release, KIND).unwrap());
        commit(&store);
        assert!(store.checkpoints().is_due());
        assert!(!store.checkpoints().wait_for_request(Duration::ZERO), "woken again");
    }
    store.checkpoints().write().unwrap();
    assert!(!store.checkpoints().is_due());
    commit_until_due(&store);
    assert!(store.checkpoints().wait_for_request(Duration::ZERO), "the next edge wakes again");
}

/// Without background threads, calls write checkpoints themselves before memory is full.
#[test]
fn who_is_far_ahead_of_the_checkpoints_waits() {
    let (_device, store) = store();
    let before = store.counters().get(Counter::Checkpoints);
    for _ in 0..20 * DUE / RECORD as u64 {
        commit(&store);
        assert!(store.lsn().0 - store.checkpoints().newest_lsn().0 < 5 * DUE);
    }
    assert!(store.counters().get(Counter::Checkpoints) >= before + 3);
}
