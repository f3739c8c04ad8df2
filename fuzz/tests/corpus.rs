//! Every input of the corpus, on every run of the tests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use mortise_fuzz::{TARGETS, Target, heavy};

/// No input may take longer. It is a hundred times what the heaviest takes, and a hundredth of what work that grows with the
/// square of an input would.
const LIMIT: Duration = Duration::from_secs(120);

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

fn target(name: &str) -> Target {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    *target
}

/// Work grows with the length of a body and no faster, whatever it is full of.
#[test]
fn heavy_bodies_are_answered() {
    for body in heavy(50_000) {
        let (end, ended) = mpsc::channel();
        let (name, target, length) = (body.name, target(body.target), body.body.len());
        std::thread::spawn(move || {
            target(&body.body);
            end.send(())
        });
        let answered = ended.recv_timeout(LIMIT);
        assert!(answered.is_ok(), "{name}: {length} bytes: {answered:?}");
    }
}
