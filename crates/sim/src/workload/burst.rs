//! Bursts: thousands of small writes, and one call over all of them.

use super::Workload;
use crate::op::{Data, Op, Target, Who};
use shoal::raw::Fallocate;

impl Workload {
    /// Small writes at a stride, and a call over all that they made.
    pub(super) fn begin_burst(&mut self, file: Target) -> Op {
        let stride = *self.rng.pick(&[16, 1024, 2048, 2048, 4096, 9000]);
        let count = *self.rng.pick(&[60, 300, 2300, 2300, 4300]);
        let (start, len) = (self.rng.below(1 << 20), self.rng.range(1, 12) as u32);
        let (offset, whole) = (start, stride * count);
        let (keep_size, kill_priv) = (self.rng.chance(50), false);
        let over = match self.rng.below(6) {
            0 => Fallocate::Allocate { keep_size },
            1..=2 => Fallocate::PunchHole,
            _ => Fallocate::ZeroRange { keep_size },
        };
        let last = match self.rng.below(8) {
            0 => {
                let data = Data { seed: self.rng.next(), len: whole.min(1 << 20) as u32 };
                Op::Write { file: file.clone(), offset, data, kill_priv }
            }
            1 => Op::Truncate { who: Who::Root, file: file.clone(), size: start, by_handle: false },
            2 => Op::Fsync { file: file.clone(), datasync: false },
            _ => Op::Fallocate { file: file.clone(), mode: over, offset, len: whole },
        };
        // A crash soon, while the last of it is on its way to the device.
        if self.rng.chance(40) {
            self.burst.push(Op::Crash { seed: self.rng.next() });
        }
        self.burst.push(last);
        for i in (0..count).rev() {
            let (data, offset) = (Data { seed: self.rng.next(), len }, start + i * stride);
            self.burst.push(Op::Write { file: file.clone(), offset, data, kill_priv });
        }
        self.burst.pop().expect("a burst has a write")
    }
}
