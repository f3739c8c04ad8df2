//! A target whose inputs are JSON.

macro_rules! json_target {
    ($target:path) => {
        libfuzzer_sys::fuzz_target!(|input: &[u8]| $target(input));

        // One in eight is mutated byte by byte, for the parser's sake.
        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            let made = (seed % 8 != 0)
                .then(|| mortise_fuzz::mutated(&data[..size], seed))
                .flatten();
            match made {
                Some(made) if made.len() <= max_size => {
                    data[..made.len()].copy_from_slice(&made);
                    made.len()
                }
                _ => libfuzzer_sys::fuzzer_mutate(data, size, max_size),
            }
        });
    };
}
