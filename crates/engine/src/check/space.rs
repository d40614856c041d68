//! The segments' live bytes against everything that points into them.

use super::work::future;
use super::{Check, PROBLEMS_MAX};
use crate::volume::Inner;
use shoal_base::Result;
use shoal_format::Ptr;
use shoal_format::node::TreeId;
use shoal_format::usage::SegKind;
use std::sync::atomic::Ordering;

/// Adds metadata to the sums of the segments.
fn add_meta(volume: &Inner, live: &mut [(u64, u64)], ptr: Ptr) {
    let seg = volume.store.geometry.segment_of(ptr.addr).0 as usize;
    if let Some((_, meta)) = live.get_mut(seg) {
        *meta += u64::from(ptr.len);
    }
}

impl Check<'_> {
    pub(crate) fn space(&mut self) -> Result<()> {
        let volume = self.volume;
        let store = &volume.store;
        let epoch = store.epoch();
        for root in store.roots.iter() {
            for id in TreeId::ALL {
                let sum = &mut self.sum;
                let mut node = |ptr: Ptr| {
                    if !ptr.is_null() {
                        add_meta(volume, &mut sum.live, ptr);
                        sum.report.blocks += 1;
                        future(&ptr, epoch).into_iter().for_each(|p| sum.problem("birth", p));
                    }
                };
                match root.tree(id).for_each_node(&mut node) {
                    // It has been named where its entries were looked at.
                    Err(e) if e.is_damage() => self.sum.broken = true,
                    walked => walked?,
                }
            }
        }
        let (image, sum) = (self.image, &mut self.sum);
        image.for_each_object(&mut |_, ptr| {
            add_meta(volume, &mut sum.live, ptr);
            let problem = future(&ptr, image.checkpoint.epoch);
            problem.into_iter().for_each(|p| sum.problem("birth", p));
        });
        self.overlaps()?;
        let said = store.prealloc.load(Ordering::Relaxed);
        // What points to the rest may be in what cannot be read.
        if !self.sum.broken {
            self.live();
        }
        if !self.sum.broken && said != self.sum.prealloc as i64 {
            let message = format!("{} bytes preallocated, counted {said}", self.sum.prealloc);
            self.problem("prealloc", message);
        }
        match store.space.accounting_errors() {
            0 => {}
            n => self.problem("accounting", format!("{n} counts of live bytes went out of range")),
        }
        Ok(())
    }

    fn overlaps(&mut self) -> Result<()> {
        let (mut before, mut lines) = ((0, 0), Vec::new());
        self.sum.data.in_order(&mut |addr, len| {
            let (start, size) = before;
            if start + u64::from(size) > addr && lines.len() < PROBLEMS_MAX {
                lines.push(format!("bytes {start}+{size} and {addr}+{len}"));
            }
            before = (addr, len);
        })?;
        lines.into_iter().for_each(|l| self.problem("extents-shared", l));
        Ok(())
    }

    fn live(&mut self) {
        let store = &self.volume.store;
        for (seg, kind, live, _) in store.space.usage() {
            let (data, meta) = self.sum.live[seg.0 as usize];
            let wanted = match kind {
                SegKind::Data => (data, meta == 0),
                SegKind::Meta => (meta, data == 0),
                _ => (0, data + meta == 0),
            };
            if wanted.0 != live || !wanted.1 {
                let message = format!(
                    "segment {} ({}): {live} live bytes, found {data} of data, {meta} of metadata",
                    seg.0,
                    kind.name()
                );
                self.problem("segment-live", message);
            }
        }
    }
}
