//! Structures of FUSE over shared rings: the command in a ring's submission, and the layout of
//! request and reply in a slot's memory.
//!
//! A slot's head has three parts, then comes its payload in memory of its own:
//!
//! | bytes of the head | a request | its reply |
//! | --- | --- | --- |
//! | 0..128 | [`InHeader`](super::InHeader) | [`OutHeader`](super::OutHeader) |
//! | 128..256 | the operation's structure, if it has one | unused |
//! | 256..288 | [`RingEntry`] | the same, with the reply's size |
//!
//! The payload first holds names and data of the request, then the whole body of the reply.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes at the start of a slot's head that hold the header of request and reply.
pub const RING_IN_OUT: usize = 128;
/// Bytes after it that hold the operation's structure.
pub const RING_OP: usize = 128;
/// Bytes of a slot's head.
pub const RING_HEAD: usize = RING_IN_OUT + RING_OP + size_of::<RingEntry>();
/// Smallest payload that the kernel accepts.
pub const RING_PAYLOAD_MIN: usize = 8192;

/// Code of the ring operation that passes a command to a file.
pub const URING_CMD: u8 = 46;
/// The file is a number in the ring's own table.
pub const SQE_FIXED_FILE: u8 = 1;
/// Command: registers a slot for requests. The address is that of two [`RingVector`]s.
pub const RING_REGISTER: u32 = 1;
/// Command: sends the reply in the slot, and waits for the next request.
pub const RING_COMMIT_AND_FETCH: u32 = 2;

wire! {
    /// A slot's number and sizes, in its head.
    RingEntry 32 {
        /// Unused.
        0 flags: u64,
        /// Number of the request, to be returned with the reply.
        8 commit_id: u64,
        /// Bytes of the payload in use.
        16 payload_size: u32,
        /// Unused.
        20 padding: u32,
        /// Unused.
        24 reserved: u64,
    }
    /// A submission of the long kind, with a command for FUSE.
    RingCommand 128 {
        /// [`URING_CMD`].
        0 opcode: u8,
        /// [`SQE_FIXED_FILE`].
        1 flags: u8,
        /// Unused.
        2 priority: u16,
        /// The FUSE device.
        4 fd: u32,
        /// Number of the command.
        8 command: u32,
        /// Must be 0.
        12 padding: u32,
        /// Address of the command's data.
        16 address: u64,
        /// Number of vectors there.
        24 len: u32,
        /// Must be 0.
        28 command_flags: u32,
        /// Returned with the completion.
        32 user_data: u64,
        /// Unused.
        40 buffer: u64,
        /// Must be 0.
        48 request_flags: u64,
        /// Number of the request whose reply is in the slot.
        56 commit_id: u64,
        /// The kernel's queue, which is a processor's number.
        64 queue: u16,
        /// Unused.
        66 request_padding: [u8; 6],
        /// Unused.
        72 rest: [u64; 7],
    }
    /// A piece of memory.
    RingVector 16 {
        /// Start.
        0 address: u64,
        /// Length in bytes.
        8 len: u64,
    }
}

const _: () = assert!(RING_HEAD == 288);
