//! A FUSE server that does nothing: measures the cost of the protocol without a filesystem.
//!
//! ```text
//! cargo run --release -p shoal-fuse --example nothing -- DIR [OPTIONS]
//! ```
//!
//! It has Shoal's own transports, protocol and mount options, and remembers only directories: every
//! creation gives a fresh inode, every removal succeeds. That is enough for programs that create
//! files and never read them back, such as `fs_mark -k`. Unmounting ends it; it then prints the
//! number of requests of each kind.
// It ends at the first error; it is for developers.
#![allow(clippy::unwrap_used)]

use parking_lot::{Mutex, RwLock};
use shoal_fuse::protocol::flags::FOPEN_NOFLUSH;
use shoal_fuse::protocol::probe::{is_probe, probe_entry};
use shoal_fuse::protocol::reply::{TTL_FOREVER, put};
use shoal_fuse::protocol::wire::{AttrOut, EntryOut, FuseAttr, OpenOut, StatfsOut, WriteOut};
use shoal_fuse::protocol::{Errno, Opcode, Reply, Request};
use shoal_fuse::service::Serve;
use shoal_fuse::{Mount, MountOptions};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers that a thread takes at a time.
const BLOCK: u64 = 1 << 16;
/// More than there are request codes.
const CODES: usize = 64;
/// Directories have odd numbers, like the root, and files even ones.
const STEP: u64 = 2;

/// State shared by the threads.
#[derive(Default)]
struct Ledger {
    /// Blocks of numbers that have been taken; the first holds the root's number.
    blocks: AtomicU64,
    /// Directories made, by parent and name: `mkdir` of one that exists must find it.
    directories: RwLock<HashMap<(u64, Vec<u8>), u64>>,
    /// Requests served, by code.
    requests: Mutex<BTreeMap<u32, u64>>,
}

/// A thread's own supply of inode numbers, and its own count of requests.
struct Nothing {
    ledger: Arc<Ledger>,
    next: u64,
    requests: [u64; CODES],
}

impl Drop for Nothing {
    fn drop(&mut self) {
        let mut all = self.ledger.requests.lock();
        for (code, count) in (0..).zip(self.requests).filter(|(_, count)| *count > 0) {
            *all.entry(code).or_default() += count;
        }
    }
}

impl Nothing {
    fn fresh(&mut self, directory: bool) -> u64 {
        if self.next.is_multiple_of(BLOCK) {
            self.next = BLOCK * (1 + self.ledger.blocks.fetch_add(1, Ordering::Relaxed));
        }
        self.next += STEP;
        self.next + u64::from(directory)
    }

    fn answer(&mut self, op: Opcode, request: &mut Request<'_>) -> Result<usize, Errno> {
        use Opcode::*;
        let node = request.header.nodeid;
        let name = (node, request.payload().to_vec());
        if is_probe(request) {
            return put(request.body(), 0, &probe_entry());
        }
        let body = request.body();
        match op {
            Lookup => match self.ledger.directories.read().get(&name) {
                Some(node) => put(body, 0, &entry(*node)),
                None => Err(Errno::ENOENT),
            },
            Create | Tmpfile => {
                let end = put(body, 0, &entry(self.fresh(false)))?;
                put(body, end, &OpenOut { open_flags: FOPEN_NOFLUSH, ..OpenOut::default() })
            }
            Mkdir => {
                let node = self.fresh(true);
                self.ledger.directories.write().insert(name, node);
                put(body, 0, &entry(node))
            }
            Mknod | Symlink => put(body, 0, &entry(self.fresh(false))),
            Getattr | Setattr => {
                let attr = attr(node);
                put(body, 0, &AttrOut { attr_valid: TTL_FOREVER, attr, ..AttrOut::default() })
            }
            Write => put(body, 0, &WriteOut { size: name.1.len() as u32, padding: 0 }),
            Statfs => put(body, 0, &space()),
            Unlink | Rmdir | Rename | Rename2 | Release | Releasedir | Read | Readdir
            | Readdirplus | Fsync | Fsyncdir => Ok(0),
            _ => Err(Errno::ENOSYS),
        }
    }
}

impl Serve for Nothing {
    type Shared = Ledger;

    fn new(ledger: Arc<Ledger>) -> Nothing {
        Nothing { ledger, next: 0, requests: [0; CODES] }
    }

    fn handle(&mut self, request: &mut Request<'_>) -> Reply {
        self.requests[request.header.opcode as usize % CODES] += 1;
        match request.opcode {
            Some(op) if op.is_silent() => Reply::Silent,
            Some(op) => self.answer(op, request).map_or_else(Reply::Error, Reply::Body),
            None => Reply::Error(Errno::ENOSYS),
        }
    }

    fn undo(&self, _op: Option<Opcode>, _reply: &mut [u8]) {}
}

fn attr(node: u64) -> FuseAttr {
    let mode = if node % STEP == 1 { 0o040_755 } else { 0o100_644 };
    FuseAttr { ino: node, mode, nlink: 1, blksize: 4096, ..FuseAttr::default() }
}

fn entry(node: u64) -> EntryOut {
    EntryOut {
        nodeid: node,
        entry_valid: TTL_FOREVER,
        attr_valid: TTL_FOREVER,
        attr: attr(node),
        ..EntryOut::default()
    }
}

fn space() -> StatfsOut {
    let much = 1 << 40;
    StatfsOut {
        blocks: much,
        bfree: much,
        bavail: much,
        files: much,
        ffree: much,
        bsize: 4096,
        frsize: 4096,
        namelen: 255,
        ..StatfsOut::default()
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().expect("a directory to mount on");
    let options = MountOptions::parse(&arguments.next().unwrap_or_default()).unwrap();
    tracing_subscriber::fmt().with_env_filter("debug").with_writer(std::io::stderr).init();
    let ledger = Arc::new(Ledger::default());
    let shared = ledger.clone();
    let mount = Mount::serving::<Nothing>(shared, Path::new(&dir), "nothing", &options).unwrap();
    mount.wait();
    for (code, count) in ledger.requests.lock().iter() {
        let name = Opcode::from_number(*code).map_or("unknown", Opcode::name);
        println!("{count:>10} {name}");
    }
}
