//! The two ends of a copy, as the copier uses them.
//!
//! A directory is a handle (an open descriptor, an inode number) and everything in it is reached
//! by handle and name, so the length of paths does not matter. The name `.` is the directory.

use shoal::raw::{Code, FileKind, Time};

use crate::acl::{ACCESS, DEFAULT};
use crate::failure::Reason;
use crate::location::{Split, split_last};

/// Result of one operation on one file.
pub(crate) type Outcome<T> = Result<T, Reason>;

/// Identity of a file: equal for two names of one file, different on different sides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Id {
    /// The filesystem.
    pub filesystem: u64,
    /// The inode in it.
    pub inode: u64,
}

/// Attributes that a copy keeps or needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    /// Type.
    pub kind: FileKind,
    /// Permission bits, with set-id and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub device: u32,
    /// Bytes.
    pub size: u64,
    /// There is space for every byte, so there is no hole to look for.
    pub dense: bool,
    /// Links.
    pub nlink: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Identity.
    pub id: Id,
}

/// An extended attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Attribute {
    /// Full name.
    pub name: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

/// Returns whether copies keep an attribute of this name. Local filesystems show others, which
/// mean something only there.
pub(crate) fn is_kept(name: &[u8]) -> bool {
    if name == SYNC_MARK {
        return false;
    }
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    spaces.iter().any(|space| name.starts_with(space)) || ACLS.contains(&name)
}

/// Attribute of a directory that `shoal sync` has made the same as another: until when.
pub(crate) const SYNC_MARK: &[u8] = b"user.shoal.sync";

/// Labels of the system, which are never removed: a new file gets its own.
const LABEL: &[u8] = b"security.selinux";

/// Access control lists, which a new file may have got from its directory.
pub(crate) const ACLS: [&[u8]; 2] = [ACCESS.as_bytes(), DEFAULT.as_bytes()];

/// Attributes that a copy keeps, set when its contents are complete.
pub(crate) struct Kept<'a> {
    /// Owner, mode and times.
    pub meta: &'a Meta,
    /// Extended attributes.
    pub attributes: &'a [Attribute],
    /// Attributes that are not among these are removed.
    pub exact: bool,
    /// Attributes that the target refused, and why.
    pub refused: Vec<(Vec<u8>, Reason)>,
}

impl Kept<'_> {
    /// Returns whether an attribute that was refused is missing from the copy: not those that only
    /// the superuser may set, and that rsync leaves out for others, nor the system's own labels.
    pub(crate) fn is_missed(name: &[u8]) -> bool {
        let is_superusers = name.starts_with(b"trusted.") || name.starts_with(b"security.");
        name != LABEL && (!is_superusers || rustix::process::geteuid().is_root())
    }

    /// Makes the attributes of something new what they shall be, with the target's ways to list,
    /// set and remove one. Comes behind a change of owner and before that of the mode: the one
    /// takes capabilities away, the other may take away the right to set anything.
    pub(crate) fn apply(
        &mut self,
        there: Vec<Vec<u8>>,
        set: &mut dyn FnMut(&Attribute) -> Outcome<()>,
        remove: &mut dyn FnMut(&[u8]) -> Outcome<()>,
    ) -> Outcome<()> {
        let attributes = self.attributes;
        let exact = self.exact;
        let too_many = |name: &&Vec<u8>| {
            let is_removed = exact && is_kept(name) && **name != LABEL;
            let is_removed = is_removed || ACLS.contains(&name.as_slice());
            is_removed && attributes.iter().all(|it| it.name != **name)
        };
        for name in there.iter().filter(too_many) {
            let removed = remove(name);
            self.note(name, removed)?;
        }
        for attribute in attributes {
            let done = set(attribute);
            self.note(&attribute.name, done)?;
        }
        Ok(())
    }

    fn note(&mut self, name: &[u8], outcome: Outcome<()>) -> Outcome<()> {
        match outcome {
            Err(reason) if reason.stops_everything() => Err(reason),
            Err(reason) => {
                self.refused.push((name.to_vec(), reason));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Source of attributes.
pub(crate) enum Holder<'a, F, D> {
    /// An open file.
    File(&'a F),
    /// An open directory.
    Dir(&'a D),
    /// A name in a directory, of a file that cannot be opened.
    Name(&'a D, &'a Node),
}

/// A file to be copied.
pub(crate) struct Node {
    /// Name in its directory.
    pub name: Vec<u8>,
    /// Attributes.
    pub meta: Meta,
    /// The name is a symlink that has been followed to this file.
    pub followed: bool,
}

/// An operand of the command: a directory handle and a name in it.
pub(crate) struct Operand<D> {
    /// The directory.
    pub dir: D,
    /// The name in it, `.` for the directory itself.
    pub name: Vec<u8>,
    /// The name that a copy gets; empty if the path has none (`/`, `.`, `..`).
    pub base: Vec<u8>,
}

/// One entry of a listing; attributes may have been unreadable.
pub(crate) struct Found {
    /// Name.
    pub name: Vec<u8>,
    /// Attributes.
    pub meta: Outcome<Meta>,
}

/// A file that is being written, and does not have its name yet.
pub(crate) struct Draft<F> {
    /// The file.
    pub file: F,
    /// Name that it has meanwhile; empty if it has none.
    pub temporary: Vec<u8>,
}

/// One end of a copy: a local filesystem by system calls, or a volume by the library.
pub(crate) trait Side {
    /// A directory.
    type Dir;
    /// A listing in progress.
    type List;
    /// An open file.
    type File;
    /// Source of a hard link to a file.
    type Link;

    /// Returns how messages name a path.
    fn label(&self, path: &[u8]) -> String;
    /// Opens a directory by path.
    fn directory(&self, path: &[u8]) -> Outcome<Self::Dir>;
    /// Returns attributes.
    fn stat(&self, dir: &Self::Dir, name: &[u8], follow: bool) -> Outcome<Meta>;
    /// Opens a directory.
    fn enter(&self, dir: &Self::Dir, name: &[u8], follow: bool) -> Outcome<Self::Dir>;
    /// Opens a directory whose attributes are known.
    fn enter_node(&self, dir: &Self::Dir, node: &Node) -> Outcome<Self::Dir> {
        self.enter(dir, &node.name, node.followed)
    }

    // To copy from.

    /// Starts a listing.
    fn list(&self, dir: &Self::Dir) -> Outcome<Self::List>;
    /// Returns the next entries, without `.` and `..`; none at the end.
    fn next(&self, dir: &Self::Dir, list: &mut Self::List) -> Outcome<Vec<Found>>;
    /// Returns the target of a symlink.
    fn readlink(&self, dir: &Self::Dir, node: &Node) -> Outcome<Vec<u8>>;
    /// Opens a file for reading.
    fn open(&self, dir: &Self::Dir, node: &Node) -> Outcome<Self::File>;
    /// Returns the extended attributes that copies keep; none where there are no such things.
    fn attributes(&self, of: Holder<'_, Self::File, Self::Dir>) -> Outcome<Vec<Attribute>>;
    /// Reads; 0 at the end.
    fn read(&self, file: &Self::File, offset: u64, buffer: &mut [u8]) -> Outcome<usize>;
    /// Reads small files among the entries of a directory, which are wanted soon; those that are
    /// left out, and those that cannot be read, are `None`.
    fn read_ahead(&self, _dir: &Self::Dir, entries: &[Found]) -> Vec<Option<Vec<u8>>> {
        entries.iter().map(|_| None).collect()
    }
    /// Returns start and end of the first data at or behind `offset`; `None` if only a hole
    /// follows.
    fn data_after(&self, file: &Self::File, offset: u64) -> Outcome<Option<(u64, u64)>>;

    // To copy to.

    /// Makes a directory and opens it; only its owner may enter until `finish_dir`.
    fn make_dir(&self, dir: &Self::Dir, name: &[u8]) -> Outcome<Self::Dir>;
    /// Makes a file; only its owner may read it until `finish_file`.
    fn create(&self, dir: &Self::Dir, name: &[u8]) -> Outcome<Self::File>;
    /// Opens an existing regular file and empties it.
    fn overwrite(&self, dir: &Self::Dir, name: &[u8], found: &Meta) -> Outcome<Self::File>;

    /// Returns whether a file is replaced by a whole new one instead of being overwritten: it is no
    /// symlink, and stays its owner's.
    fn replaces(&self, _dir: &Self::Dir, _name: &[u8], _found: &Meta) -> bool {
        false
    }
    /// Writes some of `data`; returns how many bytes.
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> Outcome<usize>;
    /// Sets the size, for a hole at the end.
    fn set_len(&self, file: &Self::File, len: u64) -> Outcome<()>;
    /// Gives a file what it is to keep.
    fn finish_file(&self, file: &Self::File, kept: &mut Kept<'_>) -> Outcome<()>;
    /// Gives a directory what it is to keep.
    fn finish_dir(&self, dir: &Self::Dir, kept: &mut Kept<'_>) -> Outcome<()>;
    /// Makes a symlink with what it is to keep.
    fn symlink(&self, dir: &Self::Dir, name: &[u8], to: &[u8], kept: &mut Kept<'_>) -> Outcome<()>;
    /// Makes a device file, pipe or socket with what it is to keep.
    fn special(&self, dir: &Self::Dir, name: &[u8], kept: &mut Kept<'_>) -> Outcome<()>;
    /// Remembers a file just made, for later links to it.
    fn remember(&self, dir: &Self::Dir, name: &[u8]) -> Outcome<(Self::Link, Id)>;
    /// Makes another name for a remembered file.
    fn link(&self, link: &Self::Link, dir: &Self::Dir, name: &[u8]) -> Outcome<()>;
    /// Removes anything but a directory.
    fn remove(&self, dir: &Self::Dir, name: &[u8]) -> Outcome<()>;
    /// Makes another name for a file; a symlink is not followed.
    fn link_name(&self, from: (&Self::Dir, &[u8]), to: &Self::Dir, name: &[u8]) -> Outcome<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Self::Dir, name: &[u8]) -> Outcome<()>;
    /// Makes a file that gets its name by `publish`, when it is whole.
    fn draft(&self, dir: &Self::Dir, name: &[u8]) -> Outcome<Draft<Self::File>>;
    /// Gives a file its name, in place of what has it (`replaces`), which must not be a directory.
    fn publish(
        &self,
        draft: &Draft<Self::File>,
        dir: &Self::Dir,
        name: &[u8],
        replaces: bool,
    ) -> Outcome<()>;
    /// Ends with a draft; one that was not published is removed.
    fn close(&self, draft: Draft<Self::File>, dir: &Self::Dir, is_published: bool);
    /// Returns the mark of a directory, [`SYNC_MARK`].
    fn sync_mark(&self, dir: &Self::Dir) -> Outcome<Option<Vec<u8>>>;
    /// Sets the mark of a directory, when everything before is on the disk, or removes it.
    fn set_sync_mark(&self, dir: &Self::Dir, mark: Option<&[u8]>) -> Outcome<()>;
    /// Returns whether a directory is `id` or lies below it.
    fn is_inside(&self, dir: &Self::Dir, id: Id) -> Outcome<bool>;

    // By means of these.

    /// Finds an operand to copy. A path that ends with a slash must be a directory.
    fn operand(&self, path: &[u8]) -> Outcome<Operand<Self::Dir>> {
        let Split { name, slash, .. } = split_last(path);
        if slash && !is_dots(name) {
            let dir = self.directory(path)?;
            return Ok(Operand { dir, name: b".".to_vec(), base: name.to_vec() });
        }
        self.place(path)
    }

    /// Finds the place of an operand; it need not exist, but the directory above it must.
    fn place(&self, path: &[u8]) -> Outcome<Operand<Self::Dir>> {
        let Split { parent, name, .. } = split_last(path);
        if is_dots(name) {
            let dir = self.directory(path)?;
            return Ok(Operand { dir, name: b".".to_vec(), base: Vec::new() });
        }
        let dir = self.directory(parent)?;
        Ok(Operand { dir, name: name.to_vec(), base: name.to_vec() })
    }

    /// Returns attributes; `None` if there is no such file.
    fn find(&self, dir: &Self::Dir, name: &[u8], follow: bool) -> Outcome<Option<Meta>> {
        match self.stat(dir, name, follow) {
            Ok(meta) => Ok(Some(meta)),
            Err(reason) if reason.is(Code::NotFound) => Ok(None),
            Err(reason) => Err(reason),
        }
    }

    /// Writes all of `data`.
    fn write_all(&self, file: &Self::File, offset: u64, data: &[u8]) -> Outcome<()> {
        let mut done = 0;
        while done < data.len() {
            match self.write(file, offset + done as u64, &data[done..])? {
                0 => return Err(Reason::Text("nothing more can be written".into())),
                written => done += written,
            }
        }
        Ok(())
    }
}

/// Returns whether a name is none of its own: `.`, `..`, or that of the top.
pub(crate) fn is_dots(name: &[u8]) -> bool {
    name.is_empty() || name == b"." || name == b".."
}

/// Returns the mode that a copy by this user gets. A file that changes hands must not run as its
/// new owner.
pub(crate) fn mode_kept(uid: u32, gid: u32, meta: &Meta) -> u32 {
    let same_owner = uid == 0 || (uid == meta.uid && gid == meta.gid);
    if same_owner { meta.mode } else { meta.mode & 0o1777 }
}
