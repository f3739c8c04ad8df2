//! Helm, the real one.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use super::peers;
use super::recipe;

/// The program, with its caches in a directory of its own.
#[derive(Clone, Debug)]
pub struct Helm {
    program: PathBuf,
    home: PathBuf,
    kubeconfig: PathBuf,
}

impl Helm {
    /// With its caches below `home`, for a cluster. Builds Helm on first use (minutes).
    ///
    /// # Errors
    /// Go is missing, a module cannot be downloaded, or the build fails.
    pub async fn ready(home: &Path, kubeconfig: &Path) -> Result<Self> {
        Ok(Self {
            program: peers::make(&recipe::helm()).await?.join("bin/helm"),
            home: home.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
        })
    }

    /// Runs it to its end, and returns what it printed.
    ///
    /// # Errors
    /// It cannot be started, or fails; with what it said.
    pub async fn run(&self, args: &[&str]) -> Result<String> {
        let home = |name: &str| self.home.join(name);
        let output = Command::new(&self.program)
            .args(args)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HELM_CACHE_HOME", home("cache"))
            .env("HELM_CONFIG_HOME", home("config"))
            .env("HELM_DATA_HOME", home("data"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        ensure!(
            output.status.success(),
            "helm {} ended with {}: {}",
            args.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        String::from_utf8(output.stdout).context("helm printed something that is not UTF-8")
    }

    /// Folder of a chart of this repository.
    #[must_use]
    pub fn chart(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../manifests/chart")
            .join(name)
    }
}
