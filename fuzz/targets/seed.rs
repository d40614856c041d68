//! Writes the corpus and the image that damage is done to. To be run again when the format changes:
//! `scripts/fuzz.sh seed`.

use shoal::raw::{self, Caller, Code, OrphanInfo, ScrubAt, TreeCheck};
use shoal_base::{Addr, Ino, Lsn, RootId};
use shoal_format::batch::{BatchHeader, BatchKind};
use shoal_format::bucket::Name;
use shoal_format::bucket::manifest::{self, Body, ManifestHeader, ManifestKind, ObjectEntry};
use shoal_format::bucket::object::{self, ObjectHeader, ObjectKind, Packed};
use shoal_format::claim::OwnerClaim;
use shoal_format::copy_mark::CopyMark;
use shoal_format::dirent::Dirent;
use shoal_format::extent::{DataHeader, Extent};
use shoal_format::inode::{BlockId, Core, Inode, encode_block, stamp_block};
use shoal_format::item::Item;
use shoal_format::node::{Key, Node as TreeNode, NodeId, TreeId, stamp_node};
use shoal_format::quota;
use shoal_format::tree_change::{AclEdit, AclEdits, Clause, Level, NewTime, Source, TreeChange};
use shoal_format::{Codec, Compression, Geometry, Ptr, orphan};
use shoal_fuzz::seal::Image;
use shoal_session::fuzzing::put as wire;
use shoal_session::page::{ByPage, PAGE, put_answer};
use shoal_session::{Calls, How, Node, Remote, Trace, TracedRequest};
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

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
    control(&put)?;
    session(&put)?;
    token(&put)?;
    changes(&put)?;
    archive(&put)?;
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

/// A question of a session.
fn asks(name: &str, bytes: &[Vec<u8>]) -> Vec<u8> {
    let number = shoal_session::fuzzing::number_of(name).unwrap_or(0);
    let bytes = bytes.concat();
    [&[number as u8, bytes.len() as u8], &bytes[..]].concat()
}

/// A path from the top.
fn top(path: &'static [u8]) -> (Node, &'static [u8]) {
    (Node::TOP, path)
}

const HOW: How = How {
    read: true,
    write: true,
    append: false,
    truncate: false,
    create: true,
    create_new: false,
    mode: 0o644,
};

/// Questions about an open file.
fn questions_of_files() -> Vec<u8> {
    let node = Node(2);
    let all = [
        asks("open_file", &[wire(&(top(b"d/new"), HOW))]),
        asks("write", &[wire(&((node, 5000u64), &b"text"[..]))]),
        asks("read", &[wire(&((node, 0u64), 6000u32))]),
        asks("seek", &[wire(&((node, 1u64), raw::Seek::Data))]),
        asks("set_size", &[wire(&(node, 100u64))]),
        asks("allocate", &[wire(&(node, raw::Fallocate::PunchHole)), wire(&(7u64, 9u64))]),
        asks("unlink", &[wire(&top(b"d/new"))]),
        asks("fsync", &[wire(&(node, true))]),
        asks("close", &[wire(&node)]),
        asks("get", &[wire(&top(b"d/b"))]),
        asks("put", &[wire(&(top(b"a"), (HOW, &b"whole"[..])))]),
    ];
    all.concat()
}

/// Questions that change names.
fn questions_of_names() -> Vec<u8> {
    let (first, second) = (Node(2), Node(3));
    let flags = raw::RenameFlags::default();
    let all = [
        asks("open_dir", &[wire(&top(b"d"))]),
        asks("make_dirs", &[wire(&(top(b"d/x/y/z"), 0o755u32))]),
        asks("rename", &[wire(&((first, &b"b"[..]), (second, &b"c"[..]))), wire(&flags)]),
        asks("link", &[wire(&((second, &b"c"[..]), top(b"d/l")))]),
        asks("symlink", &[wire(&(top(b"d/t"), &b"l"[..]))]),
        asks("read_link", &[wire(&top(b"d/s"))]),
        asks("make_node", &[wire(&(top(b"d/p"), (0o010_644u32, 0u32)))]),
        asks("remove_tree", &[wire(&top(b"d/x"))]),
        asks("remove_dir", &[wire(&top(b"d"))]),
        asks("make_subvolume", &[wire(&&b"sub"[..])]),
        asks("delete_subvolume", &[wire(&&b"sub"[..])]),
    ];
    all.concat()
}

fn listing() -> Vec<u8> {
    wire(&raw::Listing {
        cookies: raw::Cookies::ALL,
        want: raw::Fields::ALL,
        filter: raw::Filter::new().name(b"*b*").size(1..),
    })
}

/// Changes of one batch, and what attributes are set to.
fn changes_of_batch() -> ([Vec<u8>; 2], raw::SetAttr) {
    let set = raw::SetAttr { mode: Some(0o600), by_handle: true, ..raw::SetAttr::default() };
    let make = raw::BatchOp::File { path: b"d/n", mode: 0o644, contents: b"new", replace: false };
    ([wire(&make), wire(&raw::BatchOp::SetAttr { path: b"d/n", set })], set)
}

/// Questions about inodes.
fn questions_of_inodes() -> Vec<u8> {
    let (changes, set) = changes_of_batch();
    let user = (&b"user.x"[..], &b"value"[..]);
    let flags = raw::XattrFlags::default();
    let all = [
        asks("find", &[wire(&(top(b"d/s"), true))]),
        asks("access", &[wire(&(top(b"a"), 4u32))]),
        asks("set_attr", &[wire(&(top(b"a"), (true, set)))]),
        asks("set_xattr", &[wire(&(top(b"a"), true)), wire(&(user, flags))]),
        asks("xattrs", &[wire(&(top(b"a"), true))]),
        asks("list", &[wire(&top(b"d")), listing()]),
        asks(
            "stat_many",
            &[
                wire(&((Node::TOP, raw::Fields::ALL), raw::Freshness::Force)),
                wire(&(&b"a"[..], &b"none"[..])),
            ],
        ),
        asks("batch", &[wire(&Node::TOP), changes.concat()]),
        asks("inodes", &[wire(&(0u64, 10u32))]),
        asks("totals", &[wire(&Node::TOP)]),
        asks("mark", &[wire(&Node::TOP)]),
        asks("quotas", &[]),
    ];
    all.concat()
}

/// Questions of each row, and values in messages.
fn session(put: &dyn Fn(&str, &str, &[u8]) -> Done) -> Done {
    for (name, questions) in [
        ("files", questions_of_files()),
        ("names", questions_of_names()),
        ("inodes", questions_of_inodes()),
    ] {
        for (whose, choices) in [("owner", 1), ("user", 0)] {
            put("session", &format!("{name}-{whose}"), &[&[choices], &questions[..]].concat())?;
        }
    }
    let (changes, set) = changes_of_batch();
    put("wire", "listing", &listing())?;
    put("wire", "make", &changes[0])?;
    put("wire", "change", &changes[1])?;
    put("wire", "set", &wire(&set))?;
    put("wire", "how", &wire(&HOW))?;
    put("wire", "error", &wire(&raw::Error::refused(raw::Code::Invalid, "why")))?;
    put("wire", "zeros", &[0; 200])
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
    let mut node = TreeNode::init(TreeNode::frame(), id, 0, Key::MIN);
    for n in 0..8 {
        node.insert(n, Key::new(n as u64, 0), &[7; 20]);
    }
    let encoded = |node: &mut TreeNode, how: Compression| {
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
    let header = ObjectHeader {
        kind: ObjectKind::Flush,
        volume: 7,
        epoch: 2,
        writer: 3,
        sequence: 4,
        count: 0,
        lease_ms: 5,
        length: 0,
    };
    let pieces = [
        Packed::Here(Addr(4096), 7, Codec::None, b"a piece"),
        Packed::Other(object::Piece::discarded(Addr(8192), 4096)),
    ];
    let (raw, pieces) = object::pack(header, &pieces);
    put("bucket_object", "two", &raw)?;
    let end = ObjectHeader { kind: ObjectKind::Close, ..header };
    put("bucket_object", "close", &object::pack(end, &[]).0)?;
    for (name, body) in manifests_of(&raw, &pieces[0]) {
        put("bucket_manifest", name, &body)?;
    }
    let [host, path, command] = ["host", "path", "command"].map(String::from);
    let claim = OwnerClaim { patience_ms: 2000, pid: 7, host, path, command, ..Default::default() };
    put("claim", "one", &claim.encode()[..200])?;
    let geometry = Geometry { segment_size: 1 << 22, segments: 64, inode_size: 512 };
    let (volume, stamp) = ([1; 16], [2; 16]);
    let mark = CopyMark { done: 7, volume, stamp, epoch: 9, geometry, sequence: 3 };
    put("copy_mark", "one", &mark.encode()[..80])?;
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
    let level = Level { dir: Ino(7), generation: 3, cookie: 0x100 };
    let bits = |operator, value| Clause {
        operator,
        source: Source::Executable,
        affected: 0o4700,
        value,
        mentioned: value,
    };
    let state = TreeChange {
        caller: [1000, 1001, 0o022],
        is_checked: false,
        groups: vec![100, 55],
        uid: Some(7),
        gid: None,
        acl: None,
        mode: Some(vec![bits(b'+', 0o666), bits(b'-', 0o111)]),
        atime: Some(NewTime::Now),
        mtime: None,
        levels: vec![level; 2],
    };
    put("tree_change", "state", &state.to_bytes())?;
    let edit = AclEdit { removes: false, tag: 2, perm: 5, id: 1000 };
    let acl =
        AclEdits { default: true, keeps_mask: true, edits: vec![edit; 2], ..AclEdits::default() };
    let lists = TreeChange { mode: None, acl: Some(acl), ..state };
    put("tree_change", "lists", &lists.to_bytes())?;
    let row = |project, state| quota::Row {
        project,
        state,
        dir: Ino(1234),
        generation: 3,
        inodes_max: Some(100),
        bytes_max: None,
        inodes: 20,
        bytes: 1 << 20,
    };
    let rows = vec![row(1, quota::State::Ready), row(7, quota::State::Begun)];
    let table = quota::Table { incarnation: 3, epoch: 40, rows };
    put("quota", "table", &table.to_bytes())?;
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

/// A token that no volume has made, as bytes and as text, and changes of a valid one.
fn token(put: &dyn Fn(&str, &str, &[u8]) -> Done) -> Done {
    let bytes: Vec<u8> = [1, 4].into_iter().chain(2..66).collect();
    put("token", "bytes", &bytes)?;
    put("token", "text", shoal::Token::from_bytes(&bytes)?.to_string().as_bytes())?;
    put("token", "no-change", &[0])?;
    let rights_and_expiry: Vec<u8> = (0..30).map(|at| if at == 1 { 2 } else { at / 22 }).collect();
    put("token", "changes", &rights_and_expiry)
}

/// Archives: a member of each kind, records of each key, a sparse file, and one in GNU's old format.
fn archive(put: &dyn Fn(&str, &str, &[u8]) -> Done) -> Done {
    use shoal_tar::{Extent, Kind, Member, Writer};
    let kinds = [
        ("file", Kind::File),
        ("hard-link", Kind::HardLink),
        ("symlink", Kind::Symlink),
        ("device", Kind::CharDevice),
        ("directory", Kind::Directory),
    ];
    for (name, kind) in kinds {
        let mut member = Member::new(name.into(), kind);
        member.size = if kind == Kind::File { 700 } else { 0 };
        member.link = b"target".to_vec();
        let mut writer = Writer::new(Vec::new());
        writer.member(&member)?;
        put("archive", name, &writer.finish()?[..2048])?;
    }
    let mut member = Member::new([b'n'; 300].to_vec(), Kind::File);
    (member.mtime, member.uid, member.size) = ((-3, 7), u32::MAX, 3000);
    member.user = vec![b'u'; 40];
    member.xattrs = vec![(b"user.a=b".to_vec(), b"value".to_vec())];
    member.acl = Some(b"user::rwx\n".to_vec());
    let mut writer = Writer::new(Vec::new());
    writer.member(&member)?;
    put("archive", "records", &writer.finish()?[..5120])?;
    member.sparse = Some(vec![Extent { offset: 9, len: 90 }, Extent { offset: 999, len: 2 }]);
    let mut writer = Writer::new(Vec::new());
    writer.member(&member)?;
    put("archive", "sparse", &writer.finish()?[..4096])?;
    // A long name of GNU tar, and a sparse file with a block more of its map.
    let block = |kind: u8, size: &[u8], more: &[(usize, &[u8])]| {
        let mut header = [0; 512];
        header[124..124 + size.len()].copy_from_slice(size);
        header[156] = kind;
        header[148..156].fill(b' ');
        for (at, bytes) in more {
            header[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        header
    };
    let mut old = block(b'L', b"5", &[]).to_vec();
    old.extend([&b"name\0"[..], &[0; 507]].concat());
    let map: &[(usize, &[u8])] =
        &[(386, b"1"), (398, b"1"), (410, b"3"), (422, b"1"), (482, b"1"), (483, b"20")];
    old.extend(block(b'S', b"2", map));
    old.extend([0; 1024 + 1024]);
    put("archive", "old", &old)
}

/// A mark of some volume as bytes and as text, the stored window of removed names, and changes of a
/// valid mark: of its LSN, its epoch and its subvolume.
fn changes(put: &dyn Fn(&str, &str, &[u8]) -> Done) -> Done {
    let volume = shoal::Volume::options().size(64 << 20).in_memory()?;
    let mark = shoal::Mark::now(&volume.root(shoal::Credentials::root()))?;
    put("changes", "bytes", &mark.to_bytes())?;
    put("changes", "text", mark.to_string().as_bytes())?;
    put("changes", "header", &shoal_txn::RemovedHeader::new(true, 3).to_bytes())?;
    let name = [&[7; 8][..], &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0], &[9; 12], &[1, 3], b"abc"];
    put("changes", "names", &name.concat().repeat(2))?;
    for (what, at) in [("subvolume", 11), ("series", 17), ("lsn", 21), ("epoch", 29)] {
        put("changes", what, &(0..=at).map(|n| u8::from(n == at)).collect::<Vec<u8>>())?;
    }
    put("changes", "no-change", &[0])
}

/// Calls by the ioctl, and answers.
fn control(put: &dyn Fn(&str, &str, &[u8]) -> Done) -> Done {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let carry = {
        let asked = asked.clone();
        move |page: &mut [u8; PAGE]| {
            *asked.lock().unwrap_or_else(PoisonError::into_inner) = page[..64].to_vec();
            Err(Code::Invalid.into())
        }
    };
    let (calls, who) = (Remote(ByPage(carry)), Caller::root());
    let page = || asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let _ = calls.links(&who, Node::TOP, None, 7);
    put("control", "links", &page())?;
    let _ = calls.remove_tree(&who, Node::TOP, b"name", TreeCheck::Tree);
    put("control", "remove-tree", &page())?;
    let _ = calls.metrics(&who, 3);
    put("control", "metrics", &page())?;
    let _ = calls.scrub(&who, 1, ScrubAt::default(), 9);
    put("control", "scrub", &page())?;
    let answer = |bytes: Vec<u8>| -> Result<Vec<u8>, Box<dyn Error>> {
        let mut room = vec![0; 400];
        let len = put_answer(&mut room, Ok(bytes))?;
        room.truncate(len);
        Ok(room)
    };
    let orphan = |ino, path: &[u8]| OrphanInfo {
        ino: Ino(ino),
        size: 4096,
        bytes: 300,
        path: Some(path.to_vec()),
        ..OrphanInfo::default()
    };
    let orphans = vec![orphan(5, b"/a/path"), orphan(6, b""), orphan(9, b"/another/path")];
    put("control", "orphans", &answer(wire(&orphans))?)?;
    let request = TracedRequest { op: 1, names: b"name\0".to_vec(), ..TracedRequest::default() };
    let requests = vec![TracedRequest { facts: vec![1; 9], ..request.clone() }, request];
    put("control", "trace", &answer(wire(&Trace { requests, ..Trace::default() }))?)
}

/// Manifests of the first piece of an object: complete, and as changes.
fn manifests_of(object: &[u8], piece: &object::Piece) -> [(&'static str, Vec<u8>); 2] {
    let header = ManifestHeader {
        kind: ManifestKind::Complete,
        volume: 7,
        epoch: 1,
        writer: 3,
        sequence: 2,
        base: 1,
        log_next: 5,
        capacity: 1 << 20,
        objects: 0,
        extents: 0,
        closed: 0,
        body: 0,
        written: 0,
        decoded: 0,
        body_sum: 0,
    };
    let object::Piece { addr, len, stored, offset, codec, checksum, .. } = *piece;
    let (skip, decoded, object_index) = (0, len, 0);
    let extent = manifest::Extent {
        addr,
        len,
        skip,
        decoded,
        stored,
        object: object_index,
        offset,
        codec,
        checksum,
    };
    let objects = vec![ObjectEntry::of(Name::Log(4), object.len() as u32)];
    let cleared = manifest::Extent::cleared(addr, len);
    let gone = ObjectEntry::of(Name::Log(3), 0);
    let changes = Body::Changes(
        [vec![gone], objects.clone()].concat(),
        vec![cleared, manifest::Extent { object: 1, ..extent }],
    );
    [
        ("one", manifest::encode(header, &Body::Complete(objects, vec![extent]))),
        ("changes", manifest::encode(header, &changes)),
    ]
}
