//! Fuzz target: the tree against a map.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::tree::tree(data));
