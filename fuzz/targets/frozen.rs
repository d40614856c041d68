//! The frozen images (`crates/sim/frozen`) as seeds: whole volumes to be damaged, and the objects in
//! them as inputs of the decoders. They have forms that a small fresh volume has not: journals of
//! every kind of item, open intents, orphans, half of a deleted root.

use crate::overlay::PAGE;
use crate::seal::Image;
use shoal_format::inode::{BLOCK_HEADER, BlockHeader};
use shoal_format::node::{HEADER, Node, NodeHeader, NodeId, TreeId};
use shoal_format::{Codec, claim};
use std::io::{Error, Read, Result};
use std::path::Path;

/// Bytes of an input, at most: larger ones make a run slow and its findings hard to read.
const INPUT_MAX: usize = 4096;

/// Magic numbers of objects, and the target that takes them.
const KINDS: &[(&[u8], &str)] = &[
    (b"SCP3", "checkpoint"),
    (b"SRP2", "root_page"),
    (b"SOL2", "orphan_list"),
    (b"SOR1", "orphan"),
    (b"SIB2", "inode_block"),
    (b"SJB2", "batch"),
    (b"SUR1", "usage"),
    (b"SUI1", "usage"),
    (b"SUP1", "usage"),
    (b"SND2", "node"),
];

/// A frozen image.
pub struct Frozen {
    /// Name of its file.
    pub name: String,
    /// The volume.
    pub bytes: Vec<u8>,
}

/// The frozen images of at most so many bytes, by name.
///
/// # Errors
/// The folder, or a file in it, cannot be read.
pub fn images(size_max: u64) -> Result<Vec<Frozen>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/sim/frozen");
    let files = std::fs::read_dir(folder)?.collect::<Result<Vec<_>>>()?;
    let mut paths: Vec<_> = files.into_iter().map(|file| file.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "zst"));
    paths.sort();
    let mut images = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = unpacked(&path)?;
        if bytes.len() as u64 <= size_max {
            images.push(Frozen { name, bytes });
        }
    }
    Ok(images)
}

/// The bytes of a volume. Most are zeros, which are not written, so that they take no memory.
fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let mut decoder = zstd::Decoder::new(std::fs::File::open(path)?)?;
    let (mut written, mut len, mut page) = (Vec::new(), 0, [0; PAGE]);
    while let Some(read) = filled(&mut decoder, &mut page)? {
        if page[..read].iter().any(|b| *b != 0) {
            written.push((len, page));
        }
        len += read;
    }
    let mut bytes = vec![0; len];
    for (at, page) in written {
        bytes[at..(at + PAGE).min(len)].copy_from_slice(&page[..PAGE.min(len - at)]);
    }
    Ok(bytes)
}

/// Fills a page as far as there are bytes; `None`: there are none.
fn filled(from: &mut impl Read, page: &mut [u8; PAGE]) -> Result<Option<usize>> {
    let mut len = 0;
    while len < page.len() {
        match from.read(&mut page[len..])? {
            0 => break,
            read => len += read,
        }
    }
    Ok((len > 0).then_some(len))
}

/// Inputs cut out of an image: target, name, bytes. Of each kind of object the first of those that
/// are longest without being too long.
///
/// # Errors
/// The image is no volume of the current version.
pub fn cut(frozen: &Frozen) -> Result<Vec<(&'static str, String, Vec<u8>)>> {
    let image = Image::new(frozen.bytes.clone());
    let image = image.ok_or_else(|| Error::other(format!("{} is no volume", frozen.name)))?;
    let mut inputs = vec![("superblock", frozen.name.clone(), frozen.bytes[..256].to_vec())];
    let block = &frozen.bytes[claim::ADDR as usize..][..claim::SIZE];
    if block.starts_with(&claim::MAGIC) {
        inputs.push(("claim", frozen.name.clone(), block[..block.len() - 8].to_vec()));
    }
    for (magic, target) in KINDS {
        let objects = image.objects.iter().map(|(at, len)| &image.bytes[*at..*at + *len]);
        let found = objects.filter(|object| object.starts_with(magic));
        let found = found.map(<[u8]>::to_vec);
        let fits = found.filter(|input| input.len() <= INPUT_MAX);
        if let Some(input) = fits.reduce(|a, b| if b.len() > a.len() { b } else { a }) {
            let magic = String::from_utf8_lossy(magic).to_lowercase();
            inputs.push((target, format!("{}-{magic}", frozen.name), input));
        }
    }
    let objects = image.objects.iter().map(|(at, len)| &image.bytes[*at..*at + *len]);
    let bodies = objects.filter_map(coded_body).filter(|body| body.len() <= INPUT_MAX);
    inputs.extend(bodies.max_by_key(Vec::len).map(|body| ("codec", frozen.name.clone(), body)));
    for (tree, target) in [(TreeId::Dirents, "dirent"), (TreeId::Extents, "extent")] {
        let objects = image.objects.iter().map(|(at, len)| &image.bytes[*at..*at + *len]);
        let values = objects.filter_map(|object| longest_value(object, tree));
        let input = values.max_by_key(Vec::len);
        inputs.extend(input.map(|input| (target, frozen.name.clone(), input)));
    }
    Ok(inputs)
}

/// The node that an object is, decoded, and its tree.
fn node_of(object: &[u8]) -> Option<(Node, TreeId)> {
    let NodeHeader { tree, volume, root, addr, .. } = NodeHeader::read(object).ok()?;
    let place = (NodeId { volume, root, tree }, None, addr);
    Some((Node::decode_found(object, Node::frame(), place).ok()?, tree))
}

/// The longest value in a leaf of a tree, as its target takes it: that of an extent behind the
/// offset in the file.
fn longest_value(object: &[u8], tree: TreeId) -> Option<Vec<u8>> {
    let (node, _) = node_of(object).filter(|(node, of)| node.level() == 0 && *of == tree)?;
    let longest = (0..node.count()).max_by_key(|i| node.value(*i).len())?;
    let offset = node.key(longest).lo.to_le_bytes();
    let before = if tree == TreeId::Extents { &offset[..] } else { &[] };
    Some([before, node.value(longest)].concat())
}

/// What a codec has written, as its target takes it: behind the bytes that it decodes to.
fn coded_body(object: &[u8]) -> Option<Vec<u8>> {
    let node = NodeHeader::read(object).ok().and_then(|header| header.coding());
    let block = BlockHeader::read(object).ok().and_then(|header| header.coding());
    let head = if node.is_some() { HEADER } else { BLOCK_HEADER };
    let coding = node.or(block).filter(|coding| coding.codec != Codec::None)?;
    let logical = coding.logical - head as u32;
    Some([&logical.to_le_bytes()[..3], &object[head..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Targets whose inputs are no objects of their own.
    const OTHERS: [&str; 5] = ["superblock", "claim", "dirent", "extent", "codec"];

    #[test]
    fn every_kind_of_object_is_cut_out_of_some_image() {
        let images = images(16 << 20).expect("images");
        let inputs: Vec<_> = images.iter().flat_map(|image| cut(image).expect("cut")).collect();
        let found: BTreeSet<&str> = inputs.iter().map(|(target, ..)| *target).collect();
        let wanted = KINDS.iter().map(|(_, target)| *target).chain(OTHERS);
        assert_eq!(found, wanted.collect());
        assert!(inputs.iter().all(|(_, _, input)| (16..=INPUT_MAX).contains(&input.len())));
    }
}
