//! Operations on attributes: times, extended attributes.

use super::Workload;
use crate::exec::Lockstep;
use crate::op::{Data, Op, Target, Who, at};
use shoal::raw::{SetTime, XattrFlags};
use shoal_base::limits::FILE_SIZE_MAX;

impl Workload {
    /// Values of three sizes: inside the inode, in the tree, on the device by themselves. Several
    /// together cross from form to form.
    pub(super) fn xattr(&mut self, run: &Lockstep) -> Op {
        let (who, file) = (self.who(), self.any(run));
        let name = self.xattr_name();
        if self.rng.chance(30) {
            return Op::RemoveXattr { who, file, name };
        }
        let data = self.xattr_value();
        let flags = match self.rng.below(6) {
            0 => XattrFlags { create: true, ..XattrFlags::default() },
            1 => XattrFlags { replace: true, ..XattrFlags::default() },
            _ => XattrFlags::default(),
        };
        Op::SetXattr { who, file, name, data, flags }
    }

    pub(super) fn xattr_value(&mut self) -> Data {
        let len = match self.rng.below(12) {
            0 => 0,
            1..=5 => self.rng.range(1, 60),
            6..=8 => self.rng.range(60, 1024),
            9 => *self.rng.pick(&[1024, 1025, 65_536, 65_537]),
            _ => self.rng.range(1025, 20_000),
        };
        Data { seed: self.rng.next(), len: len as u32 }
    }

    pub(super) fn xattr_name(&mut self) -> Vec<u8> {
        match self.rng.below(30) {
            0 => b"user.".to_vec().into_iter().chain(vec![b'L'; 250]).collect(),
            1 => b"user.".to_vec().into_iter().chain(vec![b'L'; 251]).collect(),
            2 => b"parent.x".to_vec(),
            3..=5 => b"trusted.t".to_vec(),
            6..=9 => b"security.s".to_vec(),
            n => format!("user.{}", "n".repeat(1 + n as usize % 5 * 6)).into_bytes(),
        }
    }

    pub(super) fn utimes(&mut self, who: Who, file: Target) -> Op {
        let times = [
            SetTime::To(at(0, 0)),
            SetTime::To(at(-1, 999_999_999)),
            SetTime::To(at(1 << 33, 5)),
            SetTime::To(at(self.rng.below(2_000_000_000) as i64, 123_456_789)),
        ];
        let (atime, mtime) = match self.rng.below(4) {
            0 => (Some(SetTime::Now), Some(SetTime::Now)),
            1 => (None, Some(*self.rng.pick(&times))),
            2 => (Some(*self.rng.pick(&times)), None),
            _ => (Some(*self.rng.pick(&times)), Some(*self.rng.pick(&times))),
        };
        Op::Utimes { who, file, atime, mtime }
    }

    pub(super) fn truncate(&mut self, run: &Lockstep) -> Op {
        let file = self.file(run);
        let size = match self.rng.below(10) {
            0..=2 => 0,
            3 => self.rng.below(FILE_SIZE_MAX),
            4 => FILE_SIZE_MAX + self.rng.below(2),
            5 => self.rng.range(0, 2 << 20),
            _ => self.offset(run, &file),
        };
        Op::Truncate { who: self.who(), file, size, by_handle: self.rng.chance(50) }
    }
}
