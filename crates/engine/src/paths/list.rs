//! Listing the names of an inode in pieces, for files with many hard links.
//!
//! The cookie of a name is the key that its parent pointer has in the `attrs` tree, even if the
//! pointers are in the inode. So a listing continues at the right place although they have moved in
//! between. A name that exists during the whole listing is listed; one that is added or removed
//! meanwhile may be.

use crate::paths::Paths;
use crate::types::Parent;
use crate::xattr::Side;
use crate::xattr::inline::broken;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Generation, Ino, Result};
use shoal_format::attr::{Attr, Id, SUFFIX_MASK};
use shoal_format::inode::{Form, Inode};
use shoal_format::node::Key;

impl Paths<'_> {
    /// Returns at most `count` names of an inode from `cookie` on (0: from the first), each with
    /// its cookie. Fewer than `count` means that there are no more.
    ///
    /// # Errors
    /// As [`Paths::parents_of`].
    pub fn parents_from(self, ino: Ino, cookie: u64, count: usize) -> Result<Vec<(u64, Parent)>> {
        self.0.measured(Call::Paths, || self.some_parents(ino, cookie, count))
    }

    fn some_parents(self, ino: Ino, cookie: u64, count: usize) -> Result<Vec<(u64, Parent)>> {
        if !self.0.parents {
            return Err(Error::Code(Code::NotSupported));
        }
        let inode = self.0.inode(ino)?;
        let slot = inode.read();
        crate::stat::attr_of(ino, &slot.inode)?;
        if slot.inode.core.nlink == 0 {
            return Ok(Vec::new());
        }
        match slot.inode.core.attr_form {
            Form::Tree => self.listed_in_tree(ino, cookie, count),
            _ => self.listed_in_fork(ino, &slot.inode, cookie, count),
        }
    }

    fn listed_in_tree(self, ino: Ino, cookie: u64, count: usize) -> Result<Vec<(u64, Parent)>> {
        let mut found = Vec::new();
        let from = Key::of(ino, cookie.max(shoal_format::attr::KEY_HIGH));
        let to = Key::behind(ino);
        if count != 0 {
            self.0.store.root(ino)?.attrs.for_each(from, to, &mut |key, raw| {
                let attr = Attr::decode_whole(raw);
                let attr = attr.ok_or_else(|| broken(ino, format!("entry {:#x}", key.lo)))?;
                found.push((key.lo, parent(ino, &attr)?));
                Ok(found.len() < count)
            })?;
        }
        Ok(found)
    }

    fn listed_in_fork(
        self,
        ino: Ino,
        inode: &Inode,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<(u64, Parent)>> {
        let mut found = Vec::new();
        self.xattrs().each_attr(ino, inode, Side::Parents, &mut |attr| {
            let link = attr.link(ino.root()).ok_or_else(|| broken(ino, "parent pointer"))?;
            let key = Id::parent(link, attr.name).key(ino, self.0.store.volume()).lo;
            // In the tree it may have had any suffix. Listing it twice is better than omitting it.
            if key | SUFFIX_MASK >= cookie {
                found.push((key, parent(ino, &attr)?));
            }
            Ok(true)
        })?;
        found.sort();
        found.truncate(count);
        Ok(found)
    }
}

fn parent(ino: Ino, attr: &Attr<'_>) -> Result<Parent> {
    let link = attr.link(ino.root()).ok_or_else(|| broken(ino, "parent pointer"))?;
    let generation = Generation(link.generation);
    Ok(Parent { dir: link.dir, generation, name: attr.name.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Caller, MemDevice, MkfsOptions, OpenOptions, Volume, mkfs_on};
    use std::sync::Arc;

    fn volume() -> Volume {
        let device = Arc::new(MemDevice::new(128 << 20));
        mkfs_on(device.clone(), &MkfsOptions::default()).expect("mkfs");
        let options = OpenOptions { background: false, ..OpenOptions::default() };
        Volume::open_on(device, &options).expect("open")
    }

    #[test]
    fn pieces_make_up_the_whole() {
        let (volume, who) = (volume(), Caller::root());
        let file = volume.namespace().create(&who, Ino::ROOT, b"f", 0o644).expect("create").ino;
        for links in [0, 2, 100] {
            for n in 0..links {
                let name = format!("{links}-{n}");
                volume.namespace().link(&who, file, Ino::ROOT, name.as_bytes()).expect("link");
            }
            let mut listed = Vec::new();
            let mut cookie = 0;
            loop {
                let piece = volume.paths().parents_from(file, cookie, 7).expect("list");
                let is_last = piece.len() < 7;
                cookie = piece.last().map_or(cookie, |(cookie, _)| cookie + 1);
                listed.extend(piece.into_iter().map(|(_, parent)| parent));
                if is_last {
                    break;
                }
            }
            listed.sort();
            let mut all = volume.paths().parents_of(file).expect("all");
            all.sort();
            assert_eq!(listed, all, "{links} links");
        }
        assert_eq!(volume.paths().parents_from(file, 0, 0).expect("none"), []);
    }

    #[test]
    fn a_listing_goes_on_when_the_names_move_into_the_inode() {
        let (volume, who) = (volume(), Caller::root());
        let file = volume.namespace().create(&who, Ino::ROOT, b"f", 0o644).expect("create").ino;
        for n in 0..100 {
            let name = format!("link-{n}");
            volume.namespace().link(&who, file, Ino::ROOT, name.as_bytes()).expect("link");
        }
        let all = volume.paths().parents_from(file, 0, 1000).expect("all");
        let (cookie, _) = all[50];
        // The remaining names are the three from there on.
        for (_, gone) in all[..50].iter().chain(&all[53..]) {
            volume.namespace().unlink(&who, Ino::ROOT, &gone.name).expect("unlink");
        }
        assert_eq!(volume.paths().parents_from(file, cookie, 10).expect("rest"), all[50..53]);
        assert_eq!(volume.paths().parents_from(file, all[51].0, 10).expect("rest"), all[51..53]);
    }
}
