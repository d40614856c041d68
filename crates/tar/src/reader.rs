//! Reading an archive.

use std::io::{self, Read};

use crate::header::{self, BLOCK, Header};
use crate::limits::EXTENSION_MAX;
use crate::member::data_of;
use crate::pax::{self, Both, Records};
use crate::{Error, Extent, Kind, Member, Problem, Result};

/// Stretches of a sparse file, at most: two numbers each, as in the map.
const EXTENTS_MAX: usize = EXTENSION_MAX / 24;
/// Bytes that are skipped at a time.
const PIECE: usize = 64 << 10;

/// An archive being read.
pub struct Reader<R> {
    input: R,
    offset: u64,
    /// Contents of the member at hand that have not been read.
    left: u64,
    /// Bytes behind the contents.
    padding: u64,
    /// Records of all members that follow.
    global: Records,
    /// Name of the member at hand.
    name: Vec<u8>,
}

/// Extensions that come before a member.
#[derive(Default)]
struct Before {
    records: Records,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
}

impl<R: Read> Reader<R> {
    /// Reads an archive from its beginning. Reads whole blocks: give it a buffer.
    pub fn new(input: R) -> Reader<R> {
        Reader {
            input,
            offset: 0,
            left: 0,
            padding: 0,
            global: Records::default(),
            name: Vec::new(),
        }
    }

    /// Returns the next member, `None` at the end. What was not read of the last one is skipped.
    ///
    /// # Errors
    /// Reading cannot go on behind an error, but for [`Problem::NoEnd`], behind which there is
    /// nothing.
    pub fn next_member(&mut self) -> Result<Option<Member>> {
        self.skip()?;
        let mut before = Before::default();
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            match header.kind() {
                b'x' => self.records(&header, &mut before.records)?,
                b'g' => {
                    let mut global = std::mem::take(&mut self.global);
                    self.records(&header, &mut global)?;
                    self.global = global;
                }
                b'L' => before.long_name = Some(self.long(&header)?),
                b'K' => before.long_link = Some(self.long(&header)?),
                // The label of a volume of GNU tar.
                b'V' => {
                    self.contents(&header, None)?;
                    self.skip()?;
                }
                _ => return self.member(&header, before).map(Some),
            }
        }
    }

    /// Reads contents of the member, which are the stretches of a sparse file one behind the other;
    /// 0 at their end.
    ///
    /// # Errors
    /// `Truncated`, or those of the input.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        match self.some(&mut buffer[..most])? {
            0 => Err(self.failed(Problem::Truncated)),
            read => {
                self.left -= read as u64;
                Ok(read)
            }
        }
    }

    /// Bytes of the archive that have been read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn failed(&self, problem: Problem) -> Error {
        Error { offset: self.offset, member: self.name.clone(), problem }
    }

    /// Reads some bytes of the archive; 0 at its end.
    fn some(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match self.input.read(buffer) {
                Ok(read) => {
                    self.offset += read as u64;
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(Problem::Input(error))),
            }
        }
    }

    /// Reads a block; `None` if there is nothing more.
    fn block(&mut self) -> Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.some(&mut block[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(self.failed(Problem::Truncated)),
                read => filled += read,
            }
        }
        Ok(Some(block))
    }

    /// Skips the rest of the member.
    fn skip(&mut self) -> Result<()> {
        let mut piece = vec![0; PIECE.min(usize::try_from(self.left).unwrap_or(PIECE))];
        while self.read(&mut piece)? > 0 {}
        let mut padding = [0; BLOCK];
        while self.padding > 0 {
            let most = self.padding as usize;
            match self.some(&mut padding[..most])? {
                0 => return Err(self.failed(Problem::Truncated)),
                read => self.padding -= read as u64,
            }
        }
        Ok(())
    }

    /// Reads a header; `None` at the end.
    fn header(&mut self) -> Result<Option<Header>> {
        let Some(block) = self.block()? else { return Err(self.failed(Problem::NoEnd)) };
        let header = Header(block);
        if header.is_zero() {
            // A second one should follow; nothing else can.
            return Ok(None);
        }
        match header.is_sound() {
            true => Ok(Some(header)),
            false => {
                self.offset -= BLOCK as u64;
                Err(self.failed(Problem::NoHeader))
            }
        }
    }

    /// Begins contents, of the size in the header unless records say another.
    fn contents(&mut self, header: &Header, size: Option<u64>) -> Result<u64> {
        let stored = header.number(header::SIZE).and_then(|size| u64::try_from(size).ok());
        let size = size.or(stored).filter(|size| *size <= i64::MAX as u64);
        let size = size.ok_or_else(|| self.failed(Problem::Invalid("size")))?;
        self.left = size;
        self.padding = size.next_multiple_of(BLOCK as u64) - size;
        Ok(size)
    }

    /// Reads the contents of an extension.
    fn extension(&mut self, header: &Header, what: &'static str) -> Result<Vec<u8>> {
        let size = self.contents(header, None)?;
        if size > EXTENSION_MAX as u64 {
            return Err(self.failed(Problem::TooLong(what)));
        }
        // Not allocated by what the header says, which may be all that there is.
        let mut bytes = Vec::new();
        let mut piece = [0; BLOCK * 8];
        loop {
            match self.read(&mut piece)? {
                0 => break,
                read => bytes.extend_from_slice(&piece[..read]),
            }
        }
        self.skip()?;
        Ok(bytes)
    }

    fn records(&mut self, header: &Header, into: &mut Records) -> Result<()> {
        let bytes = self.extension(header, "extended records")?;
        into.read(&bytes).ok_or_else(|| self.failed(Problem::Invalid("extended record")))?;
        match into.are_too_many() {
            true => Err(self.failed(Problem::TooLong("extended records"))),
            false => Ok(()),
        }
    }

    /// Reads a name of GNU tar that is too long for its header.
    fn long(&mut self, header: &Header) -> Result<Vec<u8>> {
        let mut bytes = self.extension(header, "a name")?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
        Ok(bytes)
    }

    /// Puts a member together.
    fn member(&mut self, header: &Header, before: Before) -> Result<Member> {
        let Before { records: own, long_name, long_link } = before;
        let global = std::mem::take(&mut self.global);
        let member =
            self.describe(header, Both { own: &own, global: &global }, long_name, long_link);
        self.global = global;
        member
    }

    fn describe(
        &mut self,
        header: &Header,
        records: Both<'_>,
        long_name: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
    ) -> Result<Member> {
        let record = |key| records.get(key).map(<[u8]>::to_vec);
        let name = record("GNU.sparse.name").or_else(|| record("path")).or(long_name);
        let name = name.unwrap_or_else(|| name_of(header));
        self.name.clone_from(&name);
        let kind = kind_of(header, &name, records);
        let mut member = Member::new(name, kind);
        member.link =
            record("linkpath").or(long_link).unwrap_or_else(|| header.text(header::LINK).to_vec());
        self.numbers(header, records, &mut member)?;
        member.user = record("uname").unwrap_or_else(|| header.text(header::UNAME).to_vec());
        member.group = record("gname").unwrap_or_else(|| header.text(header::GNAME).to_vec());
        // Not those of all members: a few bytes would become megabytes for each of millions.
        let xattrs = records.own.with_prefix("SCHILY.xattr.");
        member.xattrs = xattrs.map(|(name, value)| (pax::decoded(name), value.to_vec())).collect();
        member.xattrs.sort();
        member.acl = record("SCHILY.acl.access");
        member.default_acl = record("SCHILY.acl.default");
        let size = self.number("size", records.number("size"))?;
        // A hard link has no contents, whatever its size says.
        let size = if kind == Kind::HardLink { Some(0) } else { size };
        member.size = self.contents(header, size)?;
        match header.kind() {
            b'S' => self.old_sparse(header, &mut member)?,
            _ if kind == Kind::File && records.get("GNU.sparse.major").is_some() => {
                let real = self.number("size", records.number("GNU.sparse.realsize"))?;
                self.sparse(real, &mut member)?;
            }
            _ => {}
        }
        Ok(member)
    }

    fn number(&self, what: &'static str, value: Option<Option<u64>>) -> Result<Option<u64>> {
        match value {
            Some(None) => Err(self.failed(Problem::Invalid(what))),
            Some(value) => Ok(value),
            None => Ok(None),
        }
    }

    /// Mode, owner, time and device of a member.
    fn numbers(&self, header: &Header, records: Both<'_>, member: &mut Member) -> Result<()> {
        let invalid = |what| move || self.failed(Problem::Invalid(what));
        let small = |number: Option<i64>| u32::try_from(number?).ok();
        let owner = |key, field| match records.number(key) {
            Some(number) => number.and_then(|number| u32::try_from(number).ok()),
            None => small(header.number(field)),
        };
        let mode = header.number(header::MODE).ok_or_else(invalid("mode"))?;
        member.mode = (mode & 0o7777) as u32;
        member.uid = owner("uid", header::UID).ok_or_else(invalid("owner"))?;
        member.gid = owner("gid", header::GID).ok_or_else(invalid("group"))?;
        let mtime = match records.get("mtime") {
            Some(text) => pax::time(text),
            None => header.number(header::MTIME).map(|sec| (sec, 0)),
        };
        member.mtime = mtime.ok_or_else(invalid("time"))?;
        if matches!(member.kind, Kind::CharDevice | Kind::BlockDevice) {
            let part = |field| small(header.number(field)).ok_or_else(invalid("device number"));
            member.device = (part(header::MAJOR)?, part(header::MINOR)?);
        }
        Ok(())
    }

    /// Reads the map of a sparse file in GNU's old format: in the header, and in blocks behind it.
    fn old_sparse(&mut self, header: &Header, member: &mut Member) -> Result<()> {
        let stored = member.size;
        let real = header.number(header::REAL_SIZE).and_then(|size| u64::try_from(size).ok());
        let mut extents = Vec::new();
        let mut is_done = !take_pairs(&header.0[header::SPARSE], &mut extents);
        let mut has_more = header.0[header::SPARSE_MORE] != 0;
        while has_more {
            let block = self.block()?.ok_or_else(|| self.failed(Problem::Truncated))?;
            is_done = is_done || !take_pairs(&block[..504], &mut extents);
            has_more = block[504] != 0;
            if extents.len() > EXTENTS_MAX {
                return Err(self.failed(Problem::TooLong("a sparse map")));
            }
            if is_done && has_more {
                return Err(self.failed(Problem::Invalid("sparse map")));
            }
        }
        self.set_sparse(extents, stored, real, member)
    }

    /// Reads the map of a sparse file in GNU's format 1.0, before its contents: decimal numbers,
    /// one a line.
    fn sparse(&mut self, real: Option<u64>, member: &mut Member) -> Result<()> {
        let stored = member.size;
        let mut line = Vec::new();
        let mut numbers: Vec<u64> = Vec::new();
        let mut wanted = None;
        let mut read = 0u64;
        while wanted.is_none_or(|wanted| numbers.len() < wanted) {
            let mut block = [0; BLOCK];
            let mut filled = 0;
            while filled < BLOCK {
                match self.read(&mut block[filled..])? {
                    0 => return Err(self.failed(Problem::Invalid("sparse map"))),
                    some => filled += some,
                }
            }
            read += BLOCK as u64;
            if read > EXTENSION_MAX as u64 {
                return Err(self.failed(Problem::TooLong("a sparse map")));
            }
            for byte in block {
                if wanted.is_some_and(|wanted| numbers.len() == wanted) {
                    break;
                }
                if byte != b'\n' {
                    line.push(byte);
                    continue;
                }
                let number = pax::digits(&line);
                let number = number.ok_or_else(|| self.failed(Problem::Invalid("sparse map")))?;
                line.clear();
                match wanted {
                    None => wanted = usize::try_from(number).ok().and_then(|it| it.checked_mul(2)),
                    Some(_) => numbers.push(number),
                }
                if wanted.is_none_or(|wanted| wanted > 2 * EXTENTS_MAX) {
                    return Err(self.failed(Problem::TooLong("a sparse map")));
                }
            }
        }
        let pair = |pair: &[u64]| Extent { offset: pair[0], len: pair[1] };
        let extents = numbers.chunks_exact(2).map(pair).collect();
        self.set_sparse(extents, stored - read, real, member)
    }

    fn set_sparse(
        &mut self,
        extents: Vec<Extent>,
        stored: u64,
        real: Option<u64>,
        member: &mut Member,
    ) -> Result<()> {
        let real = real.filter(|real| *real <= i64::MAX as u64);
        let size = real.ok_or_else(|| self.failed(Problem::Invalid("size")))?;
        if data_of(&extents, size) != Some(stored) {
            return Err(self.failed(Problem::Invalid("sparse map")));
        }
        member.size = size;
        member.sparse = Some(extents);
        Ok(())
    }
}

/// Takes pairs of offset and length; returns false behind the last one.
fn take_pairs(bytes: &[u8], extents: &mut Vec<Extent>) -> bool {
    bytes.chunks_exact(24).all(|pair| {
        let number = |field| header::number(field).and_then(|it| u64::try_from(it).ok());
        let is_there = pair[0] != 0;
        if is_there {
            // What is no number makes a map that is refused.
            let offset = number(&pair[..12]).unwrap_or(u64::MAX);
            extents.push(Extent { offset, len: number(&pair[12..]).unwrap_or(u64::MAX) });
        }
        is_there
    })
}

/// Returns the name that is in a header.
fn name_of(header: &Header) -> Vec<u8> {
    let name = header.text(header::NAME);
    let prefix = header.text(header::PREFIX);
    match header.has_prefix() && !prefix.is_empty() {
        true => [prefix, b"/", name].concat(),
        false => name.to_vec(),
    }
}

fn kind_of(header: &Header, name: &[u8], records: Both<'_>) -> Kind {
    let is_new_sparse = records.get("GNU.sparse.major") == Some(b"1")
        && records.get("GNU.sparse.minor") == Some(b"0");
    match header.kind() {
        b'0' | b'7' | 0
            if records.own.with_prefix("GNU.sparse.").next().is_some() && !is_new_sparse =>
        {
            Kind::Other(
                "a sparse file in a format older than 1.0 (make it with --sparse-version=1.0)",
            )
        }
        // Programs older than the type of directories.
        b'0' | 0 if name.ends_with(b"/") => Kind::Directory,
        b'0' | b'7' | b'S' | 0 => Kind::File,
        b'1' => Kind::HardLink,
        b'2' => Kind::Symlink,
        b'3' => Kind::CharDevice,
        b'4' => Kind::BlockDevice,
        b'5' | b'D' => Kind::Directory,
        b'6' => Kind::Fifo,
        b'M' => Kind::Other("the rest of a file that begins in another volume of the archive"),
        _ => Kind::Other("of a type that is not known"),
    }
}
