//! Fuzz target: decoder `node`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::coded::node(data));
