//! Making of images: a volume on a device that records, sessions on it, and the image of a
//! crash at the moment that a row asks for.

use super::contents::{Counts, contents, store};
use super::fill::{Fill, session};
use shoal::raw::{Device, MemDevice, MkfsOptions, OpenOptions, Volume, mkfs_on};
use shoal_base::SegNo;
use shoal_format::batch::BatchHeader;
use shoal_format::usage::SegKind;
use shoal_sim::device::FaultyDevice;
use shoal_sim::image::Image;
use shoal_sim::log::{LogOp, SECTOR};
use std::sync::Arc;

/// Time of the clock when the making of an image begins, in seconds since 1970: 2026-01-01.
const BEGIN: u32 = 1_767_225_600;

/// A volume being made into an image.
pub(super) struct Workshop {
    device: Arc<FaultyDevice>,
    mkfs: MkfsOptions,
}

impl Workshop {
    /// A new volume.
    pub(super) fn new(mkfs: MkfsOptions) -> Workshop {
        // The thread's number chooses the slots of orphans: the first is the same each time.
        assert_eq!(shoal_base::shard::shard(), 0, "images are made by the first thread alone");
        shoal_base::clock::fix(Some(BEGIN));
        let device = Arc::new(FaultyDevice::new(mkfs.size));
        mkfs_on(device.clone() as Arc<dyn Device>, &mkfs).unwrap();
        Workshop { device, mkfs }
    }

    /// The volume in this image, as a crash left it.
    pub(super) fn on(image: Image, mkfs: MkfsOptions) -> Workshop {
        Workshop { device: Arc::new(FaultyDevice::from_image(image)), mkfs }
    }

    pub(super) fn open(&self, options: &OpenOptions) -> Volume {
        Volume::open_on(self.device.clone() as Arc<dyn Device>, options).unwrap()
    }

    /// A session that ends by closing the volume.
    pub(super) fn session(&self, work: impl FnOnce(&Fill<'_>)) {
        let volume = self.open(&session());
        work(&self.fill(&volume));
        volume.close().unwrap();
    }

    /// The volume of an open session, to be filled.
    pub(super) fn fill<'v>(&self, volume: &'v Volume) -> Fill<'v> {
        Fill::new(volume, self.mkfs.id.expect("a volume with a chosen id"))
    }

    /// The volume, which is closed. What is left in free segments is no part of it, and made zero:
    /// the journals of how it was made would be most of the image.
    pub(super) fn closed(&self) -> Image {
        let mut image = self.device.image();
        let device = device_of(&image);
        let sb = shoal_txn::read_superblock(&*device).unwrap();
        assert!(sb.clean, "a session has not been closed");
        let store = store(&device);
        let space = store.space();
        // Segment 0 belongs to the superblocks.
        for seg in
            (1..sb.geometry.segments).filter(|seg| space.kind(SegNo(*seg)) == Some(SegKind::Free))
        {
            image.zero(sb.geometry.start_of(SegNo(seg)).0, sb.geometry.segment_size);
        }
        image
    }

    /// The present moment, as a crash point.
    pub(super) fn position(&self) -> usize {
        self.device.position() as usize
    }

    /// The last image of a crash behind `from` that contains what is `wanted`. The last write, a
    /// batch of the journal if `torn`, has arrived in its first sector only, else in whole; all
    /// before are there.
    pub(super) fn crash(&self, from: usize, torn: bool, wanted: impl Fn(&Counts) -> bool) -> Image {
        let (base, log) = self.device.recorded();
        let mut image = base;
        let mut found = None;
        for (at, op) in log.iter().enumerate() {
            let crashed = match (op, torn) {
                (LogOp::Write { offset, data, .. }, true) => tear(&image, *offset, data),
                _ => None,
            };
            apply(&mut image, op);
            let crashed = if torn { crashed } else { Some(image.clone()) };
            if at >= from
                && let Some(crashed) = crashed
                && wanted(&contents(&device_of(&crashed)))
            {
                found = Some(crashed);
            }
        }
        found.expect("a moment at which the volume contains this")
    }
}

/// The image with a batch that arrived in its first sector only; `None`: it is no batch, or a short
/// one.
fn tear(image: &Image, offset: u64, data: &[u8]) -> Option<Image> {
    let first = SECTOR as usize;
    let rest = data.get(first..)?;
    if BatchHeader::decode(data).is_none() || rest.iter().all(|b| *b == 0) {
        return None;
    }
    let mut torn = image.clone();
    torn.write(&data[..first], offset);
    Some(torn)
}

fn apply(image: &mut Image, op: &LogOp) {
    match op {
        LogOp::Write { offset, data, .. } => image.write(data, *offset),
        LogOp::Discard { offset, len } => image.zero(*offset, *len),
        LogOp::Flush { .. } => {}
    }
}

/// The bytes of an image.
pub(super) fn bytes_of(image: &Image) -> Vec<u8> {
    let mut bytes = vec![0; image.capacity() as usize];
    image.read(&mut bytes, 0);
    bytes
}

/// A device that holds an image.
pub(super) fn device_of(image: &Image) -> Arc<MemDevice> {
    let device = MemDevice::new(image.capacity());
    for range in image.written() {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        image.read(&mut bytes, range.start);
        device.write_at(&bytes, range.start).unwrap();
    }
    Arc::new(device)
}
