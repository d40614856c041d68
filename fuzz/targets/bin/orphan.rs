//! Fuzz target: decoder `orphan`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::decoders::orphan(data));
