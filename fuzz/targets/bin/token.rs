//! Fuzz target: tokens.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::token::token(data));
