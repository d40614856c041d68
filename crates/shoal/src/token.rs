//! Tokens that open a file without its path.

use crate::error::{Doing, Error, Result};
use crate::raw::{self, Rights};
use crate::{AsPath, Credentials, Dir, File, Volume};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// User and group of calls on a file opened with a token: nobody's, so that the token's rights are
/// the only ones.
const NOBODY: u32 = u32::MAX;

/// A token that opens one file, made by [`Dir::share`] and used by [`Volume::open_token`]: in the
/// same process or in another, now or after the volume has been opened again.
///
/// Whoever has the token has its rights, until it expires or is revoked: keep it as a password. As
/// text it is 88 letters, digits, `-` and `_`. Nobody can make or change one without the key, which
/// is in the volume. A program that can read the volume's file or device can read the key, and
/// needs no token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token(raw::Token);

impl Token {
    /// The token as bytes.
    pub fn to_bytes(&self) -> [u8; 66] {
        self.0.to_bytes()
    }

    /// A token from its bytes.
    ///
    /// # Errors
    /// `PermissionDenied` for bytes that no token has. A forged token is refused when it is used.
    pub fn from_bytes(bytes: &[u8]) -> Result<Token> {
        raw::Token::from_bytes(bytes).map(Token).done("read token")
    }

    /// The rights that the token grants while it is valid.
    pub fn rights(&self) -> Rights {
        self.0.rights()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Token> {
        text.parse().map(Token).done("read token")
    }
}

impl Dir {
    /// Makes a token for a regular file. Others open the file with it, without walking its path and
    /// without permission to it: the many processes of a job, or a helper that may have only this
    /// file. It stays valid when the file is renamed or its permissions change. A symlink at the
    /// end of the path is followed.
    ///
    /// The file is durable when this returns.
    ///
    /// ```
    /// # use shoal::{Credentials, Rights, Token, Volume};
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let volume = Volume::options().size(64 << 20).in_memory()?;
    /// let dir = volume.root(Credentials::root()).create_dir_all("deep/in/the/tree")?;
    /// dir.write("sample", b"42")?;
    /// let token = dir.share("sample", Rights::READ, Duration::from_secs(60))?.to_string();
    ///
    /// let token: Token = token.parse()?;
    /// let mut buf = [0; 2];
    /// volume.open_token(&token)?.read_at(&mut buf, 0)?;
    /// assert_eq!(&buf, b"42");
    ///
    /// volume.revoke_tokens()?;
    /// assert!(volume.open_token(&token).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`; `PermissionDenied` unless the credentials have these rights to
    /// the file; `ReadOnlyFilesystem` for rights to write, or the first token, of a volume that is
    /// read-only; `InvalidInput` for a lifetime beyond the clock.
    pub fn share(&self, path: impl AsPath, rights: Rights, lifetime: Duration) -> Result<Token> {
        let path = path.as_path();
        let token = self.calls().share(self.who(), self.node(), path, rights, lifetime);
        token.map(Token).doing("make a token for", path)
    }
}

impl Volume {
    /// Opens the file of a token, for the rights in it. No permissions are checked: the token is
    /// the permission.
    ///
    /// # Errors
    /// `PermissionDenied` for a token that is forged, changed, expired, revoked or of another
    /// volume; `ESTALE` when the file has been removed; `ReadOnlyFilesystem` for one to write on a
    /// volume that is read-only.
    pub fn open_token(&self, token: &Token) -> Result<File> {
        let nobody = self.root(Credentials::user(NOBODY, NOBODY));
        let opened = self.calls().open_token(nobody.who(), token.0).done("open token")?;
        Ok(File::of_token(&nobody, &opened, token.rights()))
    }

    /// Revokes all tokens of the volume, by a new key, which is durable when this returns. Open
    /// files stay open. Checks no permissions: the caller must.
    ///
    /// # Errors
    /// `ReadOnlyFilesystem`, `StorageFull`, those of the device. Then the old tokens may still be
    /// valid.
    pub fn revoke_tokens(&self) -> Result<()> {
        self.calls().revoke_tokens(self.superuser()).done("revoke tokens")
    }
}
