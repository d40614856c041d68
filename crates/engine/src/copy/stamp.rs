//! Stamps: the moments at which a volume was copied, in a hidden attribute of its top directory, so
//! that they are part of what is copied.
//!
//! ```text
//! shoal.copies := version 1 | (random number 16 | epoch 8)...
//! ```
//!
//! Integers are little-endian, the newest stamp is last. A repair forgets all of them: it may use
//! again what was not in use when a copy was made.

use super::TRIES;
use crate::random::random;
use crate::volume::Volume;
use shoal_base::{Epoch, Ino, Result};
use shoal_format::bytes::Reader;

const NAME: &[u8] = b"shoal.copies";
const VERSION: u8 = 1;
/// Stamps that a volume remembers: destinations that are used in turn, and copies between two of
/// the same one.
const REMEMBERED: usize = 64;

/// A state of a volume, which was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    /// No other stamp has it.
    pub number: [u8; 16],
    /// Epoch of the newest checkpoint of that state.
    pub epoch: Epoch,
}

fn encode(stamps: &[Stamp]) -> Vec<u8> {
    let mut raw = vec![VERSION];
    for stamp in stamps {
        raw.extend(stamp.number);
        raw.extend(stamp.epoch.to_le_bytes());
    }
    raw
}

/// `None` for another version, and for what is none: nothing is remembered then.
fn decode(raw: &[u8]) -> Option<Vec<Stamp>> {
    let raw = raw.strip_prefix(&[VERSION])?;
    let stamp = |raw: &[u8]| {
        let mut r = Reader::new(raw);
        Some(Stamp { number: *r.take(16)?.first_chunk()?, epoch: r.u64()? })
    };
    raw.chunks(24).map(stamp).collect()
}

/// Returns the stamps of a volume, the newest last.
pub(super) fn read(volume: &Volume) -> Result<Vec<Stamp>> {
    let raw = volume.attributes().hidden(Ino::ROOT, NAME)?;
    Ok(raw.and_then(|raw| decode(&raw)).unwrap_or_default())
}

/// Stores a stamp of the epoch that ends with the next checkpoint.
pub(super) fn write(volume: &Volume) -> Result<()> {
    let mut stamps = read(volume)?;
    let number = random()?;
    for _ in 0..TRIES {
        let epoch = volume.state.store.epoch();
        stamps.retain(|stamp| stamp.number != number);
        stamps.drain(..stamps.len().saturating_sub(REMEMBERED - 1));
        stamps.push(Stamp { number, epoch });
        volume.attributes().keep_hidden(Ino::ROOT, NAME, Some(&encode(&stamps)))?;
        if volume.state.store.epoch() == epoch {
            break;
        }
    }
    Ok(())
}

impl Volume {
    /// After a repair, which may have taken changes back: what was copied before is no base for an
    /// increment any more.
    pub(crate) fn forget_copies(&self) -> Result<()> {
        self.attributes().keep_hidden(Ino::ROOT, NAME, None)?;
        self.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_skip::property;

    proptest! {
        #![proptest_config(property(256))]

        #[test]
        fn stamps_read_back_and_arbitrary_bytes_never_panic(
            stamps in proptest::collection::vec(any::<([u8; 16], u64)>(), 0..9),
            raw in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let stamps: Vec<Stamp> =
                stamps.into_iter().map(|(number, epoch)| Stamp { number, epoch }).collect();
            prop_assert_eq!(decode(&encode(&stamps)), Some(stamps));
            if let Some(stamps) = decode(&raw) {
                prop_assert_eq!(encode(&stamps), raw);
            }
        }
    }
}
