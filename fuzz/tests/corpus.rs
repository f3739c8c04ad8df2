//! Every input of the corpus, on every run of the tests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use mortise_fuzz::TARGETS;

#[test]
fn every_input_of_the_corpus_holds() {
    for (name, target) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("corpus")
            .join(name);
        let mut inputs = 0;
        for file in
            fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        {
            target(&fs::read(file.unwrap().path()).unwrap());
            inputs += 1;
        }
        assert!(inputs >= 20, "{name}: {inputs} inputs");
    }
}
