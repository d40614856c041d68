//! Fuzz target: decoder `claim`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::decoders::claim(data));
