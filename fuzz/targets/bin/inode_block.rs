//! Fuzz target: decoder `inode_block`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::coded::inode_block(data));
