//! The handshake: every capability that the kernel can offer, with the decision and the reason.

use super::flags::{OPEN_KILL_SUIDGID, WRITE_KILL_SUIDGID};
use super::wire::{InitIn, InitOut};

/// Protocol version of the server.
pub const MAJOR: u32 = 7;
/// Its revision.
pub const MINOR: u32 = 45;
/// Oldest revision with everything that the server needs (`KILLPRIV_V2`, 64-bit flags): kernel
/// 5.17.
pub const MINOR_OLDEST: u32 = 36;

/// Condition under which a capability is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    /// Whenever it is offered.
    Always,
    /// Unless opens are not sent (see [`Wish::no_open`]).
    UnlessNoOpen,
    /// With the mount option `writeback` only.
    IfWriteback,
    /// If the transport can do it.
    IfRings,
    /// If the kernel checks permissions.
    IfKernelChecks,
    /// If the kernel checks permissions, and access control lists are kept: it must know them.
    IfLists,
    /// With the mount option `no_handles`.
    IfNoHandles,
    /// If another process changes the volume.
    IfFollows,
    /// Never.
    Never,
}

macro_rules! capabilities {
    ($($name:ident $bit:literal $take:ident $why:literal;)*) => {
        $(#[doc = $why] pub const $name: u64 = 1 << $bit;)*
        /// Every capability: bit, name, decision, reason.
        pub const CAPABILITIES: &[(u64, &str, Take, &str)] =
            &[$(($name, stringify!($name), Take::$take, $why),)*];
    };
}

capabilities! {
    ASYNC_READ 0 Always "Readahead goes out in the background.";
    POSIX_LOCKS 1 Never "One mount: the kernel's own fcntl locks are right and cost nothing.";
    FILE_OPS 2 Never "Meaningless in this century.";
    ATOMIC_O_TRUNC 3 UnlessNoOpen
        "O_TRUNC comes with OPEN. Fatal when OPEN is answered ENOSYS: the truncation gets lost.";
    EXPORT_SUPPORT 4 Always "Handles work after the inode left the kernel's cache.";
    BIG_WRITES 5 Always "Writes of more than a page.";
    DONT_MASK 6 Always
        "The umask comes beside the mode: a default ACL takes its place, so only we can apply it.";
    SPLICE_WRITE 7 Never "We read and write the device directly; rings could not splice.";
    SPLICE_MOVE 8 Never "As SPLICE_WRITE.";
    SPLICE_READ 9 Never "As SPLICE_WRITE.";
    FLOCK_LOCKS 10 Never "As POSIX_LOCKS.";
    HAS_IOCTL_DIR 11 Never "An advertisement; ioctls on directories arrive in any case.";
    AUTO_INVAL_DATA 12 IfFollows
        "Each change of mtime, one's own writes included, empties the page cache.";
    DO_READDIRPLUS 13 Always "Listings bring attributes: no LOOKUP per name afterwards.";
    READDIRPLUS_AUTO 14 Never
        "Plain listings for tools that read a directory before they stat: the wrong guess.";
    ASYNC_DIO 15 Always "Direct I/O in parallel.";
    WRITEBACK_CACHE 16 IfWriteback
        "Pays for many small writes to an open file; else it costs a SETATTR for each file.";
    NO_OPEN_SUPPORT 17 Never "An advertisement; what counts is answering OPEN with ENOSYS.";
    PARALLEL_DIROPS 18 Always "Lookups and listings of one directory run side by side.";
    HANDLE_KILLPRIV 19 Never "Superseded by HANDLE_KILLPRIV_V2.";
    POSIX_ACL 20 IfLists
        "Access control lists, where the kernel checks; else they pass through, and we check.";
    ABORT_ERROR 21 Never "An abort looks like an unmount to us: we end in both cases.";
    MAX_PAGES 22 Always "Requests of more than 128 KiB.";
    CACHE_SYMLINKS 23 Always "Targets never change: readlink once.";
    NO_OPENDIR_SUPPORT 24 Never "As NO_OPEN_SUPPORT.";
    EXPLICIT_INVAL_DATA 25 Always "Only we decide when cached data is stale: one writer.";
    MAP_ALIGNMENT 26 Never "DAX, for virtual machines.";
    SUBMOUNTS 27 Never "No mounts within a mount.";
    HANDLE_KILLPRIV_V2 28 Always
        "We clear set-id bits, so that the kernel need not ask for capabilities at each write.";
    SETXATTR_EXT 29 Always "The long form of SETXATTR, which ACLs need.";
    INIT_EXT 30 Always "The high word of this handshake counts.";
    INIT_RESERVED 31 Never "Reserved by the protocol.";
    SECURITY_CTX 32 Never "Labels of security modules at creation; not stored yet.";
    HAS_INODE_DAX 33 Never "DAX, for virtual machines.";
    CREATE_SUPP_GROUP 34 Always
        "A creation tells whether the caller is in the directory's group by a supplementary group.";
    HAS_EXPIRE_ONLY 35 Always "Names of a removed tree expire at once, and are dropped later.";
    DIRECT_IO_ALLOW_MMAP 36 Always "Shared mappings of files open for direct I/O.";
    PASSTHROUGH 37 Never "File data does not live in files of another file system.";
    NO_EXPORT_SUPPORT 38 IfNoHandles "Switches handles off.";
    HAS_RESEND 39 Never
        "An advertisement: requests can be sent again to the next server (`mount/kept.rs`).";
    ALLOW_IDMAP 40 IfKernelChecks
        "Idmapped mounts. Only requests that create then name their caller (`caller.rs`).";
    OVER_IO_URING 41 IfRings "Requests by shared rings.";
    REQUEST_TIMEOUT 42 Never "A slow device would abort the whole mount.";
}

// Values that other parts of the protocol share must not drift.
const _: () = assert!(WRITE_KILL_SUIDGID == 4 && OPEN_KILL_SUIDGID == 1);
const _: () = assert!(INIT_EXT == 0x4000_0000 && OVER_IO_URING == 1 << 41);

/// Configuration that the server asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// Largest write, and with it the largest request, in bytes.
    pub max_write: u32,
    /// Ask for the write-back cache.
    pub writeback: bool,
    /// OPEN will be answered ENOSYS.
    pub no_open: bool,
    /// The transport can use rings.
    pub rings: bool,
    /// The kernel checks permissions (`default_permissions`).
    pub kernel_checks: bool,
    /// The kernel checks permissions, and access control lists are kept.
    pub lists: bool,
    /// Files have no handles.
    pub no_handles: bool,
    /// Another process changes the volume.
    pub follows: bool,
}

/// Result of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// Capabilities taken.
    pub capabilities: u64,
    /// Largest write in bytes.
    pub max_write: u32,
    /// The kernel's revision of the protocol.
    pub minor: u32,
}

impl Agreed {
    /// Returns whether `capability` was taken.
    #[inline]
    pub fn has(&self, capability: u64) -> bool {
        self.capabilities & capability != 0
    }
}

/// Most requests that the kernel may have under way in the background.
const MAX_BACKGROUND: u16 = 64;
/// Page size of the protocol's `max_pages`.
const PAGE: u32 = 4096;
/// Readahead asked for; the kernel's limit for the mount applies as well.
const MAX_READAHEAD: u32 = 1 << 20;

/// Answers the kernel's offer; the error names the missing capability.
pub fn negotiate(offer: &InitIn, wish: &Wish) -> Result<(InitOut, Agreed), String> {
    if offer.major != MAJOR || offer.minor < MINOR_OLDEST {
        return Err(format!(
            "the kernel speaks FUSE {}.{}, but {MAJOR}.{MINOR_OLDEST} or newer is needed",
            offer.major, offer.minor
        ));
    }
    let capabilities = offer.offered() & wanted(wish);
    let max_pages = wish.max_write.div_ceil(PAGE).clamp(1, u32::from(u16::MAX));
    // Without MAX_PAGES the kernel stays with 32 pages.
    let max_write = match capabilities & MAX_PAGES {
        0 => wish.max_write.min(32 * PAGE),
        _ => wish.max_write,
    };
    let out = InitOut {
        major: MAJOR,
        minor: MINOR,
        max_readahead: offer.max_readahead.max(MAX_READAHEAD),
        flags: capabilities as u32,
        max_background: MAX_BACKGROUND,
        congestion_threshold: MAX_BACKGROUND / 4 * 3,
        max_write,
        time_gran: 1,
        max_pages: max_pages as u16,
        flags2: (capabilities >> 32) as u32,
        ..InitOut::default()
    };
    Ok((out, Agreed { capabilities, max_write, minor: offer.minor }))
}

impl InitIn {
    /// Returns the capabilities that the kernel offers. The high word counts only if announced.
    pub fn offered(&self) -> u64 {
        let low = u64::from(self.flags);
        if low & INIT_EXT == 0 { low } else { low | u64::from(self.flags2) << 32 }
    }
}

/// Returns the capabilities that `wish` takes when offered.
fn wanted(wish: &Wish) -> u64 {
    let mut wanted = 0;
    for (bit, _, take, _) in CAPABILITIES {
        let take = match take {
            Take::Always => true,
            Take::UnlessNoOpen => !wish.no_open,
            Take::IfWriteback => wish.writeback,
            Take::IfRings => wish.rings,
            Take::IfKernelChecks => wish.kernel_checks,
            Take::IfLists => wish.kernel_checks && wish.lists,
            Take::IfNoHandles => wish.no_handles,
            Take::IfFollows => wish.follows,
            Take::Never => false,
        };
        if take {
            wanted |= bit;
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISH: Wish = Wish {
        max_write: 1 << 20,
        writeback: false,
        no_open: false,
        rings: false,
        kernel_checks: false,
        lists: true,
        no_handles: false,
        follows: false,
    };

    fn offer(bits: u64) -> InitIn {
        InitIn {
            major: 7,
            minor: 45,
            max_readahead: 131_072,
            flags: bits as u32,
            flags2: (bits >> 32) as u32,
            ..InitIn::default()
        }
    }

    #[test]
    fn capabilities_are_dense_and_in_order() {
        for (at, (bit, name, ..)) in CAPABILITIES.iter().enumerate() {
            assert_eq!(*bit, 1 << at, "{name}");
        }
    }

    #[test]
    fn everything_offered_gives_the_base_word() {
        let (out, agreed) = negotiate(&offer(0x7fd_73ff_fffb), &WISH).unwrap();
        assert_eq!(out.flags, 0x72c4_a039 | DONT_MASK as u32, "{:#x}", out.flags);
        assert_eq!(out.flags2, 0x1c);
        assert_eq!((out.max_write, out.max_pages, out.minor), (1 << 20, 256, 45));
        assert!(agreed.has(EXPORT_SUPPORT) && !agreed.has(WRITEBACK_CACHE));
    }

    #[test]
    fn only_what_was_offered_is_taken() {
        let bits = u64::from(ASYNC_READ as u32) | EXPORT_SUPPORT;
        let (out, _) = negotiate(&offer(bits), &WISH).unwrap();
        assert_eq!((out.flags, out.flags2), (bits as u32, 0));
        assert_eq!(out.max_write, 131_072, "without MAX_PAGES");
        // The high word counts only with INIT_EXT.
        let (out, _) = negotiate(&offer(CREATE_SUPP_GROUP), &WISH).unwrap();
        assert_eq!((out.flags, out.flags2), (0, 0));
    }

    #[test]
    fn no_open_excludes_atomic_truncation() {
        let wish = Wish { no_open: true, ..WISH };
        let (_, agreed) = negotiate(&offer(u64::MAX), &wish).unwrap();
        assert!(!agreed.has(ATOMIC_O_TRUNC));
        assert!(!agreed.has(OVER_IO_URING));
        let wish = Wish { rings: true, writeback: true, ..WISH };
        let (_, agreed) = negotiate(&offer(u64::MAX), &wish).unwrap();
        assert!(agreed.has(ATOMIC_O_TRUNC | OVER_IO_URING | WRITEBACK_CACHE));
    }

    /// A kernel refuses a mount that takes ALLOW_IDMAP and leaves permissions to the server.
    #[test]
    fn idmaps_need_the_kernels_checks() {
        let agreed = |wish: Wish| negotiate(&offer(u64::MAX), &wish).unwrap().1;
        assert!(!agreed(WISH).has(ALLOW_IDMAP) && !agreed(WISH).has(POSIX_ACL));
        let wish = Wish { kernel_checks: true, ..WISH };
        assert!(agreed(wish).has(ALLOW_IDMAP | POSIX_ACL));
        let wish = Wish { lists: false, ..wish };
        assert!(agreed(wish).has(ALLOW_IDMAP) && !agreed(wish).has(POSIX_ACL));
    }

    #[test]
    fn an_old_kernel_is_refused_by_name() {
        let old = InitIn { minor: 31, ..offer(u64::MAX) };
        assert!(negotiate(&old, &WISH).unwrap_err().contains("7.31"));
        assert!(negotiate(&InitIn { major: 8, ..old }, &WISH).is_err());
    }
}
