//! The table of a structure: the document is generated from it, and every offset is proved by it.

/// A row: a field, a constant, or bytes that are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Offset in the structure, in bytes.
    pub at: usize,
    /// Bytes.
    pub len: usize,
    /// Its name.
    pub name: &'static str,
    /// Description for people.
    pub what: &'static str,
}

/// A structure on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Name, one word.
    pub name: &'static str,
    /// Description, one sentence.
    pub doc: &'static str,
    /// Bytes of the whole structure; 0 if it varies.
    pub size: usize,
    /// Rows by ascending offset.
    pub rows: &'static [Row],
}

impl Table {
    /// Returns itself. Compilation fails unless every row begins where the one before ends, and the
    /// last ends at `size`.
    pub const fn proved(self, size: usize) -> Table {
        let (mut end, mut i) = (0, 0);
        while i < self.rows.len() {
            assert!(self.rows[i].at == end, "an offset is not where the field before ends");
            end += self.rows[i].len;
            i += 1;
        }
        assert!(end == size, "the size is not where the last field ends");
        self
    }
    /// Offset of the row with this name, for code that edits a structure in place.
    pub const fn at(&self, name: &str) -> usize {
        let mut i = 0;
        while i < self.rows.len() {
            if same(self.rows[i].name.as_bytes(), name.as_bytes()) {
                return self.rows[i].at;
            }
            i += 1;
        }
        panic!("no row has this name")
    }
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}
