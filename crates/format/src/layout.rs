//! The layout of every structure in one place: field after field, each offset the sum of the
//! lengths before it. The sizes are proved here against what the other modules encode; the tables
//! of `docs/on-disk-format.md` are printed from here.

use crate::{
    Ptr, attr, batch, checkpoint, claim, dirent, extent, inode, intent, node, orphan, root,
    superblock, usage,
};

/// A field: its name, its bytes (0: they vary, and it is the last), what it is.
pub type Field = (&'static str, usize, &'static str);

/// A structure on disk.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Name, a word.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub doc: &'static str,
    /// Bytes; 0: they vary.
    pub size: usize,
    /// Fields in order.
    pub fields: &'static [Field],
}

impl Table {
    /// Offset, length, name and meaning of each field.
    pub fn placed(&self) -> impl Iterator<Item = (usize, usize, &'static str, &'static str)> {
        let mut offset = 0;
        self.fields.iter().map(move |(name, len, what)| {
            let at = offset;
            offset += len;
            (at, *len, *name, *what)
        })
    }
}

const fn total(fields: &[Field]) -> usize {
    let (mut sum, mut i) = (0, 0);
    while i < fields.len() {
        sum += fields[i].1;
        i += 1;
    }
    sum
}

macro_rules! tables {
    ($($id:ident $name:literal $size:expr, $fixed:expr, $doc:literal {
        $($f:literal $len:literal $what:literal;)*
    })*) => {
        $(
            const $id: &[Field] = &[$(($f, $len, $what),)*];
            const _: () = assert!(total($id) == $fixed, concat!("layout of ", $name));
        )*
        /// Every structure.
        pub const TABLES: &[Table] =
            &[$(Table { name: $name, doc: $doc, size: $size, fields: $id },)*];
    };
}

tables! {
    SUPERBLOCK "superblock" superblock::SIZE, superblock::SIZE,
    "Two copies, at byte 0 and byte 65,536; the rest of each 4096-byte block is zero. A spare one, \
     for repair, is behind the record of each checkpoint, at the next multiple of 8." {
        "magic" 8 "`SHOALFS1`";
        "version" 4 "format version, 1";
        "state" 4 "bit 0: closed cleanly";
        "id" 16 "volume id (UUID); its first half is stamped everywhere and seeds name hashes";
        "segment_size" 8 "bytes of a segment";
        "segments" 4 "number of segments";
        "inode_size" 4 "bytes of an inode slot";
        "compat" 8 "compatible features";
        "ro_compat" 8 "read-only compatible features";
        "incompat" 8 "incompatible features";
        "sequence" 8 "raised by one at every write; its lowest bit chooses the copy";
        "incarnation" 4 "raised at every writable open";
        "reserved" 4 "zero";
        "checkpoint" 24 "pointer to the newest checkpoint";
        "created" 8 "seconds since 1970";
        "reserved" 128 "zero";
        "checksum" 8 "XXH3-64 of all before";
    }
    CLAIM "owner-claim" claim::SIZE, claim::HEADER,
    "The process that has the volume open for writing, at byte 524,288; host name, path and \
     command line follow the header, the last 8 bytes are the checksum. Zero when the volume is \
     closed." {
        "magic" 8 "`SHOALCLM`";
        "version" 4 "1";
        "patience" 4 "milliseconds for which it stands still at most while its owner is well";
        "volume" 16 "volume id";
        "owner" 16 "random number of this opening";
        "machine" 16 "machine id; zero: unknown";
        "boot" 16 "boot id; zero: unknown";
        "pid_namespace" 8 "inode of the process's pid namespace; 0: unknown";
        "process_start" 8 "clock ticks since boot; 0: unknown";
        "beat" 8 "raised at every renewal";
        "since" 8 "seconds since 1970 at the opening";
        "renewed" 8 "seconds since 1970 at the last renewal";
        "pid" 4 "process, as numbered in its pid namespace";
        "host_len" 2 "bytes of the host name";
        "path_len" 2 "bytes of the path by which it was opened";
        "command_len" 2 "bytes of the command line";
        "reserved" 14 "zero";
    }
    POINTER "pointer" Ptr::SIZE, Ptr::SIZE,
    "Points to any object, and proves what is found there." {
        "address" 8 "byte address, a multiple of 8";
        "length" 4 "bytes; 0: points to nothing";
        "reserved" 4 "zero";
        "checksum" 8 "XXH3-64 of the object";
    }
    CHECKPOINT "checkpoint" 0, checkpoint::FIXED,
    "The image of the volume at one LSN; then the pointers to the orphan lists, then those to the \
     pages of the root table, then those to objects of open intents. A second copy, for repair, \
     lies 4096 bytes behind the end of the spare superblock." {
        "magic" 4 "`SCP2`; `SCP1` of a volume without `paged-roots`";
        "floor" 4 "least generation of inodes made from now on";
        "volume" 8 "first half of the volume id";
        "epoch" 8 "number of the checkpoint";
        "lsn" 8 "replay starts here";
        "journal" 8 "address of the batch that starts there";
        "usage" 24 "pointer to the root of the segment usage table";
        "prealloc" 8 "bytes promised to preallocated extents";
        "orphan_lists" 4 "number of pointers to orphan lists; `SCP1`: to orphan blocks";
        "pages" 4 "number of pointers to root pages; `SCP1`: of roots, which follow";
    }
    USAGE_ROOT "usage-root" 0, usage::ROOT_FIXED,
    "Root of the segment usage table; the pointers to its index pages follow, one for each \
     262,144 segments. A null one: all of those are free." {
        "magic" 4 "`SUR1`";
        "segments" 4 "number of segments of the volume";
        "volume" 8 "first half of the volume id";
        "epoch" 8 "number of the checkpoint that names it";
        "indexes" 4 "number of pointers that follow";
        "reserved" 4 "zero";
        "positions" 40 "where each stream goes on, 8 bytes each: metadata, data 0 to 3; 0: it has \
                        no open segment";
        "totals" 80 "for each kind of segment their number (8) and their live bytes (8)";
    }
    USAGE_INDEX "usage-index" 0, usage::HEADER,
    "Index page of the segment usage table; the pointers to at most 256 pages follow. A null one: \
     all segments of the page are free." {
        "magic" 4 "`SUI1`";
        "count" 4 "number of pointers that follow";
        "volume" 8 "first half of the volume id";
        "epoch" 8 "number of the checkpoint that wrote it";
        "number" 4 "of the index page: its first page divided by 256";
        "reserved" 4 "zero";
    }
    USAGE_PAGE "usage-page" 0, usage::HEADER,
    "Page of the segment usage table; the entries of at most 1024 segments follow." {
        "magic" 4 "`SUP1`";
        "count" 4 "number of entries that follow";
        "volume" 8 "first half of the volume id";
        "epoch" 8 "number of the checkpoint that wrote it";
        "number" 4 "of the page: its first segment divided by 1024";
        "reserved" 4 "zero";
    }
    USAGE_ENTRY "usage-entry" usage::ENTRY, usage::ENTRY, "A segment in a page." {
        "live" 4 "bytes in it that something points to";
        "kind" 1 "0 free, 1 super, 2 journal, 3 metadata, 4 data";
        "sealed" 1 "1: no stream appends to it any more";
        "reserved" 2 "zero";
    }
    PAGE_POINTER "page-pointer" root::PagePtr::SIZE, root::PagePtr::SIZE,
    "Points to a page of the root table; null when none of its roots is in use." {
        "page" 24 "pointer to the page";
        "copy" 8 "address of a second copy, of the same length and checksum; 0: none";
    }
    ROOT_PAGE "root-page" 0, root::HEADER,
    "Header of a page of the root table, which answers for 64 numbers; the roots of which \
     there is something follow, ascending, and a checksum of all before, 8 bytes." {
        "magic" 4 "`SRP1`";
        "length" 4 "bytes, from the magic to the checksum";
        "volume" 8 "first half of the volume id";
        "epoch" 8 "number of the checkpoint that wrote it";
        "number" 2 "of the page: its first root divided by 64";
        "roots" 2 "roots that follow";
        "reserved" 4 "zero";
    }
    ROOT "root" 0, root::ROOT_FIXED,
    "A root in a page; its name, of that many bytes, lies before the first pointer." {
        "id" 2 "number of the root";
        "name_len" 1 "bytes of the name that follows";
        "state" 1 "0 live, 1 deleted, 2 vacant";
        "imap" 24 "root node";
        "dirents" 24 "root node";
        "attrs" 24 "root node";
        "extents" 24 "root node";
        "next_block" 8 "inode blocks from here on are unused";
        "inodes" 8 "inodes in use";
    }
    NODE "node" shoal_base::limits::NODE_SIZE, node::HEADER,
    "Header of a B+tree node; slots of 20 bytes follow, values fill it from the end." {
        "magic" 4 "`SND1`";
        "tree" 1 "0 imap, 1 dirents, 2 attrs, 3 extents";
        "level" 1 "0: leaf";
        "root" 2 "root it belongs to";
        "volume" 8 "first half of the volume id";
        "address" 8 "where it was written";
        "epoch" 8 "checkpoint that wrote it";
        "count" 2 "entries";
        "heap" 2 "offset of the lowest value";
        "garbage" 2 "bytes of removed values";
        "reserved" 2 "zero";
        "low" 16 "lowest key it may hold";
        "reserved" 8 "zero";
    }
    SLOT "slot" node::SLOT, node::SLOT, "An entry of a node." {
        "key" 16 "two numbers of 8 bytes";
        "offset" 2 "where the value is in the node";
        "length" 2 "bytes of the value";
    }
    BLOCK "inode-block" 0, inode::BLOCK_HEADER,
    "Header of an inode block; 32 lengths of 2 bytes and the trimmed inodes follow." {
        "magic" 4 "`SIB1`";
        "inode_size" 2 "of the volume";
        "root" 2 "root it belongs to";
        "volume" 8 "first half of the volume id";
        "number" 8 "first inode's index / 32";
        "address" 8 "where it was written";
        "epoch" 8 "checkpoint that wrote it";
        "reserved" 8 "zero";
    }
    CORE "inode" 0, inode::CORE,
    "Core of an inode; data fork and attribute fork follow. A slot that is free but was used \
     holds 4 bytes, its generation." {
        "mode" 4 "type and permissions";
        "nlink" 4 "links";
        "uid" 4 "owner";
        "gid" 4 "group";
        "generation" 4 "raised when the number is used again";
        "flags" 4 "bit 0: made without a name (`O_TMPFILE`), may be linked; 1: has an ACL; 2: \
                    has a default ACL; 3: has capabilities";
        "size" 8 "bytes; of a directory: entries";
        "bytes" 8 "bytes of its extents";
        "parent_or_rdev" 8 "parent of a directory, number of a device";
        "atime" 12 "seconds 8, nanoseconds 4";
        "mtime" 12 "the same";
        "ctime" 12 "the same";
        "btime" 12 "the same";
        "lsn" 8 "LSN before the last change";
        "data_form" 1 "0 empty, 1 inline, 2 extents, 3 in the tree";
        "attr_form" 1 "0 empty, 1 inline, 3 in the tree";
        "data_len" 2 "bytes of the data fork";
        "attr_len" 2 "bytes of the attribute fork";
        "reserved" 2 "zero";
    }
    DIRENT "dirent" 0, dirent::HEADER, "Value in the `dirents` tree; the name follows." {
        "child" 8 "inode";
        "type" 1 "as in `d_type`; bit 7: another name of the same hash follows";
    }
    ATTR "attribute" 0, attr::HEADER,
    "An attribute, in an inode's attribute fork or a value in the `attrs` tree; name and value \
     follow." {
        "namespace" 1 "1 user, 2 trusted, 3 security, 4 system, 5 parent; bit 7: value elsewhere";
        "name_len" 1 "bytes of the name";
        "value_len" 2 "bytes of the value, or of the pointer to it";
    }
    PARENT "parent-pointer" attr::PARENT_SIZE, attr::PARENT_SIZE,
    "Value of an attribute of namespace 5; its name is that of the directory's entry." {
        "directory" 8 "inode";
        "generation" 4 "of the directory";
    }
    REMOTE "value-pointer" attr::REMOTE_SIZE, attr::REMOTE_SIZE,
    "In the place of a value of more than 1024 bytes, which is a data object of its own." {
        "address" 8 "of the object's payload";
        "length" 4 "bytes of the value";
        "checksum" 8 "XXH3-64 of the value";
    }
    INTENT "intent" 0, intent::HEADER,
    "What is to be done to the attributes of an inode; what to remove and what to set follow." {
        "inode" 8 "whose attributes";
        "generation" 4 "of the inode";
        "remove_len" 2 "bytes of the attribute to remove; 0: none";
        "set_len" 2 "bytes of the attribute to set; 0: none";
    }
    INTENTS "open-intents" 0, 16,
    "Intents that are open at a checkpoint; each follows after its number (8) and length (4)." {
        "magic" 4 "`SIN1`";
        "count" 4 "number of intents";
        "volume" 8 "first half of the volume id";
    }
    EXTENT "extent" extent::VALUE_SIZE, extent::VALUE_SIZE,
    "Value in the `extents` tree; inline in an inode the file offset (8 bytes) goes before." {
        "len" 4 "bytes of the file";
        "skip" 4 "first byte used of the object";
        "address" 8 "of the object's payload; 0: preallocated";
        "object_len" 4 "bytes of the payload";
        "checksum" 8 "XXH3-64 of the payload";
    }
    DATA "data-object" 0, extent::HEADER, "Header of a data object; the payload follows." {
        "magic" 4 "`SDX1`";
        "len" 4 "bytes of payload that were written with it; the object may have grown since";
        "inode" 8 "file it was written for";
        "offset" 8 "file offset it was written for; bit 63: hash of the attribute it is of";
        "checksum" 8 "XXH3-64 of the 24 bytes before, xor the volume";
    }
    BATCH "batch" 0, batch::BatchHeader::SIZE,
    "Header of a journal batch; records follow, each after its length (4 bytes)." {
        "magic" 4 "`SJB1`";
        "kind" 4 "1 records, 2 link";
        "volume" 8 "first half of the volume id";
        "incarnation" 4 "of the mount that wrote it";
        "len" 4 "bytes of records";
        "lsn_start" 8 "LSN of the first record's first byte";
        "durable" 8 "LSN known durable when this was written";
        "next" 8 "address of the segment or batch after this one's segment";
        "reserved" 8 "zero";
        "checksum" 8 "of header and records";
    }
    ORPHANS "orphan-block" orphan::BLOCK_SIZE, orphan::HEADER,
    "Header of an orphan block; slots of 8 bytes (inode or 0) follow, the last 8 bytes are the \
     checksum." {
        "magic" 4 "`SOR1`";
        "shard" 4 "number of the block";
        "volume" 8 "first half of the volume id";
        "reserved" 8 "zero";
    }
    ORPHAN_LIST "orphan-list" 0, orphan::LIST_HEADER,
    "Pointers to at most 680 orphan blocks, which follow." {
        "magic" 4 "`SOL1`";
        "count" 4 "number of pointers";
        "volume" 8 "first half of the volume id";
    }
}

// A fork always fits the 16-bit lengths, and the largest inode its slot.
const _: () = assert!(shoal_base::limits::INODE_SIZE_MAX < u16::MAX as usize);
// Slots and header are what `node` computes with.
const _: () = assert!(shoal_base::limits::NODE_SIZE <= u16::MAX as usize + 1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Reader;
    use crate::checkpoint::Checkpoint;
    use crate::inode::{Core, Form, Stamp};
    use crate::root::PagePtr;
    use crate::superblock::Superblock;
    use crate::{Geometry, batch::*, extent::*};
    use shoal_base::{Addr, Ino, Lsn};

    fn ptr() -> Ptr {
        Ptr { addr: Addr(8 << 20), len: 77, checksum: 0x1122_3344_5566_7788 }
    }

    #[test]
    fn what_is_encoded_has_the_size_said_here_and_reads_back() {
        let geometry = Geometry { segment_size: 4 << 20, segments: 64, inode_size: 512 };
        let sb = Superblock {
            id: [7; 16],
            geometry,
            compat: 1,
            ro_compat: 2,
            incompat: 1,
            sequence: 9,
            incarnation: 3,
            clean: true,
            checkpoint: ptr(),
            created: -5,
        };
        let raw = sb.encode();
        assert_eq!(raw.len(), superblock::SIZE);
        assert_eq!(Superblock::decode(&raw, 0), Ok(Some(sb)));

        let cp = Checkpoint {
            volume: 1,
            epoch: 2,
            lsn: Lsn(3),
            journal: Addr(4),
            usage: ptr(),
            prealloc: 5,
            floor: 7,
            orphan_lists: vec![ptr(), ptr()],
            pages: vec![PagePtr { first: ptr(), second: Addr(9 << 20) }, PagePtr::NULL],
            intents: vec![],
            inline: None,
        };
        let raw = cp.encode();
        assert_eq!(raw.len(), cp.encoded_len());
        assert_eq!(Checkpoint::decode(&raw, Addr(0), 1), Ok(cp.clone()));
        let with = Checkpoint { intents: vec![ptr(); 2], ..cp };
        let longer = with.encode();
        assert_eq!((longer.len(), longer.len()), (with.encoded_len(), raw.len() + 2 * Ptr::SIZE));
        assert_eq!(Checkpoint::decode(&longer, Addr(0), 1), Ok(with));

        let stamp = Stamp { sec: -1, nsec: 5 };
        let core = Core {
            mode: 0o100_644,
            generation: 8,
            size: 1 << 40,
            atime: stamp,
            data_form: Form::Tree,
            attr_form: Form::Inline,
            ..Core::default()
        };
        let mut raw = Vec::new();
        core.encode(&mut raw);
        assert_eq!(raw.len(), inode::CORE);
        assert_eq!(Core::decode(&mut Reader::new(&raw)), Some(core));
    }

    #[test]
    fn extents_and_batches_read_back() {
        let extent = Extent { offset: 9, len: 70, skip: 7, ptr: ptr() };
        let mut raw = Vec::new();
        extent.encode_value(&mut raw);
        assert_eq!(raw.len(), VALUE_SIZE);
        assert_eq!(Extent::decode_value(9, &raw), Some(extent));
        let header = DataHeader { len: 5, ino: Ino(6), offset: 7 };
        assert_eq!(DataHeader::decode(&header.encode(42), 42), Some(header));
        assert_eq!(DataHeader::decode(&header.encode(42), 43), None);
        let batch = BatchHeader {
            kind: BatchKind::Records,
            volume: 1,
            incarnation: 2,
            len: 3,
            lsn_start: Lsn(4),
            durable: Lsn(5),
            next: Addr(6),
        };
        assert_eq!(BatchHeader::decode(&batch.encode(b"abc")), Some(batch));
    }

    #[test]
    fn a_bit_flip_in_a_superblock_is_found() {
        let geometry = Geometry { segment_size: 4 << 20, segments: 64, inode_size: 512 };
        let sb = Superblock {
            id: [7; 16],
            geometry,
            compat: 0,
            ro_compat: 0,
            incompat: 1,
            sequence: 9,
            incarnation: 3,
            clean: true,
            checkpoint: ptr(),
            created: 0,
        };
        let raw = sb.encode();
        for bit in 0..raw.len() * 8 {
            let mut bad = raw.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(Superblock::decode(&bad, 0), Ok(Some(_))), "bit {bit}");
        }
    }
}
