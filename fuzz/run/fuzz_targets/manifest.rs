#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| mortise_fuzz::manifest(input));
