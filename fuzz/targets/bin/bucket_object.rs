//! Fuzz target: decoder `bucket_object`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| shoal_fuzz::decoders::bucket_object(data));
