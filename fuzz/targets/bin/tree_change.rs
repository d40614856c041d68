//! Fuzz target: decoder `tree_change`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::decoders::tree_change(data));
