//! Objects of a volume in a bucket: the log, data, and manifests.
//!
//! A bucket stores a volume as a device stores it, byte by byte of one address space; the
//! structures of the volume itself are the same. Objects are written once, and each *piece* of one
//! holds up to 256 KiB of the address space. The newest piece for an address is the valid one.
//!
//! | object | name | written | content |
//! | --- | --- | --- | --- |
//! | manifest | `manifest/SEQUENCE` | created only if absent | [`manifest`]: which piece holds which addresses, up to a slot of the log; or a claim; or, in place of an old one, the number of a newer one |
//! | log object | `log/SLOT` | created only if absent, one after another | [`object`]: the pieces that one flush makes durable, or that another opening owns the volume from here on |
//! | data object | `data/EPOCH-NUMBER` | any number at once, before the log object that refers to them | [`object`]: pieces |
//!
//! An *epoch* is one opening for writing. Its number is that of its claim, which is a manifest, so
//! no two openings have the same one.
//!
//! The state of a volume is the newest complete manifest with the log objects behind it, in order,
//! up to the first slot that is absent.

pub mod manifest;
pub mod object;

use shoal_base::{Code, Error};

/// Longest piece, in bytes of the address space. Pieces do not cross multiples of it.
pub const FRAME: u32 = 256 << 10;

/// The error of an object whose checksum is right, and whose header breaks a rule.
fn unknown(object: &str, rule: &str) -> Error {
    let message = format!(
        "{object}: has a right checksum and a header that this version of Shoal does not know \
         ({rule}): a newer version of Shoal wrote it, and can read it"
    );
    Error::refused(Code::NotSupported, message)
}

/// Returns the name of a manifest.
pub fn manifest_name(sequence: u64) -> String {
    format!("manifest/{sequence:020}")
}

/// Returns the name of a log object.
pub fn log_name(slot: u64) -> String {
    format!("log/{slot:020}")
}

/// Returns the name of a data object.
pub fn data_name(epoch: u64, number: u64) -> String {
    format!("data/{epoch:020}-{number:020}")
}

/// An object that has pieces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Name {
    /// The log object of this slot.
    Log(u64),
    /// The data object of an epoch, with this number, from 1.
    Data(u64, u64),
}

impl Name {
    /// Returns its name below the volume's prefix.
    pub fn text(self) -> String {
        match self {
            Name::Log(slot) => log_name(slot),
            Name::Data(epoch, number) => data_name(epoch, number),
        }
    }

    /// Parses a name; `None` for that of a manifest or of a foreign object.
    pub fn parse(text: &str) -> Option<Name> {
        let number = |text: &str| {
            let digits = text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse::<u64>().ok()).flatten()
        };
        let (kind, rest) = text.split_once('/')?;
        match kind {
            "log" => number(rest).map(Name::Log),
            "data" => {
                let (epoch, of) = rest.split_once('-')?;
                Some(Name::Data(number(epoch)?, number(of)?))
            }
            _ => None,
        }
    }
}

/// Returns the sequence number of a manifest from its name.
pub fn manifest_sequence(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("manifest/")?;
    (digits.len() == 20).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_like_their_numbers_and_are_parsed() {
        assert!(log_name(9) < log_name(10) && data_name(2, 9) < data_name(2, 10));
        for name in [Name::Log(7), Name::Data(3, 1 << 40), Name::Log(u64::MAX)] {
            assert_eq!(Name::parse(&name.text()), Some(name));
        }
        assert_eq!(manifest_sequence(&manifest_name(12)), Some(12));
        for foreign in ["", "log/", "log/7", "data/00000000000000000001", "readme.txt"] {
            assert_eq!(Name::parse(foreign), None, "{foreign}");
        }
        assert_eq!(Name::parse("log/+0000000000000000007"), None);
        assert_eq!(manifest_sequence("manifest/12"), None);
    }
}
