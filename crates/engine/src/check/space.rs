//! The segments' live bytes against everything that points into them.

use super::Check;
use shoal_base::{Addr, Result};
use shoal_format::node::TreeId;
use shoal_format::usage::SegKind;
use std::sync::atomic::Ordering;

impl Check<'_> {
    pub(crate) fn space(&mut self) -> Result<()> {
        let store = &self.volume.store;
        for root in store.roots.iter() {
            for id in TreeId::ALL {
                let mut nodes = Vec::new();
                match root.tree(id).for_each_node(&mut |ptr| nodes.push(ptr)) {
                    // It has been named where its entries were looked at.
                    Err(e) if e.is_damage() => self.broken = true,
                    walked => walked?,
                }
                nodes.retain(|ptr| !ptr.is_null());
                self.report.blocks += nodes.len() as u64;
                self.meta.append(&mut nodes);
            }
        }
        self.image.for_each_object(&mut |_, ptr| self.meta.push(ptr));
        self.overlaps();
        let said = store.prealloc.load(Ordering::Relaxed);
        // What points to the rest may be in what cannot be read.
        if !self.broken {
            self.live();
        }
        if !self.broken && said != self.prealloc as i64 {
            let message = format!("{} bytes preallocated, counted {said}", self.prealloc);
            self.problem("prealloc", message);
        }
        match store.space.accounting_errors() {
            0 => {}
            n => self.problem("accounting", format!("{n} counts of live bytes went out of range")),
        }
        Ok(())
    }

    fn overlaps(&mut self) {
        self.data.sort_unstable();
        let pairs = self.data.windows(2).filter(|w| w[0].0 + u64::from(w[0].1) > w[1].0);
        let lines: Vec<String> = pairs
            .map(|w| format!("bytes {}+{} and {}+{}", w[0].0, w[0].1, w[1].0, w[1].1))
            .collect();
        lines.into_iter().for_each(|l| self.problem("extents-shared", l));
    }

    fn live(&mut self) {
        let store = &self.volume.store;
        let mut sums = vec![(0u64, 0u64); store.geometry.segments as usize];
        for (addr, len) in &self.data {
            let seg = store.geometry.segment_of(Addr(*addr)).0 as usize;
            if let Some(sum) = sums.get_mut(seg) {
                sum.0 += u64::from(*len);
            }
        }
        for ptr in &self.meta {
            let seg = store.geometry.segment_of(ptr.addr).0 as usize;
            if let Some(sum) = sums.get_mut(seg) {
                sum.1 += u64::from(ptr.len);
            }
        }
        for (seg, kind, live, _) in store.space.usage() {
            let (data, meta) = sums[seg.0 as usize];
            let wanted = match kind {
                SegKind::Data => (data, meta == 0),
                SegKind::Meta => (meta, data == 0),
                _ => (0, data + meta == 0),
            };
            if wanted.0 != u64::from(live) || !wanted.1 {
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
