//! Directory of the certificates of one run, for the printed commands.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A directory with access for its owner only, deleted on drop.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("mortise-demo-{}", std::process::id()));
        // It must be created here: an existing directory could belong to another user.
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("directory for certificates {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            mortise_process::warning(&format!("{} was not removed: {error}", self.0.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_private_and_deleted_on_drop() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = Directory::new().unwrap();
        let path = directory.path().to_owned();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
        std::fs::write(path.join("a"), "b").unwrap();
        assert!(
            Directory::new().is_err(),
            "an existing directory is never used"
        );
        drop(directory);
        assert!(!path.exists());
    }
}
