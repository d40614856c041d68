//! Control files: a virtual file in every directory, which lists directories and counts trees for
//! programs that would otherwise ask about one file at a time ([`crate::protocol::question`]).
//!
//! | request | answer |
//! | --- | --- |
//! | LOOKUP of the name in a directory | a new node ([`crate::streams`]); name and attributes are valid for no time |
//! | OPEN | for reading |
//! | IOCTL | keeps the question and its caller; cancels a change |
//! | READ | the next piece of the answer, by a thread that may wait |
//! | RELEASE | drops the question |
//! | anything else | EPERM |
//!
//! Permission: that of the user who has asked, with the groups of that moment, checked here on
//! every mount. A directory is named by its inode, so each of the way from it up to the directory
//! of the control file must be one that the user may search, as if the kernel had walked down. What
//! is outside is never listed, not even for the superuser: a program that sees only a part of the
//! mount cannot look beyond it. (What else is mounted below is not seen either: the directories
//! under it are.)
//!
//! *Why offsets do not count*: each read goes on where the last has ended. *Why pieces are full*:
//! where OPEN is not sent, programs ask for direct I/O themselves, and the kernel would complete a
//! short direct read from its cache.

use super::{Context, Outcome, attr, feed, gone, same_dir, tree_change};
use crate::protocol::flags::*;
use crate::protocol::question::*;
use crate::protocol::reply::{attr_out, entry, put, statx_out};
use crate::protocol::wire::*;
use crate::protocol::{Errno, Opcode, Request};
use crate::streams::Asked;
use shoal::raw::{
    Attr, Caller, Code, DirEntry, FileKind, Generation, Ino, Time, Totals, TotalsScan, Volume,
};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

const S_IFREG: u32 = 0o100_000;
/// Most directories between a directory and that of the control file.
const DEPTH_MAX: usize = 10_000;
/// Time after which a read begins no further directory: whoever is killed waits for its read.
const SLICE: Duration = Duration::from_millis(100);
/// Cookie of "..", after which the names begin.
const AFTER_DOTS: u64 = 2;

/// Returns whether a name that the volume does not have is that of the control file.
#[inline]
pub(crate) fn is_control_name(name: &[u8]) -> bool {
    name == CONTROL_NAME.as_bytes()
}

/// Replies with the control file of a directory as an entry. The caller may search the directory.
pub(crate) fn reply_control(cx: &Context<'_>, request: &mut Request<'_>) -> Outcome {
    let dir = cx.volume.attributes().getattr(request.node())?;
    let id = cx.session.streams.make(dir.ino, dir.generation);
    let out = EntryOut { generation: 0, entry_valid: 0, attr_valid: 0, ..entry(&own_attr(id)) };
    let reply = put(request.body(), 0, &out);
    if reply.is_err() {
        cx.session.streams.forget(id, 1);
    }
    reply
}

/// Answers a request about a control file.
#[cold]
pub(crate) fn answer(op: Opcode, cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let id = request.node();
    let attr = own_attr(id);
    match op {
        Opcode::Forget => {
            let arg: ForgetIn = request.arg()?;
            cx.session.forgotten(id, arg.nlookup);
            Ok(0)
        }
        Opcode::Getattr => put(request.body(), 0, &AttrOut { attr_valid: 0, ..attr_out(&attr) }),
        Opcode::Statx => put(request.body(), 0, &StatxOut { attr_valid: 0, ..statx_out(&attr) }),
        Opcode::Statfs => attr::statfs(cx, request),
        Opcode::Access => match request.arg::<AccessIn>()?.mask & (MAY_WRITE | MAY_EXEC) {
            0 => Ok(0),
            _ => Err(Code::Access.into()),
        },
        Opcode::Open if cx.session.rules.no_open => Err(Errno::ENOSYS),
        Opcode::Open => {
            let arg: OpenIn = request.arg()?;
            if arg.flags & (O_ACCMODE | O_TRUNC | O_EXEC) != 0 {
                return Err(Code::Access.into());
            }
            let open_flags = FOPEN_DIRECT_IO | FOPEN_NOFLUSH;
            put(request.body(), 0, &OpenOut { fh: 0, open_flags, backing_id: 0 })
        }
        Opcode::Release => {
            cx.session.streams.give_up(id);
            Ok(0)
        }
        Opcode::Destroy => Ok(0),
        Opcode::Ioctl => ask(cx, request),
        Opcode::Read => read(cx, request),
        Opcode::Getxattr => Err(Errno::ENODATA),
        Opcode::Listxattr => Err(Errno::EOPNOTSUPP),
        // Never asked again, on the whole mount, as for other files.
        Opcode::Flush | Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw | Opcode::Poll => {
            Err(Errno::ENOSYS)
        }
        _ => Err(Errno::EPERM),
    }
}

/// Returns the attributes of a control file. A direct read ends at the size.
fn own_attr(id: Ino) -> Attr {
    let never = Time { sec: 0, nsec: 0 };
    Attr {
        ino: id,
        generation: Generation(0),
        kind: FileKind::Regular,
        mode: S_IFREG | 0o444,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: PIECE as u64,
        blocks: 0,
        atime: never,
        mtime: never,
        ctime: never,
        btime: never,
    }
}

/// IOCTL: keeps a question. Nothing is read from the device.
fn ask(cx: &mut Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: IoctlIn = request.arg()?;
    if arg.cmd != IOCTL_ASK {
        return Err(Errno::ENOTTY);
    }
    if (arg.in_size as usize) < QUESTION {
        return Err(Errno::EINVAL);
    }
    let question = parse(request.payload())?;
    cx.identify();
    if question.kind == Kind::Totals && cx.who.uid != 0 {
        // The walk that it is for others remembers everything that it has found.
        return Err(Errno::EPERM);
    }
    match question.kind {
        // The change's own question is read on.
        Kind::Cancel => cx.session.streams.cancel(request.node(), cx.who.uid)?,
        _ => cx.session.streams.ask(request.node(), question, cx.who.clone())?,
    }
    put(request.body(), 0, &IoctlOut::default())
}

/// READ: the next piece.
fn read(cx: &Context<'_>, request: &mut Request<'_>) -> Outcome {
    let arg: ReadIn = request.arg()?;
    let id = request.node();
    let dir = cx.session.streams.dir(id).ok_or(Errno::ESTALE)?;
    let request_number = request.header.unique;
    let size = (arg.size as usize).min(request.body().len());
    let mut piece = Piece::new(&mut request.body()[..size])?;
    let mut reading = cx.session.streams.begin(id, request_number)?;
    let stop = reading.stop();
    let asked = reading.asked().ok_or(Errno::EINVAL)?;
    let kind = asked.question.kind;
    let answered = match kind {
        Kind::List => Ok(Lister::new(cx.volume, dir, asked).fill(&mut piece)),
        Kind::Entry => entry_of(cx.volume, dir, asked, &mut piece),
        Kind::Totals => totals(cx.volume, dir, asked, &stop)
            .and_then(|totals| Ok(piece.push(&Record::Totals(totals.ok_or(Errno::EINTR)?)))),
        Kind::Changes => feed::changes(cx, (id, dir), asked, &mut piece, SLICE),
        Kind::Newer => feed::newer(cx, asked, &mut piece),
        Kind::Change => tree_change::change(cx, (id, dir), asked, &mut piece, SLICE),
        // Never kept.
        Kind::Cancel => Err(Errno::EIO),
    };
    // After these the caller reads again.
    if matches!(answered, Ok(false) | Err(Errno::EINTR | Errno::EAGAIN)) {
        reading.goes_on();
    }
    Ok(piece.finish(kind, answered?))
}

/// Answers a question for an entry.
fn entry_of(
    volume: &Volume,
    dir: (Ino, Generation),
    asked: &Asked,
    piece: &mut Piece<'_>,
) -> Result<bool, Errno> {
    let Asked { question, who, .. } = asked;
    let own = same_dir(volume, dir)?;
    let name = &question.name[..];
    let attr = match name {
        b"." => {
            volume.attributes().access(who, dir.0, MAY_EXEC)?;
            own
        }
        _ => volume.namespace().lookup(who, dir.0, name)?,
    };
    let target = target_of(volume, question, attr.ino, attr.kind)?;
    match piece.push(&Record::Entry { dir: 0, name, attr, target: &target }) {
        true => Ok(true),
        false => Err(Errno::EIO),
    }
}

/// Returns the target of a symlink, if it was asked for.
fn target_of(
    volume: &Volume,
    question: &Question,
    ino: Ino,
    kind: FileKind,
) -> Result<Vec<u8>, Errno> {
    match kind {
        FileKind::Symlink if question.flags & TARGETS != 0 => {
            volume.namespace().readlink(ino).map_err(gone)
        }
        _ => Ok(Vec::new()),
    }
}

/// Returns totals; `None` if the read was interrupted.
fn totals(
    volume: &Volume,
    dir: (Ino, Generation),
    asked: &Asked,
    stop: &AtomicBool,
) -> Result<Option<Totals>, Errno> {
    let own = same_dir(volume, dir)?;
    let threads = available_parallelism().map_or(1, usize::from);
    let subvolumes = asked.question.flags & SUBVOLUMES != 0;
    let scan = TotalsScan { threads, subvolumes, ..TotalsScan::of(own.ino) };
    let stop = || stop.load(Ordering::Relaxed);
    volume.bulk().totals_until(&asked.who, scan, &stop).map_err(gone)
}

/// Lists the directories of a question into a piece.
struct Lister<'a> {
    volume: &'a Volume,
    /// The directory of the control file.
    top: (Ino, Generation),
    asked: &'a mut Asked,
    /// Directories that can be reached from the top, as found in this read.
    reached: HashSet<Ino>,
}

/// Result of an attempt to list a directory.
enum Listed {
    /// To its end.
    All,
    /// As much as a question gets.
    Some,
    /// The piece is full.
    Full,
}

impl Lister<'_> {
    fn new<'a>(volume: &'a Volume, top: (Ino, Generation), asked: &'a mut Asked) -> Lister<'a> {
        Lister { volume, top, asked, reached: HashSet::new() }
    }

    /// Returns whether all directories are answered.
    fn fill(mut self, piece: &mut Piece<'_>) -> bool {
        let begun = Instant::now();
        while let Some(dir) = self.asked.question.dirs.get(self.asked.at).copied() {
            if self.asked.entries == 0 && self.asked.cookie == 0 {
                self.asked.cookie = dir.cookie.max(AFTER_DOTS);
            }
            let listed = self.check(&dir).and_then(|()| self.list(&dir, piece));
            let (cookie, errno) = match listed {
                Ok(Listed::Full) => return false,
                Ok(Listed::Some) => (self.asked.cookie, 0),
                Ok(Listed::All) => (0, 0),
                Err(errno) => (0, errno.0.unsigned_abs()),
            };
            if !piece.push(&Record::End { dir: self.asked.at as u16, cookie, errno }) {
                // The next piece begins with it.
                return false;
            }
            (self.asked.at, self.asked.cookie, self.asked.entries) = (self.asked.at + 1, 0, 0);
            if begun.elapsed() > SLICE {
                return self.asked.at == self.asked.question.dirs.len();
            }
        }
        true
    }

    /// Checks that the user may list a directory, and can reach it.
    fn check(&mut self, dir: &QuestionDir) -> Result<(), Errno> {
        let (ino, top) = (Ino(dir.ino), self.top);
        let who = &self.asked.who;
        same_dir(self.volume, (ino, Generation(dir.generation)))?;
        let mask = match self.asked.question.flags & NAMES_ONLY {
            0 => MAY_READ | MAY_EXEC,
            _ => MAY_READ,
        };
        self.volume.attributes().access(who, ino, mask).map_err(gone)?;
        if ino == top.0 {
            return same_dir(self.volume, top).map(drop);
        }
        let way = self.way(who, ino)?;
        self.reached.extend(way);
        Ok(())
    }

    /// Returns the directories on the way from one up to the top. The user must be allowed to
    /// search them.
    fn way(&self, who: &Caller, dir: Ino) -> Result<Vec<Ino>, Errno> {
        let (mut way, mut at) = (Vec::new(), dir);
        while at != self.top.0 {
            let parent = self.volume.directories().parent_of(at).map_err(gone)?;
            if parent == at {
                // It has been moved out, or never was inside.
                return Err(Errno::ENOENT);
            }
            if way.len() == DEPTH_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            if self.reached.contains(&parent) {
                return Ok(way);
            }
            self.volume.attributes().access(who, parent, MAY_EXEC).map_err(gone)?;
            way.push(parent);
            at = parent;
        }
        same_dir(self.volume, self.top)?;
        Ok(way)
    }

    /// Lists the rest of a directory, as far as it fits.
    fn list(&mut self, dir: &QuestionDir, piece: &mut Piece<'_>) -> Result<Listed, Errno> {
        let (volume, ino, number) = (self.volume, Ino(dir.ino), self.asked.at as u16);
        let Asked { question, cookie, entries, .. } = &mut *self.asked;
        let (from, mut end, mut failed) = (*cookie, Listed::All, None);
        let mut add = |entry: DirEntry<'_>, attr: Option<&Attr>| {
            if *entries == ENTRIES_MAX {
                end = Listed::Some;
                return false;
            }
            match push(volume, question, piece, number, &entry, attr) {
                Ok(true) => *entries += 1,
                Ok(false) => {
                    end = Listed::Full;
                    return false;
                }
                // Removed since the directory was read.
                Err(Errno::ENOENT) => {}
                Err(errno) => {
                    failed = Some(errno);
                    return false;
                }
            }
            *cookie = entry.cookie;
            true
        };
        let directories = volume.directories();
        match question.flags & NAMES_ONLY {
            0 => directories.readdirplus(ino, from, &mut |entry, attr| add(entry, attr.ok())),
            _ => directories.readdir(ino, from, &mut |entry| add(entry, None)),
        }
        .map_err(gone)?;
        failed.map_or(Ok(end), Err)
    }
}

/// Adds an entry to a piece; returns whether it fits. Without attributes, or if they cannot be
/// read, it is a name with its type. Directories come with their generations, by which they can be
/// listed.
fn push(
    volume: &Volume,
    question: &Question,
    piece: &mut Piece<'_>,
    dir: u16,
    entry: &DirEntry<'_>,
    attr: Option<&Attr>,
) -> Result<bool, Errno> {
    let DirEntry { name, ino, kind, .. } = *entry;
    if let Some(attr) = attr {
        match target_of(volume, question, ino, kind) {
            Ok(target) => {
                return Ok(piece.push(&Record::Entry { dir, name, attr: *attr, target: &target }));
            }
            Err(Errno::ENOENT) => return Err(Errno::ENOENT),
            // The name is known.
            Err(_) => {}
        }
    }
    let generation = match kind {
        FileKind::Directory => match volume.attributes().getattr(ino).map_err(gone) {
            Ok(attr) => attr.generation,
            Err(Errno::ENOENT) => return Err(Errno::ENOENT),
            // Listing it reports why.
            Err(_) => Generation(0),
        },
        _ => Generation(0),
    };
    Ok(piece.push(&Record::Name { dir, name, ino, generation, kind }))
}
