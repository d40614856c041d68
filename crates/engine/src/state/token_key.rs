//! The key that tokens are made with.

use shoal_base::sync::Mutex;
use std::fmt;

/// A volume's key for tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenKey {
    /// Counts the keys of the volume, from 1. A new key revokes the tokens of all before.
    pub epoch: u32,
    pub secret: [u8; 32],
}

/// The key, once it has been read or made. Held while a key is made, until it is durable.
pub(crate) type TokenKeyCache = Mutex<Option<TokenKey>>;

/// Without the secret.
impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKey(epoch {})", self.epoch)
    }
}
