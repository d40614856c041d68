//! The columns before the names.

use std::fmt::{Display, Write};

use shoal::raw::{Attr, Time};

use super::times::Style;
use crate::args::LsArgs;
use crate::session::Found;
use crate::size::ceiling;
use crate::text::{device_numbers, mode_letter, push_mode};

/// The columns of a listing, each as wide as its widest cell.
pub(crate) struct Columns<'a> {
    args: &'a LsArgs,
    style: &'a Style,
    now: Time,
    widths: Widths,
}

#[derive(Default)]
struct Widths {
    ino: usize,
    blocks: usize,
    nlink: usize,
    uid: usize,
    gid: usize,
    major: usize,
    minor: usize,
    size: usize,
}

impl<'a> Columns<'a> {
    /// Returns the columns for these entries.
    pub(crate) fn of(
        args: &'a LsArgs,
        style: &'a Style,
        now: Time,
        entries: &[Found],
    ) -> Columns<'a> {
        let mut columns = Columns { args, style, now, widths: Widths::default() };
        entries.iter().for_each(|entry| match &entry.attr {
            Some(attr) => columns.widen(attr),
            // Its other cells are one character.
            None => columns.widths.ino = columns.widths.ino.max(digits(entry.ino.0)),
        });
        let Widths { major, minor, size, .. } = &mut columns.widths;
        if *major > 0 {
            *size = (*size).max(*major + 2 + *minor);
        }
        columns
    }

    fn widen(&mut self, attr: &Attr) {
        let widest = |width: &mut usize, cell: usize| *width = (*width).max(cell);
        let size = match self.args.human_readable {
            true => ceiling(attr.size).len(),
            false => digits(attr.size),
        };
        let blocks = if self.args.size { self.space(attr.blocks).len() } else { 0 };
        let widths = &mut self.widths;
        widest(&mut widths.ino, digits(attr.ino.0));
        widest(&mut widths.blocks, blocks);
        widest(&mut widths.nlink, digits(attr.nlink.into()));
        widest(&mut widths.uid, digits(attr.uid.into()));
        widest(&mut widths.gid, digits(attr.gid.into()));
        match device_numbers(attr) {
            Some([major, minor]) => {
                widest(&mut widths.major, digits(major.into()));
                widest(&mut widths.minor, digits(minor.into()));
            }
            None => widest(&mut widths.size, size),
        }
    }

    /// Formats a number of blocks of 512 bytes.
    fn space(&self, blocks: u64) -> String {
        match self.args.human_readable {
            true => ceiling(blocks.saturating_mul(512)),
            false => blocks.div_ceil(2).to_string(),
        }
    }

    /// Returns the line above the entries of a directory.
    pub(crate) fn total(&self, entries: &[Found]) -> String {
        let blocks = entries.iter().filter_map(|entry| Some(entry.attr?.blocks)).sum();
        format!("total {}", self.space(blocks))
    }

    /// Appends the columns of an entry to a line, each with a space behind it. Attributes that
    /// cannot be read are question marks, as of ls(1).
    pub(crate) fn row(&self, entry: &Found, row: &mut String) {
        let (args, widths) = (self.args, &self.widths);
        if args.inode {
            cell(row, widths.ino, entry.ino.0);
        }
        let Some(attr) = &entry.attr else { return self.unknown(entry, row) };
        if args.size {
            cell(row, widths.blocks, self.space(attr.blocks));
        }
        if !args.is_long() {
            return;
        }
        push_mode(row, attr);
        row.push(' ');
        cell(row, widths.nlink, attr.nlink);
        if !args.no_owner {
            cell(row, widths.uid, attr.uid);
        }
        if !args.no_group {
            cell(row, widths.gid, attr.gid);
        }
        match device_numbers(attr) {
            Some([major, minor]) => {
                let both = format!("{major}, {minor:>width$}", width = widths.minor);
                cell(row, widths.size, both);
            }
            None if args.human_readable => cell(row, widths.size, ceiling(attr.size)),
            None => cell(row, widths.size, attr.size),
        }
        self.style.show(row, attr.mtime, self.now);
        row.push(' ');
    }

    /// Appends the columns behind the inode number of an entry whose attributes cannot be read.
    fn unknown(&self, entry: &Found, row: &mut String) {
        let (args, widths) = (self.args, &self.widths);
        if args.size {
            cell(row, widths.blocks, '?');
        }
        if !args.is_long() {
            return;
        }
        row.push(mode_letter(entry.kind));
        row.push_str("????????? ");
        cell(row, widths.nlink, '?');
        if !args.no_owner {
            cell(row, widths.uid, '?');
        }
        if !args.no_group {
            cell(row, widths.gid, '?');
        }
        cell(row, widths.size, '?');
        let mut time = String::new();
        self.style.show(&mut time, self.now, self.now);
        cell(row, time.chars().count(), '?');
    }
}

/// Returns the length of a number as text.
fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Appends a cell, aligned to the right, and a space.
fn cell(row: &mut String, width: usize, text: impl Display) {
    // A string takes everything.
    let _ = write!(row, "{text:>width$} ");
}
