//! The frozen images as files: `crates/sim/frozen/NAME.zst` is a whole volume, compressed, NAME.txt
//! says what is in it, README.md has a row for each.

use super::contents::Counts;
use shoal::raw::{Device, MemDevice};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Lines of README.md around the table that [`write_rows`] writes.
const BEGIN: &str = "<!-- images -->\n";
const END: &str = "<!-- end images -->";
/// Lines of a text file above its counts and above its listing.
const CONTAINS: &str = "\ncontains\n";
const LISTING: &str = "\nlisting\n";

/// Folder of the images.
pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("frozen")
}

/// Names of the images that there are, in order.
pub(super) fn names() -> Vec<String> {
    names_ending(".zst")
}

/// Names of the text files that there are, in order.
pub(super) fn texts() -> Vec<String> {
    names_ending(".txt")
}

fn names_ending(end: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().file_name());
    let names = files.filter_map(|name| Some(name.to_str()?.strip_suffix(end)?.to_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Compresses the bytes of a volume.
pub(super) fn packed(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 19).unwrap()
}

/// A fresh device with the volume of an image.
pub(super) fn unpacked(packed: &[u8]) -> Arc<MemDevice> {
    let bytes = zstd::decode_all(packed).unwrap();
    let device = MemDevice::new(bytes.len() as u64);
    for (n, piece) in bytes.chunks(64 << 10).enumerate() {
        if piece.iter().any(|b| *b != 0) {
            device.write_at(piece, (n * (64 << 10)) as u64).unwrap();
        }
    }
    Arc::new(device)
}

/// An image, with what its text file says of it.
pub(super) struct Kept {
    pub name: String,
    /// The compressed volume.
    pub packed: Vec<u8>,
    /// Kinds of structures that must be found in it, and how many.
    pub contains: Counts,
    /// The listing that it must show.
    pub listing: String,
}

impl Kept {
    /// Reads an image.
    pub(super) fn read(name: &str) -> Kept {
        let path = |end: &str| folder().join(format!("{name}.{end}"));
        let packed = std::fs::read(path("zst")).unwrap();
        let text = std::fs::read_to_string(path("txt")).expect("each image has a text");
        let (_, rest) = text.split_once(CONTAINS).expect("what it contains");
        let (contains, listing) = rest.split_once(LISTING).expect("its listing");
        let row = |line: &str| {
            let (count, name) = line.trim().split_once(' ').expect("a count and a name");
            (name.to_owned(), count.parse().expect("a count"))
        };
        let contains = contains.lines().map(row).collect();
        Kept { name: name.to_owned(), packed, contains, listing: listing.to_owned() }
    }

    /// Writes an image and its text; `head` says which it is.
    pub(super) fn write(&self, head: &str) {
        let path = |end: &str| folder().join(format!("{}.{end}", self.name));
        let mut text = format!("{head}{CONTAINS}");
        for (name, count) in &self.contains {
            let _ = writeln!(text, "{count:8} {name}");
        }
        text.push_str(LISTING);
        text.push_str(&self.listing);
        std::fs::write(path("txt"), text).unwrap();
        std::fs::write(path("zst"), &self.packed).unwrap();
    }

    /// A fresh device with its volume.
    pub(super) fn device(&self) -> Arc<MemDevice> {
        unpacked(&self.packed)
    }

    /// Hash of the compressed file, which README.md pins.
    pub(super) fn hash(&self) -> String {
        format!("{:016x}", xxh3_64(&self.packed))
    }
}

/// The rows of README.md, by the image's name: its other cells, trimmed.
pub(super) fn rows() -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let (_, table, _) = split(&text);
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let named =
        |cells: Vec<String>| Some((cells[0].trim_matches('`').to_owned(), cells[1..].to_vec()));
    table.lines().skip(2).map(cells).filter_map(named).collect()
}

/// Writes the table of README.md.
pub(super) fn write_rows(rows: &BTreeMap<String, Vec<String>>) {
    let path = folder().join("README.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, _, after) = split(&text);
    let mut table =
        String::from("| image | since | format | features | bytes | XXH3-64 | what |\n");
    table.push_str("| --- | --- | --- | --- | ---: | --- | --- |\n");
    for (name, cells) in rows {
        let _ = writeln!(table, "| `{name}` | {} |", cells.join(" | "));
    }
    std::fs::write(path, format!("{before}{table}{after}")).unwrap();
}

fn split(text: &str) -> (&str, &str, &str) {
    let begin = text.find(BEGIN).expect("README.md has a table of images") + BEGIN.len();
    let end = begin + text[begin..].find(END).expect("the table ends");
    (&text[..begin], &text[begin..end], &text[end..])
}
