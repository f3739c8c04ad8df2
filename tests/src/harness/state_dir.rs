//! Directories for the state of what a test starts.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};

use super::progress;

/// Every directory made here begins with this, below the system's directory for temporary files.
const PREFIX: &str = "mortise-test-";
/// Holds the lock that says "my owner lives".
const OWNER: &str = "owner.lock";
/// Present when a failed test left its logs to be read.
const KEPT: &str = "kept-for-reading";
/// Logs of failures are worth a day.
const KEPT_FOR: Duration = Duration::from_hours(24);

/// A directory that goes away with a test that ended well, stays (logs only) when it failed, and is swept by the next
/// test when its owner was killed.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    /// Sub-directories that are useless after a failure (a database of hundreds of MB, say).
    bulky: Vec<PathBuf>,
    fate: Fate,
    _owner: Option<File>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Success was not reported.
    KeepLogs,
    Remove,
    /// Chosen by a person: never touched.
    Untouched,
}

impl StateDir {
    /// A new directory, `label` in its name. Sweeps directories whose owners are gone.
    ///
    /// # Errors
    /// The system's temporary directory cannot be written.
    pub fn create(label: &str) -> Result<Self> {
        let base = std::env::temp_dir();
        sweep(&base);
        let stamp = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos());
        let path = base.join(format!(
            "{PREFIX}{label}-{}-{:x}",
            std::process::id(),
            stamp & 0xffff_ffff_ffff
        ));
        // The owner's lock must exist before anybody can sweep: make it elsewhere, then move it into place.
        let making = base.join(format!(
            "making-{PREFIX}{label}-{}-{stamp:x}",
            std::process::id()
        ));
        std::fs::create_dir_all(&making)
            .with_context(|| format!("cannot create {}", making.display()))?;
        let owner = File::create(making.join(OWNER))
            .with_context(|| format!("cannot write in {}", making.display()))?;
        owner
            .lock()
            .with_context(|| format!("cannot lock {}", making.join(OWNER).display()))?;
        std::fs::rename(&making, &path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self {
            path,
            bulky: Vec::new(),
            fate: Fate::KeepLogs,
            _owner: Some(owner),
        })
    }

    /// Uses (and creates, if missing) a directory that a person chose; it is never removed.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn fixed(path: &Path) -> Result<Self> {
        std::fs::create_dir_all(path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        let path = path
            .canonicalize()
            .with_context(|| format!("cannot resolve {}", path.display()))?;
        Ok(Self {
            path,
            bulky: Vec::new(),
            fate: Fate::Untouched,
            _owner: None,
        })
    }

    /// Absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Absolute path of `name` in it.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Creates a sub-directory (and its parents) if missing.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn subdirectory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }

    /// Marks a sub-directory as useless once its owner is gone, even after a failure.
    pub fn mark_bulky(&mut self, name: &str) {
        self.bulky.push(self.path.join(name));
    }

    /// All went well: nothing in it is worth keeping.
    pub fn discard(&mut self) {
        if self.fate == Fate::KeepLogs {
            self.fate = Fate::Remove;
        }
    }
}

impl Drop for StateDir {
    fn drop(&mut self) {
        for bulky in &self.bulky {
            remove(bulky);
        }
        match self.fate {
            Fate::Untouched => {}
            Fate::Remove => remove(&self.path),
            Fate::KeepLogs => {
                progress(&format!(
                    "not stopped in good order; logs are kept for a day in {}",
                    self.path.display()
                ));
                std::fs::write(self.path.join(KEPT), "").ok();
            }
        }
    }
}

/// Removes a directory; one that resists is swept by a later test.
fn remove(path: &Path) {
    std::fs::remove_dir_all(path).ok();
}

/// Removes directories whose owner is gone, and kept logs older than a day.
fn sweep(base: &Path) {
    let Ok(entries) = std::fs::read_dir(base) else {
        return;
    };
    for entry in entries.filter_map(std::io::Result::ok) {
        if !entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX))
        {
            continue;
        }
        let path = entry.path();
        let old = |path: &Path| {
            path.metadata()
                .and_then(|metadata| metadata.modified())
                .is_ok_and(|written| written.elapsed().is_ok_and(|age| age > KEPT_FOR))
        };
        let kept = path.join(KEPT);
        let owner_is_gone = match File::open(path.join(OWNER)) {
            Ok(owner) => !matches!(owner.try_lock(), Err(TryLockError::WouldBlock)),
            Err(_) => old(&path),
        };
        if owner_is_gone && (!kept.exists() || old(&kept)) {
            remove(&path);
        }
    }
}
