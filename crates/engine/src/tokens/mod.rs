//! Tokens: `openg` and `openfh` of the POSIX extensions for high-performance computing. One process
//! finds a file by its path and makes a token; others open the file with it, without walking a
//! path.
//!
//! Invariants:
//!
//! 1. A token is made only after its key, and its file, are durable. After a crash no key is made
//!    that accepts it for another file, and no other file has the inode number and generation.
//! 2. The key is stored in an attribute that no call shows, sets or removes.
//! 3. A token grants the rights in it, and nothing more: see [`Tokens::redeem`].

mod grant;

use crate::attributes::Attributes;
use crate::clock::now;
use crate::random::random;
use crate::state::{TokenKey, room};
use crate::types::{Attr, Caller, FileKind, Handle, Rights, Token};
use grant::Grant;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use std::time::Duration;

/// Name of the attribute of the top directory with the key, in the namespace `system`.
const KEY: &[u8] = b"shoal.token-key";
/// Version of its value: version 1 | epoch 4 | secret 32.
const KEY_VERSION: u8 = 1;

room! {
    /// Tokens that open files without their paths.
    pub struct Tokens { attributes: Attributes }
}

impl Tokens<'_> {
    /// Makes a token for a file that `who` has found (`openg`). It is valid for `lifetime`, in
    /// whole seconds, whatever becomes of the permissions of the file and of its path. Returns when
    /// the file and the key are durable.
    ///
    /// # Errors
    /// `EACCES` if `who` does not have these rights to the file; `ESTALE` if it has been removed
    /// since; `EISDIR` or `EINVAL` for anything but a regular file; `EINVAL` for a lifetime beyond
    /// the clock; on a volume that is read-only `EROFS` for rights to write, and for the first
    /// token.
    pub fn issue(
        self,
        who: &Caller,
        file: Handle,
        rights: Rights,
        lifetime: Duration,
    ) -> Result<Token> {
        self.0.measured(Call::Issue, || self.make(who, file, rights, lifetime))
    }

    fn make(self, who: &Caller, file: Handle, rights: Rights, lifetime: Duration) -> Result<Token> {
        // The generation is compared after the check: it was of the same file then.
        self.attributes().access(who, file.ino, u32::from(rights.bits()))?;
        match self.named(file)?.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::Code(Code::IsDirectory)),
            _ => return Err(Error::Code(Code::Invalid)),
        }
        let expires = seconds().checked_add(lifetime.as_secs());
        let expires = expires.ok_or(Error::Code(Code::Invalid))?;
        let key = self.key(true)?.ok_or(Error::Code(Code::ReadOnly))?;
        // A crash must not undo its creation: another would get its number and generation. The LSN
        // is that of the start of a record.
        let changed = self.attributes().change_lsn(file.ino)?;
        let journal = self.0.store.journal().ok();
        if journal.is_some_and(|journal| journal.durable_lsn() <= changed) {
            self.0.sync()?;
        }
        let (ino, generation) = (file.ino, file.generation);
        Grant { volume: self.volume(), ino, generation, rights, expires }.seal(&key)
    }

    /// Verifies a token and returns the attributes of its file (`openfh`). Nobody's permissions are
    /// checked: the token is the permission. The caller must hold the file
    /// ([`crate::References::hold`]), compare its generation after that, and bound all calls by the
    /// token's rights.
    ///
    /// # Errors
    /// `EACCES` for a token that is forged, changed, expired, revoked or of another volume;
    /// `ESTALE` if the file has lost its last name; `EROFS` for a token to write on a volume that
    /// cannot be written.
    pub fn redeem(self, token: &Token) -> Result<Attr> {
        self.0.measured(Call::Redeem, || self.file_of(token))
    }

    fn file_of(self, token: &Token) -> Result<Attr> {
        let none = || Error::refused(Code::Access, "the volume has no tokens");
        let key = self.key(false)?.ok_or_else(none)?;
        let grant = Grant::open(token, &key, self.volume(), seconds())?;
        let attr = self.named(Handle { ino: grant.ino, generation: grant.generation })?;
        if grant.rights.contains(Rights::WRITE) {
            self.0.store.writable()?;
        }
        Ok(attr)
    }

    /// Replaces the key, which revokes all tokens of the volume; only for privileged callers. Files
    /// that were opened with a token stay open. Returns when the new key is durable.
    ///
    /// # Errors
    /// `EPERM`, `EROFS`, `ENOSPC`, those of the device. Then the old tokens may still be valid.
    pub fn revoke(self, who: &Caller) -> Result<()> {
        self.0.store.origin.check()?;
        if !who.bypasses() {
            return Err(Error::Code(Code::NotPermitted));
        }
        let mut cached = self.0.token_key.lock();
        let Some(old) = self.stored_key()? else { return Ok(()) };
        let epoch = old.epoch.checked_add(1).ok_or(Error::Code(Code::Overflow))?;
        // If it fails half-way, the stored key decides.
        *cached = None;
        *cached = Some(self.make_key(epoch)?);
        Ok(())
    }

    /// Returns the attributes of a file that still has a name.
    fn named(self, file: Handle) -> Result<Attr> {
        let attr = self.0.attr(file.ino)?;
        match attr.generation == file.generation && attr.nlink > 0 {
            true => Ok(attr),
            false => Err(Error::Code(Code::Stale)),
        }
    }

    /// Returns the upper half of the volume's id.
    fn volume(self) -> [u8; 8] {
        let id = self.0.store.checkpoints().superblock().id;
        let mut half = [0; 8];
        half.copy_from_slice(&id[8..]);
        half
    }
}

/// The volume's key.
impl Tokens<'_> {
    /// Returns the key; if there is none, makes it if `make`.
    fn key(self, make: bool) -> Result<Option<TokenKey>> {
        let mut cached = self.0.token_key.lock();
        if cached.is_none() {
            *cached = match self.stored_key()? {
                None if make => Some(self.make_key(1)?),
                stored => stored,
            };
        }
        Ok(*cached)
    }

    fn stored_key(self) -> Result<Option<TokenKey>> {
        let Some(value) = self.attributes().hidden(Ino::ROOT, KEY)? else { return Ok(None) };
        let key = || {
            let (version, rest) = value.split_first()?;
            let (epoch, secret) = rest.split_first_chunk()?;
            let (epoch, secret) = (u32::from_le_bytes(*epoch), secret.try_into().ok()?);
            (*version == KEY_VERSION).then_some(TokenKey { epoch, secret })
        };
        let broken = || Error::corrupt("key of the volume's tokens", None, "not a key");
        key().map(Some).ok_or_else(broken)
    }

    /// Stores a new key. It is durable when this returns.
    fn make_key(self, epoch: u32) -> Result<TokenKey> {
        let secret: [u8; 32] = random()?;
        let value = [&[KEY_VERSION][..], &epoch.to_le_bytes(), &secret].concat();
        self.attributes().set_hidden(Ino::ROOT, KEY, &value)?;
        self.0.sync()?;
        Ok(TokenKey { epoch, secret })
    }
}

/// Seconds since 1970.
fn seconds() -> u64 {
    now().sec.max(0) as u64
}
