//! `shoal trim`: gives the free space of a volume back to what stores it.

use serde::Serialize;

use crate::args::TrimArgs;
use crate::failure::{Failure, OK, Result};
use crate::mounted;
use crate::output::Out;
use crate::session::{Access, Session};
use crate::size::human;

/// Discards all free segments.
pub fn run(args: &TrimArgs) -> Result<u8> {
    let bytes = match args.volume.is_dir() {
        true => {
            let mount = mounted::open(&args.volume)?;
            shoal_fuse::trim(&mount).map_err(|error| mounted::refused(&args.volume, error))?
        }
        false => {
            let session = Session::open(&args.volume, Access::Write)?;
            let trimmed = session.volume.trim(true, u64::MAX);
            let trimmed = trimmed.map_err(|e| Failure::volume(args.volume.display(), &e));
            session.close()?;
            trimmed?
        }
    };
    let mut out = Out::new();
    match args.json {
        true => out.json(&JsonTrim { bytes })?,
        false => out.line(&format!("discarded {bytes} bytes ({})", human(bytes)))?,
    }
    out.flush()?;
    Ok(OK)
}

/// The result in JSON.
#[derive(Serialize)]
struct JsonTrim {
    bytes: u64,
}
