//! From a request to its reply: where every kernel request enters, whatever the transport.
//!
//! A thread of a transport owns a [`Worker`] and gives it one request at a time. The answer is
//! left in the request's own body; nothing is allocated and no other thread is involved, because
//! the kernel holds the directory's lock while a create or unlink waits for us.

use crate::caller::Who;
use crate::ops::{self, Context};
use crate::protocol::dirent::for_each_node;
use crate::protocol::wire::EntryOut;
use crate::protocol::{Errno, Opcode, Reply, Request};
use crate::session::Session;
use shoal::Ino;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use zerocopy::FromBytes;

/// One thread's way to answer requests.
pub struct Worker {
    session: Arc<Session>,
    who: Who,
}

impl Worker {
    /// For a new thread.
    pub fn new(session: Arc<Session>) -> Worker {
        Worker { session, who: Who::new() }
    }

    /// Answers `request`. A handler that panics costs its caller an EIO, not its life.
    #[inline]
    pub fn handle(&mut self, request: &mut Request<'_>) -> Reply {
        let Some(op) = request.opcode else {
            return Reply::Error(Errno::ENOSYS);
        };
        let session = &*self.session;
        let who = &mut self.who;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let caller = who.adopt(request, op, session.rules.kernel_checks);
            answer(op, &mut Context { session, volume: &session.volume, who: caller }, request)
        }));
        match outcome {
            _ if op.is_silent() => Reply::Silent,
            Ok(Ok(len)) => Reply::Body(len),
            Ok(Err(errno)) => Reply::Error(errno),
            Err(_) => {
                tracing::error!(op = op.name(), node = request.header.nodeid, "handler panicked");
                Reply::Error(Errno::EIO)
            }
        }
    }

    /// Takes back what a successful reply to `op` gave, because it could not be sent: the
    /// references that the kernel would have dropped by FORGET.
    #[cold]
    pub fn undo(&self, op: Option<Opcode>, reply: &mut [u8]) {
        use Opcode::*;
        let volume = &self.session.volume;
        let Some(op) = op else { return };
        match op {
            Lookup | Create | Mknod | Mkdir | Symlink | Link | Tmpfile => {
                if let Ok((entry, _)) = EntryOut::read_from_prefix(reply)
                    && entry.nodeid != 0
                {
                    volume.release(Ino(entry.nodeid), 1);
                }
            }
            Readdirplus => {
                let release = |node| {
                    volume.release(Ino(node), 1);
                    true
                };
                // Our own records, so they parse.
                let _ = for_each_node(reply, release);
            }
            _ => {}
        }
    }
}

/// One row per operation.
#[inline]
fn answer(op: Opcode, cx: &mut Context<'_>, request: &mut Request<'_>) -> ops::Outcome {
    match op {
        Opcode::Lookup => ops::lookup::lookup(cx, request),
        Opcode::Forget => ops::lookup::forget(cx, request),
        Opcode::BatchForget => ops::lookup::batch_forget(cx, request),
        Opcode::Getattr => ops::attr::getattr(cx, request),
        Opcode::Setattr => ops::attr::setattr(cx, request),
        Opcode::Statx => ops::attr::statx(cx, request),
        Opcode::Access => ops::attr::access(cx, request),
        Opcode::Readlink => ops::attr::readlink(cx, request),
        Opcode::Statfs => ops::attr::statfs(cx, request),
        Opcode::Create => ops::create::create(cx, request),
        Opcode::Tmpfile => ops::create::tmpfile(cx, request),
        Opcode::Mknod => ops::create::mknod(cx, request),
        Opcode::Mkdir => ops::create::mkdir(cx, request),
        Opcode::Symlink => ops::create::symlink(cx, request),
        Opcode::Link => ops::create::link(cx, request),
        Opcode::Unlink => ops::remove::unlink(cx, request),
        Opcode::Rmdir => ops::remove::rmdir(cx, request),
        Opcode::Rename => ops::rename::rename(cx, request),
        Opcode::Rename2 => ops::rename::rename2(cx, request),
        Opcode::Open => ops::open::open(cx, request),
        Opcode::Opendir => ops::open::opendir(cx, request),
        Opcode::Release | Opcode::Releasedir | Opcode::Destroy => Ok(0),
        Opcode::Read => ops::data::read(cx, request),
        Opcode::Write => ops::data::write(cx, request),
        Opcode::Fallocate => ops::data::fallocate(cx, request),
        Opcode::Lseek => ops::data::lseek(cx, request),
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => ops::data::copy(cx, request),
        Opcode::Fsync | Opcode::Fsyncdir => ops::sync::fsync(cx, request),
        Opcode::Syncfs => ops::sync::syncfs(cx, request),
        Opcode::Readdir => ops::dir::readdir(cx, request),
        Opcode::Readdirplus => ops::dir::readdirplus(cx, request),
        Opcode::Setxattr => ops::xattr::set(cx, request),
        Opcode::Getxattr => ops::xattr::get(cx, request),
        Opcode::Listxattr => ops::xattr::list(cx, request),
        Opcode::Removexattr => ops::xattr::remove(cx, request),
        Opcode::Ioctl => ops::control::ioctl(cx, request),
        Opcode::Interrupt | Opcode::NotifyReply => Ok(0),
        // Close has nothing to report: writes have reached the volume before.
        Opcode::Flush => Err(Errno::ENOSYS),
        // Locks and polling are the kernel's own; the rest is not for mounts like ours.
        Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw | Opcode::Poll => Err(Errno::ENOSYS),
        Opcode::Bmap | Opcode::Setupmapping | Opcode::Removemapping => Err(Errno::ENOSYS),
        // Answered by whoever set the mount up; a second one is nonsense.
        Opcode::Init => Err(Errno::EIO),
    }
}
