//! Rows of `-ls`, in the columns of find(1): inode, blocks of 1 KiB, mode, links, owner, group,
//! size, time, path. A column that a value does not fit in stays as wide for the rows behind it.

use super::file::{File, World};
use crate::clock::{Date, is_recent};
use crate::text::{device_numbers, mode_text};

/// The widths so far.
#[derive(Debug)]
pub(crate) struct Rows {
    ino: usize,
    blocks: usize,
    nlink: usize,
    user: usize,
    group: usize,
    major: usize,
    minor: usize,
    size: usize,
}

impl Default for Rows {
    fn default() -> Rows {
        Rows { ino: 9, blocks: 6, nlink: 3, user: 8, group: 8, major: 3, minor: 3, size: 8 }
    }
}

impl Rows {
    /// Returns the row of a file, with its new line.
    pub(crate) fn show(
        &mut self,
        file: &File<'_>,
        world: &World<'_>,
    ) -> Result<Vec<u8>, shoal::raw::Error> {
        let attr = &*world.attributes(file)?;
        let right = |width: &mut usize, text: String| {
            let cell = format!("{text:>width$} ", width = *width);
            *width = (*width).max(text.len());
            cell
        };
        let left = |width: &mut usize, text: String| {
            let cell = format!("{text:<width$} ", width = *width);
            *width = (*width).max(text.len());
            cell
        };
        let mut row = right(&mut self.ino, attr.ino.0.to_string());
        row += &right(&mut self.blocks, attr.blocks.div_ceil(2).to_string());
        row += &mode_text(attr);
        row.push(' ');
        row += &right(&mut self.nlink, attr.nlink.to_string());
        row += &left(&mut self.user, world.accounts.user_or_number(attr.uid));
        row += &left(&mut self.group, world.accounts.group_or_number(attr.gid));
        row += &match device_numbers(attr) {
            Some([major, minor]) => {
                let major = right(&mut self.major, major.to_string());
                let minor = right(&mut self.minor, minor.to_string());
                format!("{}, {minor}", major.trim_end_matches(' '))
            }
            None => right(&mut self.size, attr.size.to_string()),
        };
        let date = Date::of(attr.mtime);
        let fields: [&[u8]; 2] =
            [b"be", if is_recent(attr.mtime, world.now) { b"R" } else { b"Y" }];
        let text = |letter: &u8| date.field(*letter).unwrap_or_default();
        let day: Vec<String> = fields[0].iter().map(text).collect();
        row += &format!("{} {:>5} ", day.join(" "), text(&fields[1][0]));
        let mut row = row.into_bytes();
        escape(file.path, &mut row);
        if let Some(target) = world.target(file)? {
            row.extend_from_slice(b" -> ");
            escape(&target, &mut row);
        }
        row.push(b'\n');
        Ok(row)
    }
}

/// Appends a path as find(1) writes it in these rows, on one line and without blanks.
fn escape(path: &[u8], row: &mut Vec<u8>) {
    for byte in path {
        match byte {
            b'\\' => row.extend_from_slice(b"\\\\"),
            b'\n' => row.extend_from_slice(b"\\n"),
            8 => row.extend_from_slice(b"\\b"),
            b'\r' => row.extend_from_slice(b"\\r"),
            b'\t' => row.extend_from_slice(b"\\t"),
            12 => row.extend_from_slice(b"\\f"),
            b' ' => row.extend_from_slice(b"\\ "),
            b'"' => row.extend_from_slice(b"\\\""),
            0x21..=0x7e => row.push(*byte),
            other => row.extend(format!("\\{other:03o}").into_bytes()),
        }
    }
}
