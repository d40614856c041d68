//! Fuzz target: codecs.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::coded::codec(data));
