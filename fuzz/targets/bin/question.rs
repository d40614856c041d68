//! Fuzz target: questions to a control file and pieces of its answers.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::request::question(data));
