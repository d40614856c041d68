//! Calls on the contents of open files.

use crate::answer::Answer;
use crate::files::{self, File};
use crate::kernel::Errno;
use crate::mounts::Served;
use crate::place::open_file;
use crate::state::{Counted, count};
use shoal_engine::{Code, Error, Fallocate, Seek};
use shoal_session::{AT_END, Calls};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// Most bytes that one call reads or writes, as of the kernel.
const MOST: usize = 0x7fff_f000;
/// Bytes that are copied from file to file at a time.
const COPIED: usize = 256 << 10;

/// Memory for copies.
static KEPT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Passes the error of a call on an open file on. The kernel is asked when the session has been
/// lost, which fails as on a dead mount.
fn failed<T>(served: &Served, error: &Error) -> Answer<T> {
    match error.code() {
        Code::BadHandle | Code::Io if served.remote.0.is_lost() => None,
        code => Some(Err(code.errno())),
    }
}

/// Begin of a call's range: at the position, which is moved, or at a place that is given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    Position,
    At(i64),
}

/// Takes `len` bytes from the position on; what is not used of them is given back.
fn begin(file: &File, start: Start, len: usize) -> Result<u64, Errno> {
    match start {
        Start::Position => Ok(file.position.fetch_add(len as u64, Ordering::AcqRel)),
        Start::At(at) => u64::try_from(at).map_err(|_| libc::EINVAL),
    }
}

fn give_back(file: &File, start: Start, len: usize) {
    if matches!(start, Start::Position) {
        file.position.fetch_sub(len as u64, Ordering::AcqRel);
    }
}

/// As `read`, `pread`, `readv`, `preadv`.
pub(crate) fn read(fd: i32, into: &mut [IoSliceMut<'_>], start: Start) -> Answer<isize> {
    open_file(fd, |file, served| {
        if !file.may_read() {
            return Some(Err(libc::EBADF));
        }
        if file.is_dir {
            return Some(Err(libc::EISDIR));
        }
        let len = into.iter().map(|part| part.len()).fold(0, usize::saturating_add).min(MOST);
        let at = match begin(file, start, len) {
            Ok(at) => at,
            Err(errno) => return Some(Err(errno)),
        };
        // The end of a file that nobody has changed needs no question.
        let is_end = file.known != 0
            && at >= file.attr.size
            && served.copies.number(&served.remote) == Some(file.known);
        if is_end {
            give_back(file, start, len);
            count(Counted::read, true);
            return Some(Ok(0));
        }
        let mut done = 0;
        for part in into {
            let wanted = part.len().min(len - done);
            match served.remote.read(
                served.who(),
                file.node()?,
                at + done as u64,
                &mut part[..wanted],
            ) {
                Ok(n) => {
                    done += n;
                    if n < wanted {
                        break;
                    }
                }
                Err(error) if done == 0 => {
                    give_back(file, start, len);
                    return failed(served, &error);
                }
                Err(_) => break,
            }
        }
        give_back(file, start, len - done);
        served.copies.read(file.ino);
        count(Counted::read, true);
        Some(Ok(done as isize))
    })
}

/// As `write`, `pwrite`, `writev`, `pwritev`.
pub(crate) fn write(fd: i32, parts: &[IoSlice<'_>], start: Start) -> Answer<isize> {
    open_file(fd, |file, served| {
        if !file.may_write() {
            return Some(Err(libc::EBADF));
        }
        let len = parts.iter().map(|part| part.len()).fold(0, usize::saturating_add).min(MOST);
        let appends = file.flags & libc::O_APPEND != 0;
        // The place is known when it has been written: an append moves the position to its end.
        let at = match begin(file, start, if appends { 0 } else { len }) {
            Ok(at) => at,
            Err(errno) => return Some(Err(errno)),
        };
        let whole: Vec<u8>;
        let bytes = match parts {
            [one] => &one[..len.min(one.len())],
            // One call: others' appends come before or after all of it.
            parts => {
                whole = parts.iter().flat_map(|part| part.iter().copied()).take(len).collect();
                &whole
            }
        };
        let to = if appends { AT_END } else { at };
        let wrote = match bytes.is_empty() {
            true => Ok((at, 0)),
            false => served.remote.write(served.who(), file.node()?, to, bytes),
        };
        match wrote {
            Ok((begun, written)) => {
                match (appends, start) {
                    (true, Start::Position) if written > 0 => {
                        file.position.store(begun + written, Ordering::Release);
                    }
                    (true, _) => {}
                    (false, _) => give_back(file, start, len - written as usize),
                }
                count(Counted::write, true);
                Some(Ok(written as isize))
            }
            Err(error) => {
                if !appends {
                    give_back(file, start, len);
                }
                failed(served, &error)
            }
        }
    })
}

/// As `lseek`.
pub(crate) fn seek(fd: i32, to: i64, whence: i32) -> Answer<i64> {
    open_file(fd, |file, served| {
        // A directory's position is that of its listing.
        if file.is_dir {
            return None;
        }
        let from = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => file.position.load(Ordering::Acquire),
            libc::SEEK_END => match served.remote.attr(served.who(), file.node()?) {
                Ok(attr) => attr.size,
                Err(error) => return failed(served, &error),
            },
            libc::SEEK_DATA | libc::SEEK_HOLE => {
                let Ok(at) = u64::try_from(to) else { return Some(Err(libc::ENXIO)) };
                let what = if whence == libc::SEEK_DATA { Seek::Data } else { Seek::Hole };
                return match served.remote.seek(served.who(), file.node()?, at, what) {
                    Ok(at) => {
                        file.position.store(at, Ordering::Release);
                        Some(Ok(at as i64))
                    }
                    Err(error) => failed(served, &error),
                };
            }
            _ => return Some(Err(libc::EINVAL)),
        };
        count(Counted::seek, true);
        let at = i64::try_from(from).ok().and_then(|from| from.checked_add(to));
        match at {
            None => Some(Err(libc::EOVERFLOW)),
            Some(at @ 0..) => {
                file.position.store(at as u64, Ordering::Release);
                Some(Ok(at))
            }
            Some(_) => Some(Err(libc::EINVAL)),
        }
    })
}

/// As `fsync` and `fdatasync`.
pub(crate) fn sync(fd: i32, data_only: bool) -> Answer<()> {
    open_file(fd, |file, served| {
        count(Counted::sync, true);
        match served.remote.fsync(served.who(), file.node()?, data_only) {
            Ok(()) => Some(Ok(())),
            Err(error) => failed(served, &error),
        }
    })
}

/// As `ftruncate`.
pub(crate) fn set_size(fd: i32, size: i64) -> Answer<()> {
    open_file(fd, |file, served| {
        let Ok(size) = u64::try_from(size) else { return Some(Err(libc::EINVAL)) };
        if !file.may_write() {
            return Some(Err(libc::EINVAL));
        }
        count(Counted::size, true);
        match served.remote.set_size(served.who(), file.node()?, size) {
            Ok(()) => Some(Ok(())),
            Err(error) => failed(served, &error),
        }
    })
}

/// As `fallocate`.
pub(crate) fn allocate(fd: i32, mode: i32, at: i64, len: i64) -> Answer<()> {
    open_file(fd, |file, served| {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let how = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Fallocate::Allocate { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => Fallocate::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => Fallocate::ZeroRange { keep_size },
            _ => return None,
        };
        let (Ok(at), Ok(len @ 1..)) = (u64::try_from(at), u64::try_from(len)) else {
            return Some(Err(libc::EINVAL));
        };
        if !file.may_write() || at.checked_add(len).is_none_or(|end| end > i64::MAX as u64) {
            return None;
        }
        count(Counted::allocate, true);
        match served.remote.allocate(served.who(), file.node()?, how, at, len) {
            Ok(()) => Some(Ok(())),
            Err(error) => failed(served, &error),
        }
    })
}

/// As `copy_file_range` between two files of sessions: the bytes come here and go back, in pieces.
/// `None`: at least one of them is not of a session, or the kernel is to say what is wrong.
pub(crate) fn copy(
    (from, from_at): (i32, Option<i64>),
    (to, to_at): (i32, Option<i64>),
    len: usize,
) -> Answer<isize> {
    let (source, target) = (files::get(from)?, files::get(to)?);
    if source.is_place() || target.is_place() {
        return None;
    }
    let wrong = source.is_dir
        || target.is_dir
        || !source.may_read()
        || !target.may_write()
        || target.flags & libc::O_APPEND != 0
        || source.ino == target.ino;
    if wrong {
        return None;
    }
    let start = |at: Option<i64>| at.map_or(Start::Position, Start::At);
    // Kept from copy to copy, as far as one at a time is made: pages of memory cost more than small
    // files.
    let mut kept = KEPT.try_lock();
    let mut own = Vec::new();
    let buffer = kept.as_deref_mut().unwrap_or(&mut own);
    buffer.resize(COPIED, 0);
    let mut done = 0;
    while done < len.min(MOST) {
        let piece = buffer.len().min(len - done);
        let moved = |at: Option<i64>| start(at.map(|at| at + done as i64));
        let read = read(from, &mut [IoSliceMut::new(&mut buffer[..piece])], moved(from_at))?;
        let read = match read {
            Ok(read) => read as usize,
            Err(errno) if done == 0 => return Some(Err(errno)),
            Err(_) => break,
        };
        if read == 0 {
            break;
        }
        // Without a session the mount is dead too.
        let wrote = write(to, &[IoSlice::new(&buffer[..read])], moved(to_at));
        let wrote = wrote.unwrap_or(Err(libc::ENOTCONN));
        let written = wrote.as_ref().map_or(0, |written| *written as usize);
        // What was read and could not be written is read again.
        if written < read && from_at.is_none() {
            source.position.fetch_sub((read - written) as u64, Ordering::AcqRel);
        }
        done += written;
        match wrote {
            Err(errno) if done == 0 => return Some(Err(errno)),
            Ok(_) if written == read => {}
            _ => break,
        }
    }
    count(Counted::copy, true);
    Some(Ok(done as isize))
}
