//! Compares the segments' live bytes with everything that points into them.

use super::work::future;
use super::{Check, PROBLEMS_MAX};
use crate::check::Inspection;
use shoal_base::Result;
use shoal_format::Ptr;
use shoal_format::node::TreeId;
use shoal_format::usage::SegKind;

/// Adds metadata to the sums of the segments.
fn add_meta(volume: Inspection<'_>, live: &mut [(u64, u64)], ptr: Ptr) {
    let seg = volume.0.store.geometry().segment_of(ptr.addr).0 as usize;
    if let Some((_, meta)) = live.get_mut(seg) {
        *meta += u64::from(ptr.len);
    }
}

impl Check<'_> {
    pub(crate) fn space(&mut self) -> Result<()> {
        let volume = self.volume;
        let store = &volume.0.store;
        let epoch = store.epoch();
        for root in store.roots().iter() {
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
                    // It has been reported by the pass of its tree.
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
        let said = store.promises().counted();
        // Pointers to the rest may be in unreadable blocks.
        if !self.sum.broken {
            self.live();
        }
        if !self.sum.broken && said != self.sum.prealloc as i64 {
            let message = format!("{} bytes preallocated, recorded {said}", self.sum.prealloc);
            self.problem("prealloc", message);
        }
        match store.space().counts().accounting_errors() {
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
        let store = &self.volume.0.store;
        for (seg, kind, live, _) in store.space().usage() {
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
