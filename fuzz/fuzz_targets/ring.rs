#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| lastwords::__internals::testing::fuzz::ring(input));
