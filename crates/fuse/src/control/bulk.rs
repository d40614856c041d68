//! Client of a control file: directories listed in bulk.

use super::{QuestionPage, give};
use crate::protocol::question::*;
use crate::protocol::wire::QuestionDir;
use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::{Errno as Os, pread};
use shoal::raw::{Attr, FileKind, Generation, Ino, Totals};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Pause before a server that is asked too much is asked again; then twice that, and so on up to
/// the second.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];
/// Longest time to ask again.
const PATIENCE: Duration = Duration::from_secs(60);
/// Length of a short read, for questions with short answers.
pub(super) const SHORT: usize = 16 << 10;

const _: () = assert!(SHORT >= PIECE_MIN);

/// An open control file of a directory in a mount, by which this directory and those below it are
/// listed without a system call for each file.
///
/// It is for one thread at a time. Permission is that of whoever asks, not of whoever has opened
/// it.
#[derive(Debug)]
pub struct ControlFile {
    file: OwnedFd,
    buffer: Vec<u8>,
}

/// A directory to be listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Its inode.
    pub ino: Ino,
    /// Generation of the inode.
    pub generation: Generation,
    /// Cookie to go on after; 0: the start.
    pub cookie: u64,
}

/// An entry that was listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryFound<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Inode number.
    pub ino: Ino,
    /// Generation; of names alone only that of directories, otherwise 0.
    pub generation: Generation,
    /// Type.
    pub kind: FileKind,
    /// Attributes, if they were asked for and can be read: the inode may be damaged (`EIO`).
    pub attr: Option<Attr>,
    /// Target of a symlink, if it was asked for; otherwise empty.
    pub target: &'a [u8],
}

/// Part of an answer about the directory with this number in the question.
#[derive(Debug)]
pub enum Listed<'a> {
    /// An entry.
    Entry(usize, EntryFound<'a>),
    /// The end: the cookie to go on after, if there are more entries; or the error.
    End(usize, io::Result<Option<u64>>),
}

impl ControlFile {
    /// Most directories that can be listed by one question.
    pub const DIRS_MAX: usize = DIRS_MAX;

    /// Opens the control file of a directory, of which a descriptor of `O_PATH` is enough.
    ///
    /// # Errors
    /// `EACCES` if the caller may not search the directory, `ENOENT` if it is removed, `ENOTTY`
    /// when it is in no mount of Shoal, `EPROTONOSUPPORT` when a server without control files
    /// serves it.
    pub fn open(dir: impl AsFd) -> io::Result<ControlFile> {
        let flags = OFlags::RDONLY
            | OFlags::CLOEXEC
            | OFlags::DIRECT
            | OFlags::NOFOLLOW
            | OFlags::NOCTTY
            | OFlags::NONBLOCK;
        match openat(&dir, CONTROL_NAME, flags, Mode::empty()) {
            Ok(file) => Ok(ControlFile { file, buffer: Vec::new() }),
            // It has been removed.
            Err(Os::NOENT) if fstat(&dir).is_ok_and(|found| found.st_nlink == 0) => {
                Err(Os::NOENT.into())
            }
            // Other file systems know no such name, or no direct I/O.
            Err(Os::NOENT | Os::INVAL | Os::LOOP) => Err(match is_served(&dir) {
                true => Os::PROTONOSUPPORT.into(),
                false => Os::NOTTY.into(),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Lists directories, each of which is the directory of the file, or below it. Passes the
    /// entries of each, at most 1,024, and its end to `each`, in the order of the question. With
    /// `names_only` the entries have no attributes.
    ///
    /// # Errors
    /// Those of a directory are in its end: `EACCES` if the caller may not list it (with attributes
    /// also: search it) or not search one on the way to it, `ENOENT` if it has been removed, or
    /// moved out. Otherwise `EINVAL` for no directories or too many, `EIO` for a malformed answer.
    pub fn list(
        &mut self,
        names_only: bool,
        dirs: &[Asked],
        each: &mut dyn FnMut(Listed<'_>),
    ) -> io::Result<()> {
        let flags = if names_only { NAMES_ONLY } else { 0 };
        let question = |Asked { ino, generation, cookie }: &Asked| QuestionDir {
            ino: ino.0,
            cookie: *cookie,
            generation: generation.0,
            padding: 0,
        };
        let wanted = dirs.iter().map(question).collect();
        let most = dirs.len().saturating_mul(ENTRIES_MAX);
        let (mut ended, mut entries) = (0, 0);
        // An answer for a directory that has ended, or with more than there can be, is malformed.
        let mut goes_on = move |dir: u16, ended: usize, name: &[u8]| {
            entries += 1;
            usize::from(dir) == ended && entries <= most && !matches!(name, b"." | b"..")
        };
        self.ask(&Question::list(flags, wanted), PIECE, &mut |record| match record {
            Record::End { dir, cookie, errno } if usize::from(dir) == ended => {
                let number = ended;
                ended += 1;
                let end = match errno {
                    0 => Ok((cookie != 0).then_some(cookie)),
                    errno => Err(io::Error::from_raw_os_error(errno as i32)),
                };
                each(Listed::End(number, end));
                true
            }
            Record::Entry { dir, name, attr, target } if goes_on(dir, ended, name) => {
                let Attr { ino, generation, kind, .. } = attr;
                let attr = Some(attr);
                each(Listed::Entry(
                    ended,
                    EntryFound { name, ino, generation, kind, attr, target },
                ));
                true
            }
            Record::Name { dir, name, ino, generation, kind } if goes_on(dir, ended, name) => {
                let (attr, target) = (None, &b""[..]);
                each(Listed::Entry(
                    ended,
                    EntryFound { name, ino, generation, kind, attr, target },
                ));
                true
            }
            _ => false,
        })?;
        if ended == dirs.len() { Ok(()) } else { Err(Os::IO.into()) }
    }

    /// Returns the attributes of an entry of the directory, or of itself (`.`).
    ///
    /// # Errors
    /// Those of `lstat`.
    pub fn entry(&mut self, name: &[u8]) -> io::Result<Attr> {
        let mut found = None;
        self.ask(&Question::new(Kind::Entry, 0, name), SHORT, &mut |record| match record {
            Record::Entry { attr, .. } => found.replace(attr).is_none(),
            _ => false,
        })?;
        found.ok_or_else(|| Os::IO.into())
    }

    /// Returns the totals of everything below the directory, with the subvolumes in it if
    /// `subvolumes`.
    ///
    /// # Errors
    /// `EPERM` unless the caller is the superuser, `ENOENT` if the directory has been removed.
    pub fn totals(&mut self, subvolumes: bool) -> io::Result<Totals> {
        let (flags, mut found) = (if subvolumes { SUBVOLUMES } else { 0 }, None);
        self.ask(&Question::new(Kind::Totals, flags, b""), SHORT, &mut |record| match record {
            Record::Totals(totals) => found.replace(totals).is_none(),
            _ => false,
        })?;
        found.ok_or_else(|| Os::IO.into())
    }

    /// Asks, and passes all records of the answer to `each`, which returns whether they make sense.
    pub(super) fn ask(
        &mut self,
        question: &Question,
        size: usize,
        each: &mut dyn FnMut(Record<'_>) -> bool,
    ) -> io::Result<()> {
        self.give(question)?;
        while !self.read(question.kind, size, each)? {}
        Ok(())
    }

    /// Gives a question.
    pub(super) fn give(&self, question: &Question) -> io::Result<()> {
        let mut page = QuestionPage([0; QUESTION]);
        // Too many directories, or a long mode.
        let too_long = if question.dirs.is_empty() { Os::NAMETOOLONG } else { Os::INVAL };
        question.write(&mut page.0).ok_or(too_long)?;
        patiently(|| give(&self.file, &mut page))
    }

    /// Reads the next piece of the answer, and passes its records to `each`. Returns whether it is
    /// the last one.
    pub(super) fn read(
        &mut self,
        kind: Kind,
        size: usize,
        each: &mut dyn FnMut(Record<'_>) -> bool,
    ) -> io::Result<bool> {
        self.buffer.resize(size.max(self.buffer.len()), 0);
        let room = &mut self.buffer[..size];
        let len = patiently(|| pread(&self.file, &mut *room, 0))?;
        let (is_last, mut records) = read_piece(&room[..len], kind).ok_or(Os::IO)?;
        // Without records and not the last one: it would never end.
        let is_endless = records.is_empty() && !is_last;
        if is_endless || !records.by_ref().all(&mut *each) || !records.is_empty() {
            return Err(Os::IO.into());
        }
        Ok(is_last)
    }
}

/// Returns whether a directory is in a mount of Shoal.
fn is_served(dir: impl AsFd) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(dir, ".", flags, Mode::empty()).is_ok_and(super::is_in_mount)
}

/// Repeats a call as long as the server is asked too much, for a minute.
fn patiently<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    let (mut pause, begun) = (PAUSES[0], Instant::now());
    loop {
        match call() {
            Err(Os::AGAIN) if begun.elapsed() < PATIENCE => {
                std::thread::sleep(pause);
                pause = (2 * pause).min(PAUSES[1]);
            }
            Err(Os::INTR) => {}
            result => return Ok(result?),
        }
    }
}
