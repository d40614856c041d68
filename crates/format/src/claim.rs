//! The owner claim: the block that identifies the process writing to a volume to all other
//! processes, whatever path they use. It is renewed while the volume is open, and zero when the
//! volume is closed.
//!
//! It is in segment 0, far from both superblock copies: a block that is rewritten every half second
//! must not share a sector, an erase block or a cached page with the structures needed to open the
//! volume. No pointer leads to it and no other structure depends on it. Volumes made before claims
//! existed have zeros there, which means no claim.

use crate::bytes::{Reader, seal, set_at, u16_at, u32_at, u64_at};
use crate::declare::layout;
use crate::superblock;
use shoal_base::checksum::checksum_of_body;
use shoal_base::limits;

/// Byte address of the claim.
pub const ADDR: u64 = 512 << 10;
/// Bytes of the claim.
pub const SIZE: usize = shoal_base::limits::SECTOR as usize;
/// `SHOALCLM` at its start.
pub const MAGIC: [u8; 8] = *b"SHOALCLM";
/// Version of the structure. A claim of another version is unreadable, not absent.
pub const VERSION: u32 = 1;
/// Bytes before the texts.
pub const HEADER: usize = OwnerClaim::SIZE;
/// Valid range of the time, in milliseconds, after which a claim that is not renewed is abandoned.
pub const PATIENCE_MS: std::ops::RangeInclusive<u32> = 2_000..=60_000;

/// Longest host name, path and command line, in bytes.
const TEXT_MAX: [usize; 3] = [256, 1024, 2048];

const _: () = assert!(HEADER + TEXT_MAX[0] + TEXT_MAX[1] + TEXT_MAX[2] + 8 <= SIZE);
// It is in segment 0, to which no stream writes, and overlaps no superblock copy.
const _: () = assert!(ADDR + SIZE as u64 <= limits::SEGMENT_SIZE_MIN);
const _: () = assert!(ADDR >= superblock::COPIES[1] + 4096);

layout! {
    /// A claim. 4096 bytes on disk.
    #[derive(Clone, PartialEq, Eq, Debug, Default)]
    pub struct OwnerClaim: "owner-claim", 144 of 4096,
    "The process that has the volume open for writing, at byte 524,288; host name, path and \
     command line follow the header, the last 8 bytes are the checksum. Zero when the volume is \
     closed." {
        0 magic: [u8; 8] = MAGIC, "`SHOALCLM`";
        8 version[4], "1";
        12 patience_ms: u32,
           "milliseconds without a renewal after which the claim is abandoned";
        16 volume: [u8; 16], "volume id; a different id: left by an earlier volume";
        32 owner: [u8; 16], "random number chosen at open";
        48 machine: [u8; 16], "machine id; zero: unknown";
        64 boot: [u8; 16], "boot id; zero: unknown";
        80 pid_namespace: u64, "inode of the process's pid namespace; 0: unknown";
        88 process_start: u64, "clock ticks since boot; 0: unknown";
        96 beat: u64, "incremented at every renewal";
        104 since: i64, "time of the open, seconds since 1970";
        112 renewed: i64, "time of the last renewal, seconds since 1970";
        120 pid: u32, "process id, in its pid namespace";
        124 host_len[2], "bytes of the host name";
        126 path_len[2], "bytes of the path by which it was opened";
        128 command_len[2], "bytes of the command line";
        130 reserved[14], "zero";
        + host: String, "name of the host, for messages";
        + path: String, "path by which the volume was opened, for messages";
        + command: String, "command line of the process, for messages";
    }
}

const AT_VERSION: usize = OwnerClaim::TABLE.at("version");
/// Offsets of the lengths of the texts.
const AT_LENGTHS: [usize; 3] = [
    OwnerClaim::TABLE.at("host_len"),
    OwnerClaim::TABLE.at("path_len"),
    OwnerClaim::TABLE.at("command_len"),
];

/// Contents of the claim's block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClaimBlock {
    /// No claim: the block does not begin with the magic.
    Absent,
    /// A claim.
    Claim(Box<OwnerClaim>),
    /// The block begins with the magic but is not valid: torn, damaged, or of another version.
    Unreadable(&'static str),
}

impl OwnerClaim {
    /// Encodes the block. Texts are truncated to their limits.
    pub fn encode(&self) -> Vec<u8> {
        let texts = [&self.host, &self.path, &self.command];
        let texts = [0, 1, 2].map(|i| &texts[i][..texts[i].floor_char_boundary(TEXT_MAX[i])]);
        let mut out = Vec::with_capacity(SIZE);
        self.append(&mut out);
        set_at(&mut out, AT_VERSION, VERSION);
        for (text, at) in texts.iter().zip(AT_LENGTHS) {
            set_at(&mut out, at, text.len() as u16);
        }
        for text in texts {
            out.extend_from_slice(text.as_bytes());
        }
        out.resize(SIZE, 0);
        seal(&mut out);
        out
    }

    /// Decodes and verifies the block.
    pub fn decode(raw: &[u8]) -> ClaimBlock {
        if !raw.starts_with(&MAGIC) {
            return ClaimBlock::Absent;
        }
        if raw.len() != SIZE {
            return ClaimBlock::Unreadable("length");
        }
        if u64_at(raw, SIZE - 8) != checksum_of_body(raw) {
            return ClaimBlock::Unreadable("checksum");
        }
        if u32_at(raw, AT_VERSION) != VERSION {
            return ClaimBlock::Unreadable("version");
        }
        match OwnerClaim::fields(raw) {
            Some(claim) if PATIENCE_MS.contains(&claim.patience_ms) => {
                ClaimBlock::Claim(Box::new(claim))
            }
            Some(_) => ClaimBlock::Unreadable("patience"),
            None => ClaimBlock::Unreadable("length of a text"),
        }
    }

    fn fields(raw: &[u8]) -> Option<OwnerClaim> {
        let mut claim = OwnerClaim::read(raw).ok()?;
        let mut texts = Reader::new(&raw[HEADER..SIZE - 8]);
        let mut text = |i: usize| {
            let len = usize::from(u16_at(raw, AT_LENGTHS[i]));
            let raw = texts.take(len).filter(|_| len <= TEXT_MAX[i])?;
            std::str::from_utf8(raw).ok().map(str::to_owned)
        };
        (claim.host, claim.path, claim.command) = (text(0)?, text(1)?, text(2)?);
        Some(claim)
    }

    /// Returns whether `other` was written by the same open.
    pub fn is_same_owner(&self, other: &OwnerClaim) -> bool {
        self.owner == other.owner
    }

    /// The owner as text: `process 17 on host (shoal mount v.img /mnt)`. Control characters are
    /// replaced, because the text may come from another machine.
    pub fn owner_text(&self) -> String {
        let clean = |text: &str, most: usize| -> String {
            let printable = |c: char| if c.is_control() { '?' } else { c };
            text.chars().take(most).map(printable).collect()
        };
        let mut text = format!("process {}", self.pid);
        if !self.host.is_empty() {
            text += &format!(" on {}", clean(&self.host, 64));
        }
        if !self.command.is_empty() {
            text += &format!(" ({})", clean(&self.command, 120));
        }
        if !self.path.is_empty() {
            text += &format!(", which opened it as {}", clean(&self.path, 120));
        }
        text
    }

    /// All fields in one line.
    pub fn to_text(&self) -> String {
        let hex = |id: &[u8; 16]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!(
            "{}; since {} s, renewed {} s after 1970, beat {}, patience {} ms; volume {}, owner \
             {}, machine {}, boot {}, pid namespace {}, process started at tick {}",
            self.owner_text(),
            self.since,
            self.renewed,
            self.beat,
            self.patience_ms,
            hex(&self.volume),
            hex(&self.owner),
            hex(&self.machine),
            hex(&self.boot),
            self.pid_namespace,
            self.process_start
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> OwnerClaim {
        OwnerClaim {
            volume: [1; 16],
            owner: [2; 16],
            machine: [3; 16],
            boot: [4; 16],
            pid_namespace: 5,
            pid: 6,
            patience_ms: 2_000,
            process_start: 7,
            beat: 8,
            since: -9,
            renewed: 10,
            host: "host".into(),
            path: "/v.img".into(),
            command: "shoal mount v.img m".into(),
        }
    }

    #[test]
    fn a_claim_reads_back_and_texts_are_cut_between_characters() {
        let raw = claim().encode();
        assert_eq!(raw.len(), SIZE);
        assert_eq!(OwnerClaim::decode(&raw), ClaimBlock::Claim(Box::new(claim())));
        let long = OwnerClaim { host: "é".repeat(300), path: "p".repeat(5000), ..claim() };
        let ClaimBlock::Claim(back) = OwnerClaim::decode(&long.encode()) else { panic!() };
        assert_eq!((back.host.len(), back.path.len()), (256, 1024));
        assert_eq!(back.command, claim().command);
        let odd = OwnerClaim { host: format!("a{}", "é".repeat(300)), ..claim() };
        let ClaimBlock::Claim(back) = OwnerClaim::decode(&odd.encode()) else { panic!() };
        assert_eq!(back.host.len(), 255);
    }

    #[test]
    fn zeros_and_strangers_are_no_claim_and_every_flipped_bit_is_seen() {
        assert_eq!(OwnerClaim::decode(&[0; SIZE]), ClaimBlock::Absent);
        assert_eq!(OwnerClaim::decode(&[7; SIZE]), ClaimBlock::Absent);
        assert_eq!(OwnerClaim::decode(b""), ClaimBlock::Absent);
        let raw = claim().encode();
        for bit in 0..raw.len() * 8 {
            let mut bad = raw.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let wanted = bit < 64;
            match OwnerClaim::decode(&bad) {
                ClaimBlock::Absent => assert!(wanted, "bit {bit}"),
                ClaimBlock::Unreadable(_) => assert!(!wanted, "bit {bit}"),
                ClaimBlock::Claim(_) => panic!("bit {bit}"),
            }
        }
    }

    #[test]
    fn rules_are_checked_behind_a_right_checksum() {
        let with = |at: usize, bytes: &[u8]| {
            let mut raw = claim().encode();
            raw[at..at + bytes.len()].copy_from_slice(bytes);
            let sum = checksum_of_body(&raw);
            raw[SIZE - 8..].copy_from_slice(&sum.to_le_bytes());
            OwnerClaim::decode(&raw)
        };
        assert_eq!(with(8, &[9]), ClaimBlock::Unreadable("version"));
        assert_eq!(with(12, &[0; 4]), ClaimBlock::Unreadable("patience"));
        assert_eq!(with(12, &[0xff; 4]), ClaimBlock::Unreadable("patience"));
        assert_eq!(with(124, &[0xff; 2]), ClaimBlock::Unreadable("length of a text"));
        assert_eq!(with(HEADER, &[0xff]), ClaimBlock::Unreadable("length of a text"));
    }

    #[test]
    fn texts_from_elsewhere_cannot_play_with_a_terminal() {
        let text = OwnerClaim { command: "a\x1b[2Jb\n".into(), ..claim() }.owner_text();
        assert!(text.contains("(a?[2Jb?)") && !text.contains('\x1b'), "{text}");
        assert!(claim().to_text().contains("beat 8, patience 2000 ms"));
    }
}
