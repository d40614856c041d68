//! Fuzz target: questions of a session.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::session::session(data));
