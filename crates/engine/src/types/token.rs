//! Tokens that open a file without its path, and the rights that they grant.

use super::base64;
use shoal_base::{Code, Error, Result};
use std::fmt;
use std::ops::BitOr;
use std::str::FromStr;

/// Version of the layout of tokens.
pub(crate) const VERSION: u8 = 1;

/// A set of rights to a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// Reading.
    pub const READ: Rights = Rights(4);
    /// Writing, truncating and extending.
    pub const WRITE: Rights = Rights(2);
    /// Executing.
    pub const EXECUTE: Rights = Rights(1);

    /// Converts bits as of `access(2)`: read 4, write 2, execute 1.
    ///
    /// # Errors
    /// `EINVAL` for 0 and for unknown bits.
    pub fn from_bits(bits: u8) -> Result<Rights> {
        match bits {
            1..=7 => Ok(Rights(bits)),
            _ => Err(Error::refused(Code::Invalid, format!("rights {bits:#x}: none, or unknown"))),
        }
    }
    /// Returns the bits, as of `access(2)`.
    pub fn bits(self) -> u8 {
        self.0
    }
    /// Returns whether all of `other` are in this set.
    pub fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Rights {
    type Output = Rights;
    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |right, letter| if self.contains(right) { letter } else { '-' };
        let [r, w, x] = [(Rights::READ, 'r'), (Rights::WRITE, 'w'), (Rights::EXECUTE, 'x')]
            .map(|(a, b)| letter(a, b));
        write!(f, "{r}{w}{x}")
    }
}

/// A token that opens one file, from any process that can reach the volume and without walking a
/// path. Who has it has its rights: keep it as a password.
///
/// It is 66 bytes, or 88 letters, digits, `-` and `_` as text. Its contents can be read by
/// anybody; it cannot be made or changed without the volume's key.
///
/// | bytes | contents, little-endian |
/// | --- | --- |
/// | 0 | version, 1 |
/// | 1 | rights: read 4, write 2, execute 1 |
/// | 2–9 | upper half of the volume's id |
/// | 10–17 | inode number, with the subvolume in its upper 16 bits |
/// | 18–21 | generation of the inode number |
/// | 22–29 | expiry, in seconds since 1970 |
/// | 30–33 | epoch of the key |
/// | 34–65 | HMAC-SHA-256 of the bytes before |
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub(crate) [u8; Token::SIZE]);

fn not_a_token() -> Error {
    Error::refused(Code::Access, "not a token of this version")
}

impl Token {
    /// Bytes of a token.
    pub const SIZE: usize = 66;
    /// Length of a token as text.
    pub const TEXT_LEN: usize = Token::SIZE / 3 * 4;

    /// A token from its bytes. It may be forged: only opening it tells.
    ///
    /// # Errors
    /// `EACCES` for bytes that no version of a token has.
    pub fn from_bytes(bytes: &[u8]) -> Result<Token> {
        let token = Token(bytes.try_into().map_err(|_| not_a_token())?);
        match token.0[0] == VERSION && Rights::from_bits(token.0[1]).is_ok() {
            true => Ok(token),
            false => Err(not_a_token()),
        }
    }
    /// Returns its bytes.
    pub fn to_bytes(&self) -> [u8; Token::SIZE] {
        self.0
    }
    /// Returns the rights that it grants if it is valid.
    pub fn rights(&self) -> Rights {
        Rights(self.0[1])
    }
}

/// Base 64 for URLs. The size is a multiple of 3, so each token has one text without padding.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        base64::write(&self.0, f)
    }
}

/// Without the MAC: messages must not grant anything.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:?})", self.rights())
    }
}

impl FromStr for Token {
    type Err = Error;

    /// # Errors
    /// `EACCES` for a text that no version of a token has.
    fn from_str(text: &str) -> Result<Token> {
        let bytes: [u8; Token::SIZE] = base64::read(text).ok_or_else(not_a_token)?;
        Token::from_bytes(&bytes)
    }
}
