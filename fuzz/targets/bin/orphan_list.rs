//! Fuzz target: decoder `orphan_list`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::decoders::orphan_list(data));
