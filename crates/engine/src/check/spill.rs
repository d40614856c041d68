//! Sorting the places of extents by address. If they do not fit in memory, they are sorted in runs,
//! which are written to a temporary file and merged.

use shoal_base::{Error, Result};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of extents in memory: 64 MiB.
const RUN: usize = if cfg!(test) { 100 } else { 4 << 20 };
/// Bytes of an extent in the file.
const ENTRY: usize = 12;
/// Extents that are read from a run at a time.
const READ: usize = if cfg!(test) { 7 } else { 16 << 10 };

/// Extents: address and length.
#[derive(Default)]
pub(super) struct Spill {
    here: Vec<(u64, u32)>,
    /// Unlinked, so that it is freed with the process.
    file: Option<File>,
    /// Ends of the runs in the file.
    ends: Vec<u64>,
}

impl Spill {
    pub(super) fn push(&mut self, addr: u64, len: u32) -> Result<()> {
        self.here.push((addr, len));
        if self.here.len() >= RUN { self.write_run() } else { Ok(()) }
    }

    fn write_run(&mut self) -> Result<()> {
        self.here.sort_unstable();
        let mut raw = Vec::with_capacity(self.here.len() * ENTRY);
        for (addr, len) in self.here.drain(..) {
            raw.extend_from_slice(&addr.to_le_bytes());
            raw.extend_from_slice(&len.to_le_bytes());
        }
        let at = self.ends.last().copied().unwrap_or(0);
        if self.file.is_none() {
            self.file = Some(nameless()?);
        }
        let Some(file) = &self.file else { return Ok(()) };
        file.write_all_at(&raw, at).map_err(|e| failed("written", &e))?;
        self.ends.push(at + raw.len() as u64);
        Ok(())
    }

    /// Calls `each` with all extents, ascending.
    pub(super) fn in_order(&mut self, each: &mut dyn FnMut(u64, u32)) -> Result<()> {
        let Some(file) = self.file.take() else {
            self.here.sort_unstable();
            self.here.iter().for_each(|(addr, len)| each(*addr, *len));
            return Ok(());
        };
        self.file = Some(file);
        self.write_run()?;
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let mut runs: Vec<Run> = starts
            .zip(&self.ends)
            .map(|(at, end)| Run { at, end: *end, read: Vec::new() })
            .collect();
        let mut next = BinaryHeap::new();
        let Some(file) = &self.file else { return Ok(()) };
        for (i, run) in runs.iter_mut().enumerate() {
            next.extend(run.next(file)?.map(|extent| Reverse((extent, i))));
        }
        while let Some(Reverse(((addr, len), i))) = next.pop() {
            each(addr, len);
            next.extend(runs[i].next(file)?.map(|extent| Reverse((extent, i))));
        }
        Ok(())
    }
}

/// A run in the file. The extents read from it are in reverse order.
struct Run {
    at: u64,
    end: u64,
    read: Vec<(u64, u32)>,
}

impl Run {
    fn next(&mut self, file: &File) -> Result<Option<(u64, u32)>> {
        if self.read.is_empty() && self.at < self.end {
            let len = (self.end - self.at).min((READ * ENTRY) as u64) as usize;
            let mut raw = vec![0; len];
            file.read_exact_at(&mut raw, self.at).map_err(|e| failed("read", &e))?;
            self.at += len as u64;
            self.read.extend(raw.chunks_exact(ENTRY).rev().filter_map(|raw| {
                let (addr, len) = raw.split_at(8);
                Some((
                    u64::from_le_bytes(addr.try_into().ok()?),
                    u32::from_le_bytes(len.try_into().ok()?),
                ))
            }));
        }
        Ok(self.read.pop())
    }
}

fn nameless() -> Result<File> {
    let dir = std::env::temp_dir();
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!("shoal-check.{}.{number}", std::process::id()));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = file.map_err(|e| failed("made", &e))?;
    std::fs::remove_file(&path).map_err(|e| failed("made", &e))?;
    Ok(file)
}

fn failed(what: &str, error: &std::io::Error) -> Error {
    let dir = std::env::temp_dir();
    let message = format!(
        "the check's temporary file in {} cannot be {what}: {error} (set TMPDIR to a directory \
         with room)",
        dir.display()
    );
    Error::refused(shoal_base::Code::Io, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_come_in_order_however_many() {
        for count in [0, 1, 99, 100, 101, 1234] {
            let mut spill = Spill::default();
            let extents: Vec<(u64, u32)> =
                (0..count).map(|n| (n * 7919 % 1013, n as u32 % 5)).collect();
            for (addr, len) in &extents {
                spill.push(*addr, *len).expect("a temporary file");
            }
            let mut sorted = extents.clone();
            sorted.sort_unstable();
            let mut got = Vec::new();
            spill.in_order(&mut |addr, len| got.push((addr, len))).expect("a temporary file");
            assert_eq!(got, sorted, "{count}");
        }
    }
}
