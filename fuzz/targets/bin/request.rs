//! Fuzz target: requests of the kernel.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::request::request(data));
