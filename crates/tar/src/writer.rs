//! Writing an archive.

use std::io::{self, Write};

use crate::header::{self, BLOCK, Header, fits};
use crate::pax;
use crate::{Extent, Kind, Member};

/// Bytes that an archive is a multiple of, as GNU tar has it.
const RECORD: u64 = 20 * BLOCK as u64;

/// An archive being written.
pub struct Writer<W> {
    output: W,
    written: u64,
    /// Contents of the member at hand that have not been written.
    left: u64,
    /// Bytes behind the contents.
    padding: u64,
}

impl<W: Write> Writer<W> {
    /// Writes an archive.
    pub fn new(output: W) -> Writer<W> {
        Writer { output, written: 0, left: 0, padding: 0 }
    }

    /// Begins a member. Its contents must follow with [`Writer::data`]: all bytes of its size, or
    /// those of its stretches if it is sparse. What is missing of the last one becomes zeros.
    ///
    /// # Errors
    /// Those of the output; `InvalidInput` for a sparse map that does not fit the size.
    pub fn member(&mut self, member: &Member) -> io::Result<()> {
        self.pad()?;
        let map = match &member.sparse {
            Some(extents) => Some(map_of(extents, member.size)?),
            None => None,
        };
        let data = match (&map, member.kind) {
            (Some((map, data)), _) => map.len() as u64 + data,
            (None, Kind::File) => member.size,
            _ => 0,
        };
        let records = records(member, data, map.is_some());
        if !records.is_empty() {
            self.extension(member, &records)?;
        }
        self.put(&header_of(member, data, map.is_some()).0)?;
        self.begin(data);
        match map {
            Some((map, _)) => self.data(&map),
            None => Ok(()),
        }
    }

    /// Writes contents.
    ///
    /// # Errors
    /// Those of the output; `InvalidInput` for more than the member has.
    pub fn data(&mut self, data: &[u8]) -> io::Result<()> {
        let left = self.left.checked_sub(data.len() as u64);
        self.left = left.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.put(data)
    }

    /// Ends the archive; returns the output.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.pad()?;
        let end = (self.written + 2 * BLOCK as u64).next_multiple_of(RECORD);
        self.zeros(end - self.written)?;
        self.output.flush()?;
        Ok(self.output)
    }

    /// Bytes written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Bytes of the member at hand that are missing.
    pub fn left(&self) -> u64 {
        self.left
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn zeros(&mut self, mut len: u64) -> io::Result<()> {
        let zeros = [0; BLOCK * 8];
        while len > 0 {
            let some = usize::try_from(len).unwrap_or(usize::MAX).min(zeros.len());
            self.put(&zeros[..some])?;
            len -= some as u64;
        }
        Ok(())
    }

    fn begin(&mut self, data: u64) {
        self.left = data;
        self.padding = data.next_multiple_of(BLOCK as u64) - data;
    }

    fn pad(&mut self) -> io::Result<()> {
        let missing = std::mem::take(&mut self.left) + std::mem::take(&mut self.padding);
        self.zeros(missing)
    }

    /// Writes the member with the records of the next one.
    fn extension(&mut self, member: &Member, records: &[u8]) -> io::Result<()> {
        let name = member.name.strip_suffix(b"/").unwrap_or(&member.name);
        let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let name = [b"./PaxHeaders/", &name[..name.len().min(80)]].concat();
        let mut header = Header::new(b'x');
        header.set_text(header::NAME, &name);
        header.set_number(header::MODE, 0o644);
        header.set_number(header::UID, 0);
        header.set_number(header::GID, 0);
        header.set_number(header::SIZE, records.len() as u64);
        header.set_number(header::MTIME, seconds(member));
        header.seal();
        self.put(&header.0)?;
        self.begin(records.len() as u64);
        self.data(records)?;
        self.pad()
    }
}

/// Returns the time as a header has it.
fn seconds(member: &Member) -> u64 {
    u64::try_from(member.mtime.0).ok().filter(|sec| fits(*sec, 11)).unwrap_or(0)
}

/// Returns the parts of a name that a header has room for.
fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    if name.len() <= header::NAME.len() {
        return Some((b"", name));
    }
    let earliest = name.len() - header::NAME.len() - 1;
    let at = (earliest..name.len() - 1).find(|at| name[*at] == b'/')?;
    (1..=header::PREFIX.len()).contains(&at).then(|| (&name[..at], &name[at + 1..]))
}

fn header_of(member: &Member, data: u64, is_sparse: bool) -> Header {
    let mut header = Header::new(match member.kind {
        Kind::File | Kind::Other(_) => b'0',
        Kind::HardLink => b'1',
        Kind::Symlink => b'2',
        Kind::CharDevice => b'3',
        Kind::BlockDevice => b'4',
        Kind::Directory => b'5',
        Kind::Fifo => b'6',
    });
    let sparse_name;
    let name = match is_sparse {
        // A program that does not know sparse files must not give this one its name.
        true => {
            sparse_name = [b"GNUSparseFile.0/", &member.name[..]].concat();
            &sparse_name
        }
        false => &member.name,
    };
    let (prefix, name) = split(name).unwrap_or((b"", name));
    header.set_text(header::NAME, name);
    header.set_text(header::PREFIX, prefix);
    header.set_text(header::LINK, &member.link);
    header.set_number(header::MODE, u64::from(member.mode & 0o7777));
    header.set_number(header::UID, member.uid.into());
    header.set_number(header::GID, member.gid.into());
    header.set_number(header::SIZE, data);
    header.set_number(header::MTIME, seconds(member));
    header.set_text(header::UNAME, short(&member.user));
    header.set_text(header::GNAME, short(&member.group));
    let (major, minor) = member.device;
    header.set_number(header::MAJOR, major.into());
    header.set_number(header::MINOR, minor.into());
    header.seal();
    header
}

/// Returns the name of a user that a header has room for, with its NUL.
fn short(name: &[u8]) -> &[u8] {
    if name.len() < header::UNAME.len() { name } else { b"" }
}

/// Returns the records of what the header has no room for.
fn records(member: &Member, data: u64, is_sparse: bool) -> Vec<u8> {
    let mut records = Vec::new();
    let mut push = |key: &str, value: &[u8]| pax::push(&mut records, key.as_bytes(), value);
    match is_sparse {
        true => {
            push("GNU.sparse.major", b"1");
            push("GNU.sparse.minor", b"0");
            push("GNU.sparse.name", &member.name);
            push("GNU.sparse.realsize", member.size.to_string().as_bytes());
        }
        false if split(&member.name).is_none() => push("path", &member.name),
        false => {}
    }
    if member.link.len() > header::LINK.len() {
        push("linkpath", &member.link);
    }
    if !fits(data, 11) {
        push("size", data.to_string().as_bytes());
    }
    for (key, number) in [("uid", member.uid), ("gid", member.gid)] {
        if !fits(number.into(), 7) {
            push(key, number.to_string().as_bytes());
        }
    }
    for (key, name) in [("uname", &member.user), ("gname", &member.group)] {
        if !name.is_empty() && short(name).is_empty() {
            push(key, name);
        }
    }
    let (sec, nsec) = member.mtime;
    if nsec != 0 || i64::try_from(seconds(member)) != Ok(sec) {
        push("mtime", pax::time_text(member.mtime).as_bytes());
    }
    for (key, acl) in
        [("SCHILY.acl.access", &member.acl), ("SCHILY.acl.default", &member.default_acl)]
    {
        if let Some(acl) = acl {
            push(key, acl);
        }
    }
    for (name, value) in &member.xattrs {
        let key = [b"SCHILY.xattr.", &pax::encoded(name)[..]].concat();
        pax::push(&mut records, &key, value);
    }
    records
}

/// Returns the map of a sparse file as bytes, and the bytes of its stretches.
fn map_of(extents: &[Extent], size: u64) -> io::Result<(Vec<u8>, u64)> {
    let data = crate::member::data_of(extents, size);
    let data = data.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut map = format!("{}\n", extents.len());
    for Extent { offset, len } in extents {
        map.push_str(&format!("{offset}\n{len}\n"));
    }
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    Ok((map, data))
}
