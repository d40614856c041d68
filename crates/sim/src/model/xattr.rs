//! Extended attributes, with Linux' order of errors; access control lists and what has a meaning of
//! its own (capabilities) are left to tests beside the engine.

use super::{Body, Model, Name, Outcome};
use shoal::raw::{Caller, Code, FileKind, Ino, XattrFlags};
use std::collections::BTreeMap;

/// Names and values.
pub type Xattrs = BTreeMap<Name, Vec<u8>>;

/// Hash of all attributes of an inode; 0 when there are none.
pub fn xattr_hash(xattrs: &Xattrs) -> u64 {
    let sum = |hash: u64, (name, value): (&Name, &Vec<u8>)| {
        let pair = [shoal_base::checksum(name), shoal_base::checksum(value)];
        let bytes: Vec<u8> = pair.iter().flat_map(|n| n.to_le_bytes()).collect();
        hash.wrapping_add(shoal_base::checksum(&bytes))
    };
    xattrs.iter().fold(0, sum)
}

impl Model {
    /// The value of an attribute.
    pub(crate) fn getxattr(&self, who: &Caller, ino: Ino, name: &[u8]) -> Outcome<&[u8]> {
        self.check_name(name)?;
        let node = self.node(ino).ok_or(Code::Stale)?;
        self.may_use_xattr(who, ino, name, false)?;
        node.xattrs.get(name).map(Vec::as_slice).ok_or(Code::NoData)
    }

    /// Sets an attribute.
    pub(crate) fn setxattr(
        &mut self,
        who: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Outcome<()> {
        self.check_name(name)?;
        if value.len() > 65_536 {
            return Err(Code::TooBig);
        }
        self.may_use_xattr(who, ino, name, true)?;
        let node = self.nodes.get_mut(&ino).ok_or(Code::Stale)?;
        match node.xattrs.contains_key(name) {
            true if flags.create => return Err(Code::Exists),
            false if flags.replace => return Err(Code::NoData),
            _ => {}
        }
        node.xattrs.insert(name.to_vec(), value.to_vec());
        self.touch_ctime(ino);
        Ok(())
    }

    /// Removes an attribute.
    pub(crate) fn removexattr(&mut self, who: &Caller, ino: Ino, name: &[u8]) -> Outcome<()> {
        self.check_name(name)?;
        self.may_use_xattr(who, ino, name, true)?;
        let node = self.nodes.get_mut(&ino).ok_or(Code::Stale)?;
        node.xattrs.remove(name).ok_or(Code::NoData)?;
        self.touch_ctime(ino);
        Ok(())
    }

    /// Names of the attributes that `who` may know of, sorted.
    pub(crate) fn listxattr(&self, who: &Caller, ino: Ino) -> Outcome<Vec<Name>> {
        let node = self.node(ino).ok_or(Code::Stale)?;
        let known = |name: &&Name| who.uid == 0 || !name.starts_with(b"trusted.");
        Ok(node.xattrs.keys().filter(known).cloned().collect())
    }

    fn check_name(&self, name: &[u8]) -> Outcome<()> {
        if name.is_empty() || name.len() > 255 { Err(Code::Range) } else { Ok(()) }
    }

    /// The checks of `xattr_permission`, in their order.
    fn may_use_xattr(&self, who: &Caller, ino: Ino, name: &[u8], write: bool) -> Outcome<()> {
        let node = self.node(ino).ok_or(Code::Stale)?;
        let denied = if write { Code::NotPermitted } else { Code::NoData };
        if name.starts_with(b"security.") {
            return if write && who.uid != 0 { Err(Code::NotPermitted) } else { Ok(()) };
        }
        if name.starts_with(b"trusted.") {
            return if who.uid == 0 { Ok(()) } else { Err(denied) };
        }
        if name.starts_with(b"user.") {
            let plain = matches!(node.kind, FileKind::Regular | FileKind::Directory);
            if !plain {
                return Err(denied);
            }
            let sticky = matches!(node.body, Body::Dir(_)) && node.perm & 0o1000 != 0;
            if write && sticky && who.uid != 0 && who.uid != node.uid {
                return Err(Code::NotPermitted);
            }
        }
        self.permit(who, ino, if write { 2 } else { 4 })?;
        if name.starts_with(b"user.") { Ok(()) } else { Err(Code::NotSupported) }
    }
}
