//! Compression of stored objects: nodes, inode blocks, data objects.
//!
//! Each object is compressed separately. Its pointer holds the codec, the stored length and the
//! decoded length. A reader verifies the checksum of the stored bytes first, then decodes into a
//! buffer of exactly the decoded length. Compressed bytes with a wrong length are rejected and can
//! cost neither memory nor time.
//!
//! | object | uncompressed | compressed |
//! | --- | --- | --- |
//! | node | header | slots, values ([`crate::node`]) |
//! | inode block | header | lengths, trimmed inodes ([`crate::inode`]) |
//! | data object | header | payload ([`crate::extent`]) |
//!
//! An object is compressed only if that makes it shorter. All other structures are never
//! compressed.

use crate::declare::{layout, numbered};
use crate::features::{INCOMPAT_LZ4, INCOMPAT_ZSTD};
use std::alloc::{Layout, handle_alloc_error};
use std::cell::RefCell;
use zstd::bulk::{Compressor, Decompressor};

numbered! {
    /// The compression of an object's bytes.
    #[derive(Default)]
    pub enum Codec: u8 {
        /// Uncompressed.
        #[default]
        0 None,
        /// An LZ4 block.
        1 Lz4,
        /// A Zstandard frame.
        2 Zstd,
    }
}

layout! {
    /// The codec for new objects of a volume.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Compression: "compression", 4 of 4,
    "Codec for new objects of a volume, used if it makes them shorter." {
        0 codec: Codec, "0 none, 1 lz4, 2 zstd";
        1 level: u8, "of zstd: 1 to 19; else 0";
        2 reserved[2], "zero";
    }
}

/// Highest level of Zstandard. Higher ones need too much memory to decode.
pub const LEVEL_MAX: u8 = 19;
/// Level of Zstandard if none is given.
pub const LEVEL_DEFAULT: u8 = 3;

/// Approximate memory of a Zstandard decoder.
const CONTEXT: Layout = Layout::new::<[u8; 160 << 10]>();

/// Bytes of the sample that predicts whether data is compressible.
const SAMPLE: usize = 4096;

/// An object's stored length, its decoded length, and its codec.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coding {
    /// Codec.
    pub codec: Codec,
    /// Stored bytes.
    pub len: u32,
    /// Decoded bytes.
    pub logical: u32,
}

impl Coding {
    /// Returns the coding of `len` uncompressed bytes.
    pub const fn plain(len: u32) -> Coding {
        Coding { codec: Codec::None, len, logical: len }
    }
    /// Returns whether the lengths match the codec: compressed objects are shorter, others equal.
    #[inline]
    pub fn is_valid(&self) -> bool {
        match self.codec {
            Codec::None => self.len == self.logical,
            Codec::Lz4 | Codec::Zstd => 0 < self.len && self.len < self.logical,
        }
    }
}

impl Codec {
    /// Decodes `stored`, whose checksum has been verified, into `out`.
    ///
    /// # Errors
    /// A message if `stored` does not decode to exactly as many bytes as `out` has. Allocates
    /// nothing that depends on `stored`.
    pub fn decode(self, stored: &[u8], out: &mut [u8]) -> Result<(), String> {
        let decoded = match self {
            Codec::None if stored.len() == out.len() => {
                out.copy_from_slice(stored);
                Ok(out.len())
            }
            Codec::None => Ok(stored.len()),
            Codec::Lz4 => lz4_flex::block::decompress_into(stored, out).map_err(|e| e.to_string()),
            Codec::Zstd => with_coders(|coders| coders.unzstd(stored, out)),
        };
        match decoded {
            Ok(len) if len == out.len() => Ok(()),
            Ok(len) => Err(format!("decodes to {len} bytes, pointer says {}", out.len())),
            Err(e) => Err(format!("{} of {} bytes: {e}", self.name(), out.len())),
        }
    }
    /// Returns its name in options and messages.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }
}

impl Compression {
    /// No compression.
    pub const NONE: Compression = Compression { codec: Codec::None, level: 0 };
    /// LZ4, which has no levels.
    pub const LZ4: Compression = Compression { codec: Codec::Lz4, level: 0 };

    /// Returns Zstandard of a level from 1 to [`LEVEL_MAX`], else `None`.
    pub fn zstd(level: u8) -> Option<Compression> {
        let compression = Compression { codec: Codec::Zstd, level };
        compression.is_valid().then_some(compression)
    }
    /// Returns whether the codec has this level.
    pub fn is_valid(self) -> bool {
        match self.codec {
            Codec::None | Codec::Lz4 => self.level == 0,
            Codec::Zstd => (1..=LEVEL_MAX).contains(&self.level),
        }
    }
    /// Returns the incompatible feature bit of such a volume.
    pub fn feature(self) -> u64 {
        match self.codec {
            Codec::None => 0,
            Codec::Lz4 => INCOMPAT_LZ4,
            Codec::Zstd => INCOMPAT_ZSTD,
        }
    }
    /// Appends `plain` to `out`: compressed if that takes at most `most` bytes, otherwise
    /// unchanged. Returns the codec used.
    pub fn encode(self, plain: &[u8], most: usize, out: &mut Vec<u8>) -> Codec {
        self.encode_if(plain, most, out).unwrap_or_else(|| {
            out.extend_from_slice(plain);
            Codec::None
        })
    }
    /// Appends `plain` to `out`, compressed, if that takes at most `most` bytes and is shorter.
    /// Returns the codec, or `None` if nothing was appended.
    pub fn encode_if(self, plain: &[u8], most: usize, out: &mut Vec<u8>) -> Option<Codec> {
        let most = most.min(plain.len().saturating_sub(1));
        let coded = most > 0 && with_coders(|coders| coders.encode(self, plain, most, out));
        coded.then_some(self.codec)
    }
    /// Returns whether compression may save an eighth. Long data is judged by a sample from its
    /// middle.
    pub fn is_worth_trying(self, data: &[u8]) -> bool {
        if self.codec == Codec::None || data.len() <= 2 * SAMPLE {
            return self.codec != Codec::None;
        }
        let sample = &data[data.len() / 2..][..SAMPLE];
        let lz4 = Compression::LZ4;
        // The rest of the data may be more compressible than the sample.
        with_coders(|coders| coders.encode(lz4, sample, SAMPLE - SAMPLE / 16, &mut Vec::new()))
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.codec.name())?;
        match self.level {
            0 => Ok(()),
            level => write!(f, ":{level}"),
        }
    }
}

impl std::str::FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Compression, String> {
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        let codec = Codec::ALL.into_iter().find(|codec| codec.name() == name);
        let level = match (codec, level) {
            (Some(Codec::Zstd), Some(level)) => level.parse().ok(),
            (Some(Codec::Zstd), None) => Some(LEVEL_DEFAULT),
            (Some(_), None) => Some(0),
            _ => None,
        };
        let compression = codec.zip(level).map(|(codec, level)| Compression { codec, level });
        compression.filter(|it| it.is_valid()).ok_or_else(|| {
            format!("'{text}': must be none, lz4, zstd, or zstd:LEVEL from 1 to {LEVEL_MAX}")
        })
    }
}

/// Working memory of a thread: 150 KiB, with Zstandard about 1 MiB more for a low level.
#[derive(Default)]
struct Coders {
    coded: Vec<u8>,
    zstd: Option<(u8, Compressor<'static>)>,
    unzstd: Option<Decompressor<'static>>,
}

thread_local! {
    static CODERS: RefCell<Coders> = RefCell::default();
}

fn with_coders<R>(work: impl FnOnce(&mut Coders) -> R) -> R {
    CODERS.with_borrow_mut(work)
}

impl Coders {
    /// Appends `plain`, compressed, if that takes at most `most` bytes. Returns whether it did.
    fn encode(&mut self, how: Compression, plain: &[u8], most: usize, out: &mut Vec<u8>) -> bool {
        let coded = match how.codec {
            Codec::None => return false,
            Codec::Lz4 => {
                let room = lz4_flex::block::get_maximum_output_size(plain.len());
                if self.coded.len() < room {
                    self.coded.resize(room, 0);
                }
                lz4_flex::block::compress_into(plain, &mut self.coded).ok()
            }
            Codec::Zstd => self.zstd(how.level, plain, most),
        };
        match coded.filter(|len| *len <= most) {
            Some(len) => {
                out.extend_from_slice(&self.coded[..len]);
                true
            }
            None => false,
        }
    }

    fn zstd(&mut self, level: u8, plain: &[u8], most: usize) -> Option<usize> {
        if self.zstd.as_ref().is_none_or(|(of, _)| *of != level) {
            self.zstd = Some((level, Compressor::new(i32::from(level)).ok()?));
        }
        if self.coded.len() < most {
            self.coded.resize(most, 0);
        }
        // Fails early if the output would be longer.
        let (_, compressor) = self.zstd.as_mut()?;
        compressor.compress_to_buffer(plain, &mut self.coded[..most]).ok()
    }

    fn unzstd(&mut self, stored: &[u8], out: &mut [u8]) -> Result<usize, String> {
        // Out of memory, as for any other allocation. An object that cannot be decoded for lack of
        // memory must not be reported as damaged.
        let made = || Decompressor::new().unwrap_or_else(|_| handle_alloc_error(CONTEXT));
        let unzstd = self.unzstd.get_or_insert_with(made);
        unzstd.decompress_to_buffer(stored, out).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn all() -> [Compression; 3] {
        [Compression::LZ4, Compression::zstd(1).unwrap(), Compression::zstd(19).unwrap()]
    }

    fn text(len: usize) -> Vec<u8> {
        "a tree of small files, ".bytes().cycle().take(len).collect()
    }

    /// Incompressible bytes.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..len).map(next).collect()
    }

    #[test]
    fn what_is_coded_is_shorter_and_decodes_to_what_it_was() {
        for how in all() {
            for plain in [text(64), text(5000), text(131_072), noise(16), noise(9000), vec![7]] {
                let mut stored = vec![1, 2, 3];
                let codec = how.encode(&plain, plain.len(), &mut stored);
                assert_eq!(stored[..3], [1, 2, 3]);
                let coding =
                    Coding { codec, len: stored.len() as u32 - 3, logical: plain.len() as u32 };
                assert!(coding.is_valid(), "{coding:?}");
                let mut back = vec![0; plain.len()];
                codec.decode(&stored[3..], &mut back).unwrap();
                assert_eq!(back, plain);
            }
        }
    }

    #[test]
    fn noise_and_what_saves_too_little_stay_as_they_are() {
        for how in all() {
            let mut out = Vec::new();
            assert_eq!(how.encode(&noise(20_000), 20_000, &mut out), Codec::None);
            assert_eq!(out, noise(20_000));
            out.clear();
            let half = [text(4096), noise(4096)].concat();
            assert_eq!(how.encode(&half, half.len() / 4, &mut out), Codec::None);
            assert_eq!(how.encode(&half, half.len() * 7 / 8, &mut Vec::new()), how.codec);
            assert!(!how.is_worth_trying(&noise(100_000)));
            assert!(how.is_worth_trying(&text(100_000)));
        }
        assert!(!Compression::NONE.is_worth_trying(&text(100)));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for how in all() {
            let plain = text(10_000);
            let mut stored = Vec::new();
            let codec = how.encode(&plain, plain.len(), &mut stored);
            for len in [0, 1, 9_999, 10_001, 131_072] {
                let said = codec.decode(&stored, &mut vec![0; len]).unwrap_err();
                assert!(said.contains(&len.to_string()), "{said}");
            }
            for cut in [0, 1, stored.len() / 2, stored.len() - 1] {
                assert!(codec.decode(&stored[..cut], &mut vec![0; 10_000]).is_err());
            }
        }
        assert!(Codec::None.decode(&[1, 2], &mut [0; 3]).is_err());
    }

    #[test]
    fn options_are_read_as_they_are_written() {
        for (text, codec, level) in
            [("none", Codec::None, 0), ("lz4", Codec::Lz4, 0), ("zstd:7", Codec::Zstd, 7)]
        {
            let compression: Compression = text.parse().unwrap();
            assert_eq!((compression.codec, compression.level), (codec, level));
            assert_eq!(compression.to_string(), text);
        }
        assert_eq!("zstd".parse(), Ok(Compression { codec: Codec::Zstd, level: 3 }));
        for bad in ["", "gzip", "lz4:1", "zstd:0", "zstd:20", "zstd:", "zstd:-1", "none:0", "LZ4"] {
            assert!(bad.parse::<Compression>().unwrap_err().contains("must be none"), "{bad}");
        }
    }
}
