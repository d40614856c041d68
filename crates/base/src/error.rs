//! The error type of all layers: precise internally, one errno for the caller.
//!
//! `Error::Code` is the ordinary outcome of POSIX calls and allocates nothing. The other variants
//! carry object, place and reason; a damaged or failing volume produces them.

use crate::{Ino, RootId};
use std::fmt;
use std::sync::Arc;

/// Result of every fallible operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An object that is not in memory, and that a call needs at a moment when it must not read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cold {
    /// The inode block of this inode.
    Block(Ino),
    /// The node of a tree that covers a key.
    Node {
        /// Subvolume of the tree.
        root: RootId,
        /// Number of the tree within its subvolume.
        tree: u8,
        /// Upper half of the key.
        hi: u64,
        /// Lower half of the key.
        lo: u64,
    },
    /// Anything, for a thread that must not wait ([`crate::cold::at_once`]).
    Device,
}

macro_rules! codes {
    ($($variant:ident $errno:literal $name:literal $text:literal;)*) => {
        /// Ordinary outcomes of file system calls. Each maps to one errno.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum Code { $(#[doc = $text] $variant,)* }
        impl Code {
            /// Every code, for tables and tests.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];
            /// The Linux errno.
            #[inline]
            pub fn errno(self) -> i32 { match self { $(Code::$variant => $errno,)* } }
            /// The errno's name, `ENOENT`.
            pub fn name(self) -> &'static str { match self { $(Code::$variant => $name,)* } }
            /// The meaning, in a few words.
            pub fn text(self) -> &'static str { match self { $(Code::$variant => $text,)* } }
        }
    };
}

codes! {
    NotPermitted 1 "EPERM" "operation not permitted";
    NotFound 2 "ENOENT" "no such file or directory";
    Io 5 "EIO" "input/output error";
    NoDevice 6 "ENXIO" "no such offset or device";
    TooBig 7 "E2BIG" "argument too long";
    BadHandle 9 "EBADF" "file is not open for this operation";
    Again 11 "EAGAIN" "try again";
    NoMemory 12 "ENOMEM" "out of memory";
    Access 13 "EACCES" "permission denied";
    Busy 16 "EBUSY" "resource busy";
    Exists 17 "EEXIST" "file exists";
    CrossRoot 18 "EXDEV" "link or rename across subvolumes or quotas";
    NotDirectory 20 "ENOTDIR" "not a directory";
    IsDirectory 21 "EISDIR" "is a directory";
    Invalid 22 "EINVAL" "invalid argument";
    TextBusy 26 "ETXTBSY" "text file busy";
    FileTooBig 27 "EFBIG" "file too large";
    NoSpace 28 "ENOSPC" "no space left on the volume";
    ReadOnly 30 "EROFS" "volume is read-only";
    TooManyLinks 31 "EMLINK" "too many links";
    Range 34 "ERANGE" "result too large, or attribute name empty or longer than 255 bytes";
    NameTooLong 36 "ENAMETOOLONG" "name longer than 255 bytes, or path longer than 4096";
    NotEmpty 39 "ENOTEMPTY" "directory not empty";
    Loop 40 "ELOOP" "too many levels of symbolic links";
    NoData 61 "ENODATA" "no such attribute";
    Overflow 75 "EOVERFLOW" "value too large";
    NotSupported 95 "EOPNOTSUPP" "operation not supported";
    Stale 116 "ESTALE" "stale file handle";
    Quota 122 "EDQUOT" "quota exceeded";
}

/// A structure on the device that breaks a rule of the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// The object: `inode block 17`, `dirents leaf`.
    pub object: String,
    /// Byte address on the device, if known.
    pub addr: Option<u64>,
    /// The broken rule, with the value found and the value expected.
    pub rule: String,
}

/// An operation on the device that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFailure {
    /// `read`, `write`, `flush`...
    pub operation: &'static str,
    /// Device name or path.
    pub device: String,
    /// Byte offset.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Errno of the operating system (0: unexpected end of the device).
    pub errno: i32,
}

/// Errnos of a Linux read that failed because of the medium: EIO, ENODATA (medium error), EBADMSG,
/// EILSEQ, EUCLEAN (integrity data does not match), EREMOTEIO (error of the target).
const MEDIUM_ERRNOS: [i32; 6] = [5, 61, 74, 84, 117, 121];

/// Any failure of a Shoal call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An ordinary outcome.
    Code(Code),
    /// On-disk bytes break a rule of the format. The object is unreadable; the rest of the volume
    /// may be readable.
    Corrupt(Box<Corrupt>),
    /// The device failed.
    Device(Box<DeviceFailure>),
    /// The volume was made read-only, for this reason.
    Poisoned(Arc<str>),
    /// A transaction needs an object that is not in memory and must not read the device now. Never
    /// leaves the engine: see [`crate::cold`].
    Cold(Cold),
    /// A request that cannot be served (at mkfs, mount or open), with a message for people.
    Refused {
        /// The errno to return.
        code: Code,
        /// One line: object, reason, remedy.
        message: String,
    },
}

impl Error {
    /// Builds a corruption error.
    #[cold]
    pub fn corrupt(object: impl Into<String>, addr: Option<u64>, rule: impl Into<String>) -> Error {
        Error::Corrupt(Box::new(Corrupt { object: object.into(), addr, rule: rule.into() }))
    }
    /// Builds a refusal with a message for people.
    #[cold]
    pub fn refused(code: Code, message: impl Into<String>) -> Error {
        Error::Refused { code, message: message.into() }
    }
    /// The errno for the caller (positive).
    pub fn errno(&self) -> i32 {
        self.code().errno()
    }
    /// The code that this error maps to.
    pub fn code(&self) -> Code {
        match self {
            Error::Code(code) | Error::Refused { code, .. } => *code,
            Error::Corrupt(_) => Code::Io,
            Error::Device(failure) if failure.errno == Code::NoSpace.errno() => Code::NoSpace,
            Error::Device(_) => Code::Io,
            Error::Poisoned(_) => Code::ReadOnly,
            Error::Cold(_) => Code::Again,
        }
    }
    /// Returns whether one place on the device is damaged: its bytes break a rule, or the medium
    /// cannot read them. A check continues after such an error. A missing device is not damage:
    /// another attempt may find it.
    pub fn is_damage(&self) -> bool {
        match self {
            Error::Corrupt(_) => true,
            Error::Device(failure) => {
                failure.operation == "read" && MEDIUM_ERRNOS.contains(&failure.errno)
            }
            Error::Code(_) | Error::Poisoned(_) | Error::Refused { .. } | Error::Cold(_) => false,
        }
    }
    /// Returns whether this is the ordinary outcome `code`.
    #[inline]
    pub fn is(&self, code: Code) -> bool {
        matches!(self, Error::Code(c) if *c == code)
    }
}

impl From<Code> for Error {
    #[inline]
    fn from(code: Code) -> Error {
        Error::Code(code)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Code(code) => f.write_str(code.text()),
            Error::Corrupt(c) => match c.addr {
                Some(addr) => write!(f, "corrupt {} at byte {addr}: {}", c.object, c.rule),
                None => write!(f, "corrupt {}: {}", c.object, c.rule),
            },
            Error::Device(d) => {
                let DeviceFailure { operation, device, offset, len, errno } = d.as_ref();
                write!(f, "{operation} of {len} bytes at byte {offset} of {device} failed: ")?;
                match *errno {
                    0 => f.write_str("unexpected end of the device"),
                    n => write!(f, "{}", std::io::Error::from_raw_os_error(n)),
                }
            }
            Error::Poisoned(why) => write!(f, "volume is read-only: {why}"),
            Error::Cold(cold) => write!(f, "not in memory: {cold:?}"),
            Error::Refused { message, .. } => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errnos_are_unique() {
        let mut seen = std::collections::HashSet::new();
        for code in Code::ALL {
            assert!(seen.insert(code.errno()), "{} twice", code.name());
            assert_eq!(
                std::io::Error::from_raw_os_error(code.errno()).raw_os_error(),
                Some(code.errno())
            );
        }
    }

    #[test]
    fn a_bad_place_is_damage_and_a_missing_device_is_not() {
        let failed = |operation, errno| {
            let device = "d".to_owned();
            Error::Device(Box::new(DeviceFailure { operation, device, offset: 0, len: 1, errno }))
        };
        assert!(Error::corrupt("node", None, "magic").is_damage());
        assert!(failed("read", 5).is_damage() && failed("read", 61).is_damage());
        // ENODEV; the end of the device; a write.
        assert!(!failed("read", 19).is_damage() && !failed("read", 0).is_damage());
        assert!(!failed("write", 5).is_damage() && !Error::Code(Code::Io).is_damage());
    }

    #[test]
    fn poisoned_folds_to_erofs_and_corrupt_to_eio() {
        assert_eq!(Error::Poisoned("x".into()).errno(), 30);
        assert_eq!(Error::corrupt("node", Some(3), "magic").errno(), 5);
        assert!(Error::corrupt("node", Some(3), "magic").to_string().contains("byte 3"));
    }
}
