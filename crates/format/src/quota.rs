//! The directories with a quota: value of the attribute [`NAME`] of the volume's top directory. The
//! engine's `quotas` says how it is used.
//!
//! ```text
//! version 1 | zero 1 | rows 2 | incarnation 4 | epoch 8
//! | number 4 | state 4 | directory 8 | generation 4 | limits: inodes 8, bytes 8 | use: inodes 8, bytes 8 ...
//! ```

use crate::attr::VALUE_MAX;
use crate::bytes::{Put, Reader};
use shoal_base::Ino;

/// Name of the attribute, in the namespace `system`.
pub const NAME: &[u8] = b"shoal.quota";
/// Version of the layout.
const VERSION: u8 = 1;
/// Maximum number of rows, and maximum number of a project.
pub const ROWS_MAX: usize = 1024;
/// Limit that says that there is none.
const NO_LIMIT: u64 = u64::MAX;

const HEADER: usize = 16;
const ROW: usize = 52;
const _: () = assert!(HEADER + ROW * ROWS_MAX <= VALUE_MAX);

/// State of a project.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// All inodes below the directory have its number.
    Ready = 0,
    /// Inodes below the directory are still to get its number.
    Begun = 1,
    /// Inodes below the directory are still to lose its number.
    Removed = 2,
}

/// A project.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its number in the cores of its inodes: 1 to [`ROWS_MAX`].
    pub project: u32,
    /// State.
    pub state: State,
    /// The directory.
    pub dir: Ino,
    /// Its generation.
    pub generation: u32,
    /// Maximum number of inodes.
    pub inodes_max: Option<u64>,
    /// Maximum bytes of data extents.
    pub bytes_max: Option<u64>,
    /// Number of inodes when the volume was closed.
    pub inodes: u64,
    /// Bytes of data extents when the volume was closed.
    pub bytes: u64,
}

/// The projects of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// Incarnation of the last session that kept the numbers in the cores right.
    pub incarnation: u32,
    /// Number of the checkpoint in which the use of all projects is right; 0: of none.
    pub epoch: u64,
    /// In the order of their numbers.
    pub rows: Vec<Row>,
}

impl Table {
    /// Encodes the table, of at most [`ROWS_MAX`] rows.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![VERSION, 0];
        out.put_u16(self.rows.len() as u16);
        out.put_u32(self.incarnation);
        out.put_u64(self.epoch);
        for row in &self.rows {
            out.put_u32(row.project);
            out.put_u32(row.state as u32);
            out.put_u64(row.dir.0);
            out.put_u32(row.generation);
            out.put_u64(row.inodes_max.unwrap_or(NO_LIMIT));
            out.put_u64(row.bytes_max.unwrap_or(NO_LIMIT));
            out.put_u64(row.inodes);
            out.put_u64(row.bytes);
        }
        out
    }

    /// Decodes a table; `None` if the bytes are not valid: rows must be in the order of their
    /// numbers, each of which is there once.
    pub fn decode(raw: &[u8]) -> Option<Table> {
        let mut r = Reader::new(raw);
        if r.u8()? != VERSION || r.u8()? != 0 {
            return None;
        }
        let count = r.u16()?;
        let mut table = Table { incarnation: r.u32()?, epoch: r.u64()?, rows: Vec::new() };
        let mut last = 0;
        for _ in 0..count {
            let row = row(&mut r)?;
            if row.project <= last || row.project as usize > ROWS_MAX {
                return None;
            }
            last = row.project;
            table.rows.push(row);
        }
        r.is_empty().then_some(table)
    }
}

fn row(r: &mut Reader<'_>) -> Option<Row> {
    let limit = |limit: u64| Some(limit).filter(|limit| *limit != NO_LIMIT);
    Some(Row {
        project: r.u32()?,
        state: match r.u32()? {
            0 => State::Ready,
            1 => State::Begun,
            2 => State::Removed,
            _ => return None,
        },
        dir: Ino(r.u64()?),
        generation: r.u32()?,
        inodes_max: limit(r.u64()?),
        bytes_max: limit(r.u64()?),
        inodes: r.u64()?,
        bytes: r.u64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let row = |project, state, limit| Row {
            project,
            state,
            dir: Ino(77),
            generation: 5,
            inodes_max: limit,
            bytes_max: Some(1 << 40),
            inodes: 9,
            bytes: 10,
        };
        let rows = vec![
            row(1, State::Ready, None),
            row(7, State::Begun, Some(0)),
            row(1024, State::Removed, Some(3)),
        ];
        Table { incarnation: 4, epoch: 99, rows }
    }

    #[test]
    fn a_table_survives_its_encoding() {
        let raw = table().to_bytes();
        assert_eq!(raw.len(), HEADER + 3 * ROW);
        assert_eq!(Table::decode(&raw), Some(table()));
        assert_eq!(Table::decode(&Table::default().to_bytes()), Some(Table::default()));
    }

    #[test]
    fn what_no_table_is_encoded_as_is_refused() {
        let raw = table().to_bytes();
        (0..raw.len()).for_each(|len| assert_eq!(Table::decode(&raw[..len]), None, "{len} bytes"));
        assert_eq!(Table::decode(&[&raw[..], &[0]].concat()), None);
        // Version, padding, number of rows, number of a project, order, state.
        for (at, value) in [(0, 2), (1, 1), (2, 2), (16, 0), (16, 8), (16 + 4, 3), (121, 5)] {
            let mut raw = raw.clone();
            raw[at] = value;
            assert_eq!(Table::decode(&raw), None, "byte {at} is {value}");
        }
    }
}
