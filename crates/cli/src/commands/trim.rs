//! `shoal trim`: returns the free space of a volume to the device or file that stores it.

use crate::args::TrimArgs;
use crate::direct::{Access, Direct};
use crate::failure::{Failure, OK, Result};
use crate::json::Object;
use crate::mounted;
use crate::output::Out;
use crate::size::human;

/// Discards all free segments.
pub(crate) fn run(args: &TrimArgs) -> Result<u8> {
    let bytes = match args.volume.is_dir() {
        true => mounted::ask(&args.volume, |mount| shoal_fuse::trim(mount))?,
        false => Direct::with(&args.volume, Access::Write, |direct| {
            let trimmed = direct.volume.maintenance().trim(true, u64::MAX);
            trimmed.map_err(|e| Failure::volume(args.volume.display(), &e))
        })?,
    };
    let mut out = Out::new();
    match args.json {
        true => out.json(Object::new().put("bytes", bytes))?,
        false => out.line(&format!("discarded {bytes} bytes ({})", human(bytes)))?,
    }
    out.flush()?;
    Ok(OK)
}
