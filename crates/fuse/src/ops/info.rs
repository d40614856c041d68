//! The virtual directory `.shoal` in the top of a mount, with a read-only file for each
//! [`Page`] ([`crate::documents`]).
//!
//! | request | in the directory | on a file |
//! | --- | --- | --- |
//! | LOOKUP | makes the document; not to be kept | |
//! | GETATTR, STATX | mode 500, of the user who mounted | mode 400; the size of the text |
//! | OPENDIR, READDIR | the names | |
//! | OPEN, READ | | the text |
//! | anything that changes | EPERM | EPERM |
//!
//! Where the kernel checks permissions it does so by these modes; here everything but attributes is
//! refused (EACCES) to all but the superuser and the user whom the server runs as.

use super::{Context, Outcome, attr, is_owner};
use crate::documents::{DIRECTORY, DIRECTORY_NAME};
use crate::protocol::dirent::Listing;
use crate::protocol::flags::*;
use crate::protocol::reply::{attr_out, entry, put, statx_out};
use crate::protocol::wire::*;
use crate::protocol::{Errno, Opcode, Request};
use crate::report::Page;
use shoal::raw::{Attr, Code, DirEntry, FileKind, Generation, Ino, Time};
use std::time::{SystemTime, UNIX_EPOCH};

const S_IFREG: u32 = 0o100_000;
const S_IFDIR: u32 = 0o040_000;

/// Returns whether a name that the volume does not have is that of the directory.
pub(crate) fn is_directory(cx: &Context<'_>, dir: Ino, name: &[u8]) -> bool {
    name == DIRECTORY_NAME.as_bytes() && dir == cx.session.top
}

/// Replies with the directory as an entry. It has no count of references.
pub(crate) fn reply_directory(request: &mut Request<'_>) -> Outcome {
    put(request.body(), 0, &unkept(&own_attr(DIRECTORY, 0)))
}

/// Answers a request about the directory or a document.
#[cold]
pub(crate) fn answer(op: Opcode, cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    match op {
        Opcode::Forget => {
            let arg: ForgetIn = request.arg()?;
            cx.session.forgotten(request.node(), arg.nlookup);
            return Ok(0);
        }
        Opcode::Statfs => return attr::statfs(cx, request),
        Opcode::Release | Opcode::Releasedir | Opcode::Fsync | Opcode::Fsyncdir => return Ok(0),
        Opcode::Destroy => return Ok(0),
        Opcode::Getattr | Opcode::Statx => return show(op, cx, request),
        Opcode::Getxattr => return Err(Errno::ENODATA),
        Opcode::Listxattr => return Err(Errno::EOPNOTSUPP),
        // Never asked again, on the whole mount, as for other files.
        Opcode::Flush | Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw | Opcode::Poll => {
            return Err(Errno::ENOSYS);
        }
        Opcode::Ioctl => return Err(Errno::ENOTTY),
        _ => {}
    }
    cx.identify();
    if !is_owner(cx.who.uid) {
        return Err(Code::Access.into());
    }
    if request.node() == DIRECTORY {
        in_directory(op, cx, request)
    } else {
        on_file(op, cx, request)
    }
}

fn in_directory(op: Opcode, cx: &Context<'_>, request: &mut Request<'_>) -> Outcome {
    match op {
        Opcode::Lookup => find(cx, request),
        Opcode::Access => may(request.arg::<AccessIn>()?.mask, MAY_READ | MAY_EXEC),
        Opcode::Opendir if cx.session.keeps_listings() => Err(Errno::ENOSYS),
        Opcode::Opendir => put(request.body(), 0, &OpenOut::default()),
        Opcode::Readdir => list(request, false),
        Opcode::Readdirplus => list(request, true),
        _ => Err(Errno::EPERM),
    }
}

/// LOOKUP of a document.
fn find(cx: &Context<'_>, request: &mut Request<'_>) -> Outcome {
    let name = request.name()?;
    if name == b"." {
        return reply_directory(request);
    }
    let found = Page::ALL.iter().find(|page| page.name().as_bytes() == name);
    let page = *found.ok_or(Errno::ENOENT)?;
    let text = page.text(cx.session);
    let size = text.len() as u64;
    let id = cx.session.documents.make(text);
    let reply = put(request.body(), 0, &unkept(&own_attr(id, size)));
    if reply.is_err() {
        cx.session.documents.forget(id, 1);
    }
    reply
}

/// Lists the names. None comes with a node: each is looked up when it is used.
fn list(request: &mut Request<'_>, plus: bool) -> Outcome {
    let arg: ReadIn = request.arg()?;
    let body = request.body();
    let size = (arg.size as usize).min(body.len());
    let mut listing = Listing::new(&mut body[..size]);
    let dots = [".", ".."].map(|name| (name, FileKind::Directory));
    let files = Page::ALL.iter().map(|page| (page.name(), FileKind::Regular));
    let all = dots.into_iter().chain(files).zip(1..);
    for ((name, kind), cookie) in all.filter(|(_, cookie)| *cookie > arg.offset) {
        let entry = DirEntry { name: name.as_bytes(), ino: DIRECTORY, kind, cookie };
        let fits = if plus { listing.add_bare(&entry) } else { listing.add(&entry) };
        if !fits {
            break;
        }
    }
    Ok(listing.len())
}

fn on_file(op: Opcode, cx: &Context<'_>, request: &mut Request<'_>) -> Outcome {
    match op {
        Opcode::Access => may(request.arg::<AccessIn>()?.mask, MAY_READ),
        Opcode::Open if cx.session.rules.no_open => Err(Errno::ENOSYS),
        Opcode::Open => {
            let arg: OpenIn = request.arg()?;
            if arg.flags & (O_ACCMODE | O_TRUNC | O_EXEC) != 0 {
                return Err(Code::Access.into());
            }
            put(request.body(), 0, &OpenOut { open_flags: FOPEN_NOFLUSH, ..OpenOut::default() })
        }
        Opcode::Read => {
            let arg: ReadIn = request.arg()?;
            let text = cx.session.documents.get(request.node())?;
            let from = usize::try_from(arg.offset).unwrap_or(usize::MAX).min(text.len());
            let size = (arg.size as usize).min(text.len() - from).min(request.body().len());
            request.body()[..size].copy_from_slice(&text[from..from + size]);
            Ok(size)
        }
        _ => Err(Errno::EPERM),
    }
}

fn show(op: Opcode, cx: &Context<'_>, request: &mut Request<'_>) -> Outcome {
    let id = request.node();
    let size = match id {
        DIRECTORY => 0,
        _ => cx.session.documents.get(id)?.len() as u64,
    };
    let attr = own_attr(id, size);
    match op {
        Opcode::Statx => put(request.body(), 0, &StatxOut { attr_valid: 0, ..statx_out(&attr) }),
        _ => put(request.body(), 0, &AttrOut { attr_valid: 0, ..attr_out(&attr) }),
    }
}

fn may(wanted: u32, granted: u32) -> Outcome {
    match wanted & (MAY_READ | MAY_WRITE | MAY_EXEC) & !granted {
        0 => Ok(0),
        _ => Err(Code::Access.into()),
    }
}

fn own_attr(ino: Ino, size: u64) -> Attr {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Time { sec: since.as_secs() as i64, nsec: since.subsec_nanos() };
    let (kind, mode, nlink) = match ino {
        DIRECTORY => (FileKind::Directory, S_IFDIR | 0o500, 2),
        _ => (FileKind::Regular, S_IFREG | 0o400, 1),
    };
    Attr {
        ino,
        generation: Generation(0),
        kind,
        mode,
        nlink,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        rdev: 0,
        size,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        version: 0,
    }
}

/// Returns an entry that the kernel must not keep: the next one has another text.
fn unkept(attr: &Attr) -> EntryOut {
    EntryOut { generation: 0, entry_valid: 0, attr_valid: 0, ..entry(attr) }
}
