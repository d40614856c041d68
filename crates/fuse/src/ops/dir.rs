//! Listings.

use super::{Context, Outcome};
use crate::protocol::Request;
use crate::protocol::dirent::{Listing, for_each_node};
use crate::protocol::wire::ReadIn;
use shoal::Ino;

/// READDIR.
pub fn readdir(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: ReadIn = request.arg()?;
    let node = request.node();
    let mut listing = Listing::new(room(request, arg.size));
    cx.volume.readdir(node, arg.offset, &mut |entry| listing.add(&entry))?;
    Ok(listing.len())
}

/// READDIRPLUS. References are taken when the listing is complete, outside the volume's locks, and
/// not at all if it fails half-way.
pub fn readdirplus(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: ReadIn = request.arg()?;
    let node = request.node();
    let mut listing = Listing::new(room(request, arg.size));
    cx.volume.readdirplus(node, arg.offset, &mut |entry, attr| listing.add_plus(&entry, attr))?;
    let len = listing.len();
    for_each_node(&mut request.body()[..len], |node| cx.volume.hold(Ino(node), 1).is_ok())?;
    Ok(len)
}

/// As much of the body as the kernel asked to fill.
fn room<'a>(request: &'a mut Request<'_>, size: u32) -> &'a mut [u8] {
    let body = request.body();
    let size = (size as usize).min(body.len());
    &mut body[..size]
}
