//! Fuzz target: decoder `copy_mark`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::decoders::copy_mark(data));
