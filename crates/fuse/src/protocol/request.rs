//! Parsing of requests. The bytes come from the kernel, but nothing here relies on that: a short or
//! malformed request gives an errno, never a panic.
//!
//! A request is independent of its transport: header, the operation's own structure, and a body
//! that first holds the rest of the request (names, data) and then receives the reply. One buffer
//! serves both, because a ring offers one; handlers take what they need from the body before they
//! write to it.

use super::flags::{BY_LOCK_OWNER, IOCTL_CALL, IOCTL_SYNC};
use super::wire::{ExtHeader, GetxattrIn, InHeader, IoctlIn, ReadIn};
use super::{Errno, Opcode};
use shoal::raw::{Code, Ino};
use std::ffi::CStr;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Bit of the node ids of files that are in no volume: opened by tokens, or documents. Inode
/// numbers use bits 0 to 61.
pub const VIRTUAL: u64 = 1 << 63;

/// Longest name that Shoal stores, in bytes.
const NAME_MAX: usize = 255;
/// Largest reply whose size the request does not give: a symlink's target. Structures are smaller.
const REPLY_MAX: usize = 4096;
/// Kind of the extension that carries groups.
const EXT_GROUPS: u32 = 32;
/// Unit of `InHeader::total_extlen`, in bytes.
const EXT_UNIT: usize = 8;

/// One request.
#[derive(Debug)]
pub struct Request<'a> {
    /// Its header.
    pub header: InHeader,
    /// The inode of the request.
    node: Ino,
    /// Its code; `None`: an unknown one.
    pub opcode: Option<Opcode>,
    /// The operation's own structure.
    op: &'a [u8],
    /// The rest of the request; then the reply.
    body: &'a mut [u8],
    /// Bytes of the body that belong to the request, extensions not counted.
    payload_len: usize,
    /// Bytes of the body that belong to the request.
    filled: usize,
    /// Others serve meanwhile.
    may_wait: bool,
}

impl<'a> Request<'a> {
    /// Builds a request from the parts that a ring delivers. `filled` bytes of `body` belong to it.
    #[inline]
    pub fn from_parts(
        header: InHeader,
        op: &'a [u8],
        body: &'a mut [u8],
        filled: usize,
    ) -> Result<Request<'a>, Errno> {
        let opcode = Opcode::from_number(header.opcode);
        let ext = usize::from(header.total_extlen) * EXT_UNIT;
        if filled > body.len() || ext > filled {
            return Err(Errno::EIO);
        }
        let node = Ino(header.nodeid);
        let payload_len = filled - ext;
        Ok(Request { header, node, opcode, op, body, payload_len, filled, may_wait: false })
    }

    /// Splits one contiguous buffer whose first `filled` bytes were read from the device. Also
    /// returns where in `buffer` the body starts; there are at least 40 bytes before it, so a
    /// reply's header can be put right in front of the reply.
    #[inline]
    pub fn split(buffer: &'a mut [u8], filled: usize) -> Result<(Request<'a>, usize), Errno> {
        let request = buffer.get(..filled).ok_or(Errno::EIO)?;
        let (header, _) = InHeader::read_from_prefix(request).map_err(|_| Errno::EIO)?;
        let op_size = Opcode::from_number(header.opcode).map_or(0, Opcode::header_size);
        let start = size_of::<InHeader>() + op_size;
        if filled < start || header.len as usize != filled {
            return Err(Errno::EIO);
        }
        let (head, body) = buffer.split_at_mut(start);
        let op = &head[size_of::<InHeader>()..];
        Request::from_parts(header, op, body, filled - start).map(|request| (request, start))
    }

    /// Returns whether the handler may wait for the device or work for long. A transport with few
    /// threads must serve others meanwhile: many callers in `fsync` share one commit only if all
    /// their requests are taken.
    #[inline]
    pub fn may_block(&self) -> bool {
        match self.opcode {
            // As with a direct write: the inode's own node has pages that must be dropped.
            Some(Opcode::Open | Opcode::Setattr | Opcode::Write | Opcode::Lseek)
                if self.header.nodeid & VIRTUAL != 0 =>
            {
                true
            }
            // No others: every `isatty` is an ioctl.
            Some(Opcode::Ioctl) => matches!(self.ioctl(), Some(IOCTL_SYNC | IOCTL_CALL)),
            // May have to wait until the kernel has dropped pages (`pages.rs`).
            Some(Opcode::Write) => {
                self.arg::<ReadIn>().is_ok_and(|arg| arg.bits & BY_LOCK_OWNER != 0)
            }
            Some(op) => op.may_block(),
            None => false,
        }
    }

    /// Lets the handler wait for other requests: others serve meanwhile.
    pub fn let_wait(&mut self) {
        self.may_wait = true;
    }

    /// Returns whether the handler may wait until other requests have been answered.
    pub fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// Returns room for any reply to it, in bytes.
    pub fn reply_max(&self) -> usize {
        let asked = match self.opcode {
            Some(Opcode::Read | Opcode::Readdir | Opcode::Readdirplus) => {
                self.arg::<ReadIn>().map_or(0, |arg| arg.size)
            }
            Some(Opcode::Getxattr | Opcode::Listxattr) => {
                self.arg::<GetxattrIn>().map_or(0, |arg| arg.size)
            }
            Some(Opcode::Ioctl) => self.arg::<IoctlIn>().map_or(0, |arg| arg.out_size),
            _ => 0,
        };
        // All others are structures, or a path.
        (asked as usize).saturating_add(REPLY_MAX).min(self.body.len())
    }

    /// Returns whether the volume checks permission, whatever the mount options: the kernel checks
    /// that the ioctl's file is open, and nothing of a tree to be removed, rights to be shared, or
    /// quotas to be set.
    pub fn is_checked_by_volume(&self) -> bool {
        self.ioctl() == Some(IOCTL_CALL)
    }

    /// Returns the number of the ioctl, if the request is one.
    fn ioctl(&self) -> Option<u32> {
        match self.opcode {
            Some(Opcode::Ioctl) => self.arg::<IoctlIn>().ok().map(|arg| arg.cmd),
            _ => None,
        }
    }

    /// Returns the inode of the request.
    #[inline]
    pub fn node(&self) -> Ino {
        self.node
    }

    /// Sets the inode of the request, when its node id is not the inode's number.
    #[inline]
    pub fn set_node(&mut self, node: Ino) {
        self.node = node;
    }

    /// Returns the operation's own structure.
    #[inline]
    pub fn arg<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<T, Errno> {
        T::read_from_prefix(self.op).map(|(arg, _)| arg).map_err(|_| Errno::EIO)
    }

    /// Returns the names or data of the request.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.body[..self.payload_len]
    }

    /// Returns the room for the reply; writing to it overwrites the payload.
    #[inline]
    pub fn body(&mut self) -> &mut [u8] {
        self.body
    }

    /// Returns the only name, not empty and not too long.
    #[inline]
    pub fn name(&self) -> Result<&[u8], Errno> {
        take_name(self.payload()).map(|(name, _)| name)
    }

    /// Returns the two names of a rename.
    #[inline]
    pub fn names(&self) -> Result<(&[u8], &[u8]), Errno> {
        let (first, rest) = take_name(self.payload())?;
        let (second, _) = take_name(rest)?;
        Ok((first, second))
    }

    /// Returns the name of an extended attribute, with its namespace, and the value behind it.
    #[inline]
    pub fn xattr_name(&self) -> Result<(&[u8], &[u8]), Errno> {
        take_string(self.payload())
    }

    /// Returns name and target of a symlink. The target may be as long as a path.
    #[inline]
    pub fn name_and_target(&self) -> Result<(&[u8], &[u8]), Errno> {
        let (name, rest) = take_name(self.payload())?;
        let (target, _) = take_string(rest)?;
        Ok((name, target))
    }

    /// Returns the first group of a group extension: that of the parent directory, if the caller is
    /// in it by a supplementary group only.
    pub fn ext_group(&self) -> Option<u32> {
        let mut rest = self.body.get(self.payload_len..self.filled)?;
        loop {
            let (head, data) = ExtHeader::read_from_prefix(rest).ok()?;
            if head.kind == EXT_GROUPS {
                let (count, groups) = u32::read_from_prefix(data).ok()?;
                let (group, _) = u32::read_from_prefix(groups).ok()?;
                return (count > 0).then_some(group);
            }
            let size = (head.size as usize).max(size_of::<ExtHeader>());
            rest = rest.get(size.checked_next_multiple_of(EXT_UNIT)?..)?;
        }
    }
}

/// Splits off a string up to its NUL.
#[inline]
fn take_string(bytes: &[u8]) -> Result<(&[u8], &[u8]), Errno> {
    let string = CStr::from_bytes_until_nul(bytes).map_err(|_| Errno::EIO)?.to_bytes();
    Ok((string, &bytes[string.len() + 1..]))
}

/// Splits off the name of a directory entry. FUSE itself has no limit of 255 bytes.
#[inline]
fn take_name(bytes: &[u8]) -> Result<(&[u8], &[u8]), Errno> {
    let (name, rest) = take_string(bytes)?;
    if name.is_empty() {
        return Err(Code::Invalid.into());
    }
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    Ok((name, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::*;
    use proptest::prelude::*;
    use shoal_skip::property;
    use zerocopy::IntoBytes;

    fn build(opcode: u32, op: &[u8], payload: &[u8], extlen: u16) -> Vec<u8> {
        let len = 40 + op.len() + payload.len();
        let header = InHeader {
            len: len as u32,
            opcode,
            unique: 6,
            nodeid: 1,
            uid: 1000,
            gid: 1000,
            pid: 77,
            total_extlen: extlen,
            padding: 0,
        };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(op);
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn lookup_of_one_letter_is_42_bytes() {
        let mut bytes = build(1, &[], b"b\0", 0);
        assert_eq!(bytes.len(), 42);
        let (request, start) = Request::split(&mut bytes, 42).unwrap();
        assert_eq!(start, 40);
        assert_eq!(request.opcode, Some(Opcode::Lookup));
        assert_eq!(request.name(), Ok(&b"b"[..]));
        assert_eq!((request.header.uid, request.header.pid), (1000, 77));
    }

    #[test]
    fn create_with_a_group_extension() {
        let create = CreateIn { flags: 0o101, mode: 0o100_644, umask: 0o22, open_flags: 0 };
        let mut payload = b"name\0".to_vec();
        for word in [16u32, 32, 1, 4242] {
            payload.extend_from_slice(&word.to_le_bytes());
        }
        let mut bytes = build(35, create.as_bytes(), &payload, 2);
        let len = bytes.len();
        bytes.resize(8192, 0);
        let (mut request, start) = Request::split(&mut bytes, len).unwrap();
        assert_eq!(start, 56);
        assert_eq!(request.arg::<CreateIn>(), Ok(create));
        assert_eq!(request.name(), Ok(&b"name"[..]));
        assert_eq!(request.payload(), b"name\0");
        assert_eq!(request.ext_group(), Some(4242));
        assert_eq!(request.body().len(), 8192 - 56);
    }

    #[test]
    fn a_security_context_before_the_groups_is_skipped() {
        let mut payload = b"n\0".to_vec();
        for word in [20u32, 1, 7, 7, 7, 0, 16, 32, 1, 99] {
            payload.extend_from_slice(&word.to_le_bytes());
        }
        let mut bytes = build(1, &[], &payload, 5);
        let len = bytes.len();
        let (request, _) = Request::split(&mut bytes, len).unwrap();
        assert_eq!(request.ext_group(), Some(99));
    }

    #[test]
    fn names_are_checked() {
        let long = [vec![b'x'; 255], vec![0]].concat();
        let longer = [vec![b'x'; 256], vec![0]].concat();
        for (payload, expected) in [
            (&long[..], Ok(&long[..255])),
            (&longer[..], Err(Errno::ENAMETOOLONG)),
            (b"\0", Err(Errno::EINVAL)),
            (b"no end", Err(Errno::EIO)),
            (b"", Err(Errno::EIO)),
        ] {
            let mut bytes = build(1, &[], payload, 0);
            let len = bytes.len();
            let (request, _) = Request::split(&mut bytes, len).unwrap();
            assert_eq!(request.name(), expected);
        }
    }

    #[test]
    fn two_names_and_a_symlink() {
        let mut bytes = build(45, &[0; 16], b"old\0new\0", 0);
        let len = bytes.len();
        let (request, _) = Request::split(&mut bytes, len).unwrap();
        assert_eq!(request.names(), Ok((&b"old"[..], &b"new"[..])));
        let target = [b"link\0".to_vec(), vec![b't'; 4000], vec![0]].concat();
        let mut bytes = build(6, &[], &target, 0);
        let len = bytes.len();
        let (request, _) = Request::split(&mut bytes, len).unwrap();
        assert_eq!(request.name_and_target().unwrap().1.len(), 4000);
    }

    #[test]
    fn which_requests_may_block() {
        for (cmd, blocks) in [(IOCTL_SYNC, true), (IOCTL_CALL, true), (0x5401, false)] {
            let arg = IoctlIn { cmd, ..IoctlIn::default() };
            let mut bytes = build(39, arg.as_bytes(), &[], 0);
            let len = bytes.len();
            let (request, _) = Request::split(&mut bytes, len).unwrap();
            assert_eq!(request.may_block(), blocks);
        }
        for (bits, blocks) in [(BY_LOCK_OWNER, true), (1, false), (0, false)] {
            let arg = ReadIn { bits, ..ReadIn::default() };
            let mut bytes = build(16, arg.as_bytes(), b"data", 0);
            let len = bytes.len();
            assert_eq!(Request::split(&mut bytes, len).unwrap().0.may_block(), blocks, "WRITE");
        }
        let mut bytes = build(20, &[0; 16], &[], 0);
        assert!(Request::split(&mut bytes, 56).unwrap().0.may_block(), "FSYNC");
    }

    #[test]
    fn short_and_inconsistent_requests_are_refused() {
        let mut bytes = build(4, &[0; 80], &[], 0);
        assert!(Request::split(&mut bytes, 120).is_err(), "SETATTR needs 88");
        let mut bytes = build(1, &[], b"x\0", 0);
        assert!(Request::split(&mut bytes, 41).is_err(), "length in the header differs");
        assert!(Request::split(&mut bytes, 43).is_err(), "more than there is");
        assert!(Request::split(&mut bytes, 10).is_err());
        let mut bytes = build(1, &[], b"x\0", 1);
        assert!(Request::split(&mut bytes, 42).is_err(), "extensions longer than the payload");
    }

    /// A plausible header in front of arbitrary bytes, or arbitrary bytes alone.
    fn arbitrary_request() -> impl Strategy<Value = Vec<u8>> {
        let codes = prop_oneof![0u32..60, any::<u32>()];
        let bytes = proptest::collection::vec(any::<u8>(), 0..300);
        let anything = proptest::collection::vec(any::<u8>(), 0..200);
        let plausible =
            (codes, 0u16..6, bytes).prop_map(|(code, ext, rest)| build(code, &[], &rest, ext));
        prop_oneof![plausible, anything]
    }

    proptest! {
        #![proptest_config(property(4000))]

        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in arbitrary_request(),
            filled in 0usize..400,
            exact in any::<bool>(),
        ) {
            let mut bytes = bytes;
            let filled = if exact { bytes.len() } else { filled };
            if let Ok((mut request, start)) = Request::split(&mut bytes, filled) {
                prop_assert!(start >= 40);
                let _ = (request.name(), request.names(), request.name_and_target());
                let _ = (request.ext_group(), request.node(), request.payload().len());
                let _ = (request.arg::<SetattrIn>(), request.arg::<CopyRangeIn>());
                let _ = (request.arg::<AccessIn>(), request.arg::<InitIn>());
                request.body().fill(0);
            }
        }
    }
}
