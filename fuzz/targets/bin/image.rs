//! Fuzz target: a damaged volume.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::image::image(data));
