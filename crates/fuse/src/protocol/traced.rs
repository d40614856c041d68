//! Requests in a trace: what each asked for and what came of it (untrusted bytes,
//! for the client).

use super::flags::{IOCTL_CALL, SETATTR_ATIME, SETATTR_GID, SETATTR_MTIME, SETATTR_UID};
use super::wire::*;
use super::{Errno, Opcode, Reply, Request};
use zerocopy::FromBytes;

/// Words of a request in an entry.
pub const WORDS: usize = 9;
/// Most bytes of the names of a request: two names, or a name and the target of a symlink.
pub const NAMES_MAX: usize = 8192;

/// Numbers of a request. A number that an operation has no use for is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Errno; 0: none. A name that is not there is `ENOENT`, also where the kernel may keep that.
    pub errno: i32,
    /// Thread of the caller.
    pub pid: u32,
    /// User of the caller.
    pub uid: u32,
    /// Inode: for an operation on a name, its directory.
    pub node: u64,
    /// Another inode: the one found or made, linked, or copied to; or the new directory.
    pub other: u64,
    /// Offset in bytes; of an opening of a directory's list, the place in it.
    pub offset: u64,
    /// Bytes asked for or given; of a name that was found, the size of the file.
    pub size: u64,
    /// Flags as the system call has them; of a change of attributes, which ones.
    pub flags: u32,
    /// Mode: asked for, or of what was found.
    pub mode: u32,
    /// Access and modification time in nanoseconds since 1970 to be set; of a change of the owner,
    /// user and group to be set; of a copy, the second offset; of a read, the bytes returned.
    pub values: [i64; 2],
}

impl Facts {
    /// Returns what a request asks for; `None` for one that no program makes: an internal one of
    /// the kernel, or a question about the mount.
    pub fn of(op: Opcode, request: &Request<'_>) -> Option<Facts> {
        let header = &request.header;
        let (pid, uid, node) = (header.pid, header.uid, request.node().0);
        let base = Facts { pid, uid, node, ..Facts::default() };
        asked(op, request, base).unwrap_or(Some(base))
    }

    /// Adds what came of it. `node` returns the inode of a node id.
    pub fn answered(&mut self, op: Opcode, reply: &Reply, body: &[u8], node: impl Fn(u64) -> u64) {
        use Opcode::{Create, Link, Lookup, Mkdir, Mknod, Rename, Rename2, Symlink, Tmpfile};
        if matches!(op, Link | Rename | Rename2) {
            self.other = node(self.other);
        }
        self.errno = if let Reply::Error(errno) = reply { errno.0 } else { 0 };
        if let (Opcode::Read, Reply::Body(len)) = (op, reply) {
            self.values[0] = *len as i64;
        }
        if self.errno != 0 || !matches!(op, Lookup | Create | Mknod | Mkdir | Symlink | Tmpfile) {
            return;
        }
        let Ok((entry, _)) = EntryOut::read_from_prefix(body) else { return };
        match entry.nodeid {
            0 => self.errno = Errno::ENOENT.0,
            id => self.other = node(id),
        }
        if op == Lookup {
            (self.mode, self.size) = (entry.attr.mode, entry.attr.size);
        }
    }

    /// Returns it as words.
    pub fn words(&self) -> [u64; WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [
            u64::from(self.errno.cast_unsigned()),
            pair(self.pid, self.uid),
            self.node,
            self.other,
            self.offset,
            self.size,
            pair(self.flags, self.mode),
            self.values[0].cast_unsigned(),
            self.values[1].cast_unsigned(),
        ]
    }

    /// Returns it from words; those that are missing are 0.
    pub fn from_words(mut words: impl Iterator<Item = u64>) -> Facts {
        let mut next = || words.next().unwrap_or(0);
        let errno = (next() as u32).cast_signed();
        let caller = next();
        let (node, other, offset, size) = (next(), next(), next(), next());
        let bits = next();
        Facts {
            errno,
            pid: caller as u32,
            uid: (caller >> 32) as u32,
            node,
            other,
            offset,
            size,
            flags: bits as u32,
            mode: (bits >> 32) as u32,
            values: [next().cast_signed(), next().cast_signed()],
        }
    }
}

/// Adds an operation's own structure.
fn asked(op: Opcode, request: &Request<'_>, base: Facts) -> Result<Option<Facts>, Errno> {
    use Opcode::*;
    Ok(Some(match op {
        Forget | BatchForget | Interrupt | NotifyReply | Init | Destroy => return Ok(None),
        Ioctl => {
            let arg: IoctlIn = request.arg()?;
            match arg.cmd {
                IOCTL_CALL => return Ok(None),
                cmd => Facts { flags: cmd, ..base },
            }
        }
        Read | Write | Readdir | Readdirplus => {
            let arg: ReadIn = request.arg()?;
            Facts { offset: arg.offset, size: arg.size.into(), flags: arg.flags, ..base }
        }
        Create | Tmpfile => {
            let arg: CreateIn = request.arg()?;
            Facts { flags: arg.flags, mode: arg.mode, ..base }
        }
        Mknod => {
            let arg: MknodIn = request.arg()?;
            Facts { mode: arg.mode, size: arg.rdev.into(), ..base }
        }
        Mkdir => Facts { mode: request.arg::<MkdirIn>()?.mode, ..base },
        Open | Opendir => Facts { flags: request.arg::<OpenIn>()?.flags, ..base },
        Link => Facts { other: request.arg::<LinkIn>()?.oldnodeid, ..base },
        Rename => Facts { other: request.arg::<RenameIn>()?.newdir, ..base },
        Rename2 => {
            let arg: Rename2In = request.arg()?;
            Facts { other: arg.newdir, flags: arg.flags, ..base }
        }
        Setattr => set_attributes(&request.arg()?, base),
        Fsync | Fsyncdir => Facts { flags: request.arg::<FsyncIn>()?.fsync_flags, ..base },
        Setxattr => {
            let arg: SetxattrIn = request.arg()?;
            Facts { size: arg.size.into(), flags: arg.flags, ..base }
        }
        Getxattr | Listxattr => Facts { size: request.arg::<GetxattrIn>()?.size.into(), ..base },
        Access => Facts { flags: request.arg::<AccessIn>()?.mask, ..base },
        Fallocate => {
            let arg: FallocateIn = request.arg()?;
            Facts { offset: arg.offset, size: arg.length, flags: arg.mode, ..base }
        }
        Lseek => {
            let arg: LseekIn = request.arg()?;
            Facts { offset: arg.offset, flags: arg.whence, ..base }
        }
        CopyFileRange | CopyFileRange64 => {
            let arg: CopyRangeIn = request.arg()?;
            let values = [arg.off_out.cast_signed(), 0];
            Facts { other: arg.nodeid_out, offset: arg.off_in, size: arg.len, values, ..base }
        }
        _ => base,
    }))
}

fn set_attributes(arg: &SetattrIn, base: Facts) -> Facts {
    let time = |sec: u64, nsec: u32| {
        sec.cast_signed().saturating_mul(1_000_000_000).saturating_add(nsec.into())
    };
    let values = match arg.valid {
        bits if bits & (SETATTR_UID | SETATTR_GID) != 0 => [arg.uid.into(), arg.gid.into()],
        bits if bits & (SETATTR_ATIME | SETATTR_MTIME) != 0 => {
            [time(arg.atime, arg.atimensec), time(arg.mtime, arg.mtimensec)]
        }
        _ => [0, 0],
    };
    Facts { flags: arg.valid, size: arg.size, mode: arg.mode, values, ..base }
}

/// Returns the names in the payload of a request, each with its NUL: of attributes and files, and
/// the target of a symlink. Empty if they are not whole.
pub fn names(op: Opcode, payload: &[u8]) -> &[u8] {
    use Opcode::*;
    let count = match op {
        Lookup | Create | Mknod | Mkdir | Link | Unlink | Rmdir => 1,
        Setxattr | Getxattr | Removexattr => 1,
        Rename | Rename2 | Symlink => 2,
        _ => return &[],
    };
    let payload = &payload[..payload.len().min(NAMES_MAX)];
    let ends = payload.iter().enumerate().filter(|(_, byte)| **byte == 0);
    ends.map(|(at, _)| &payload[..=at]).nth(count - 1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_skip::property;
    use zerocopy::IntoBytes;

    fn request<'a>(op: Opcode, arg: &'a [u8], body: &'a mut [u8]) -> Request<'a> {
        let header =
            InHeader { opcode: op as u32, nodeid: 7, uid: 5, pid: 9, ..InHeader::default() };
        let filled = body.len();
        Request::from_parts(header, arg, body, filled).unwrap()
    }

    #[test]
    fn a_lookup_tells_what_it_has_found() {
        let mut body = *b"name\0";
        let mut facts = Facts::of(Opcode::Lookup, &request(Opcode::Lookup, &[], &mut body));
        let facts = facts.as_mut().unwrap();
        assert_eq!((facts.node, facts.uid, facts.pid), (7, 5, 9));
        let mut entry = EntryOut { nodeid: 1, ..EntryOut::default() };
        (entry.attr.mode, entry.attr.size) = (0o100_644, 77);
        let reply = Reply::Body(size_of::<EntryOut>());
        facts.answered(Opcode::Lookup, &reply, entry.as_bytes(), |id| id + 100);
        let found = (facts.errno, facts.other, facts.mode, facts.size);
        assert_eq!(found, (0, 101, 0o100_644, 77));
        entry.nodeid = 0;
        facts.answered(Opcode::Lookup, &reply, entry.as_bytes(), |id| id);
        assert_eq!(facts.errno, Errno::ENOENT.0, "a negative entry");
        facts.answered(Opcode::Lookup, &Reply::Error(Errno::EIO), &[], |id| id);
        assert_eq!(facts.errno, Errno::EIO.0);
    }

    #[test]
    fn what_no_program_asks_is_not_told() {
        let arg = IoctlIn { cmd: IOCTL_CALL, ..IoctlIn::default() };
        let asked = Facts::of(Opcode::Ioctl, &request(Opcode::Ioctl, arg.as_bytes(), &mut []));
        assert_eq!(asked, None);
        let asked = Facts::of(Opcode::Forget, &request(Opcode::Forget, &[0; 8], &mut []));
        assert_eq!(asked, None);
    }

    #[test]
    fn names_are_whole() {
        assert_eq!(names(Opcode::Rename, b"a\0bc\0rest"), b"a\0bc\0");
        assert_eq!(names(Opcode::Setxattr, b"user.x\0value\0"), b"user.x\0");
        assert_eq!(names(Opcode::Rename, b"a\0bc"), b"");
        assert_eq!(names(Opcode::Write, b"data\0"), b"");
        let long = [vec![b'x'; NAMES_MAX], vec![0]].concat();
        assert_eq!(names(Opcode::Lookup, &long), b"");
    }

    #[test]
    fn a_change_of_owner_and_of_times() {
        let arg = SetattrIn { valid: SETATTR_UID, uid: 3, gid: 4, ..SetattrIn::default() };
        let asked = |arg: &SetattrIn| {
            Facts::of(Opcode::Setattr, &request(Opcode::Setattr, arg.as_bytes(), &mut [])).unwrap()
        };
        assert_eq!(asked(&arg).values, [3, 4]);
        let (valid, mtime, mtimensec) = (SETATTR_MTIME, 2, 5);
        let arg = SetattrIn { valid, mtime, mtimensec, ..SetattrIn::default() };
        assert_eq!(asked(&arg).values, [0, 2_000_000_005]);
    }

    proptest! {
        #![proptest_config(property(256))]

        /// Any request, whole or cut off, has facts that read back from their words.
        #[test]
        fn facts_read_back(
            op in prop::sample::select(Opcode::ALL),
            arg in proptest::collection::vec(any::<u8>(), 0..100),
            mut body in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let request = request(op, &arg, &mut body);
            if let Some(mut facts) = Facts::of(op, &request) {
                prop_assert!(names(op, request.payload()).len() <= NAMES_MAX);
                facts.answered(op, &Reply::Body(arg.len()), &arg, |id| id);
                prop_assert_eq!(Facts::from_words(facts.words().into_iter()), facts);
            }
        }
    }
}
