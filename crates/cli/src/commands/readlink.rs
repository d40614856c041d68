//! `shoal readlink`.

use crate::args::ReadlinkArgs;
use crate::failure::{Reason, Result};
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Sessions};
use crate::tree::Operand;

/// Prints the targets of symlinks.
pub(crate) fn run(args: &ReadlinkArgs) -> Result<u8> {
    Sessions::run(Access::Read, |sessions| {
        let (mut out, mut progress) = (Out::new(), Progress::counting());
        for place in &args.places {
            let place = match Operand::open(sessions, Access::Read, place, false)? {
                Ok(place) => place,
                Err(missing) => {
                    progress.failure(missing.label, Reason::from(missing.error));
                    continue;
                }
            };
            match place.tree.target(&place.path, &place.attr) {
                Ok(Some(target)) => {
                    match args.zero {
                        true => out.bytes(&target)?,
                        false => out.name(&target)?,
                    }
                    let is_bare = args.no_newline && args.places.len() == 1;
                    let end: &[u8] = if args.zero { b"\0" } else { b"\n" };
                    out.bytes(if is_bare { &[] } else { end })?;
                }
                Ok(None) => {
                    progress.failure(place.label(), Reason::Text("is not a symlink".into()));
                }
                Err(error) => progress.failure(place.label(), Reason::from(error)),
            }
        }
        out.flush()?;
        Ok(progress.finish())
    })
}
