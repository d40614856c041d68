//! `shoal trim`: returns the free space of a volume to the device or file that stores it.

use crate::args::TrimArgs;
use crate::failure::{OK, Result};
use crate::json::Object;
use crate::mounted;
use crate::output::Out;
use crate::session::Access;
use crate::size::human;

/// Discards all free segments.
pub(crate) fn run(args: &TrimArgs) -> Result<u8> {
    let bytes = mounted::at(&args.volume, Access::Write, |session| {
        let (mut bytes, mut first) = (0, true);
        loop {
            let trimmed = session.calls().trim(&session.who, first);
            match trimmed.map_err(|error| mounted::failed(session, &error))? {
                0 => return Ok(bytes),
                more => bytes += more,
            }
            first = false;
        }
    })?;
    let mut out = Out::new();
    match args.json {
        true => out.json(Object::new().put("bytes", bytes))?,
        false => out.line(&format!("discarded {bytes} bytes ({})", human(bytes)))?,
    }
    out.flush()?;
    Ok(OK)
}
