//! Encoding pieces, and data objects on their way to the store.

use bytes::Bytes;
use shoal_base::{Addr, Code, Error, Result};
use shoal_format::bucket::object::{Packed, Piece};
use shoal_format::{Codec, Compression};
use tokio::task::JoinHandle;

/// A run as it is stored.
pub(crate) struct Encoded {
    addr: u64,
    len: u32,
    codec: Codec,
    stored: Bytes,
}

impl Encoded {
    pub(crate) fn packed(&self) -> Packed<'_> {
        Packed::Here(Addr(self.addr), self.len, self.codec, &self.stored)
    }
}

/// Encodes runs.
pub(crate) fn encode(runs: &[(u64, Bytes)], compression: Compression) -> Vec<Encoded> {
    let one = |(addr, bytes): &(u64, Bytes)| {
        let len = bytes.len() as u32;
        // What saves less than an eighth costs more time than it saves.
        let most = bytes.len() - bytes.len() / 8;
        let mut coded = Vec::new();
        let codec = match compression.is_worth_trying(bytes) {
            true => compression.encode_if(bytes, most, &mut coded),
            false => None,
        };
        let stored = if codec.is_some() { Bytes::from(coded) } else { bytes.clone() };
        Encoded { addr: *addr, len, codec: codec.unwrap_or_default(), stored }
    };
    runs.iter().map(one).collect()
}

/// Uploads a data object. Returns its size and its pieces, as a log object refers to them.
pub(crate) type Task = JoinHandle<Result<(u64, Vec<Piece>)>>;

/// A data object that is being uploaded, or was.
pub(crate) struct Upload {
    /// Number of the batch of its runs.
    pub batch: u64,
    /// Its number in this epoch.
    pub number: u64,
    /// Its runs.
    pub runs: Vec<(u64, Bytes)>,
    task: Task,
}

impl Upload {
    /// Describes an upload that `task` carries out.
    pub(crate) fn new(batch: u64, number: u64, runs: Vec<(u64, Bytes)>, task: Task) -> Upload {
        Upload { batch, number, runs, task }
    }

    /// Waits until the store has it. Returns its size and its pieces, as a log object refers to
    /// them.
    pub(crate) async fn finish(self) -> Result<Uploaded> {
        let Upload { batch, number, runs, task } = self;
        let ended = |_| Err(Error::from(Code::Io));
        let (size, pieces) = task.await.unwrap_or_else(ended)?;
        Ok(Uploaded { batch, number, runs, size, pieces })
    }
}

/// A data object in the store.
pub(crate) struct Uploaded {
    pub batch: u64,
    pub number: u64,
    pub runs: Vec<(u64, Bytes)>,
    pub size: u64,
    pub pieces: Vec<Piece>,
}
