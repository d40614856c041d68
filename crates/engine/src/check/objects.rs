//! Verifies data objects: contents of files, and large values of attributes.
//!
//! Problem: small objects are adjacent on the device, and each would cost a separate read.
//!
//! Rule: objects are collected, sorted by address, and read in runs. If a run cannot be read, its
//! objects are read one by one.

use super::object::{DATA, Object, Wrong, data_of, part, value_of};
use super::work::{WORK_KIB, Worker};
use crate::check::Inspection;
use shoal_base::{Addr, Ino, Result};
use shoal_format::Ptr;
use shoal_format::extent::{DataHeader, Extent, HEADER};
use shoal_format::sums::PIECE;
use std::ops::Range;

/// Maximum bytes of collected objects.
const GATHER: u64 = 8 << 20;
/// Maximum number of collected objects.
const GATHER_MAX: usize = 16 << 10;
/// Size in bytes of the device windows in which runs begin.
const RUN: u64 = 1 << 20;
/// Maximum gap between two objects of a run, in bytes.
const GAP: u64 = 16 << 10;

impl Worker<'_> {
    /// Adds the object of an extent.
    pub(super) fn object(&mut self, ino: Ino, extent: &Extent) -> Result<()> {
        self.gather(data_of(ino, extent))
    }

    /// Adds the object of an attribute's value.
    pub(super) fn value(&mut self, ino: Ino, extent: &Extent) -> Result<()> {
        self.add_data(extent);
        self.born(&extent.ptr);
        self.gather(Object { len: extent.len, ..value_of(ino, extent.ptr) })
    }

    fn gather(&mut self, object: Object) -> Result<()> {
        let objects = &mut self.objects;
        objects.bytes += u64::from(object.ptr.len);
        objects.list.push(object);
        match objects.bytes >= GATHER || objects.list.len() >= GATHER_MAX {
            true => self.read_objects(),
            false => Ok(()),
        }
    }

    /// Reads and verifies the collected objects.
    pub(super) fn read_objects(&mut self) -> Result<()> {
        let objects = &mut self.objects;
        if objects.list.is_empty() {
            return Ok(());
        }
        self.found.done += objects.bytes / 1024 * WORK_KIB;
        objects.bytes = 0;
        let (mut list, mut raw) =
            (std::mem::take(&mut objects.list), std::mem::take(&mut objects.raw));
        list.sort_by_key(|object| object.ptr.addr);
        let runs = list.chunk_by(|a, b| {
            let (a, b) = (a.span(), b.span());
            // The windows limit the length of a run.
            b.start <= a.end.saturating_add(GAP) && a.start / RUN == b.start / RUN
        });
        let device = self.volume.0.store.device();
        for run in runs.clone().filter(|run| self.span_of(run).is_some()) {
            let span = self.span_of(run).unwrap_or_default();
            device.will_read(span.start, span.end - span.start);
        }
        for run in runs {
            self.read_run(run, &mut raw)?;
        }
        list.clear();
        (self.objects.list, self.objects.raw) = (list, raw);
        Ok(())
    }

    /// Returns the range of a run on the device; `None` if an object is outside any segment.
    fn span_of(&self, run: &[Object]) -> Option<Range<u64>> {
        let geometry = self.volume.0.store.geometry();
        let possible = |object: &Object| {
            let span = object.span();
            geometry.contains(Addr(span.start), span.end - span.start)
        };
        let end = run.iter().map(|object| object.span().end).max()?;
        run.iter().all(possible).then(|| run[0].span().start..end)
    }

    fn read_run(&mut self, run: &[Object], raw: &mut Vec<u8>) -> Result<()> {
        let span = self.span_of(run).filter(|_| run.len() > 1);
        let together = match &span {
            None => false,
            Some(span) => {
                let len = (span.end - span.start) as usize;
                // Never shrinks, so that only new bytes are zeroed.
                raw.resize(raw.len().max(len), 0);
                match self.volume.0.store.device().read_at(&mut raw[..len], span.start) {
                    Err(e) if e.is_damage() => false,
                    read => read.map(|()| true)?,
                }
            }
        };
        for object in run {
            let wrong = match &span {
                Some(whole) if together => {
                    let own = object.span();
                    let at = (own.start - whole.start) as usize;
                    let len = (own.end - own.start) as usize;
                    self.volume.wrong_with(object, &raw[at..at + len])
                }
                _ => self.volume.look_at_object(object)?,
            };
            self.judge(object, wrong);
        }
        Ok(())
    }

    fn judge(&mut self, object: &Object, wrong: Wrong) {
        let is_whole = match object.data {
            Some(_) => wrong.iter().all(|(rule, _)| *rule == DATA[2]),
            None => wrong.is_empty(),
        };
        if is_whole {
            self.found.report.data_bytes += u64::from(object.len);
        }
        for (rule, what) in wrong {
            let who = self.who(object.ino);
            let message = match object.data {
                Some(_) => format!("{who}: {what}"),
                None => format!("value of an attribute of {who}: {what}"),
            };
            self.problem(rule, message);
        }
    }
}

impl Inspection<'_> {
    /// Returns the problems of the object that an extent of this file points to.
    pub(super) fn object_problems(self, ino: Ino, extent: &Extent) -> Result<Wrong> {
        self.look_at_object(&data_of(ino, extent))
    }

    /// Returns the problems of the object with a value of the inode's attributes.
    pub(super) fn value_problems(self, ino: Ino, ptr: Ptr) -> Result<Wrong> {
        self.look_at_object(&value_of(ino, ptr))
    }

    fn look_at_object(self, object: &Object) -> Result<Wrong> {
        let (span, [address, unreadable, ..]) = (object.span(), object.rules());
        let len = span.end - span.start;
        if !self.0.store.geometry().contains(Addr(span.start), len) {
            let text =
                format!("{}object at byte {} is outside any segment", part(object), span.start);
            return Ok(vec![(address, text)]);
        }
        let mut raw = vec![0; len as usize];
        match self.0.store.device().read_at(&mut raw, span.start) {
            Err(e) if e.is_damage() => Ok(vec![(unreadable, format!("{}{e}", part(object)))]),
            read => read.map(|()| self.wrong_with(object, &raw)),
        }
    }

    /// Returns the problems of an object that has been read.
    fn wrong_with(self, object: &Object, raw: &[u8]) -> Wrong {
        let ([_, _, foreign, checksum], mut wrong) = (object.rules(), Vec::new());
        let header = DataHeader::decode(raw, self.0.store.volume());
        if !header.is_some_and(|header| object.is_mine(header)) {
            let at = object.span().start;
            wrong.push((
                foreign,
                format!("{}object at byte {at} has a wrong or damaged header", part(object)),
            ));
        }
        let payload = &raw[HEADER..];
        let (pieces, at) = (object.pieces.clone(), object.ptr.addr.0);
        let sound = match object.ptr.verify_payload(payload, "data object") {
            Ok(_) if object.ptr.is_coded() => {
                self.objects().decode(&object.ptr, payload, "data object").map(drop)
            }
            Ok(sums) if sums.only(pieces.clone()) == object.sums => Ok(()),
            // The extent and the pointer have different checksums: find the piece.
            Ok(_) => {
                let touched = pieces.start * PIECE..(pieces.end * PIECE).min(payload.len());
                object.sums.verify(pieces.start, &payload[touched], at, "data object")
            }
            Err(e) => Err(e),
        };
        if let Err(e) = sound {
            wrong.push((checksum, format!("{}{e}", part(object))));
        }
        wrong
    }
}
