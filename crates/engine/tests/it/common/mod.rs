//! For tests that damage volumes: the location of all structures on a device, and the visible
//! contents of a volume.

pub(crate) mod rng;
pub(crate) mod slow;

use shoal_engine::*;
use shoal_format::Ptr;
use shoal_format::checkpoint::RootRecord;
use shoal_format::node::{Node, NodeId, TreeId};
use shoal_format::root::ROOTS;
use shoal_format::superblock::COPIES;
use shoal_txn::{Image, Store, StoreOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Calls a function when it goes out of scope. Stops the other threads of a test whose assertion
/// fails: otherwise their scope waits for them forever, and the failure is not reported.
pub(crate) struct OnDrop<F: Fn()>(pub F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

pub(crate) fn options() -> OpenOptions {
    OpenOptions { background: false, cache_bytes: 64 << 20, ..OpenOptions::default() }
}

pub(crate) fn open(device: &Arc<MemDevice>) -> Volume {
    Volume::open_on(device.clone(), &options()).unwrap()
}

/// Opens the transaction layer of a volume that is not in use.
pub(crate) fn store(device: &Arc<MemDevice>) -> Store {
    store_as(device, false)
}

/// As [`store`]; read-only if `read_only`.
pub(crate) fn store_as(device: &Arc<MemDevice>, read_only: bool) -> Store {
    let options = StoreOptions {
        read_only,
        cache_bytes: 16 << 20,
        commit_interval_ms: 5000,
        checkpoint_bytes: u64::MAX,
        background: false,
        flush_rolls: false,
        discard: true,
        recent: 0,
        segments: 0,
    };
    let shoal_txn::Opened { store, recovery } = shoal_txn::open(device.clone(), options).unwrap();
    recovery.run(&store).unwrap();
    store
}

/// Copies a device.
pub(crate) fn copy(device: &MemDevice) -> Arc<MemDevice> {
    let new = Arc::new(MemDevice::new(device.capacity()));
    let (mut piece, zeros) = (vec![0; 256 << 10], vec![0; 256 << 10]);
    for at in (0..device.capacity()).step_by(piece.len()) {
        device.read_at(&mut piece, at).unwrap();
        if piece != zeros {
            new.write_at(&piece, at).unwrap();
        }
    }
    new
}

/// Inverts some bits of a byte.
pub(crate) fn flip(device: &MemDevice, at: u64) {
    let mut byte = [0];
    device.read_at(&mut byte, at).unwrap();
    device.write_at(&[byte[0] ^ 0x5a], at).unwrap();
}

/// Repairs without confirmation.
pub(crate) fn repair(device: &Arc<MemDevice>) -> RepairReport {
    Volume::repair_on(device.clone(), &options(), &mut |_, _, _| {}, &mut |_| true).unwrap()
}

/// Reads the newest checkpoint of a device.
pub(crate) fn image(device: &dyn Device) -> Image {
    let sb = shoal_txn::read_superblock(device).unwrap();
    let checkpoint = shoal_txn::read_checkpoint(device, &sb).unwrap();
    Image::read(device, &sb, checkpoint, &mut |_, e| panic!("{e}")).unwrap()
}

/// Reads the records of its subvolumes.
pub(crate) fn roots(device: &MemDevice) -> Vec<RootRecord> {
    let (image, geometry) = (image(device), shoal_txn::read_superblock(device).unwrap().geometry);
    let pages = 0..image.roots().div_ceil(ROOTS);
    pages.flat_map(|page| image.read_roots(device, &geometry, page).unwrap()).collect()
}

/// Returns every block to which the newest checkpoint of a device leads, by kind.
pub(crate) fn blocks(device: &MemDevice) -> BTreeMap<String, Vec<Ptr>> {
    let sb = shoal_txn::read_superblock(device).unwrap();
    let image = image(device);
    let mut found: BTreeMap<String, Vec<Ptr>> = BTreeMap::new();
    for addr in COPIES {
        let ptr = Ptr::place(shoal_base::Addr(addr), 256);
        found.entry("superblock".into()).or_default().push(ptr);
    }
    image.for_each_object(&mut |kind, ptr| {
        found.entry(kind.name().into()).or_default().push(ptr);
    });
    for root in roots(device) {
        for tree in TreeId::ALL {
            let id = NodeId { volume: sb.volume(), root: root.id, tree };
            node(device, id, root.trees[tree as usize], &mut found);
        }
    }
    found
}

fn node(device: &MemDevice, id: NodeId, ptr: Ptr, found: &mut BTreeMap<String, Vec<Ptr>>) {
    if ptr.is_null() {
        return;
    }
    let mut raw = vec![0; ptr.len as usize];
    device.read_at(&mut raw, ptr.addr.0).unwrap();
    let place = (id, None, ptr.addr);
    let node_read = Node::decode(&raw, ptr.coding(), Node::frame(), place).unwrap();
    let level = if node_read.level() == 0 { "leaf" } else { "inner" };
    found.entry(format!("{} {level}", id.tree.name())).or_default().push(ptr);
    for i in 0..node_read.count() {
        let pointed = || Ptr::of_value(&node_read.value(i)[..Ptr::SIZE]).unwrap();
        if node_read.level() > 0 {
            node(device, id, pointed(), found);
        } else if id.tree == TreeId::Imap {
            found.entry("inode block".into()).or_default().push(pointed());
        }
    }
}

/// Visible contents, by path: the inode, its link count, and its bytes or target.
pub(crate) type Shown = BTreeMap<String, (u64, u32, Vec<u8>)>;

pub(crate) fn shown(volume: &Volume) -> Shown {
    let mut all = Shown::new();
    walk(volume, Ino::ROOT, "", &mut all);
    all
}

fn walk(volume: &Volume, dir: Ino, path: &str, all: &mut Shown) {
    let mut entries = Vec::new();
    let mut each = |e: DirEntry<'_>| {
        entries.push((String::from_utf8(e.name.to_vec()).unwrap(), e.ino, e.kind));
        true
    };
    volume.directories().readdir(dir, 2, &mut each).unwrap();
    for (name, ino, kind) in entries {
        let path = format!("{path}/{name}");
        let attr = volume.attributes().getattr(ino).unwrap();
        let bytes = match kind {
            FileKind::Regular => {
                let mut bytes = vec![0; attr.size as usize];
                let read = volume.files().read(ino, 0, &mut bytes).unwrap();
                assert_eq!(read, bytes.len(), "{path}");
                bytes
            }
            FileKind::Symlink => volume.namespace().readlink(ino).unwrap(),
            _ => Vec::new(),
        };
        all.insert(path.clone(), (ino.0, attr.nlink, bytes));
        if kind == FileKind::Directory {
            walk(volume, ino, &path, all);
        }
    }
}

/// A device on which this many writes and flushes succeed; all later ones fail with `EIO`.
pub(crate) struct Dying {
    device: Arc<MemDevice>,
    left: AtomicI64,
}

impl Dying {
    pub(crate) fn after(device: &Arc<MemDevice>, writes: i64) -> Dying {
        Dying { device: device.clone(), left: AtomicI64::new(writes) }
    }
    fn alive(&self) -> Result<()> {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            ..=0 => Err(Error::Code(Code::Io)),
            _ => Ok(()),
        }
    }
}

impl Device for Dying {
    fn capacity(&self) -> u64 {
        self.device.capacity()
    }
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.device.read_at(bytes, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.alive()?;
        self.device.write_at(bytes, offset)
    }
    fn flush(&self) -> Result<()> {
        self.alive()?;
        self.device.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.device.discard(offset, len)
    }
    fn describe(&self) -> String {
        "a device that dies".into()
    }
}

/// Returns the size of a volume in MiB.
pub(crate) fn size_of(volume: &Volume) -> u64 {
    let info = volume.info();
    (info.segment_size * u64::from(info.segments)) >> 20
}
