//! Writes the corpus and the image that damage is done to. To be run again when the format changes:
//! `scripts/fuzz.sh seed`.

use shoal_base::{Addr, Ino, Lsn, RootId};
use shoal_format::batch::{BatchHeader, BatchKind};
use shoal_format::claim::OwnerClaim;
use shoal_format::dirent::Dirent;
use shoal_format::extent::{DataHeader, Extent};
use shoal_format::flush::{self, FlushKind};
use shoal_format::inode::{BlockId, Core, Inode, encode_block, stamp_block};
use shoal_format::item::Item;
use shoal_format::node::{Key, Node, NodeId, TreeId, stamp_node};
use shoal_format::{Codec, Compression, Geometry, Ptr, orphan};
use shoal_fuzz::seal::Image;
use std::error::Error;
use std::path::Path;

type Done = Result<(), Box<dyn Error>>;

const ZSTD: Compression = Compression { codec: Codec::Zstd, level: 3 };
const PTR: Ptr = Ptr::sealed(Addr(1 << 22), 3, 16384, 5);

fn main() -> Done {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let runs = shoal_fuzz::image::make()?;
    std::fs::write(here.join("base.image"), &runs)?;
    let put = |target: &str, name: &str, bytes: &[u8]| -> Done {
        let folder = here.join("corpus").join(target);
        std::fs::create_dir_all(&folder)?;
        Ok(std::fs::write(folder.join(name), bytes)?)
    };
    let image = shoal_fuzz::image::unpack(&runs).and_then(Image::new).ok_or("no volume")?;
    put("superblock", "copy", &image.bytes[..256])?;
    records(&image, &put)?;
    structures(&put)?;
    request(&put)?;
    let all = &[4, 9, 6, 0, 5, 7, 8, 9, 6, 6, 9];
    for (name, ops) in [("grow", [4u8, 9].as_slice()), ("all", all)] {
        let ops = ops.iter().zip(0u8..).flat_map(|(op, n)| [*op, n * 20, 0, 200, 3, n, 250, 2]);
        put("tree", name, &ops.collect::<Vec<u8>>())?;
    }
    forget_frozen(&here.join("corpus"))?;
    frozen(&put)?;
    put("image", "sound", &[0])?;
    for object in 0..24u8 {
        // A byte near the start of each of the first objects, behind right checksums.
        put("image", &format!("object-{object}"), &[1, object, 40 + object, 0, 1, 0xFF])?;
    }
    Ok(())
}

/// Removes the inputs that were cut out of frozen images before.
fn forget_frozen(corpus: &Path) -> Done {
    for target in std::fs::read_dir(corpus)? {
        for file in std::fs::read_dir(target?.path())? {
            let file = file?;
            if file.file_name().to_string_lossy().starts_with("frozen-") {
                std::fs::remove_file(file.path())?;
            }
        }
    }
    Ok(())
}

/// Objects of the frozen images; these as volumes, sound and with a byte changed behind right
/// checksums.
fn frozen(put: &dyn Fn(&str, &str, &[u8]) -> Done) -> Done {
    for (n, image) in (1u8..).zip(shoal_fuzz::frozen::images(shoal_fuzz::image::SIZE)?) {
        assert!(n < 32, "the number of a volume has 5 bits");
        for (target, name, input) in shoal_fuzz::frozen::cut(&image)? {
            put(target, &format!("frozen-{name}"), &input)?;
        }
        put("image", &format!("frozen-{}", image.name), &[n << 3])?;
        for object in [3, 12, 30] {
            let name = format!("frozen-{}-object-{object}", image.name);
            put("image", &name, &[n << 3 | 1, object, 40 + object, 0, 1, 0xFF])?;
        }
    }
    Ok(())
}

/// What the volume has one of.
fn records(image: &Image, put: &dyn Fn(&str, &str, &[u8]) -> Done) -> Done {
    let found = |magic: &[u8]| {
        let objects = image.objects.iter().map(|(at, len)| &image.bytes[*at..*at + *len]);
        objects.rev().find(|object| object.starts_with(magic))
    };
    for (target, magic) in [
        ("checkpoint", &b"SCP3"[..]),
        ("root_page", b"SRP2"),
        ("inode_block", b"SIB2"),
        ("batch", b"SJB2"),
    ] {
        let object = found(magic).ok_or(format!("no {target} in the volume"))?;
        put(target, "volume", &object[..object.len().min(4096)])?;
    }
    for (name, magic) in [("root", b"SUR1"), ("index", b"SUI1"), ("page", b"SUP1")] {
        put("usage", name, found(magic).ok_or(format!("no usage {name} in the volume"))?)?;
    }
    Ok(())
}

fn structures(put: &dyn Fn(&str, &str, &[u8]) -> Done) -> Done {
    let id = NodeId { volume: 7, root: RootId(0), tree: TreeId::Dirents };
    let mut node = Node::init(Node::frame(), id, 0, Key::MIN);
    for n in 0..8 {
        node.insert(n, Key::new(n as u64, 0), &[7; 20]);
    }
    let encoded = |node: &mut Node, how: Compression| {
        let mut raw = Vec::new();
        node.encode(how, 1, id.root, &mut raw);
        stamp_node(&mut raw, PTR.addr);
        raw
    };
    put("node", "leaf", &encoded(&mut node, Compression::NONE))?;
    put("node", "leaf-lz4", &encoded(&mut node, Compression::LZ4))?;
    put("node", "leaf-zstd", &encoded(&mut node, ZSTD))?;
    for how in [Compression::LZ4, ZSTD] {
        let mut body = vec![44, 1, 0];
        how.encode(&b"a tree of small files".repeat(15)[..300], 300, &mut body);
        put("codec", how.codec.name(), &body)?;
    }

    let inode = |n: usize| Inode {
        core: Core { mode: 0o100644, nlink: 1, data_len: 9, ..Core::default() },
        data: vec![n as u8; n].into(),
        attr: Box::default(),
    };
    let id = BlockId { volume: 7, first: Ino(96), inode_size: 512 };
    for how in [Compression::NONE, Compression::LZ4, ZSTD] {
        let mut block = Vec::new();
        encode_block((id, 1), how, &mut block, |n, out| {
            if n < 4 {
                inode(n).encode(id.first.root(), out);
            }
        });
        stamp_block(&mut block, PTR.addr);
        put("inode_block", &format!("four-{}", how.codec.name()), &block)?;
    }

    let mut record = Vec::new();
    Item::OrphanAdd { ino: Ino(5) }.encode(&mut record);
    Item::Moved { ino: Ino(5), bytes: 300 }.encode(&mut record);
    let value = b"value";
    Item::TreePut { root: RootId(0), tree: TreeId::Dirents, key: Key::MIN, value }
        .encode(&mut record);
    Item::Core { ino: Ino(5), core: inode(3).core }.encode(&mut record);
    put("batch", "items", &record)?;
    let body = [&(record.len() as u32).to_le_bytes()[..], &record].concat();
    let header = BatchHeader {
        kind: BatchKind::Records,
        volume: 7,
        incarnation: 1,
        len: body.len() as u32,
        lsn_start: Lsn(1),
        durable: Lsn(1),
        next: Addr(0),
    };
    put("batch", "batch", &[&header.encode(&body)[..], &body].concat())?;
    let by =
        flush::Writer { kind: FlushKind::Flush, volume: 7, incarnation: 1, epoch: 2, sequence: 3 };
    put("flush", "two", &flush::pack(&by, &[(Addr(4096), b"a range"), (Addr(8192), &[1; 100])]))?;
    let [host, path, command] = ["host", "path", "command"].map(String::from);
    let claim = OwnerClaim { patience_ms: 2000, pid: 7, host, path, command, ..Default::default() };
    put("claim", "one", &claim.encode()[..200])?;
    put("orphan_list", "two", &orphan::encode_list(7, &[PTR, PTR]))?;
    put("orphan", "three", &orphan::encode(7, 0, &[Ino(3), Ino(4), Ino(5)])[..64])?;

    let mut extents = Vec::new();
    let part = Extent { ptr: PTR, ..Extent::prealloc(0, 4096) };
    part.encode_inline(&mut extents);
    Extent::prealloc(8192, 100).encode_inline(&mut extents);
    let coded = Ptr { len: 300, codec: Codec::Lz4, ..PTR };
    Extent { ptr: coded, skip: 4096, ..part }.encode_inline(&mut extents);
    put("extent", "inline", &extents)?;
    put("extent", "header", &DataHeader::new(Ino(7), 0, 9, Codec::Lz4).encode(7))?;
    let mut entry = Vec::new();
    Dirent { child: Ino(7), kind: 8, name: b"name" }.encode(RootId(0), &mut entry);
    put("dirent", "name", &entry)?;
    let geometry = Geometry { segment_size: 4 << 20, segments: 16, inode_size: 512 };
    assert!(geometry.contains(PTR.addr, u64::from(PTR.len)));
    Ok(())
}

/// One request of each shape: without, with one and with two names, with an extension.
fn request(put: &dyn Fn(&str, &str, &[u8]) -> Done) -> Done {
    let build = |opcode: u32, op: usize, payload: &[u8], ext: u16| {
        let mut raw = ((40 + op + payload.len()) as u32).to_le_bytes().to_vec();
        raw.extend(opcode.to_le_bytes());
        raw.extend([1, 0, 0, 0, 0, 0, 0, 0, 1]);
        raw.resize(36, 0);
        raw.extend(ext.to_le_bytes());
        raw.resize(40 + op, 0);
        raw.extend(payload);
        raw
    };
    put("request", "getattr", &build(3, 16, b"", 0))?;
    put("request", "lookup", &build(1, 0, b"name\0", 0))?;
    put("request", "rename", &build(45, 16, b"old\0new\0", 0))?;
    put("request", "symlink", &build(6, 0, b"name\0target\0", 0))?;
    let groups = [16u8, 0, 0, 0, 32, 0, 0, 0, 1, 0, 0, 0, 100, 0, 0, 0];
    put("request", "mkdir", &build(9, 8, &[&b"dir\0\0\0\0\0"[..], &groups].concat(), 2))?;
    put("request", "write", &build(16, 40, &[7; 50], 0))
}
