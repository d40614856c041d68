//! Random bytes of the system.

use shoal_base::{Code, Error, Result};

/// Returns unpredictable bytes.
///
/// # Errors
/// `EIO`: the system has none.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let flags = rustix::rand::GetRandomFlags::empty();
    let why = match rustix::rand::getrandom(&mut bytes, flags) {
        Ok(read) if read == N => return Ok(bytes),
        Ok(read) => format!("{read} of {N}"),
        Err(error) => error.to_string(),
    };
    Err(Error::refused(Code::Io, format!("no random bytes: {why}")))
}
