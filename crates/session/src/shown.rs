//! The number of the volume's state, where clients see it: in a page of memory that servers write
//! and clients read.
//!
//! The page outlives its server, as the memory of the sessions does, and each server begins with a
//! number of its own: a copy ([`crate::copies`]) does not outlive the server that has given it.

use crate::memory::Mapping;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use shoal_base::{Code, Error, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

/// The page with the number of the state.
#[derive(Debug)]
pub(crate) struct Shown(Mapping);

/// Bytes of the page.
const PAGE: usize = 4096;

fn failed(what: &str, error: impl std::fmt::Display) -> Error {
    Error::refused(Code::NoMemory, format!("the number of the volume's state: {what}: {error}"))
}

impl Shown {
    /// Makes a page for the servers of a volume. Nobody else may write it: not by the descriptor
    /// that clients get, nor by opening it anew as another user.
    pub(crate) fn make() -> Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("shoal-state", flags);
        let file = file.map_err(|os| failed("none", os))?;
        rustix::fs::ftruncate(&file, PAGE as u64).map_err(|os| failed("none", os))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(|os| failed("none", os))?;
        let own = Mode::RUSR | Mode::WUSR;
        rustix::fs::fchmod(&file, own).map_err(|os| failed("none", os))?;
        Ok(file)
    }

    /// Maps the page of servers, and begins with a number above those of all before. Returns that
    /// too.
    pub(crate) fn begin(file: impl AsFd) -> Result<(Shown, u64)> {
        let shown = Shown(Mapping::of(file, PAGE, false)?);
        let before = shown.0.words(0, 1)[0].fetch_add(1, Ordering::SeqCst);
        Ok((shown, before + 1))
    }

    /// Raises the number, unless it is as high.
    pub(crate) fn raise(&self, number: u64) {
        self.0.words(0, 1)[0].fetch_max(number, Ordering::SeqCst);
    }

    /// A descriptor of the page for clients, which can only be read.
    pub(crate) fn to_read(file: BorrowedFd<'_>) -> Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        opened.map_err(|os| failed("not opened", os))
    }

    /// Client: maps the page.
    ///
    /// # Errors
    /// `EINVAL`: it is none.
    pub(crate) fn of_server(file: impl AsFd) -> Result<Shown> {
        let found = rustix::fs::fstat(&file).map_err(|os| failed("unknown", os))?;
        if found.st_size != PAGE as i64 {
            return Err(Error::refused(Code::Invalid, "the server's page has another length"));
        }
        Mapping::to_read(file, PAGE).map(Shown)
    }

    /// The number of the present state.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.0.words(0, 1)[0].load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_see_the_number_and_cannot_write_it() {
        let file = Shown::make().unwrap();
        let (server, first) = Shown::begin(&file).unwrap();
        let read = Shown::to_read(file.as_fd()).unwrap();
        let client = Shown::of_server(&read).unwrap();
        assert_eq!((client.number(), first), (1, 1));
        server.raise(7);
        server.raise(3);
        assert_eq!(client.number(), 7, "the highest counts");
        assert!(Mapping::of(&read, PAGE, false).is_err(), "mapped for writing");
        let mode = rustix::fs::fstat(&read).unwrap().st_mode & 0o777;
        assert_eq!(mode, 0o600, "another user opens it anew");
        let (_next, begun) = Shown::begin(&file).unwrap();
        assert_eq!((begun, client.number()), (8, 8), "no copy outlives its server");
        assert!(Shown::of_server(std::fs::File::open("/proc/version").unwrap()).is_err());
    }
}
