//! What happens after every crash: open the image, let recovery run, check everything, read
//! everything; sometimes crash in the middle of recovery and start again; sometimes look read-only
//! first.

use crate::checks;
use crate::device::FaultyDevice;
use crate::image::Image;
use crate::rng::Rng;
use crate::walk::{Walk, walk};
use shoal::{Ino, OpenOptions, Volume};
use shoal_device::Device;
use std::sync::Arc;

/// A volume after recovery.
pub struct Recovered {
    /// What it lives on; its log begins with the recovery.
    pub device: Arc<FaultyDevice>,
    /// The volume.
    pub volume: Volume,
    /// All that it shows.
    pub walk: Walk,
}

/// Opens `image`, checks it, and reads it.
pub fn recover(image: Image, options: &OpenOptions) -> Result<Recovered, String> {
    let device = Arc::new(FaultyDevice::from_image(image));
    let volume = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, options)
        .map_err(|e| format!("the volume does not open after the crash: {e}"))?;
    if !options.read_only
        && let Some(reason) = volume.read_only_reason()
    {
        return Err(format!("the volume opens read-only after the crash: {reason}"));
    }
    let walk = walk(&volume, Ino::ROOT, true)?;
    checks::all(&volume, &walk)?;
    Ok(Recovered { device, volume, walk })
}

/// The same, the hard way: reading without writing first, and crashes during recovery, must all
/// lead to the same state.
pub fn recover_hard(
    image: Image,
    options: &OpenOptions,
    rng: &mut Rng,
) -> Result<Recovered, String> {
    let mut known = None;
    if rng.chance(20) {
        known = Some(look(image.clone(), options)?);
    }
    let mut image = image;
    for _ in 0..rng.below(3) {
        let first = recover(image.clone(), options)?;
        agree(&mut known, first.walk.digest(), "a crash during recovery")?;
        drop(first.volume);
        let mut crashes = first.device.crashes(rng.next());
        let position = rng.range(crashes.first(), crashes.last());
        image = crashes.image_at(position, rng.next());
    }
    let recovered = recover(image, options)?;
    agree(&mut known, recovered.walk.digest(), "recovery done again")?;
    Ok(recovered)
}

/// Opens read-only: the same state must show, and nothing be written.
fn look(image: Image, options: &OpenOptions) -> Result<u64, String> {
    let options = OpenOptions { read_only: true, ..options.clone() };
    let seen = recover(image, &options).map_err(|e| format!("opened read-only: {e}"))?;
    drop(seen.volume);
    match seen.device.position() {
        0 => Ok(seen.walk.digest()),
        n => Err(format!("{n} writes to a volume opened read-only")),
    }
}

fn agree(known: &mut Option<u64>, digest: u64, what: &str) -> Result<(), String> {
    match known.replace(digest) {
        Some(before) if before != digest => Err(format!("{what} leads to another state")),
        _ => Ok(()),
    }
}
