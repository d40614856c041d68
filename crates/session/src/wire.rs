//! Bytes of calls and results: little-endian numbers, strings with their length before them.
//!
//! Both ends are on one machine and refuse each other unless their versions are equal, so nothing
//! is optional and nothing is skipped. What a client has written is not trusted: [`Reader`] checks
//! every length, and a value that cannot be is an error.

use crate::about::{
    Fact, Group, HardLink, HardLinks, Load, Metric, Operation, ScrubStep, Trace, TracedRequest,
};
use crate::calls::{CopyWish, How, Node, Opened};
use shoal_engine::{
    Attr, BatchOp, Caller, Change, ChangeKind, ChangeMark, ChangedName, Code, Cookies, Corrupt,
    DeviceFailure, DirEntry, Error, Fallocate, Fields, FileKind, Filter, Freshness, Generation,
    Handle, Ino, Listing, OrphanInfo, OrphanState, Quota, QuotaLimits, RenameFlags, Result, Rights,
    RootInfo, ScrubAt, Seek, SetAttr, SetTime, Stat, StatFs, Time, Timing, Token, Totals,
    TreeChanged, TreeCheck, TreeFailure, XattrFlags,
};
use std::borrow::Cow;
use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

/// Takes values off a message.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads a message.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// `EINVAL` at the end.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or_else(short)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or_else(short)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// Fails unless everything has been taken.
    ///
    /// # Errors
    /// `EINVAL`.
    #[inline]
    pub fn end(&self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(short()) }
    }

    /// Returns whether everything has been taken.
    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes all the rest.
    #[inline]
    pub fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

#[cold]
fn short() -> Error {
    Error::refused(Code::Invalid, "a message of a session has another length than its values")
}

#[cold]
fn impossible(what: &str, value: u64) -> Error {
    Error::refused(Code::Invalid, format!("a message of a session has {what} {value}"))
}

/// Error of a number that is no row.
#[cold]
pub(crate) fn unknown_row(number: u16) -> Error {
    Error::refused(Code::NotSupported, format!("there is no call with number {number}"))
}

/// Error of a server that sends more than was asked for.
#[cold]
pub(crate) fn too_much() -> Error {
    Error::refused(Code::Io, "the server of the session answers with more than was asked for")
}

/// Error of a question with more values than an answer is made for.
#[cold]
pub(crate) fn too_many(what: &str, at_most: usize) -> Error {
    Error::refused(Code::TooBig, format!("a call of a session has at most {at_most} {what}"))
}

/// Bytes of a file in one answer. Longer ones would let other sessions wait.
pub(crate) const READ_MAX: usize = 128 << 10;
/// Bytes of one write, which is one transaction.
pub(crate) const WRITE_MAX: usize = 1 << 20;
/// Inodes in one answer, at most.
pub(crate) const INODES_MAX: usize = 4096;
/// Names in one question, at most: an answer has an error for each.
pub(crate) const NAMES_MAX: usize = 2048;
/// Changes of one batch, at most: in memory each takes a hundred times the bytes of a short
/// message.
pub(crate) const CHANGES_MAX: usize = 1 << 18;
/// Groups of a caller, at most: as many as a process may have.
const GROUPS_MAX: u32 = 65_536;

/// Returns how many of these names fit into a question of `room` bytes; at least one.
pub(crate) fn names_in(room: usize, names: &[&[u8]]) -> usize {
    let mut len = 64;
    let fit = names.iter().take(NAMES_MAX).take_while(|name| {
        len += 4 + name.len();
        len <= room
    });
    fit.count().max(1)
}

/// Appends an entry of a listing.
pub(crate) fn put_entry(entry: &DirEntry<'_>, stat: &Result<Stat>, out: &mut Writer<'_>) {
    ((entry.name, entry.ino), (entry.kind, entry.cookie)).put(out);
    stat.put(out);
}

/// Takes an entry of a listing.
pub(crate) fn take_entry<'a>(from: &mut Reader<'a>) -> Result<(DirEntry<'a>, Result<Stat>)> {
    let ((name, ino), (kind, cookie)) = Take::take(from)?;
    Ok((DirEntry { name, ino, kind, cookie }, Take::take(from)?))
}

/// Appends values to a message of limited length.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
    begin: usize,
}

impl<'a> Writer<'a> {
    /// Appends to a buffer.
    pub fn new(bytes: &'a mut Vec<u8>) -> Writer<'a> {
        Writer { begin: bytes.len(), bytes }
    }

    /// Appends bytes.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.begin
    }

    /// Returns whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends this many bytes, to be written.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        let at = self.bytes.len();
        self.bytes.resize(at + len, 0);
        &mut self.bytes[at..]
    }

    /// Replaces the first byte.
    pub fn set_first(&mut self, byte: u8) {
        self.bytes[self.begin] = byte;
    }

    /// The buffer, to append to.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        self.bytes
    }

    /// Takes back what was written behind the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(self.begin + len);
    }
}

/// A value that can be appended to a message.
pub trait Put {
    /// Appends it.
    fn put(&self, out: &mut Writer<'_>);
}

/// A value that can be taken off a message that lives for `'a`.
pub trait Take<'a>: Sized {
    /// Takes it.
    ///
    /// # Errors
    /// `EINVAL` for what cannot be.
    fn take(from: &mut Reader<'a>) -> Result<Self>;
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Put for $type {
            #[inline]
            fn put(&self, out: &mut Writer<'_>) {
                out.bytes(&self.to_le_bytes());
            }
        }
        impl Take<'_> for $type {
            #[inline]
            fn take(from: &mut Reader<'_>) -> Result<$type> {
                from.array().map(<$type>::from_le_bytes)
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 i64);

impl Put for usize {
    #[inline]
    fn put(&self, out: &mut Writer<'_>) {
        (*self as u64).put(out);
    }
}

impl Take<'_> for usize {
    #[inline]
    fn take(from: &mut Reader<'_>) -> Result<usize> {
        let value = u64::take(from)?;
        usize::try_from(value).map_err(|_| impossible("length", value))
    }
}

/// Structures that are their fields in order.
macro_rules! structs {
    ($($type:ident { $($field:ident),* })*) => {$(
        impl Put for $type {
            #[inline]
            fn put(&self, out: &mut Writer<'_>) {
                let $type { $($field),* } = self;
                $($field.put(out);)*
            }
        }
        impl<'a> Take<'a> for $type {
            #[inline]
            fn take(from: &mut Reader<'a>) -> Result<$type> {
                $(let $field = Take::take(from)?;)*
                Ok($type { $($field),* })
            }
        }
    )*};
}

structs! {
    Opened { node, attr }
    How { read, write, append, truncate, create, create_new, mode }
    Handle { ino, generation }
    RenameFlags { noreplace, exchange, whiteout }
    XattrFlags { create, replace, clear_set_group_id }
    SetAttr { mode, uid, gid, size, atime, mtime, ctime, by_handle }
    StatFs { bytes_total, bytes_free, bytes_available, inodes_used, inodes_free, read_only }
    QuotaLimits { bytes, inodes }
    Quota { dir, limits, bytes, inodes, is_exact }
    RootInfo { id, name, top, deleted, inodes }
    Totals { files, dirs, others, linked, bytes, blocks, newest_change }
    Filter { name, kinds, uid, gid, size, mtime, ctime }
    Listing { cookies, want, filter }
    Corrupt { object, addr, rule }
    ChangedName { dir, dir_path, name }
    Change { kind, ino, generation, file, names, from, more }
    TreeFailure { path, ino, error }
    TreeChanged { inodes, failures, cancelled }
    Metric { name, value, what, gauge }
    Operation { name, group, timing }
    Load { is_process, key, uid, requests, uncertain, took_ns, read, written }
    Trace { next, was_interrupted, requests }
    TracedRequest { number, begun_ns, took_ns, op, facts, names }
    ScrubAt { stage, key }
    ScrubStep { next, blocks, objects, bytes, problems, left_out }
    HardLink { dir, generation, path }
    HardLinks { ino, generation, is_top, links, next }
    OrphanInfo { ino, state, slot, held, size, bytes, path }
    CopyWish { entries, attributes, xattrs, below }
}

/// Nanoseconds of a second.
const NANOSECONDS: u32 = 1_000_000_000;

/// Words of attributes: a listing has many, so they are put and taken at once.
pub(crate) const STAT_WORDS: usize = 14;

/// Puts two numbers into a word.
#[inline]
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Takes them out again.
#[inline]
fn two(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

impl Put for Stat {
    #[inline]
    fn put(&self, out: &mut Writer<'_>) {
        let words: [u64; STAT_WORDS] = [
            self.valid.bits(),
            self.ino,
            pair(self.generation, self.mode),
            pair(self.nlink, self.uid),
            pair(self.gid, self.rdev),
            self.size,
            self.blocks,
            self.atime.sec.cast_unsigned(),
            self.mtime.sec.cast_unsigned(),
            self.ctime.sec.cast_unsigned(),
            self.btime.sec.cast_unsigned(),
            pair(self.atime.nsec, self.mtime.nsec),
            pair(self.ctime.nsec, self.btime.nsec),
            self.version,
        ];
        out.bytes(words.map(u64::to_le_bytes).as_flattened());
    }
}

impl Take<'_> for Stat {
    #[inline]
    fn take(from: &mut Reader<'_>) -> Result<Stat> {
        let bytes: [u8; STAT_WORDS * 8] = from.array()?;
        let (words, _) = bytes.as_chunks::<8>();
        let word = |n: usize| u64::from_le_bytes(words[n]);
        let ((generation, mode), (nlink, uid), (gid, rdev)) =
            (two(word(2)), two(word(3)), two(word(4)));
        let ((a, m), (c, b)) = (two(word(11)), two(word(12)));
        let time = |n, nsec| Time { sec: word(n).cast_signed(), nsec };
        let (atime, mtime, ctime, btime) = (time(7, a), time(8, m), time(9, c), time(10, b));
        if let Some(nsec) = [a, m, c, b].into_iter().find(|nsec| *nsec >= NANOSECONDS) {
            return Err(impossible("a time with nanoseconds", nsec.into()));
        }
        let valid = Fields::from_bits(word(0))?;
        let (ino, size, blocks, version) = (word(1), word(5), word(6), word(13));
        Ok(Stat {
            valid,
            ino,
            generation,
            mode,
            nlink,
            uid,
            gid,
            rdev,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            btime,
            version,
        })
    }
}

impl Put for Attr {
    #[inline]
    fn put(&self, out: &mut Writer<'_>) {
        Stat::from(*self).put(out);
    }
}

impl Take<'_> for Attr {
    #[inline]
    fn take(from: &mut Reader<'_>) -> Result<Attr> {
        let stat = Stat::take(from)?;
        stat.attr().ok_or_else(|| impossible("attributes of mode", stat.mode.into()))
    }
}

impl Put for Time {
    #[inline]
    fn put(&self, out: &mut Writer<'_>) {
        self.sec.put(out);
        self.nsec.put(out);
    }
}

impl Take<'_> for Time {
    #[inline]
    fn take(from: &mut Reader<'_>) -> Result<Time> {
        let (sec, nsec) = Take::take(from)?;
        match nsec {
            0..NANOSECONDS => Ok(Time { sec, nsec }),
            _ => Err(impossible("a time with nanoseconds", nsec.into())),
        }
    }
}

/// Wrappers of one number.
macro_rules! wrapped {
    ($($type:ident)*) => {$(
        impl Put for $type {
            #[inline]
            fn put(&self, out: &mut Writer<'_>) {
                self.0.put(out);
            }
        }
        impl Take<'_> for $type {
            #[inline]
            fn take(from: &mut Reader<'_>) -> Result<$type> {
                Take::take(from).map($type)
            }
        }
    )*};
}

wrapped!(Node Ino Generation);

impl Put for () {
    fn put(&self, _: &mut Writer<'_>) {}
}

impl Take<'_> for () {
    fn take(_: &mut Reader<'_>) -> Result<()> {
        Ok(())
    }
}

impl<A: Put, B: Put> Put for (A, B) {
    fn put(&self, out: &mut Writer<'_>) {
        self.0.put(out);
        self.1.put(out);
    }
}

impl<'a, A: Take<'a>, B: Take<'a>> Take<'a> for (A, B) {
    fn take(from: &mut Reader<'a>) -> Result<(A, B)> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

impl Put for bool {
    #[inline]
    fn put(&self, out: &mut Writer<'_>) {
        u8::from(*self).put(out);
    }
}

impl Take<'_> for bool {
    #[inline]
    fn take(from: &mut Reader<'_>) -> Result<bool> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(impossible("a truth value of", other.into())),
        }
    }
}

impl<T: Put> Put for Option<T> {
    #[inline]
    fn put(&self, out: &mut Writer<'_>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
}

impl<'a, T: Take<'a>> Take<'a> for Option<T> {
    #[inline]
    fn take(from: &mut Reader<'a>) -> Result<Option<T>> {
        Ok(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl Put for &[u8] {
    #[inline]
    fn put(&self, out: &mut Writer<'_>) {
        (self.len() as u32).put(out);
        out.bytes(self);
    }
}

impl<'a> Take<'a> for &'a [u8] {
    #[inline]
    fn take(from: &mut Reader<'a>) -> Result<&'a [u8]> {
        let len = u32::take(from)?;
        from.bytes(len as usize)
    }
}

impl<const N: usize> Put for [u8; N] {
    fn put(&self, out: &mut Writer<'_>) {
        out.bytes(self);
    }
}

impl<const N: usize> Take<'_> for [u8; N] {
    fn take(from: &mut Reader<'_>) -> Result<[u8; N]> {
        from.array()
    }
}

impl Put for String {
    fn put(&self, out: &mut Writer<'_>) {
        self.as_bytes().put(out);
    }
}

impl Take<'_> for String {
    fn take(from: &mut Reader<'_>) -> Result<String> {
        Ok(String::from_utf8_lossy(Take::take(from)?).into_owned())
    }
}

impl Put for Vec<u8> {
    fn put(&self, out: &mut Writer<'_>) {
        (&self[..]).put(out);
    }
}

impl Take<'_> for Vec<u8> {
    fn take(from: &mut Reader<'_>) -> Result<Vec<u8>> {
        <&[u8]>::take(from).map(<[u8]>::to_vec)
    }
}

/// Lists: their length, and the values.
macro_rules! lists {
    ($($type:ty)*) => {$(
        impl Put for Vec<$type> {
            fn put(&self, out: &mut Writer<'_>) {
                (self.len() as u32).put(out);
                self.iter().for_each(|value| value.put(out));
            }
        }
        impl Take<'_> for Vec<$type> {
            fn take(from: &mut Reader<'_>) -> Result<Vec<$type>> {
                // Grows with what there is: the length alone makes no memory.
                (0..u32::take(from)?).map(|_| Take::take(from)).collect()
            }
        }
    )*};
}

lists! {
    RootInfo Quota Attr FileKind Result<Stat> Change ChangedName TreeFailure u64 Fact
    Metric Operation Load TracedRequest OrphanInfo HardLink
}

impl Put for Cow<'static, str> {
    fn put(&self, out: &mut Writer<'_>) {
        self.as_bytes().put(out);
    }
}

impl Take<'_> for Cow<'static, str> {
    fn take(from: &mut Reader<'_>) -> Result<Cow<'static, str>> {
        String::take(from).map(Cow::Owned)
    }
}

/// Its sums, and the buckets that are not empty.
impl Put for Timing {
    fn put(&self, out: &mut Writer<'_>) {
        ((self.total_ns, self.errors), self.bytes).put(out);
        (self.buckets().count() as u32).put(out);
        self.buckets().for_each(|(bucket, count)| (bucket as u8, count).put(out));
    }
}

impl Take<'_> for Timing {
    fn take(from: &mut Reader<'_>) -> Result<Timing> {
        let mut timing = Timing::default();
        ((timing.total_ns, timing.errors), timing.bytes) = Take::take(from)?;
        let mut sum = 0_u64;
        for _ in 0..u32::take(from)? {
            let (bucket, count): (u8, u64) = Take::take(from)?;
            let more = sum.checked_add(count);
            sum = more.ok_or_else(|| impossible("more durations than", sum))?;
            timing.add(bucket.into(), count);
        }
        Ok(timing)
    }
}

impl Put for Box<[u8]> {
    fn put(&self, out: &mut Writer<'_>) {
        (&self[..]).put(out);
    }
}

impl Take<'_> for Box<[u8]> {
    fn take(from: &mut Reader<'_>) -> Result<Box<[u8]>> {
        <&[u8]>::take(from).map(Box::from)
    }
}

impl Put for Arc<[u8]> {
    fn put(&self, out: &mut Writer<'_>) {
        (&self[..]).put(out);
    }
}

impl Take<'_> for Arc<[u8]> {
    fn take(from: &mut Reader<'_>) -> Result<Arc<[u8]>> {
        <&[u8]>::take(from).map(Arc::from)
    }
}

impl Put for RangeInclusive<u64> {
    fn put(&self, out: &mut Writer<'_>) {
        self.start().put(out);
        self.end().put(out);
    }
}

impl Take<'_> for RangeInclusive<u64> {
    fn take(from: &mut Reader<'_>) -> Result<RangeInclusive<u64>> {
        let (start, end) = Take::take(from)?;
        Ok(start..=end)
    }
}

impl Put for Bound<Time> {
    fn put(&self, out: &mut Writer<'_>) {
        let (kind, time): (u8, Time) = match self {
            Bound::Unbounded => (0, Time::default()),
            Bound::Included(time) => (1, *time),
            Bound::Excluded(time) => (2, *time),
        };
        (kind, time).put(out);
    }
}

impl Take<'_> for Bound<Time> {
    fn take(from: &mut Reader<'_>) -> Result<Bound<Time>> {
        let (kind, time) = Take::take(from)?;
        match kind {
            0u8 => Ok(Bound::Unbounded),
            1 => Ok(Bound::Included(time)),
            2 => Ok(Bound::Excluded(time)),
            _ => Err(impossible("a bound of kind", kind.into())),
        }
    }
}

impl Put for Cookies {
    fn put(&self, out: &mut Writer<'_>) {
        (self.begin(), self.last()).put(out);
    }
}

impl Take<'_> for Cookies {
    fn take(from: &mut Reader<'_>) -> Result<Cookies> {
        let (begin, last) = Take::take(from)?;
        Ok(Cookies::between(begin, last))
    }
}

impl Put for FileKind {
    #[inline]
    fn put(&self, out: &mut Writer<'_>) {
        (*self as u8).put(out);
    }
}

impl Take<'_> for FileKind {
    #[inline]
    fn take(from: &mut Reader<'_>) -> Result<FileKind> {
        let byte = u8::take(from)?;
        FileKind::from_dirent_type(byte).ok_or_else(|| impossible("a file of type", byte.into()))
    }
}

impl Put for Fields {
    fn put(&self, out: &mut Writer<'_>) {
        self.bits().put(out);
    }
}

impl Take<'_> for Fields {
    fn take(from: &mut Reader<'_>) -> Result<Fields> {
        Fields::from_bits(u64::take(from)?)
    }
}

impl Put for SetTime {
    fn put(&self, out: &mut Writer<'_>) {
        let time = match self {
            SetTime::Now => None,
            SetTime::To(time) => Some(*time),
        };
        time.put(out);
    }
}

impl Take<'_> for SetTime {
    fn take(from: &mut Reader<'_>) -> Result<SetTime> {
        Ok(<Option<Time> as Take>::take(from)?.map_or(SetTime::Now, SetTime::To))
    }
}

impl Put for Duration {
    fn put(&self, out: &mut Writer<'_>) {
        self.as_secs().put(out);
        self.subsec_nanos().put(out);
    }
}

impl Take<'_> for Duration {
    fn take(from: &mut Reader<'_>) -> Result<Duration> {
        let (seconds, nanos) = Take::take(from)?;
        match nanos {
            0..NANOSECONDS => Ok(Duration::new(seconds, nanos)),
            _ => Err(impossible("a duration with nanoseconds", nanos.into())),
        }
    }
}

impl Put for Rights {
    fn put(&self, out: &mut Writer<'_>) {
        self.bits().put(out);
    }
}

impl Take<'_> for Rights {
    fn take(from: &mut Reader<'_>) -> Result<Rights> {
        Rights::from_bits(u8::take(from)?)
    }
}

impl Put for Token {
    fn put(&self, out: &mut Writer<'_>) {
        self.to_bytes().put(out);
    }
}

impl Take<'_> for Token {
    fn take(from: &mut Reader<'_>) -> Result<Token> {
        Token::from_bytes(&<[u8; 66]>::take(from)?)
    }
}

impl Put for ChangeMark {
    fn put(&self, out: &mut Writer<'_>) {
        self.to_bytes().put(out);
    }
}

impl Take<'_> for ChangeMark {
    fn take(from: &mut Reader<'_>) -> Result<ChangeMark> {
        ChangeMark::from_bytes(&<[u8; 57]>::take(from)?)
    }
}

/// Enumerations: a number for each value.
macro_rules! values {
    ($($type:ident $what:literal { $($number:literal $value:expr => $pattern:pat,)* })*) => {$(
        impl Put for $type {
            fn put(&self, out: &mut Writer<'_>) {
                let number: u8 = match self {
                    $($pattern => $number,)*
                };
                number.put(out);
            }
        }
        impl Take<'_> for $type {
            fn take(from: &mut Reader<'_>) -> Result<$type> {
                match u8::take(from)? {
                    $($number => Ok($value),)*
                    other => Err(impossible($what, other.into())),
                }
            }
        }
    )*};
}

values! {
    Group "a group of operations" {
        0 Group::Requests => Group::Requests,
        1 Group::Calls => Group::Calls,
        2 Group::Volume => Group::Volume,
    }
    OrphanState "a state of an orphan" {
        0 OrphanState::Unlinked => OrphanState::Unlinked,
        1 OrphanState::Tree => OrphanState::Tree,
        2 OrphanState::Truncating => OrphanState::Truncating,
        3 OrphanState::Broken => OrphanState::Broken,
        4 OrphanState::Changing => OrphanState::Changing,
    }
    Fallocate "a mode of allocation" {
        0 Fallocate::Allocate { keep_size: false } => Fallocate::Allocate { keep_size: false },
        1 Fallocate::Allocate { keep_size: true } => Fallocate::Allocate { keep_size: true },
        2 Fallocate::PunchHole => Fallocate::PunchHole,
        3 Fallocate::ZeroRange { keep_size: false } => Fallocate::ZeroRange { keep_size: false },
        4 Fallocate::ZeroRange { keep_size: true } => Fallocate::ZeroRange { keep_size: true },
    }
    ChangeKind "a change of kind" {
        1 ChangeKind::Created => ChangeKind::Created,
        2 ChangeKind::Changed => ChangeKind::Changed,
        3 ChangeKind::Renamed => ChangeKind::Renamed,
        4 ChangeKind::Removed => ChangeKind::Removed,
    }
    Seek "a kind of seek" {
        0 Seek::Data => Seek::Data,
        1 Seek::Hole => Seek::Hole,
    }
    TreeCheck "a check of a tree" {
        0 TreeCheck::Tree => TreeCheck::Tree,
        1 TreeCheck::Top => TreeCheck::Top,
    }
    Freshness "a freshness" {
        0 Freshness::Force => Freshness::Force,
        1 Freshness::Lazy => Freshness::Lazy,
        2 Freshness::DontWait => Freshness::DontWait,
    }
}

impl Put for Result<Stat> {
    fn put(&self, out: &mut Writer<'_>) {
        match self {
            Ok(stat) => (true, *stat).put(out),
            Err(error) => (false, error.clone()).put(out),
        }
    }
}

impl Take<'_> for Result<Stat> {
    fn take(from: &mut Reader<'_>) -> Result<Result<Stat>> {
        Ok(if bool::take(from)? { Ok(Take::take(from)?) } else { Err(Take::take(from)?) })
    }
}

/// Operations of a device that fail, as the names are known on the other side.
const OPERATIONS: &[&str] = &["read", "write", "flush", "discard", "open", "resize", "zero"];

impl Put for Error {
    #[cold]
    fn put(&self, out: &mut Writer<'_>) {
        match self {
            Error::Code(code) => (0u8, code.errno() as u32).put(out),
            Error::Corrupt(corrupt) => {
                1u8.put(out);
                corrupt.put(out);
            }
            Error::Device(failure) => {
                let DeviceFailure { operation, device, offset, len, errno } = &**failure;
                (2u8, (*operation).to_owned()).put(out);
                device.put(out);
                ((*offset, *len), *errno as u32).put(out);
            }
            Error::Poisoned(why) => (3u8, why.to_string()).put(out),
            Error::Refused { code, message } => {
                ((4u8, code.errno() as u32), message.clone()).put(out);
            }
            // Never leaves the engine, and of a newer one: what it means for a caller.
            other => ((4u8, other.errno() as u32), other.to_string()).put(out),
        }
    }
}

impl Take<'_> for Error {
    #[cold]
    fn take(from: &mut Reader<'_>) -> Result<Error> {
        let code = |errno: u32| {
            let found = Code::ALL.iter().find(|code| code.errno() as u32 == errno);
            found.copied().ok_or_else(|| impossible("errno", errno.into()))
        };
        Ok(match u8::take(from)? {
            0 => Error::Code(code(Take::take(from)?)?),
            1 => Error::Corrupt(Box::new(Take::take(from)?)),
            2 => {
                let name = String::take(from)?;
                let operation = OPERATIONS.iter().find(|it| **it == name).unwrap_or(&"use");
                let device = Take::take(from)?;
                let ((offset, len), errno): ((u64, u64), u32) = Take::take(from)?;
                let errno = errno as i32;
                Error::Device(Box::new(DeviceFailure { operation, device, offset, len, errno }))
            }
            3 => Error::Poisoned(String::take(from)?.into()),
            4 => {
                let (errno, message): (u32, String) = Take::take(from)?;
                Error::refused(code(errno)?, message)
            }
            other => return Err(impossible("an error of kind", other.into())),
        })
    }
}

impl Put for BatchOp<'_> {
    fn put(&self, out: &mut Writer<'_>) {
        match self {
            BatchOp::File { path, mode, contents, replace } => {
                ((0u8, *path), (*mode, *replace)).put(out);
                contents.put(out);
            }
            BatchOp::Dir { path, mode } => ((1u8, *path), *mode).put(out),
            BatchOp::Symlink { path, target } => ((2u8, *path), *target).put(out),
            BatchOp::Link { from, to } => ((3u8, *from), *to).put(out),
            BatchOp::Rename { from, to, flags } => ((4u8, *from), (*to, *flags)).put(out),
            BatchOp::Remove { path } => (5u8, *path).put(out),
            BatchOp::RemoveDir { path } => (6u8, *path).put(out),
            BatchOp::SetAttr { path, set } => ((7u8, *path), *set).put(out),
            BatchOp::SetXattr { path, name, value } => {
                ((8u8, *path), (*name, *value)).put(out);
            }
        }
    }
}

impl<'a> Take<'a> for BatchOp<'a> {
    fn take(from: &mut Reader<'a>) -> Result<BatchOp<'a>> {
        let (kind, path): (u8, &[u8]) = Take::take(from)?;
        Ok(match kind {
            0 => {
                let ((mode, replace), contents) = Take::take(from)?;
                BatchOp::File { path, mode, contents, replace }
            }
            1 => BatchOp::Dir { path, mode: Take::take(from)? },
            2 => BatchOp::Symlink { path, target: Take::take(from)? },
            3 => BatchOp::Link { from: path, to: Take::take(from)? },
            4 => {
                let (to, flags) = Take::take(from)?;
                BatchOp::Rename { from: path, to, flags }
            }
            5 => BatchOp::Remove { path },
            6 => BatchOp::RemoveDir { path },
            7 => BatchOp::SetAttr { path, set: Take::take(from)? },
            8 => {
                let (name, value) = Take::take(from)?;
                BatchOp::SetXattr { path, name, value }
            }
            other => return Err(impossible("a change of kind", other.into())),
        })
    }
}

/// A question of [`Calls::change_tree`](crate::Calls::change_tree): a change may take minutes, so
/// the server begins it, and is asked for its progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeQuestion<'a> {
    /// Begins a change of a directory; the answer is its number.
    Begin {
        /// The directory.
        dir: Node,
        /// The change as bytes.
        change: &'a [u8],
    },
    /// Waits for progress, but not long. The answer has the number of inodes changed so far, new
    /// failures, and the result if the change has ended, whose number is then free.
    Next {
        /// Number of the change.
        tree: u32,
        /// The change ends after the present step.
        stop: bool,
    },
    /// Stops a change whose result is not wanted.
    Leave {
        /// Number of the change.
        tree: u32,
    },
}

impl Put for TreeQuestion<'_> {
    fn put(&self, out: &mut Writer<'_>) {
        match *self {
            TreeQuestion::Begin { dir, change } => (0u8, (dir, change)).put(out),
            TreeQuestion::Next { tree, stop } => (1u8, (tree, stop)).put(out),
            TreeQuestion::Leave { tree } => (2u8, tree).put(out),
        }
    }
}

impl<'a> Take<'a> for TreeQuestion<'a> {
    fn take(from: &mut Reader<'a>) -> Result<TreeQuestion<'a>> {
        Ok(match u8::take(from)? {
            0 => {
                let (dir, change) = Take::take(from)?;
                TreeQuestion::Begin { dir, change }
            }
            1 => {
                let (tree, stop) = Take::take(from)?;
                TreeQuestion::Next { tree, stop }
            }
            2 => TreeQuestion::Leave { tree: Take::take(from)? },
            other => return Err(impossible("a question of a tree of kind", other.into())),
        })
    }
}

/// Appends a caller. The umask is that of each call.
pub(crate) fn put_caller(who: &Caller, out: &mut Writer<'_>) {
    ((who.uid, who.gid), who.checked).put(out);
    (who.groups.len() as u32).put(out);
    who.groups.iter().for_each(|group| group.put(out));
}

/// Takes a caller.
pub(crate) fn take_caller(from: &mut Reader<'_>) -> Result<Caller> {
    let ((uid, gid), checked) = Take::take(from)?;
    let count = u32::take(from)?;
    if count > GROUPS_MAX {
        return Err(too_many("groups", GROUPS_MAX as usize));
    }
    let groups: Result<Vec<u32>> = (0..count).map(|_| Take::take(from)).collect();
    Ok(Caller { groups: groups?.into(), checked, ..Caller::user(uid, gid) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_skip::property;

    fn bytes_of(value: &impl Put) -> Vec<u8> {
        let mut bytes = Vec::new();
        value.put(&mut Writer::new(&mut bytes));
        bytes
    }

    fn name() -> impl Strategy<Value = ChangedName> {
        (1..u64::MAX, "[a-z/]{0,9}", "[a-z]{1,9}").prop_map(|(dir, path, name)| ChangedName {
            dir: Ino(dir),
            dir_path: path.into_bytes().into(),
            name: name.into_bytes(),
        })
    }

    fn change() -> impl Strategy<Value = Change> {
        let kinds = vec![ChangeKind::Created, ChangeKind::Changed, ChangeKind::Renamed];
        let (kind, more) = (prop::sample::select(kinds), any::<bool>());
        let names = prop::collection::vec(name(), 0..4);
        (kind, any::<(u64, u32)>(), names, prop::option::of(name()), more).prop_map(
            |(kind, (ino, generation), names, from, more)| Change {
                kind,
                ino: Ino(ino),
                generation: Generation(generation),
                file: Some(FileKind::Regular),
                names,
                from,
                more,
            },
        )
    }

    proptest! {
        #![proptest_config(property(256))]

        #[test]
        fn changes_come_through_as_they_are(
            changes in prop::collection::vec(change(), 0..4), cut in any::<prop::sample::Index>(),
        ) {
            let bytes = bytes_of(&changes);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(&Vec::<Change>::take(&mut reader).unwrap(), &changes);
            prop_assert!(reader.end().is_ok());
            let short = Vec::<Change>::take(&mut Reader::new(&bytes[..cut.index(bytes.len())]));
            prop_assert!(short.is_err());
        }

        /// Whatever the other side writes, no parser panics or takes more memory than there are
        /// bytes.
        #[test]
        fn any_bytes_are_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = bytes;
            for first in 0..4 {
                if let Some(byte) = bytes.first_mut() {
                    *byte = first;
                }
                let reader = || Reader::new(&bytes);
                let _ = Vec::<Change>::take(&mut reader());
                let _ = Vec::<TreeFailure>::take(&mut reader());
                let _ = <Option<TreeChanged> as Take>::take(&mut reader());
                let question = TreeQuestion::take(&mut reader());
                if let Ok(TreeQuestion::Begin { change, .. }) = question {
                    let _ = shoal_engine::TreeChange::from_bytes(change);
                }
                let _ = shoal_engine::TreeChange::from_bytes(&bytes);
            }
        }
    }

    #[test]
    fn questions_of_trees_come_through_as_they_are() {
        for question in [
            TreeQuestion::Begin { dir: Node(7), change: b"change" },
            TreeQuestion::Next { tree: 1, stop: true },
            TreeQuestion::Leave { tree: u32::MAX },
        ] {
            let bytes = bytes_of(&question);
            assert_eq!(TreeQuestion::take(&mut Reader::new(&bytes)).unwrap(), question);
        }
    }
}
