//! Peers in a cache outside the checkout: made on first use, found at once afterwards.
//!
//! `$XDG_CACHE_HOME/mortise/peers/<name>-<version>-<hash>/`; several test processes make each only once (a lock file), and
//! a directory with that name is always complete (it is renamed into place).

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use super::process::{Launch, Process, tail};
use super::progress;
use super::recipe::{self, Recipe};

/// Between two lines of progress: often enough to see that it lives.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
/// Characters of a build's newest line that a line of progress shows: pip's can be very long.
const SHOWN_CHARS: usize = 80;
/// What a shell says when there is no such program.
const NOT_FOUND: i32 = 127;
/// Lines of output that a failed build's error quotes.
const QUOTED_LINES: usize = 25;

/// Programs of the control plane.
#[derive(Clone, Debug)]
pub struct Peers {
    kubernetes: PathBuf,
    etcd: PathBuf,
    kwok: PathBuf,
}

impl Peers {
    /// Finds them, or builds them (minutes, with lines of progress on standard error).
    ///
    /// # Errors
    /// Go is missing, a module cannot be downloaded, or a build fails: one paragraph with the end of the output.
    pub async fn ready() -> Result<Self> {
        Ok(Self {
            kubernetes: make(&recipe::kubernetes()).await?,
            etcd: make(&recipe::etcd()).await?,
            kwok: make(&recipe::kwok()).await?,
        })
    }

    /// Path of a program: `etcd`, `kwok`, `kubectl`, `kube-apiserver`, `kube-controller-manager` or `kube-scheduler`.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        let root = match name {
            "etcd" => &self.etcd,
            "kwok" => &self.kwok,
            _ => &self.kubernetes,
        };
        root.join("bin").join(name)
    }
}

/// A program that writes requests to an extender and reads its answers with kube-scheduler's own types; see
/// `tests/peers/extender-types/main.go`.
///
/// # Errors
/// As [`Peers::ready`].
pub async fn extender_types() -> Result<PathBuf> {
    let root = make(&recipe::extender_types()).await?;
    Ok(root.join("bin/extender-types"))
}

/// A program that reads traces as the OpenTelemetry collector does; see `tests/peers/otlp-spans/main.go`.
///
/// # Errors
/// As [`Peers::ready`].
pub async fn otlp_spans() -> Result<PathBuf> {
    let root = make(&recipe::otlp_spans()).await?;
    Ok(root.join("bin/otlp-spans"))
}

/// promtool, built on first use (minutes).
///
/// # Errors
/// As [`Peers::ready`].
pub async fn promtool() -> Result<PathBuf> {
    Ok(make(&recipe::promtool()).await?.join("bin/promtool"))
}

/// The folder with Kueue in `bin/` and its definitions in `crds/`, built on first use (minutes).
///
/// # Errors
/// As [`Peers::ready`].
pub async fn kueue() -> Result<PathBuf> {
    make(&recipe::kueue()).await
}

/// A Python interpreter that has moto.
#[derive(Clone, Debug)]
pub struct Venv {
    root: PathBuf,
}

impl Venv {
    /// Finds it, or makes it (a minute, with lines of progress on standard error).
    ///
    /// # Errors
    /// Python is missing or has no venv module, or a package cannot be downloaded: one paragraph with the output's end.
    pub async fn ready() -> Result<Self> {
        let python = PathBuf::from("python3");
        // Part of the key: an environment belongs to the interpreter that made it and breaks when that one goes.
        let question = "import sys; print(sys.version, sys.base_prefix)";
        let answer = Command::new(&python).args(["-c", question]).output();
        let interpreter = match answer {
            Ok(output) if output.status.success() => {
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            }
            Ok(output) => bail!(
                "python3 does not work: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ),
            Err(error) => {
                let hint = recipe::moto(&python, "").tool.1;
                return Err(anyhow!(error)).with_context(|| {
                    format!("cannot run python3, which the AWS emulator needs; {hint}")
                });
            }
        };
        Ok(Self {
            root: make(&recipe::moto(&python, &interpreter)).await?,
        })
    }

    /// The interpreter.
    #[must_use]
    pub fn python(&self) -> PathBuf {
        self.root.join("venv/bin/python")
    }
}

/// `$XDG_CACHE_HOME/mortise`, or `~/.cache/mortise`.
///
/// # Errors
/// Neither variable is set.
pub(crate) fn cache_root() -> Result<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("mortise"))
        .ok_or_else(|| {
            anyhow!("neither XDG_CACHE_HOME nor HOME is set, so there is no place for cached peers")
        })
}

/// The directory of a peer; made under a lock if it is not there.
pub(crate) async fn make(recipe: &Recipe) -> Result<PathBuf> {
    let peers = cache_root()?.join("peers");
    let key = recipe.key();
    let done = peers.join(&key);
    if done.is_dir() {
        return Ok(done);
    }
    std::fs::create_dir_all(&peers)
        .with_context(|| format!("cannot create the cache directory {}", peers.display()))?;
    let _lock = lock(&peers.join(format!("{key}.lock")), &recipe.name).await?;
    if done.is_dir() {
        return Ok(done);
    }
    let making = peers.join(format!("{key}.making"));
    if making.exists() {
        // Left by a killed process; the lock shows that no process works on it.
        std::fs::remove_dir_all(&making)
            .with_context(|| format!("cannot remove {}", making.display()))?;
    }
    build(recipe, &making).await?;
    std::fs::rename(&making, &done)
        .with_context(|| format!("cannot move {} into place", making.display()))?;
    Ok(done)
}

/// Takes an exclusive lock that ends when the returned file is closed, also by `kill -9`.
async fn lock(path: &Path, what: &str) -> Result<File> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => {
            progress(&format!("waiting for another process that makes {what}"))
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
    }
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || {
        file.lock()
            .with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(file)
    })
    .await?
}

/// Runs a recipe in `dir`, which does not exist yet.
async fn build(recipe: &Recipe, dir: &Path) -> Result<()> {
    let begun = Instant::now();
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for (name, content) in &recipe.files {
        std::fs::write(dir.join(name), content)
            .with_context(|| format!("cannot write {name} in {}", dir.display()))?;
    }
    progress(&format!(
        "making {} ({}) ...",
        recipe.name, recipe.expectation
    ));
    let log = dir.join("build.log");
    for step in &recipe.steps {
        let program = if step.program.contains('/') {
            dir.join(&step.program)
        } else {
            PathBuf::from(&step.program)
        };
        let launch = Launch {
            name: recipe.name.clone(),
            program,
            args: step.args.clone(),
            env: step.env.clone(),
            log: log.clone(),
            dir: Some(dir.to_owned()),
        };
        let process = Process::start(&launch).await?;
        let code = finish(recipe, &process, begun).await;
        if code != 0 {
            let (tool, hint) = recipe.tool;
            if code == NOT_FOUND {
                bail!(
                    "cannot make {}, which the tests need: {tool} was not found; {hint}",
                    recipe.name
                );
            }
            // The rest of the arguments is long and says little; the log has it all.
            let command = step
                .args
                .iter()
                .take(2)
                .fold(step.program.clone(), |line, arg| format!("{line} {arg}"));
            bail!(
                "cannot make {}, which the tests need: `{command} ...` in {} failed with code {code}. End of its output:\n{}",
                recipe.name,
                dir.display(),
                tail(&log, QUOTED_LINES),
            );
        }
    }
    for (link, target) in &recipe.links {
        std::os::unix::fs::symlink(target, dir.join(link))
            .with_context(|| format!("cannot link {link}"))?;
    }
    progress(&format!(
        "made {} in {} s",
        recipe.name,
        begun.elapsed().as_secs()
    ));
    Ok(())
}

/// Waits for a step, and says now and then that it is still at work.
async fn finish(recipe: &Recipe, process: &Process, begun: Instant) -> i32 {
    let mut ticks =
        tokio::time::interval_at(tokio::time::Instant::now() + PROGRESS_EVERY, PROGRESS_EVERY);
    loop {
        tokio::select! {
            code = process.ended() => return code,
            _ = ticks.tick() => {
                let lines = std::fs::read(process.log_path()).map_or(0, |log| log.iter().filter(|byte| **byte == b'\n').count());
                let last = tail(process.log_path(), 2);
                let last: String = last.lines().rfind(|line| !line.is_empty()).unwrap_or_default().chars().take(SHOWN_CHARS).collect();
                progress(&format!("making {}: {} s, {lines} steps, now {last}", recipe.name, begun.elapsed().as_secs()));
            }
        }
    }
}
