//! Makes the images of the current version of the format, and writes what is said of them.

use super::contents::contents;
use super::fill::session;
use super::kept::{self, Kept, packed};
use super::listing::listing;
use super::rows::{ROWS, Row};
use super::workshop::{bytes_of, device_of};
use shoal::raw::{OpenOptions, Volume};
use shoal_format::features::VERSION;

/// Number of the current version, and of its draft; 0: it has been released.
pub(super) const NUMBER: u32 = VERSION & 0xffff;
pub(super) const DRAFT: u32 = VERSION >> 16;

/// Name of a row's files.
pub(super) fn name_of(row: &Row) -> String {
    format!("v{NUMBER}-{}", row.name)
}

/// The current version, as the table of README.md has it.
pub(super) fn format_label() -> String {
    match DRAFT {
        0 => NUMBER.to_string(),
        draft => format!("{NUMBER} draft {draft}"),
    }
}

/// Makes the image of a row.
pub(super) fn made(row: &Row) -> Kept {
    let image = (row.make)((row.mkfs)());
    let device = device_of(&image);
    let contains = contents(&device);
    for (name, wanted) in row.contains {
        let found = contains.get(*name).copied().unwrap_or(0);
        assert!(found >= *wanted, "{}: {found} of '{name}', {wanted} wanted", row.name);
    }
    let options = OpenOptions { read_only: true, ..session() };
    let volume = Volume::open_on(device, &options).unwrap();
    let listing = listing(&volume);
    Kept { name: name_of(row), packed: packed(&bytes_of(&image)), contains, listing }
}

/// Returns whether an image may be made anew whose row in README.md says this of its format: one
/// of a draft. Those of a version that has been released stay as they are.
pub(super) fn may_replace(format: &str) -> bool {
    format.contains("draft")
}

/// Writes an image, its text and its row.
pub(super) fn keep(row: &Row, kept: &Kept) {
    let features: Vec<&str> =
        kept.contains.keys().filter_map(|name| name.strip_prefix("feature ")).collect();
    let (format, features) = (format_label(), features.join(", "));
    let head = format!("{}: {}\nformat {format}; features: {features}\n", kept.name, row.what);
    kept.write(&head);
    let bytes = kept.packed.len().to_string();
    let cells = [row.since.into(), format, features, bytes, kept.hash(), row.what.into()];
    let mut rows = kept::rows();
    rows.insert(kept.name.clone(), cells.to_vec());
    kept::write_rows(&rows);
}

/// Makes every image twice, compares the two, and writes them if it is to.
pub(super) fn make_all(write: bool) {
    let rows = kept::rows();
    let wanted = |row: &&Row| rows.get(&name_of(row)).is_none_or(|cells| may_replace(&cells[1]));
    for row in ROWS.iter().filter(wanted) {
        let (kept, again) = (made(row), made(row));
        assert!(kept.packed == again.packed, "{} is not the same each time", row.name);
        println!("{}: {} bytes, {}", kept.name, kept.packed.len(), kept.hash());
        if write {
            keep(row, &kept);
        }
    }
}
