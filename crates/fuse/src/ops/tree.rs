//! The ioctl that removes a tree ([`crate::protocol::tree`]).
//!
//! Who may: whoever could empty and remove the tree name by name; the volume looks at that, on
//! every mount, because an open directory is all that the kernel has looked at. (It has not looked
//! whether the mount is a read-only view of one that is writable; a program that hands such views
//! to others must not rely on them to keep the superuser from this ioctl.)
//!
//! The kernel knows nothing of what an ioctl does, and believes its names for ever. So the name is
//! made to be forgotten ([`crate::notices`]), and the reply waits for that:
//!
//! | when | another program | the caller |
//! | --- | --- | --- |
//! | before the transaction | sees the tree | waits |
//! | from then until the kernel has forgotten the name | by names that the kernel knows still sees the tree, and reads what is in its cache; the name cannot be made again (`EEXIST`); what asks the server finds less and less, and nothing can be made in the top (`ENOENT`) | waits |
//! | after the reply | sees no such name | the same |
//!
//! Only the top's name has to be forgotten: below it nothing can be reached then but by who is
//! there already. If the kernel takes long (it lets go of all that it knows below the name at the
//! same time), the reply goes out with a mark, and the client looks until the name is gone.
//!
//! Files that lose a name with the tree and have another, or are open, do so behind the call; the
//! volume tells of each that the kernel knows (`watch_links`), and its attributes are to be
//! forgotten in the same way.
//!
//! In between somebody may have made the name anew, where the kernel did not know the old one. The
//! notice then hits the new name, which is looked up again at its next use.

use super::{Context, Outcome};
use crate::notices::Notice;
use crate::protocol::reply::put;
use crate::protocol::tree::{SIZE, STILL_SHOWN, TOP_ONLY, question};
use crate::protocol::wire::{IoctlIn, IoctlOut, TreeHead};
use crate::protocol::{Errno, Request};
use shoal::TreeCheck;
use std::time::Duration;

/// How long the reply waits for the kernel to forget the name.
const PATIENCE: Duration = Duration::from_secs(1);

/// IOCTL_REMOVE_TREE.
pub fn remove(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: IoctlIn = request.arg()?;
    if (arg.in_size as usize) < SIZE || (arg.out_size as usize) < SIZE {
        return Err(Errno::EINVAL);
    }
    let (head, name) = question(request.payload())?;
    let check = match head.flags & TOP_ONLY {
        0 => TreeCheck::Tree,
        _ if cx.who.uid == 0 => TreeCheck::Top,
        _ => return Err(Errno::EPERM),
    };
    let (session, dir) = (cx.session, request.node());
    // Only to be named in what is told: which inode goes is decided in the transaction.
    let top = cx.volume.lookup(cx.who, dir, name)?.ino;
    cx.volume.remove_tree(cx.who, dir, name, check)?;
    let (dir, top_node) = (session.id(dir), session.id(top));
    let given = session.notices.give([
        Notice::Name { dir, name: name.into() },
        Notice::Attributes { node: dir },
        Notice::Attributes { node: top_node },
    ]);
    let is_forgotten = session.notices.wait(given, PATIENCE);
    let flags = if is_forgotten { 0 } else { STILL_SHOWN };
    let start = put(request.body(), 0, &IoctlOut::default())?;
    put(request.body(), start, &TreeHead { ino: top.0, flags, ..head })
}
