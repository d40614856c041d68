//! All inodes of a subvolume, in the order of their numbers.
//!
//! The number space is taken in ranges of [`RANGE`] blocks, by as many threads as are wanted. A
//! thread finds each block of its range once. At the first one that is not in memory it reads the
//! rest of the range ahead.

use super::{Bulk, check_privileged};
use crate::stat::attr_of;
use crate::types::{Attr, Caller, InodeScan};
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::sync::Mutex;
use shoal_base::sync::crew::for_each;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::Inode;
use shoal_itable::{BlockView, InodeTable};
use std::ops::{ControlFlow, Range};

/// Blocks that a thread takes at a time: 4,096 inodes. Also the most that are read ahead.
const RANGE: u64 = 128;
/// Attributes of one call of the callback, at most: about 70 KiB, which the processor's cache
/// holds.
const BATCH: usize = 512;

/// Position of a scan, shared by its threads.
struct Position {
    /// The next block to take.
    next: u64,
    stopped: bool,
    failed: Option<Error>,
}

/// A thread's part of a scan.
struct Part<'p, T, Pick, Each> {
    after: Ino,
    pick: &'p Pick,
    each: &'p Each,
    batch: Vec<T>,
    /// The first damage in the current block.
    failed: Option<Error>,
}

impl<T, Pick, Each> Part<'_, T, Pick, Each>
where
    Pick: Fn(Ino, &Inode) -> Result<T>,
    Each: Fn(&[T]) -> ControlFlow<()>,
{
    /// Adds the inodes of a block that have a name.
    #[inline]
    fn add(&mut self, block: &BlockView<'_>) {
        let Part { after, pick, batch, failed, .. } = self;
        block.for_each(|ino, inode| {
            if inode.core.in_use() && inode.core.nlink > 0 && ino > *after {
                match pick(ino, inode) {
                    Ok(picked) => batch.push(picked),
                    Err(e) => *failed = failed.take().or(Some(e)),
                }
            }
        });
    }

    fn flush(&mut self) -> ControlFlow<()> {
        let done = match self.batch.is_empty() {
            true => ControlFlow::Continue(()),
            false => (self.each)(&self.batch),
        };
        self.batch.clear();
        done
    }
}

impl Bulk<'_> {
    /// Calls `each` with the attributes of all inodes of a subvolume that have a name and come
    /// after the scan's cursor, up to 512 at a time, converted by `wrap`, until it returns `Break`;
    /// other threads may then call it a few times more. `each` is called without locks, and by
    /// several threads at the same time if the scan has more than one. Only for privileged callers.
    ///
    /// An inode that exists during the whole call is there exactly once, as it was at some moment
    /// of the call; one that is made or removed meanwhile is there or not. Unlinked inodes that are
    /// still open are left out; those below a removed tree are there until they are freed.
    ///
    /// A scan with one thread can be continued after the last inode that was delivered.
    ///
    /// # Errors
    /// `EPERM`; `ESTALE` if the subvolume does not exist or is deleted meanwhile; those of the
    /// device, and damage, which end the scan: it can be continued behind the damaged block.
    pub fn bulkstat<T: Send>(
        self,
        who: &Caller,
        scan: InodeScan,
        wrap: impl Fn(Attr) -> T + Sync,
        each: impl Fn(&[T]) -> ControlFlow<()> + Sync,
    ) -> Result<()> {
        self.0.measured(Call::Bulkstat, || {
            check_privileged(who)?;
            self.scan_inodes(scan, |ino, inode| attr_of(ino, inode).map(&wrap), each)
        })
    }

    /// As [`Bulk::bulkstat`], for what `pick` returns of each inode, which is locked for reading.
    pub(super) fn scan_inodes<T: Send>(
        self,
        scan: InodeScan,
        pick: impl Fn(Ino, &Inode) -> Result<T> + Sync,
        each: impl Fn(&[T]) -> ControlFlow<()> + Sync,
    ) -> Result<()> {
        self.0.root(scan.after)?;
        let next = (scan.after.index() + 1) / INODES_PER_BLOCK as u64;
        let position = Mutex::new(Position { next, stopped: false, failed: None });
        let threads: Vec<usize> = (0..scan.threads.max(1)).collect();
        for_each(threads.len(), &threads, |_| {
            let (after, pick, each) = (scan.after, &pick, &each);
            let batch = Vec::with_capacity(BATCH);
            let mut part = Part { after, pick, each, batch, failed: None };
            if let Err(e) = self.scan_part(&position, &mut part) {
                let mut position = position.lock();
                position.stopped = true;
                position.failed.get_or_insert(e);
            }
        });
        let failed = position.lock().failed.take();
        failed.map_or(Ok(()), Err)
    }

    /// Scans ranges until there are none left.
    fn scan_part<T, Pick, Each>(
        self,
        position: &Mutex<Position>,
        part: &mut Part<'_, T, Pick, Each>,
    ) -> Result<()>
    where
        Pick: Fn(Ino, &Inode) -> Result<T>,
        Each: Fn(&[T]) -> ControlFlow<()>,
    {
        loop {
            // Each time: the subvolume may be deleted meanwhile.
            let table = &self.0.root(part.after)?.table;
            let Some(range) = take_range(position, table)? else { return Ok(()) };
            let scanned = self.scan_range(table, range, part);
            // Also before an error: all inodes before the damage are delivered.
            let delivered = part.flush();
            if scanned?.is_break() || delivered.is_break() {
                position.lock().stopped = true;
                return Ok(());
            }
        }
    }

    fn scan_range<T, Pick, Each>(
        self,
        table: &InodeTable,
        range: Range<u64>,
        part: &mut Part<'_, T, Pick, Each>,
    ) -> Result<ControlFlow<()>>
    where
        Pick: Fn(Ino, &Inode) -> Result<T>,
        Each: Fn(&[T]) -> ControlFlow<()>,
    {
        let numbers = table.blocks_in_use(range)?;
        let mut is_ahead = false;
        for (at, number) in numbers.iter().enumerate() {
            if part.batch.len() + INODES_PER_BLOCK > BATCH && part.flush().is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let seen = {
                let pin = table.pin();
                table.view(&pin, *number).map(|block| part.add(&block)).is_some()
            };
            if !seen {
                if !std::mem::replace(&mut is_ahead, true) {
                    let first = |number: &u64| table.block_id(*number).first;
                    let rest = numbers[at..].iter().map(first);
                    self.0.store.read_ahead().inodes(rest);
                }
                match table.with_view(*number, |block| part.add(block)) {
                    // The block is not used any more, unless the whole subvolume is not.
                    Err(e) if e.is(Code::Stale) => self.0.root(part.after).map(|_| ())?,
                    added => added?,
                }
            }
            if let Some(e) = part.failed.take() {
                return Err(e);
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Takes the next range of blocks; `None` at the end.
fn take_range(position: &Mutex<Position>, table: &InodeTable) -> Result<Option<Range<u64>>> {
    let mut position = position.lock();
    if position.stopped {
        return Ok(None);
    }
    let Some(from) = table.next_in_use(position.next)? else {
        position.stopped = true;
        return Ok(None);
    };
    let end = from.saturating_add(RANGE);
    position.next = end;
    Ok(Some(from..end))
}
