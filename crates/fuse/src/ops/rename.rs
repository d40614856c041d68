//! Renames.

use super::remove::loses_name;
use super::{Context, Outcome};
use crate::protocol::flags::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT};
use crate::protocol::wire::{Rename2In, RenameIn};
use crate::protocol::{Errno, Request};
use crate::tokens::is_virtual;
use shoal::raw::{Ino, RenameFlags};

/// RENAME.
pub(crate) fn rename(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: RenameIn = request.arg()?;
    run(cx, request, cx.session.node(arg.newdir), RenameFlags::default())
}

/// RENAME2.
pub(crate) fn rename2(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: Rename2In = request.arg()?;
    run(cx, request, cx.session.node(arg.newdir), rename_flags(arg.flags)?)
}

fn run(cx: &Context<'_>, request: &Request<'_>, to: Ino, flags: RenameFlags) -> Outcome {
    if is_virtual(to) {
        return Err(Errno::EPERM);
    }
    let (old, new) = request.names()?;
    let from = request.node();
    // Both names mean the same until the kernel gets its reply: it has the directories locked, and
    // a session waits.
    let acts = cx.session.crossing.request([Some((from, old)), Some((to, new))], cx.tid);
    let _acts = acts.ok_or(Errno::ESTALE)?;
    let find = |dir, name| cx.volume.namespace().lookup(cx.who, dir, name);
    let (moved, there) = (find(from, old), find(to, new));
    if let (Ok(attr), false) = (&there, flags.exchange) {
        loses_name(cx, to, attr);
    }
    cx.volume.namespace().rename(cx.who, from, old, to, new, flags)?;
    let dirs = if from == to { [Some(from), None] } else { [Some(from), Some(to)] };
    let exchanged = there.ok().filter(|_| flags.exchange);
    let inodes = [moved.ok(), exchanged].map(|attr| attr.map(|attr| attr.ino));
    for ino in dirs.into_iter().chain(inodes).flatten() {
        cx.session.changed(ino, cx.tid);
    }
    Ok(0)
}

/// Decodes the flags of `renameat2`. An unknown one is refused here, contradictory ones by the
/// volume.
fn rename_flags(bits: u32) -> Result<RenameFlags, Errno> {
    if bits & !(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(RenameFlags {
        noreplace: bits & RENAME_NOREPLACE != 0,
        exchange: bits & RENAME_EXCHANGE != 0,
        whiteout: bits & RENAME_WHITEOUT != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags() {
        assert_eq!(rename_flags(0), Ok(RenameFlags::default()));
        assert!(rename_flags(1).unwrap().noreplace);
        assert!(rename_flags(2).unwrap().exchange);
        assert_eq!(rename_flags(5).map(|it| (it.noreplace, it.whiteout)), Ok((true, true)));
        for bad in [8, 9, u32::MAX] {
            assert_eq!(rename_flags(bad), Err(Errno::EINVAL), "{bad}");
        }
    }
}
