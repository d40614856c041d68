//! The window of removed names in the volume: whether it is on, and its names when the volume was
//! closed, in hidden attributes of the volume's top directory.
//!
//! Problem: names removed in one session must be known in the next one, without a change of the
//! format and without a cost for each removal.
//!
//! Rule: the window is stored when the volume is closed, with the number of the checkpoint that
//! follows. An open whose newest checkpoint has that number finds all names that were removed
//! before it; the journal since then has the others. With any other number names may be missing: a
//! crash came between, or an older Shoal has removed some. Then the window begins at the
//! checkpoint, and says so.
//!
//! | attribute | contents, little-endian |
//! | --- | --- |
//! | `shoal.changes` | `shoal_txn::RemovedHeader` |
//! | `shoal.removed-NN` | number of the chunk 8 \| names (`shoal_txn::RemovedChunk`); NN is the number modulo 64, in hexadecimal |

use super::Changes;
use crate::clock::now;
use shoal_base::{Epoch, Error, Ino, Lsn, Result};
use shoal_txn::{CHUNK_MAX, CHUNKS, RemovedChunk, RemovedHeader};

const HEADER: &[u8] = b"shoal.changes";
/// Attempts to store the window in one epoch.
const TRIES: usize = 3;

const _: () = assert!(CHUNK_MAX + 8 <= shoal_format::attr::VALUE_MAX);

fn chunk_name(number: u64) -> Vec<u8> {
    format!("shoal.removed-{:02x}", number % CHUNKS as u64).into_bytes()
}

impl Changes<'_> {
    pub(super) fn header(self) -> Result<RemovedHeader> {
        let Some(value) = self.attributes().hidden(Ino::ROOT, HEADER)? else {
            return Ok(RemovedHeader::new(false, 0));
        };
        RemovedHeader::from_bytes(&value).ok_or_else(|| {
            let object = "attribute 'shoal.changes' of the volume's top directory";
            Error::corrupt(object, None, "not the state of the change feed")
        })
    }

    pub(super) fn put_header(self, header: &RemovedHeader) -> Result<()> {
        self.attributes().keep_hidden(Ino::ROOT, HEADER, Some(&header.to_bytes()))
    }

    pub(super) fn drop_chunks(self, header: &RemovedHeader) -> Result<()> {
        (0..u64::from(header.chunks)).try_for_each(|n| {
            self.attributes().keep_hidden(Ino::ROOT, &chunk_name(header.first + n), None)
        })
    }

    /// At open, before the journal is replayed from `lsn` on: begins a window for the names that
    /// the replay removes, if removed names were kept at the checkpoint.
    pub(crate) fn begin(self, lsn: Lsn) {
        // An error comes again when everything is replayed.
        if self.header().is_ok_and(|header| header.on) {
            self.0.store.removed_names.start(lsn);
        }
    }

    /// At open, before the volume is used: adopts the stored window if it is on. `epoch` is the
    /// number of the checkpoint with which the open began, whose journal has been replayed.
    pub(crate) fn resume(self, epoch: Epoch) {
        let names = &self.0.store.removed_names;
        match self.header() {
            Ok(header) if !header.on => names.stop(),
            // Switched on in what was replayed.
            Ok(_) if !names.is_on() => names.start(self.0.store.lsn()),
            Ok(header) if header.epoch == epoch => match self.stored(&header) {
                Ok(Some(chunks)) => names.put_before(chunks, header.complete_from),
                Ok(None) => tracing::warn!("the window of removed names is incomplete"),
                Err(error) => tracing::warn!(%error, "the window of removed names is unreadable"),
            },
            // From the checkpoint on, as replayed.
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "removed names are not kept");
                names.stop();
            }
        }
    }

    fn stored(self, header: &RemovedHeader) -> Result<Option<Vec<RemovedChunk>>> {
        let mut chunks = Vec::new();
        for number in header.first..header.first + u64::from(header.chunks) {
            let value = self.attributes().hidden(Ino::ROOT, &chunk_name(number))?;
            let chunk = value.and_then(|value| {
                let (first, names) = value.split_first_chunk()?;
                let same = u64::from_le_bytes(*first) == number;
                RemovedChunk::decode(number, names.to_vec()).filter(|_| same)
            });
            match chunk {
                Some(chunk) => chunks.push(chunk),
                None => return Ok(None),
            }
        }
        Ok(Some(chunks))
    }

    /// Stores the window, before the checkpoint of a close. No other call may be in progress.
    pub(crate) fn store_window(self) -> Result<()> {
        let names = &self.0.store.removed_names;
        let Some(complete_from) = names.complete_from() else { return Ok(()) };
        let series = self.header()?.series;
        let chunks = names.chunks();
        for chunk in chunks.iter().filter(|chunk| chunk.is_new()) {
            let value = [&chunk.number.to_le_bytes(), chunk.bytes()].concat();
            self.attributes().keep_hidden(Ino::ROOT, &chunk_name(chunk.number), Some(&value))?;
        }
        let first = chunks.first().map_or(0, |chunk| chunk.number);
        for _ in 0..TRIES {
            let epoch = self.0.store.epoch();
            let chunks = chunks.len() as u32;
            self.put_header(&RemovedHeader {
                on: true,
                series,
                epoch,
                complete_from,
                first,
                chunks,
            })?;
            // Otherwise a checkpoint came between, for space, and the next one has another number.
            if self.0.store.epoch() == epoch {
                break;
            }
        }
        Ok(())
    }

    /// After a repair, which may have taken changes back: no earlier mark is valid any more.
    pub(crate) fn forget_marks(self) -> Result<()> {
        let header = self.header().unwrap_or(RemovedHeader::new(false, 0));
        let (time, lsn) = (now(), self.0.store.lsn());
        let mixed = (time.sec as u32) ^ time.nsec ^ (lsn.0 as u32).rotate_left(16);
        let series = header.series.wrapping_add(mixed | 1);
        self.put_header(&RemovedHeader::new(header.on, series))?;
        self.0.sync()
    }
}
