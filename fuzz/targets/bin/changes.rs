//! Fuzz target: marks of the change feed, and the stored window of removed names.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::changes::changes(data));
