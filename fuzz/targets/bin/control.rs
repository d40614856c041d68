//! Fuzz target: requests and answers of the control ioctl.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::request::control(data));
