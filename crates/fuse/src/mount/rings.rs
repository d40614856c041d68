//! The choice between the device and rings shared with the kernel, from the user's option and the
//! kernel's offer.
//!
//! | the kernel | `auto` | `on` | `off` |
//! | --- | --- | --- | --- |
//! | offers rings | rings | rings | device |
//! | has them switched off | device; the log says how to switch them on | switched on by root, else no mount | device |
//! | does not know them | device | no mount | device |
//! | refuses them after all | device, with a warning | no mount | device |

use super::handshake::Offer;
use super::options::Rings;
use super::refused;
use crate::protocol::init::OVER_IO_URING;
use crate::transport::uring::{Live, Prepared};
use shoal::raw::{Code, Error, Result};
use std::fs;
use std::io;

/// The kernel's switch for the whole machine; it only allows a mount to ask for rings.
pub(super) const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Switches rings on in the kernel for a mount that insists on them. They stay on.
pub(super) fn switch_on(wanted: Rings) -> Result<()> {
    if wanted != Rings::On || state() != Some(false) {
        return Ok(());
    }
    tracing::info!(switch = SWITCH, "switching FUSE over io_uring on in the kernel");
    fs::write(SWITCH, "Y").map_err(|error| {
        let what = format!("io_uring=on: FUSE over io_uring is off in the kernel, and {SWITCH}");
        refused(Code::NotPermitted, &what, &error)
    })
}

/// Returns whether the switch is on; `None`: there is none.
fn state() -> Option<bool> {
    Some(fs::read_to_string(SWITCH).ok()?.trim() == "Y")
}

/// Makes rings, if they are wanted and offered.
pub(super) fn prepare(
    offer: &Offer,
    wanted: Rings,
    make: impl FnOnce() -> io::Result<Prepared>,
) -> Result<Option<Prepared>> {
    match (wanted, offer.has(OVER_IO_URING)) {
        (Rings::Off, _) => Ok(None),
        (Rings::Auto, false) => {
            if state() == Some(false) {
                let hint = format!("'echo Y > {SWITCH}' as root, or the mount option io_uring=on");
                tracing::info!(
                    "FUSE over io_uring would be faster and is off in the kernel: {hint}"
                );
            }
            Ok(None)
        }
        (Rings::On, false) => Err(no_rings("this kernel does not offer FUSE over io_uring")),
        (Rings::Auto | Rings::On, true) => match make() {
            Ok(prepared) => Ok(Some(prepared)),
            Err(error) if wanted == Rings::On => Err(refused(Code::Io, "io_uring=on", &error)),
            Err(error) => {
                tracing::warn!(%error, "no rings: serving through the device");
                Ok(None)
            }
        },
    }
}

/// Starts to serve through rings, or through the device if the kernel refuses them.
pub(super) fn start(prepared: Prepared, wanted: Rings) -> Result<Live> {
    // Some queues may wait for slots that never come, and callers with them: no way back.
    let live = prepared.start().map_err(|error| refused(Code::Io, "cannot use rings", &error))?;
    match (live.refused(), wanted) {
        (0, _) => tracing::debug!("serving through rings"),
        (_, Rings::On) => return Err(no_rings("the kernel has refused the rings")),
        (slots, _) => {
            tracing::warn!(slots, "the kernel has refused the rings: serving through the device");
        }
    }
    Ok(live)
}

#[cold]
fn no_rings(why: &str) -> Error {
    Error::refused(Code::Invalid, format!("io_uring=on: {why}"))
}
