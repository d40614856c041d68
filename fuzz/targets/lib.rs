//! What the fuzz targets do with their input; each target in `bin` calls one function of these. All
//! of it runs without libFuzzer too: the tests replay the corpus.
//!
//! | module | input is |
//! | --- | --- |
//! | [`decoders`] | bytes of one structure on disk |
//! | [`request`] | bytes of one request of the kernel |
//! | [`tree`] | changes of a tree, which a `BTreeMap` follows |
//! | [`image`] | damage to a volume, which is then opened and used |
//!
//! Checksums keep random bytes out, so most targets look at their input twice: as it is, and with
//! magic and checksum put right, as after a fault in our own code or on purpose.

pub mod decoders;
pub mod image;
pub mod request;
pub mod seal;
pub mod tree;

/// A target by name.
pub const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("superblock", decoders::superblock),
    ("checkpoint", decoders::checkpoint),
    ("node", decoders::node),
    ("inode_block", decoders::inode_block),
    ("usage", decoders::usage),
    ("batch", decoders::batch),
    ("orphan", decoders::orphan),
    ("extent", decoders::extent),
    ("dirent", decoders::dirent),
    ("request", request::request),
    ("tree", tree::tree),
    ("image", image::image),
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn every_target_survives_its_corpus() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        for (name, target) in super::TARGETS {
            let files = std::fs::read_dir(corpus.join(name)).expect("each target has a corpus");
            let mut count = 0;
            for file in files {
                let file = file.expect("a readable folder").path();
                println!("{}", file.display());
                target(&std::fs::read(&file).expect("a readable file"));
                count += 1;
            }
            assert!(count > 0, "{name} has no corpus");
        }
    }
}
