//! Fuzz target: values in messages of sessions.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::session::wire(data));
