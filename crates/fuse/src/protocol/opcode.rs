//! Request codes: one row each, with the size of the structure that follows the request header.
//!
//! The size matters because a transport may deliver that structure and the payload (names, data) in
//! two places; a contiguous request must be split at the same point.

macro_rules! opcodes {
    ($($number:literal $variant:ident $header:literal $doc:literal;)*) => {
        /// Code of a request.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u32)]
        pub enum Opcode { $(#[doc = $doc] $variant = $number,)* }

        impl Opcode {
            /// Every code.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$variant,)*];
            /// Returns the code with the number in a request header.
            #[inline]
            pub const fn from_number(number: u32) -> Option<Opcode> {
                match number { $($number => Some(Opcode::$variant),)* _ => None }
            }
            /// Returns the bytes of the structure after the request header; 0: none.
            #[inline]
            pub const fn header_size(self) -> usize {
                match self { $(Opcode::$variant => $header,)* }
            }
            /// Returns the name, for messages.
            pub const fn name(self) -> &'static str {
                match self { $(Opcode::$variant => stringify!($variant),)* }
            }
        }
    };
}

opcodes! {
    1 Lookup 0 "name → entry";
    2 Forget 8 "drop lookup references; no reply";
    3 Getattr 16 "→ attr";
    4 Setattr 88 "→ attr";
    5 Readlink 0 "→ target, without NUL";
    6 Symlink 0 "name, target → entry";
    8 Mknod 16 "name → entry";
    9 Mkdir 8 "name → entry";
    10 Unlink 0 "name → nothing";
    11 Rmdir 0 "name → nothing";
    12 Rename 8 "old name, new name → nothing";
    13 Link 8 "new name → entry; the node is the new directory";
    14 Open 8 "→ open";
    15 Read 40 "→ data";
    16 Write 40 "data → count";
    17 Statfs 0 "→ statfs";
    18 Release 24 "→ nothing";
    20 Fsync 16 "→ nothing";
    21 Setxattr 16 "name, value → nothing";
    22 Getxattr 8 "name → size or value";
    23 Listxattr 8 "→ size or names";
    24 Removexattr 0 "name → nothing";
    25 Flush 24 "→ nothing";
    26 Init 64 "→ init";
    27 Opendir 8 "→ open";
    28 Readdir 40 "→ records";
    29 Releasedir 24 "→ nothing";
    30 Fsyncdir 16 "→ nothing";
    31 Getlk 48 "→ lock; never asked for: locks stay in the kernel";
    32 Setlk 48 "→ nothing; never asked for";
    33 Setlkw 48 "→ nothing; never asked for";
    34 Access 8 "→ nothing";
    35 Create 16 "name → entry, open";
    36 Interrupt 8 "a request's caller got a signal; the answer is optional";
    37 Bmap 16 "only for mounts of a block device by the kernel";
    38 Destroy 0 "the kernel is done with us; ordinary mounts never send it";
    39 Ioctl 32 "→ ioctl, data";
    40 Poll 24 "→ events";
    41 NotifyReply 40 "answer to a retrieval that we never start; no reply";
    42 BatchForget 8 "many forgets; no reply";
    43 Fallocate 32 "→ nothing";
    44 Readdirplus 40 "→ records with entries";
    45 Rename2 16 "old name, new name → nothing";
    46 Lseek 24 "→ offset";
    47 CopyFileRange 56 "→ count, below 4 GiB";
    48 Setupmapping 40 "DAX, for virtual machines only";
    49 Removemapping 4 "DAX, for virtual machines only";
    50 Syncfs 8 "→ nothing";
    51 Tmpfile 16 "→ entry, open; the name it carries means nothing";
    52 Statx 24 "→ statx";
    53 CopyFileRange64 56 "→ count";
}

impl Opcode {
    /// Returns whether the kernel expects no answer on the ordinary transport.
    #[inline]
    pub const fn is_silent(self) -> bool {
        matches!(self, Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt | Self::NotifyReply)
    }

    /// Returns whether it changes the volume.
    #[inline]
    pub const fn is_change(self) -> bool {
        use Opcode::*;
        matches!(
            self,
            Setattr
                | Symlink
                | Mknod
                | Mkdir
                | Unlink
                | Rmdir
                | Rename
                | Rename2
                | Link
                | Write
                | Create
                | Tmpfile
                | Setxattr
                | Removexattr
                | Fallocate
                | CopyFileRange
                | CopyFileRange64
        )
    }

    /// Returns whether the handler may wait for the device or work for long (but see
    /// [`super::Request::may_block`]).
    #[inline]
    pub const fn may_block(self) -> bool {
        use Opcode::*;
        matches!(self, Fsync | Fsyncdir | Syncfs | CopyFileRange | CopyFileRange64 | Fallocate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::*;

    #[test]
    fn numbers_round_trip() {
        for op in Opcode::ALL {
            assert_eq!(Opcode::from_number(*op as u32), Some(*op));
        }
        for unknown in [0, 7, 19, 54, 4096, u32::MAX] {
            assert_eq!(Opcode::from_number(unknown), None);
        }
    }

    #[test]
    fn header_sizes_are_those_of_the_structures() {
        let pairs = [
            (Opcode::Forget, size_of::<ForgetIn>()),
            (Opcode::Getattr, size_of::<GetattrIn>()),
            (Opcode::Setattr, size_of::<SetattrIn>()),
            (Opcode::Mknod, size_of::<MknodIn>()),
            (Opcode::Mkdir, size_of::<MkdirIn>()),
            (Opcode::Rename, size_of::<RenameIn>()),
            (Opcode::Rename2, size_of::<Rename2In>()),
            (Opcode::Link, size_of::<LinkIn>()),
            (Opcode::Open, size_of::<OpenIn>()),
            (Opcode::Opendir, size_of::<OpenIn>()),
            (Opcode::Read, size_of::<ReadIn>()),
            (Opcode::Readdir, size_of::<ReadIn>()),
            (Opcode::Readdirplus, size_of::<ReadIn>()),
            (Opcode::Write, size_of::<ReadIn>()),
            (Opcode::Fsync, size_of::<FsyncIn>()),
            (Opcode::Setxattr, size_of::<SetxattrIn>()),
            (Opcode::Getxattr, size_of::<GetxattrIn>()),
            (Opcode::Listxattr, size_of::<GetxattrIn>()),
            (Opcode::Init, size_of::<InitIn>()),
            (Opcode::Access, size_of::<AccessIn>()),
            (Opcode::Create, size_of::<CreateIn>()),
            (Opcode::Tmpfile, size_of::<CreateIn>()),
            (Opcode::Ioctl, size_of::<IoctlIn>()),
            (Opcode::BatchForget, size_of::<BatchForgetIn>()),
            (Opcode::Fallocate, size_of::<FallocateIn>()),
            (Opcode::Lseek, size_of::<LseekIn>()),
            (Opcode::CopyFileRange, size_of::<CopyRangeIn>()),
            (Opcode::CopyFileRange64, size_of::<CopyRangeIn>()),
            (Opcode::Statx, size_of::<StatxIn>()),
        ];
        for (op, size) in pairs {
            assert_eq!(op.header_size(), size, "{}", op.name());
        }
    }
}
