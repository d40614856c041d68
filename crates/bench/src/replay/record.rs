//! The file of a trace: a line of JSON for its beginning, for each operation, and for its end.
//!
//! ```text
//! {"shoal_trace":1,"begun_ns":1764073980123456789,"mount":"/mnt"}
//! {"begun_ns":1764073980123999999,"took_ns":4100,"op":"create","pid":71,"uid":0,"path":"/a/b",…}
//! {"operations":1,"lost":0,"interruptions":0}
//! ```
//!
//! A field that is 0 or has no meaning for an operation is left out. A path that is not UTF-8 is
//! text with `\xNN` for its odd bytes, and a second field `…_bytes` has all of it as hexadecimal
//! digits.

use crate::error::{BenchError, Result};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read};
use std::path::Path;

/// Version of the format.
pub const VERSION: u32 = 1;
/// Most bytes of a line: two paths, each as text and as digits.
const LINE_MAX: u64 = 64 << 10;

/// The first line.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// Version.
    pub shoal_trace: u32,
    /// When it began, in nanoseconds since 1970.
    pub begun_ns: u64,
    /// The mount, as it was named.
    pub mount: String,
}

/// The last line.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tail {
    /// Number of operations.
    pub operations: u64,
    /// Operations that were answered faster than they could be read, and are not in the trace.
    pub lost: u64,
    /// Times without a trace, because the server was replaced.
    pub interruptions: u64,
}

macro_rules! record {
    ($($(#[doc = $doc:literal])+ $name:ident $bytes:ident;)*) => {
        /// An operation.
        #[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
        pub struct Record {
            /// When it began, in nanoseconds since 1970.
            pub begun_ns: u64,
            /// Duration in nanoseconds.
            pub took_ns: u64,
            /// Operation of the FUSE protocol: `lookup`, `create`.
            pub op: String,
            /// Thread of the caller.
            pub pid: u32,
            /// User of the caller.
            pub uid: u32,
            /// Errno; 0: none.
            #[serde(default, skip_serializing_if = "is_zero")]
            pub errno: i32,
            $(
                $(#[doc = $doc])+
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $name: Option<String>,
                /// The same as digits, if its text would lose something.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $bytes: Option<String>,
            )*
            /// Inode, or that of the directory of the path.
            #[serde(default, skip_serializing_if = "is_zero")]
            pub ino: u64,
            /// Offset in bytes.
            #[serde(default, skip_serializing_if = "is_zero")]
            pub offset: u64,
            /// Bytes asked for or given, or of the file that was found.
            #[serde(default, skip_serializing_if = "is_zero")]
            pub size: u64,
            /// Flags of the system call; of `setattr`, which attributes are set.
            #[serde(default, skip_serializing_if = "is_zero")]
            pub flags: u32,
            /// Mode that is asked for or was found, with the type.
            #[serde(default, skip_serializing_if = "is_zero")]
            pub mode: u32,
            /// Of `setattr`, times in nanoseconds, or the owner; of a copy, the second offset; of
            /// `read`, the bytes returned.
            #[serde(default, skip_serializing_if = "is_nothing")]
            pub values: [i64; 2],
        }
    };
}

record! {
    /// Path from the top of the mount; missing if it was not to be found out.
    path path_bytes;
    /// The second path of an operation with two: the new one.
    to to_bytes;
    /// Target of a symlink.
    target target_bytes;
    /// Name of an extended attribute.
    attribute attribute_bytes;
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_nothing(values: &[i64; 2]) -> bool {
    *values == [0, 0]
}

/// Returns the bytes of a name: of its digits, if there are any. `None`: there is no name, or the
/// digits are none.
pub fn bytes_of(text: Option<&String>, digits: Option<&String>) -> Option<Vec<u8>> {
    let Some(digits) = digits else { return text.map(|text| text.clone().into_bytes()) };
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// A trace that has been read.
#[derive(Debug)]
pub(crate) struct Trace {
    pub records: Vec<Record>,
    /// `None`: the file has no end, so it was cut off.
    pub tail: Option<Tail>,
}

/// Reads a trace.
///
/// # Errors
/// It is none, or of another version, or a line is no operation. A last line that is cut off is not
/// an error.
pub(crate) fn read(path: &Path) -> Result<Trace> {
    let failed = |why: &dyn std::fmt::Display| BenchError::failed("reading", path.display(), why);
    let file = std::fs::File::open(path).map_err(|e| failed(&e))?;
    read_from(std::io::BufReader::new(file)).map_err(|why| failed(&why))
}

fn read_from(mut input: impl BufRead) -> Result<Trace, String> {
    let mut line = Vec::new();
    let mut next = |line: &mut Vec<u8>| -> Result<bool, String> {
        line.clear();
        let read = input.by_ref().take(LINE_MAX).read_until(b'\n', line);
        read.map_err(|e| e.to_string())?;
        Ok(line.pop_if(|byte| *byte == b'\n').is_some())
    };
    let is_whole = next(&mut line)?;
    let head: Head = serde_json::from_slice(&line)
        .map_err(|_| "not a trace: make one by shoal trace --output".to_owned())?;
    if !is_whole || head.shoal_trace != VERSION {
        return Err(format!("a trace of version {}, not {VERSION}", head.shoal_trace));
    }
    let mut trace = Trace { records: Vec::new(), tail: None };
    for number in 2u64.. {
        let is_whole = next(&mut line)?;
        if line.is_empty() && !is_whole {
            break;
        }
        if trace.tail.is_some() {
            return Err(format!("line {number}: something behind the end of the trace"));
        }
        match serde_json::from_slice::<Record>(&line) {
            Ok(record) => trace.records.push(record),
            Err(_) if !is_whole && line.len() < LINE_MAX as usize => break,
            Err(error) => {
                let tail = serde_json::from_slice(&line);
                trace.tail = Some(tail.map_err(|_| format!("line {number}: {error}"))?);
            }
        }
    }
    Ok(trace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_skip::property;

    fn file(records: &[Record], tail: bool) -> String {
        let head = Head { shoal_trace: VERSION, begun_ns: 5, mount: "/m".into() };
        let mut lines = vec![serde_json::to_string(&head).unwrap()];
        lines.extend(records.iter().map(|it| serde_json::to_string(it).unwrap()));
        if tail {
            let tail = Tail { operations: records.len() as u64, ..Tail::default() };
            lines.push(serde_json::to_string(&tail).unwrap());
        }
        lines.join("\n") + "\n"
    }

    fn record() -> Record {
        Record {
            op: "rename".into(),
            path: Some("/a".into()),
            to: Some("/\\xff".into()),
            to_bytes: Some("2fff".into()),
            ..Record::default()
        }
    }

    #[test]
    fn a_trace_reads_back() {
        let text = file(&[record(), record()], true);
        let trace = read_from(text.as_bytes()).unwrap();
        assert_eq!(trace.records, [record(), record()]);
        assert_eq!(trace.tail.unwrap().operations, 2);
        let to = bytes_of(trace.records[0].to.as_ref(), trace.records[0].to_bytes.as_ref());
        assert_eq!(to.as_deref(), Some(&b"/\xff"[..]));
        assert!(!text.contains("offset"), "what is nothing is left out");
        let odd = "2f\u{e9}".to_owned();
        assert_eq!(bytes_of(None, Some(&odd)), None);
    }

    #[test]
    fn a_trace_that_was_cut_off_has_no_end() {
        let text = file(&[record(), record()], false);
        for cut in 0..text.len() {
            match read_from(&text.as_bytes()[..cut]) {
                Ok(trace) => assert!(trace.tail.is_none() && trace.records.len() <= 2),
                Err(why) => assert!(!text[..cut].contains('\n'), "{cut}: {why}"),
            }
        }
        let whole = file(&[record()], true);
        for (bad, place) in [
            ("{}\n".to_owned(), "not a trace"),
            (whole.replacen(":1,", ":2,", 1), "version 2"),
            (whole.replacen("took_ns", "x", 1), "line 2"),
            (whole.clone() + "{}\n", "behind the end"),
            (whole + &"x".repeat(100_000), "behind the end"),
        ] {
            let why = read_from(bad.as_bytes()).unwrap_err();
            assert!(why.contains(place), "{why}");
        }
        let long = file(&[], false) + &"x".repeat(100_000);
        assert!(read_from(long.as_bytes()).unwrap_err().contains("line 2"));
    }

    proptest! {
        #![proptest_config(property(256))]

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let with_head = [file(&[], false).as_bytes(), &bytes].concat();
            let _ = read_from(&bytes[..]);
            let _ = read_from(&with_head[..]);
        }
    }
}
