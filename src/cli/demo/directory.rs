//! Where the certificates of one run lie, so that the printed commands can use them.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A directory that only its owner may enter, and that goes with this value.
#[derive(Debug)]
pub(super) struct Directory(PathBuf);

impl Directory {
    pub(super) fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("mortise-demo-{}", std::process::id()));
        // Made here and now, or not at all: a directory that somebody else put there could be anybody's.
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("directory for certificates {}", path.display()))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            super::warning(&format!("{} was not removed: {error}", self.0.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_private_and_goes_with_its_owner() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = Directory::new().unwrap();
        let path = directory.path().to_owned();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
        std::fs::write(path.join("a"), "b").unwrap();
        assert!(Directory::new().is_err(), "never somebody else's directory");
        drop(directory);
        assert!(!path.exists());
    }
}
