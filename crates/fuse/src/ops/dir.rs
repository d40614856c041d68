//! Listings.

use super::{Context, Outcome};
use crate::protocol::dirent::{Listing, Node, for_each_node};
use crate::protocol::reply::fuse_attr;
use crate::protocol::wire::{EntryOut, FuseAttr, ReadIn};
use crate::protocol::{Errno, Opcode, Request};
use shoal::raw::{Code, FileKind, Ino};

/// READDIR.
pub(crate) fn readdir(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: ReadIn = request.arg()?;
    let node = request.node();
    cx.session.listings.is_listed(node);
    let (mut listing, mut all) = (Listing::new(room(request, arg.size)), true);
    cx.volume.directories().readdir(node, arg.offset, &mut |entry| {
        all = listing.add(&entry);
        all
    })?;
    if all {
        listing.end();
    }
    Ok(listing.len())
}

/// READDIRPLUS. References are taken when the listing is complete, outside the volume's locks, and
/// not at all if it fails half-way.
pub(crate) fn readdirplus(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: ReadIn = request.arg()?;
    let node = request.node();
    let begun = cx.session.unread.now();
    cx.session.listings.is_listed(node);
    let (mut listing, mut all) = (Listing::new(room(request, arg.size)), true);
    let (mut unreadable, mut refused) = (None, None);
    cx.volume.directories().readdirplus(node, arg.offset, &mut |entry, attr| {
        // A file whose inode cannot be read keeps its name: its lookup reports the error.
        all = match attr {
            Ok(attr) => listing.add_plus(&entry, attr),
            // The thread must not wait: not one of the file's.
            Err(error) if error.code() == Code::Again => {
                refused = Some(error);
                false
            }
            Err(error) => {
                unreadable = Some(error);
                listing.add_bare(&entry)
            }
        };
        all
    })?;
    if let Some(error) = refused {
        return Err(error.into());
    }
    if all {
        listing.end();
    }
    let len = listing.len();
    if let Some(error) = unreadable {
        // The listing succeeds, but the damage counts.
        let _ = Errno::from(error);
        cx.session.failed(Opcode::Readdirplus, request);
    }
    let mut losing = Vec::new();
    for_each_node(&mut request.body()[..len], |entry| give(cx, entry, begun, &mut losing))?;
    if !losing.is_empty() {
        cx.session.show_only(&losing, cx.tid);
    }
    Ok(len)
}

/// Decides on the node of an entry in a listing that was `begun` at that time. Changed attributes
/// are read again, because they were read before the kernel was recorded as their reader. Inodes
/// whose attributes it must not keep are added to `losing`.
#[inline]
fn give(cx: &Context<'_>, entry: &EntryOut, begun: u64, losing: &mut Vec<Ino>) -> Node {
    let (ino, unread) = (Ino(entry.nodeid), &cx.session.unread);
    if cx.volume.references().hold(ino, 1).is_err() {
        return Node::Drop;
    }
    cx.session.known.give(ino);
    unread.give(ino, cx.tid, begun);
    let node = if unread.changed_since(ino, begun) { again(cx, entry) } else { Node::Keep };
    if unread.is_losing(ino, cx.tid) && !matches!(node, Node::Drop) {
        losing.push(ino);
    }
    let node = match node {
        Node::Keep if entry.attr.blocks == 0 => with_blocks(cx, entry),
        node => node,
    };
    let entry_valid = cx.session.rules.names_valid();
    match node {
        Node::Keep if entry_valid != entry.entry_valid => {
            Node::Show(EntryOut { entry_valid, ..*entry })
        }
        Node::Show(entry) => Node::Show(EntryOut { entry_valid, ..entry }),
        node => node,
    }
}

/// Shows a file without blocks with one, if the kernel may have data for it.
fn with_blocks(cx: &Context<'_>, entry: &EntryOut) -> Node {
    let attr = &entry.attr;
    let Some(kind) = FileKind::from_mode(attr.mode) else { return Node::Keep };
    match cx.session.blocks(Ino(entry.nodeid), kind, attr.size, 0) {
        0 => Node::Keep,
        blocks => Node::Show(EntryOut { attr: FuseAttr { blocks, ..*attr }, ..*entry }),
    }
}

#[cold]
fn again(cx: &Context<'_>, entry: &EntryOut) -> Node {
    match cx.volume.attributes().getattr(Ino(entry.nodeid)) {
        Ok(now) if u64::from(now.generation.0) == entry.generation => {
            Node::Show(EntryOut { attr: fuse_attr(&now), ..*entry })
        }
        _ => {
            cx.session.not_given(Ino(entry.nodeid));
            Node::Drop
        }
    }
}

/// Returns the part of the body that the kernel asked to fill.
fn room<'a>(request: &'a mut Request<'_>, size: u32) -> &'a mut [u8] {
    let body = request.body();
    let size = (size as usize).min(body.len());
    &mut body[..size]
}
