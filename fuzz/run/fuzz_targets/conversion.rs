#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|input: &[u8]| mortise_fuzz::conversion(input));

// One in eight is mutated byte by byte, for the parser's sake.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let made = (seed % 8 != 0)
        .then(|| mortise_fuzz::mutated(&data[..size], seed))
        .flatten();
    match made {
        Some(made) if made.len() <= max_size => {
            data[..made.len()].copy_from_slice(&made);
            made.len()
        }
        _ => fuzzer_mutate(data, size, max_size),
    }
});
