//! Fuzz target: decoder `root_page`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::decoders::root_page(data));
