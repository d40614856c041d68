//! Files opened by a token: a virtual directory in the top of the mount, [`DIRECTORY_NAME`], in
//! which the text of each valid token is a name ([`crate::tokens`]).
//!
//! | request | in the directory | on a file in it |
//! | --- | --- | --- |
//! | LOOKUP | verifies the token; entry and attributes are valid for no time, so each walk verifies it again | |
//! | OPEN | | verifies the token again, and refuses what its rights do not include |
//! | READ, WRITE, SETATTR of the size, FALLOCATE, LSEEK, FSYNC | | the same on the inode, for the rights |
//! | GETATTR, STATX | mode 711, root's | those of the inode, but for owner (root) and mode (the rights, for everybody) |
//! | copying ranges | | EOPNOTSUPP: the kernel reads and writes instead |
//! | anything else | EACCES or EPERM | EPERM |
//!
//! *Why a node beside the inode's*: the kernel keeps one mode for each node, and an open file of
//! the inode's own node would have to pass the inode's. *Why direct I/O*: two nodes of one inode
//! have two page caches. That of a token's node stays empty (but for mappings); that of the inode
//! is dropped where a write by a token has passed it. So tokens are for mounts where OPEN is sent
//! and the kernel collects no writes ([`crate::session::Rules::tokens`]).
//!
//! Open files stay open when the token expires or is revoked, as with permissions.

use super::open::{access_mask, truncate_at_open};
use super::{Context, Outcome, attr, data, kill_set_id, seek, sync};
use crate::protocol::flags::*;
use crate::protocol::reply::{attr_out, entry, put, statx_out};
use crate::protocol::wire::*;
use crate::protocol::{Errno, Opcode, Request};
use crate::tokens::{DIRECTORY, DIRECTORY_NAME, Shared};
use shoal::raw::{Attr, Caller, Code, FileKind, Generation, Ino, Rights, SetAttr, Time, Token};

const S_IFREG: u32 = 0o100_000;
const S_IFDIR: u32 = 0o040_000;
/// SETATTR bits that a truncation has.
const TRUNCATION: u32 = SETATTR_SIZE | SETATTR_FH | SETATTR_LOCK_OWNER | SETATTR_KILL_SUIDGID;

/// Returns whether a name that the volume does not have is that of the directory of tokens.
pub(crate) fn is_directory(cx: &Context<'_>, dir: Ino, name: &[u8]) -> bool {
    name == DIRECTORY_NAME.as_bytes() && cx.session.rules.tokens && dir == cx.session.top
}

/// Replies with the directory of tokens as an entry. It has no count of references.
pub(crate) fn reply_directory(request: &mut Request<'_>) -> Outcome {
    put(request.body(), 0, &unkept(&directory_attr(), DIRECTORY))
}

/// Answers a request about the directory of tokens or a file in it.
#[cold]
pub(crate) fn answer(op: Opcode, cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    if op == Opcode::Forget {
        let arg: ForgetIn = request.arg()?;
        cx.session.forgotten(request.node(), arg.nlookup);
        return Ok(0);
    }
    if op == Opcode::Statfs {
        return attr::statfs(cx, request);
    }
    if request.node() == DIRECTORY {
        return directory(op, cx, request);
    }
    let node = cx.session.tokens.get(request.node()).ok_or(Errno::ESTALE)?;
    let id = request.node();
    request.set_node(node.ino);
    on_file(op, cx, request, &node, id)
}

fn directory(op: Opcode, cx: &Context<'_>, request: &mut Request<'_>) -> Outcome {
    match op {
        Opcode::Lookup if request.name()? == b"." => reply_directory(request),
        Opcode::Lookup => find(cx, request),
        Opcode::Getattr => put(request.body(), 0, &attr_unkept(&directory_attr())),
        Opcode::Statx => put(request.body(), 0, &statx_unkept(&directory_attr())),
        Opcode::Access => may(request.arg::<AccessIn>()?.mask, MAY_EXEC),
        Opcode::Opendir | Opcode::Readdir | Opcode::Readdirplus => Err(Code::Access.into()),
        Opcode::Getxattr => Err(Errno::ENODATA),
        Opcode::Releasedir | Opcode::Fsyncdir => Ok(0),
        _ => Err(Errno::EPERM),
    }
}

/// LOOKUP of a token.
fn find(cx: &Context<'_>, request: &mut Request<'_>) -> Outcome {
    let text = std::str::from_utf8(request.name()?).unwrap_or_default();
    let token: Token = text.parse().map_err(|error| refused(&error))?;
    let (attr, id) = verify_and_hold(cx, &token)?;
    let reply = put(request.body(), 0, &unkept(&shown(&attr, token.rights()), id));
    if reply.is_err() {
        cx.session.forgotten(id, 1);
    }
    reply
}

/// Verifies a token, and gives the kernel a reference to its node. Returns the attributes of the
/// file, and the node.
fn verify_and_hold(cx: &Context<'_>, token: &Token) -> Result<(Attr, Ino), Errno> {
    let found = verify(cx, token)?;
    let references = cx.volume.references();
    references.hold(found.ino, 1)?;
    // Before it was held, it may have been removed, and its number have become another's.
    let held = match cx.volume.attributes().getattr(found.ino) {
        Ok(held) if held.generation == found.generation && held.nlink > 0 => held,
        Ok(_) => {
            references.release(found.ino, 1);
            return Err(Errno::ESTALE);
        }
        Err(error) => {
            references.release(found.ino, 1);
            return Err(error.into());
        }
    };
    let (id, is_new) = cx.session.tokens.refer(token, found.ino);
    if !is_new {
        references.release(found.ino, 1);
    }
    Ok((held, id))
}

/// Verifies a token. A mount of one subvolume opens files of that subvolume alone.
fn verify(cx: &Context<'_>, token: &Token) -> Result<Attr, Errno> {
    let attr = cx.volume.tokens().redeem(token).map_err(|error| refused(&error))?;
    match cx.session.top {
        Ino::ROOT => Ok(attr),
        top if attr.ino.root() == top.root() => Ok(attr),
        _ => Err(Code::Access.into()),
    }
}

/// Returns the errno of a refusal. Anybody can cause one, so it fills no log.
fn refused(error: &shoal::raw::Error) -> Errno {
    tracing::debug!(%error, "token refused");
    Errno(error.errno())
}

fn on_file(
    op: Opcode,
    cx: &mut Context<'_>,
    request: &mut Request<'_>,
    node: &Shared,
    id: Ino,
) -> Outcome {
    let rights = node.token.rights();
    let writable = || match rights.contains(Rights::WRITE) {
        true => Ok(()),
        false => Err(Errno::from(Code::Access)),
    };
    match op {
        Opcode::Open => open(cx, request, node),
        Opcode::Release | Opcode::Destroy => Ok(0),
        Opcode::Getattr | Opcode::Statx => show(op, cx, request, node),
        Opcode::Access => may(request.arg::<AccessIn>()?.mask, rights.bits().into()),
        // A program is read by the kernel to be executed.
        Opcode::Read if rights == Rights::WRITE => Err(Code::Access.into()),
        Opcode::Read => data::read(cx, request),
        Opcode::Lseek => seek::lseek(cx, request),
        Opcode::Fsync => sync::fsync(cx, request),
        Opcode::Write => writable().and_then(|()| write(cx, request)),
        Opcode::Setattr => setattr(cx, request, node),
        Opcode::Fallocate => {
            writable()?;
            let arg: FallocateIn = request.arg()?;
            let reply = data::fallocate(cx, request)?;
            cx.session.written_by_token(node.ino, arg.offset, arg.length);
            Ok(reply)
        }
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => Err(Errno::EOPNOTSUPP),
        Opcode::Getxattr => Err(Errno::ENODATA),
        Opcode::Listxattr => Err(Errno::EOPNOTSUPP),
        Opcode::Ioctl => Err(Errno::ENOTTY),
        // Never asked again, on the whole mount, as for other files.
        Opcode::Flush | Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw | Opcode::Poll => {
            Err(Errno::ENOSYS)
        }
        _ => {
            tracing::debug!(op = op.name(), node = id.0, "not for a file opened by a token");
            Err(Errno::EPERM)
        }
    }
}

fn may(wanted: u32, granted: u32) -> Outcome {
    match wanted & (MAY_READ | MAY_WRITE | MAY_EXEC) & !granted {
        0 => Ok(0),
        _ => Err(Code::Access.into()),
    }
}

/// OPEN. The name may have been looked up long ago, by a descriptor of `O_PATH`.
fn open(cx: &mut Context<'_>, request: &mut Request<'_>, node: &Shared) -> Outcome {
    let arg: OpenIn = request.arg()?;
    let attr = verify(cx, &node.token)?;
    may(access_mask(arg.flags), node.token.rights().bits().into())?;
    if arg.flags & O_TRUNC != 0 {
        // The token is the permission.
        let mut root = Caller::root();
        let mut cx = Context { who: &mut root, ..*cx };
        let _: Attr = truncate_at_open(&mut cx, node.ino, arg.open_flags)?;
        cx.session.written_by_token(node.ino, 0, attr.size);
    }
    let open_flags = FOPEN_DIRECT_IO | FOPEN_NOFLUSH;
    put(request.body(), 0, &OpenOut { fh: 0, open_flags, backing_id: 0 })
}

fn show(op: Opcode, cx: &Context<'_>, request: &mut Request<'_>, node: &Shared) -> Outcome {
    let attr = cx.volume.attributes().getattr(node.ino)?;
    let attr = shown(&attr, node.token.rights());
    match op {
        Opcode::Statx => put(request.body(), 0, &statx_unkept(&attr)),
        _ => put(request.body(), 0, &attr_unkept(&attr)),
    }
}

/// WRITE. The kernel does not know the size of a file that is also changed by its other node, so
/// the volume finds the end for `O_APPEND`.
fn write(cx: &Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: ReadIn = request.arg()?;
    let payload = request.payload().get(..arg.size as usize).ok_or(Errno::EIO)?;
    let (ino, files) = (request.node(), cx.volume.files());
    let kill = arg.bits & WRITE_KILL_SUIDGID != 0;
    let (at, written) = match arg.flags & O_APPEND {
        0 => (arg.offset, files.write(ino, arg.offset, payload, kill)?),
        _ => files.append(ino, payload, kill)?,
    };
    cx.session.written_by_token(ino, at, written as u64);
    if arg.flags & O_DSYNC != 0 {
        // The kernel sends no FSYNC after a write that is direct by `FOPEN_DIRECT_IO`, as it does
        // after one by `O_DIRECT`. The flag is set by `RWF_DSYNC`, too.
        files.fsync(ino, true)?;
    }
    put(request.body(), 0, &WriteOut { size: written as u32, padding: 0 })
}

/// SETATTR: a change of the size, or none.
fn setattr(cx: &mut Context<'_>, request: &mut Request<'_>, node: &Shared) -> Outcome {
    let arg: SetattrIn = request.arg()?;
    if arg.valid & !TRUNCATION != 0 {
        return Err(Errno::EPERM);
    }
    let mut attr = cx.volume.attributes().getattr(node.ino)?;
    if arg.valid & SETATTR_SIZE != 0 {
        may(MAY_WRITE, node.token.rights().bits().into())?;
        let old = attr.size;
        let set = SetAttr { size: Some(arg.size), by_handle: true, ..SetAttr::default() };
        attr = cx.volume.attributes().setattr(&Caller::root(), node.ino, &set)?;
        if arg.valid & SETATTR_KILL_SUIDGID != 0 {
            attr = kill_set_id(cx, attr, true)?;
        }
        let (from, to) = (old.min(arg.size), old.max(arg.size));
        cx.session.written_by_token(node.ino, from, to - from);
    }
    put(request.body(), 0, &attr_unkept(&shown(&attr, node.token.rights())))
}

/// Returns the attributes that a token's file shows: with them, a kernel that checks permissions
/// lets everybody do what the token allows, and nobody but root change owner or mode, which is
/// refused here.
fn shown(attr: &Attr, rights: Rights) -> Attr {
    let bits = u32::from(rights.bits());
    let mode = S_IFREG | (bits << 6) | (bits << 3) | bits;
    Attr { mode, uid: 0, gid: 0, ..*attr }
}

fn directory_attr() -> Attr {
    let never = Time { sec: 0, nsec: 0 };
    Attr {
        ino: DIRECTORY,
        generation: Generation(0),
        kind: FileKind::Directory,
        mode: S_IFDIR | 0o711,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: never,
        mtime: never,
        ctime: never,
        btime: never,
        version: 0,
    }
}

/// Returns an entry that the kernel must not keep: the token may expire or be revoked.
fn unkept(attr: &Attr, id: Ino) -> EntryOut {
    EntryOut { nodeid: id.0, generation: 0, entry_valid: 0, attr_valid: 0, ..entry(attr) }
}

fn attr_unkept(attr: &Attr) -> AttrOut {
    AttrOut { attr_valid: 0, ..attr_out(attr) }
}

fn statx_unkept(attr: &Attr) -> StatxOut {
    StatxOut { attr_valid: 0, ..statx_out(attr) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::reply::tests::sample;

    #[test]
    fn rights_become_a_mode_for_everybody() {
        let file = sample();
        for (rights, mode) in [
            (Rights::READ, 0o100_444),
            (Rights::READ | Rights::WRITE, 0o100_666),
            (Rights::WRITE, 0o100_222),
            (Rights::READ | Rights::EXECUTE, 0o100_555),
        ] {
            let shown = shown(&file, rights);
            assert_eq!((shown.mode, shown.uid, shown.gid), (mode, 0, 0));
            assert_eq!((shown.ino, shown.size), (file.ino, file.size));
        }
    }

    #[test]
    fn nothing_is_kept() {
        let entry = unkept(&sample(), Ino((1 << 63) + 5));
        assert_eq!((entry.nodeid, entry.entry_valid, entry.attr_valid), ((1 << 63) + 5, 0, 0));
        assert_eq!(attr_unkept(&sample()).attr_valid, 0);
        assert_eq!(statx_unkept(&sample()).attr_valid, 0);
    }
}
