//! Fuzz target: archives of tar.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::archive::archive(data));
