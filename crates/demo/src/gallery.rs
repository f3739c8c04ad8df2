//! Scenarios that come with the program.

/// A scenario of the gallery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GalleryScenario {
    /// Its name, which is that of its file.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
}

macro_rules! scenarios {
    ($($name:literal),+ $(,)?) => {
        [$(GalleryScenario {
            name: $name,
            text: include_str!(concat!("../../../examples/scenarios/", $name, ".yaml")),
        }),+]
    };
}

/// All of them, by name.
pub const GALLERY: [GalleryScenario; 18] = scenarios![
    "bad-image-300",
    "bad-image",
    "black-friday",
    "boot-taint",
    "burst",
    "busy-morning",
    "churny-day",
    "drift-in-waves",
    "eventful-afternoon",
    "frozen-cluster",
    "gangs",
    "heavy-agents",
    "learned-morning",
    "office-hours",
    "rolling-upgrade",
    "room-kept-free",
    "shortage",
    "spot-storm",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario_file::{ScenarioFile, about};
    use mortise_manifests::migrate::SourceFile;
    use std::path::Path;

    #[test]
    fn every_example_is_in_it_and_says_what_it_shows() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let names: Vec<String> = GALLERY.map(|each| format!("{}.yaml", each.name)).into();
        assert_eq!(files, names);
        for GalleryScenario { name, text } in GALLERY {
            let source = SourceFile {
                name: name.to_owned(),
                text: text.to_owned(),
            };
            ScenarioFile::read(&[&[source]]).unwrap();
            assert!(!about(text).is_empty(), "{name}");
        }
    }
}
