#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| onceline_fuzz::properties::spool::check(bytes));
