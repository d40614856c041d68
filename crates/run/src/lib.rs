//! The library of `shoal run`: unmodified programs make their calls below a mounted volume by a
//! session, without the kernel.
//!
//! It is loaded into a program (`LD_PRELOAD`), and has functions with the names of the C library's.
//! A call that concerns a path below a mount of Shoal, or a file that was opened so, is made by the
//! session; every other one goes on to the C library. The mount stays below everything: whatever is
//! in doubt is asked of the kernel, which is right and only slower. Three rules keep that so:
//!
//! - What the program sees is what the server says now, or a copy of which is known that the server
//!   would say the same (`copies`).
//! - A path that leads out of the volume, an error that is not an everyday one, an option that a
//!   session does not have: the same call is made by the kernel. A call that has failed has changed
//!   nothing.
//! - An open file has a descriptor that reserves its number, and that no call which the library
//!   does not know can read or write. Before a call that needs the file itself (`mmap`, `fork`,
//!   `dup`, locks) it becomes the mount's (`files::settle`).
//!
//! Bottom-up; each module uses only those above it:
//!
//! | module | what |
//! | --- | --- |
//! | `kernel` | system calls, past the C library and this one |
//! | `state` | whether the library may act in this thread now |
//! | `answer` | what a session has answered, as the C library would |
//! | `copies` | copies of directories |
//! | `mounts` | the mounts of Shoal that this process sees, and their sessions |
//! | `files` | open files, by descriptor |
//! | `place` | the place in a volume that a path leads to |
//! | `names`, `contents`, `listing` | the calls |
//! | `abi` | the functions of the C library |

mod kernel;

mod state;

mod answer;
mod copies;

mod mounts;

mod files;

mod place;

mod contents;
mod listing;
mod names;

mod abi;
