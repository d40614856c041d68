//! Steps after every crash: open the image, let recovery run, check everything, read everything;
//! sometimes crash in the middle of recovery and start again; sometimes look read-only first.

use crate::checks;
use crate::device::FaultyDevice;
use crate::image::Image;
use crate::model::State;
use crate::rng::Rng;
use crate::walk::{Walk, walk};
use shoal::raw::{Ino, OpenOptions, OrphanInfo, OrphanState, Volume};
use shoal_device::Device;
use std::sync::Arc;

/// A volume after recovery.
pub struct Recovered {
    /// Its device, whose log begins with the recovery.
    pub device: Arc<FaultyDevice>,
    /// The volume.
    pub volume: Volume,
    /// All that it shows.
    pub walk: Walk,
}

/// Opens `image`, checks it, and reads it.
pub fn recover(image: Image, options: &OpenOptions) -> Result<Recovered, String> {
    let recovered = open_and_walk(image, options)?;
    checks::all(&recovered.volume, &recovered.walk)?;
    if !options.read_only && !options.background {
        checks::nothing_waits_to_be_freed(&recovered.volume)?;
    }
    Ok(recovered)
}

fn open_and_walk(image: Image, options: &OpenOptions) -> Result<Recovered, String> {
    let device = Arc::new(FaultyDevice::from_image(image));
    let volume = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, options)
        .map_err(|e| format!("the volume does not open after the crash: {e}"))?;
    if !options.read_only
        && let Some(reason) = volume.read_only_reason()
    {
        return Err(format!("the volume opens read-only after the crash: {reason}"));
    }
    let walk = walk(&volume, Ino::ROOT, true)?;
    Ok(Recovered { device, volume, walk })
}

/// Result of a recovery, for comparison with the next one's.
struct Shown {
    state: State,
    /// It found orphans. If a tree that was being removed was among them, files with names
    /// elsewhere have lost links then, and got new change times.
    orphans: bool,
}

impl Shown {
    fn of(recovered: &Recovered) -> Shown {
        let orphans = recovered.volume.info().recovery.orphans > 0;
        Shown { state: recovered.walk.state.clone(), orphans }
    }
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
        known = look(image.clone(), options)?;
    }
    let mut image = image;
    for _ in 0..rng.below(3) {
        let first = recover(image.clone(), options)?;
        agree(&mut known, Shown::of(&first), "a crash during recovery")?;
        drop(first.volume);
        let mut crashes = first.device.crashes(rng.next());
        let position = rng.range(crashes.first(), crashes.last());
        image = crashes.image_at(position, rng.next());
    }
    let recovered = recover(image, options)?;
    agree(&mut known, Shown::of(&recovered), "recovery done again")?;
    Ok(recovered)
}

/// Opens read-only: the same state must show, and nothing be written. `None`: a tree that is being
/// removed still has links to files with other names, or one that is being changed is half done.
fn look(image: Image, options: &OpenOptions) -> Result<Option<Shown>, String> {
    let options = OpenOptions { read_only: true, ..options.clone() };
    let wrong = |e| format!("opened read-only: {e}");
    let seen = open_and_walk(image, &options).map_err(wrong)?;
    let in_steps = [OrphanState::Tree, OrphanState::Changing];
    let is_tree = |orphan: &OrphanInfo| in_steps.contains(&orphan.state);
    let tree = seen.volume.references().orphan_list().iter().any(is_tree);
    match tree {
        true => checks::own_check_is_clean(&seen.volume),
        false => checks::all(&seen.volume, &seen.walk),
    }
    .map_err(wrong)?;
    let shown = (!tree).then(|| Shown::of(&seen));
    drop(seen.volume);
    match seen.device.position() {
        0 => Ok(shown),
        n => Err(format!("{n} writes to a volume opened read-only")),
    }
}

fn agree(known: &mut Option<Shown>, shown: Shown, what: &str) -> Result<(), String> {
    let same = known.as_ref().is_none_or(|known| match known.orphans || shown.orphans {
        false => known.state.digest() == shown.state.digest(),
        true => known.state.digest_without_any_ctime() == shown.state.digest_without_any_ctime(),
    });
    // What was there at first counts: orphans are gone after one recovery.
    let orphans = shown.orphans || known.as_ref().is_some_and(|known| known.orphans);
    *known = Some(Shown { orphans, ..shown });
    if same { Ok(()) } else { Err(format!("{what} leads to another state")) }
}
