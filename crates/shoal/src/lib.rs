//! Shoal: a filesystem for shoals of small files, as a library.
//!
//! **It is** a POSIX filesystem in one file, or on one block device, that a program uses without a
//! mount: directories, permissions, hard and symbolic links, extended attributes, hundreds of
//! millions of files, and a path for every inode. What it adds is [`Dir::batch`]: several changes
//! as one transaction. **It is not** a database: it has names, not queries, and a volume is open in
//! one process at a time. Other programs see the same volume through `shoal mount`.
//!
//! ```
//! use shoal::{Credentials, Volume};
//! use std::io::Write;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = std::env::temp_dir().join(format!("shoal-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&scratch)?;
//! # let path = scratch.join("mail.shoal");
//! let volume = Volume::options().create(true).size(64 << 20).open(&path)?;
//! let root = volume.root(Credentials::current());
//! let inbox = root.create_dir_all("users/ada/inbox")?;
//!
//! let mut file = inbox.create_new("1732.eml")?;
//! file.write_all(b"Subject: hello\n")?;
//! file.sync_all()?; // durable, and everything before it too
//!
//! inbox.batch(|b| {
//!     b.write("1733.eml", b"Subject: both\n")?;
//!     b.rename("1732.eml", "1732.eml,seen")
//! })?; // both, or none
//!
//! for entry in inbox.entries()? {
//!     let entry = entry?;
//!     println!("{} {}", entry.path().display(), entry.metadata()?.len());
//! }
//! let paths = volume.paths_of(file.ino())?;
//! assert_eq!(paths[0].to_str(), Some("users/ada/inbox/1732.eml,seen"));
//! # drop((file, inbox, root));
//! # volume.close()?;
//! # std::fs::remove_dir_all(&scratch)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Durability
//!
//! When a call returns, all other calls see its change. The change is durable, which means that it
//! survives a crash of the machine, after the next [`File::sync_all`], [`Dir::sync_all`] or
//! [`Volume::sync`] on any handle, or after [`VolumeOptions::commit_interval`] (5 s). The order is
//! strict: if a change survives, everything that was done before it does. After a crash the next
//! open recovers the volume to such a moment. A call or a batch is recovered as a whole or not at
//! all; a write of more than 1 MiB counts as several. When a write or flush fails, the volume
//! becomes read-only and reports the reason.
//!
//! # Threads
//!
//! [`Volume`] and [`Dir`] may be cloned, sent and shared. A [`File`] may be sent and shared too:
//! `&File` reads and writes, [`File::read_at`] and [`File::write_at`] need no position, and
//! [`File::try_clone`] makes one more that shares the position. Calls in different directories run
//! side by side and share no lock; in one directory, changes of names take turns for a fraction of
//! a microsecond each. Threads that sync at the same time share one flush. A call may wait for
//! others that use the same objects, and for space when memory or disk are nearly full.
//!
//! There are no file locks as by `flock`: a volume is open in one process, whose threads have
//! locks of their own.
//!
//! # Async programs
//!
//! Calls block: most take microseconds, those that wait for the device more. In an async program,
//! make them on threads that may block, several calls in one task:
//!
//! ```ignore
//! let dir = dir.clone(); // costs a counter
//! let bytes = tokio::task::spawn_blocking(move || dir.read("1732.eml")).await??;
//! ```
//!
//! # Small writes and batches
//!
//! A [`File`] has no buffer: each write is a call and a record in the journal. Programs that append
//! lines or other small pieces should wrap it in a [`std::io::BufWriter`].
//!
//! A batch is for changes that must be seen together. It also saves flushes: a hundred files that
//! must be durable take one flush in a batch, and a hundred one by one. It does not save processor
//! time: where nothing is synced, or once at the end, files of 100 bytes or of 5 KiB take as long
//! in a batch as one by one. Whole files are written with one call by [`Dir::write`].
//!
//! # Memory and space
//!
//! A file in use takes some 500 bytes of [`VolumeOptions::cache`], a quarter of the machine's
//! memory by default; what does not fit is read again when it is used. The journal and other
//! buffers take up to 64 MiB more. Contents are cached by the operating system, with the volume's
//! file.
//!
//! A volume has at least 16 MiB, of which 5 MiB can be used: the rest is for the journal and for
//! freeing space when it is full. Of 64 MiB 51 can be used, of 256 MiB 237, of larger ones more
//! than nine tenths; [`Volume::usage`] says how much is left. The size is a limit alone: the file
//! is sparse.
//!
//! # Fork
//!
//! A volume belongs to the process that opened it. In a child of `fork` every call that returns a
//! [`Result`] fails (`EBADF`, "opened before a fork: open it again"); the others show the volume as
//! it was. Dropping the child's copy closes its descriptors and leaves the parent alone. Open the
//! volume after the fork. Starting other programs is always allowed.
//!
//! # Errors
//!
//! [`Error`] says what was tried, on which path, why it failed and what to do, and converts to
//! [`std::io::Error`] and back. Reading damaged data fails with
//! [`InvalidData`](std::io::ErrorKind::InvalidData); it never returns wrong bytes.

mod connect;
mod path;

mod local;

pub mod raw;

mod credentials;
mod error;
mod handle;
mod metadata;

mod volume;
mod xattr;

mod held;

mod dir;

mod file;

mod batch;
mod copy;
mod entries;
mod subvolume;
mod token;
mod walk;

mod bulk;
mod changes;
mod listing;
mod quota;
mod serve;
mod totals;
mod tree_change;

pub use batch::{Batch, Contents};
pub use bulk::Inodes;
pub use changes::{Change, ChangeKind, Changes, Mark};
pub use credentials::Credentials;
pub use dir::Dir;
pub use entries::{Entries, Entry};
pub use error::{Error, Result};
pub use file::{File, FileOptions};
pub use handle::Handle;
pub use listing::{Listed, Listing};
pub use metadata::Metadata;
pub use path::AsPath;
pub use quota::Quota;
pub use raw::{Compression, Fields, FileKind, Filter, Generation, Ino, RenameFlags, Rights, Stat};
pub use serve::{ServeOptions, Serving};
pub use subvolume::{Subvolume, Subvolumes};
pub use token::Token;
pub use totals::Totals;
pub use tree_change::{AclChange, TreeChange, TreeChanged};
pub use volume::{CloseError, Usage, Volume, VolumeOptions};
pub use walk::{Walk, WalkEntry, Walking};

/// Asserts that handles can be sent to and shared by threads.
const _: () = {
    const fn shared<T: Send + Sync + 'static>() {}
    shared::<Volume>();
    shared::<Dir>();
    shared::<File>();
    shared::<Entry>();
    shared::<Entries>();
    shared::<Metadata>();
    shared::<Credentials>();
    shared::<Walk>();
    shared::<Inodes>();
    shared::<Listing>();
    shared::<Handle>();
    shared::<Token>();
    shared::<Error>();
    shared::<CloseError>();
    const fn sent<T: Send + 'static>() {}
    sent::<Batch<'static>>();
    sent::<Walking>();
    sent::<Changes>();
};
