//! The contents of a token, and its message authentication code.

use crate::state::TokenKey;
use crate::types::token::VERSION;
use crate::types::{Rights, Token};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use shoal_base::{Code, Error, Generation, Ino, Result};

/// Bytes before the code.
const BODY: usize = 34;

/// The contents of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Grant {
    /// Upper half of the volume's id. The lower half seeds the hashes of names and must not be in
    /// the hands of everybody.
    pub volume: [u8; 8],
    pub ino: Ino,
    pub generation: Generation,
    pub rights: Rights,
    /// The first second in which it is no longer valid, since 1970.
    pub expires: u64,
}

fn denied(why: &str) -> Error {
    Error::refused(Code::Access, why)
}

fn mac(key: &TokenKey) -> Result<Hmac<Sha256>> {
    Hmac::new_from_slice(&key.secret).map_err(|_| denied("the volume's key has a wrong length"))
}

impl Grant {
    /// Makes the token.
    pub(super) fn seal(&self, key: &TokenKey) -> Result<Token> {
        let mut bytes = Vec::with_capacity(Token::SIZE);
        bytes.extend([VERSION, self.rights.bits()]);
        bytes.extend(self.volume);
        bytes.extend(self.ino.0.to_le_bytes());
        bytes.extend(self.generation.0.to_le_bytes());
        bytes.extend(self.expires.to_le_bytes());
        bytes.extend(key.epoch.to_le_bytes());
        let mut mac = mac(key)?;
        mac.update(&bytes);
        bytes.extend(mac.finalize().into_bytes());
        Token::from_bytes(&bytes)
    }

    /// Verifies a token of the volume with this half of its id, and returns its contents.
    ///
    /// # Errors
    /// `EACCES` if the token was not made with this key, has been changed, is of another volume, or
    /// has expired.
    pub(super) fn open(token: &Token, key: &TokenKey, volume: [u8; 8], now: u64) -> Result<Grant> {
        let (body, code) = token.0.split_at(BODY);
        let mut mac = mac(key)?;
        mac.update(body);
        // First of all, and in constant time: nothing in an unverified token decides anything.
        mac.verify_slice(code).map_err(|_| denied("the token is forged, or has been revoked"))?;
        let four = |at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&body[at..at + 4]);
            u32::from_le_bytes(bytes)
        };
        let eight = |at: usize| u64::from(four(at)) | u64::from(four(at + 4)) << 32;
        let grant = Grant {
            volume: eight(2).to_le_bytes(),
            ino: Ino(eight(10)),
            generation: Generation(four(18)),
            rights: Rights::from_bits(body[1])?,
            expires: eight(22),
        };
        if grant.volume != volume || four(30) != key.epoch {
            return Err(denied("the token is of another volume, or has been revoked"));
        }
        match now < grant.expires {
            true => Ok(grant),
            false => Err(denied("the token has expired")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_skip::property;

    const KEY: TokenKey = TokenKey { epoch: 7, secret: [0x42; 32] };
    const VOLUME: [u8; 8] = *b"a volume";

    fn grant() -> Grant {
        let (ino, generation) = (Ino(5 << 48 | 99), Generation(3));
        Grant { volume: VOLUME, ino, generation, rights: Rights::READ, expires: 1000 }
    }

    fn refused(token: &Token, key: &TokenKey, volume: [u8; 8], now: u64) -> bool {
        Grant::open(token, key, volume, now).is_err_and(|e| e.errno() == Code::Access.errno())
    }

    #[test]
    fn a_token_is_valid_with_its_key_volume_epoch_and_time_alone() {
        let token = grant().seal(&KEY).unwrap();
        assert_eq!(Grant::open(&token, &KEY, VOLUME, 999).ok(), Some(grant()));
        assert!(refused(&token, &KEY, VOLUME, 1000));
        assert!(refused(&token, &KEY, *b"A volume", 0));
        assert!(refused(&token, &TokenKey { epoch: 8, ..KEY }, VOLUME, 0));
        assert!(refused(&token, &TokenKey { secret: [0x43; 32], ..KEY }, VOLUME, 0));
    }

    /// The bytes, so that a token of one build is valid in another.
    #[test]
    fn the_layout_stays() {
        let token = grant().seal(&KEY).unwrap();
        let hex: String = token.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let body = "0104612076 6f6c756d65 63000000 00000500 03000000 e803000000000000 07000000";
        assert_eq!(hex[..2 * BODY], body.replace(' ', ""));
        // Computed with another implementation: Python's hmac.
        assert_eq!(
            hex[2 * BODY..],
            *"bcdb7b9ffd015469df23296200872bcf88f5e15b307d70bd4bc34004164aaed2"
        );
    }

    #[test]
    fn text_is_the_same_token() {
        let token = grant().seal(&KEY).unwrap();
        let text = token.to_string();
        assert_eq!(text.len(), Token::TEXT_LEN);
        assert_eq!(text.parse::<Token>().ok(), Some(token));
        for wrong in [&text[1..], &format!("{text}A"), &text.replace(&text[9..10], "é"), ""] {
            assert!(wrong.parse::<Token>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #![proptest_config(property(256))]

        #[test]
        fn any_flipped_bits_are_refused(
            flips in prop::collection::vec((0..Token::SIZE, 0..8), 1..4),
        ) {
            let token = grant().seal(&KEY).unwrap();
            let mut bytes = token.to_bytes();
            for (at, bit) in flips {
                bytes[at] ^= 1u8 << bit;
            }
            prop_assume!(bytes != token.to_bytes());
            match Token::from_bytes(&bytes) {
                Ok(changed) => prop_assert!(refused(&changed, &KEY, VOLUME, 0)),
                Err(e) => prop_assert_eq!(e.errno(), Code::Access.errno()),
            }
        }

        #[test]
        fn any_changed_letter_is_refused(at in 0..Token::TEXT_LEN, letter in "[A-Za-z0-9_-]") {
            let token = grant().seal(&KEY).unwrap();
            let mut text = token.to_string();
            text.replace_range(at..=at, &letter);
            prop_assume!(text != token.to_string());
            match text.parse::<Token>() {
                Ok(changed) => prop_assert!(refused(&changed, &KEY, VOLUME, 0)),
                Err(e) => prop_assert_eq!(e.errno(), Code::Access.errno()),
            }
        }
    }
}
