//! Child processes that cannot outlive this one.
//!
//! Every child runs under a few lines of shell (`supervise.sh`) that read a pipe whose write end only this process
//! holds. When the pipe closes (dropped, panic, `kill -9` of this process: all the same to the kernel) the shell kills
//! the child and then its whole process group. The same pipe carries signals, so no process id is ever reused by us.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use tokio::sync::{oneshot, watch};

/// The supervising shell's program.
const SUPERVISE: &str = include_str!("supervise.sh");
/// Lines of a log that an error quotes: enough for a Go panic's head or a flag error, short enough to read.
const QUOTED_LINES: usize = 15;

/// What to run: program, arguments, additional environment, log file (appended to; its directory must exist).
#[derive(Clone, Debug)]
pub struct Launch {
    /// Name in messages, for example `kube-apiserver`.
    pub name: String,
    /// Program, looked up in `PATH` when it has no slash.
    pub program: PathBuf,
    /// Arguments after the program's name.
    pub args: Vec<String>,
    /// Variables set on top of this process's environment, of which those named `MORTISE_...` are not handed on: they are
    /// for the tests, and the program refuses what it does not know.
    pub env: Vec<(String, String)>,
    /// Receives standard output and standard error, mixed.
    pub log: PathBuf,
    /// Working directory; `None`: this process's.
    pub dir: Option<PathBuf>,
}

/// Signals that tests send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ask to end (what Kubernetes sends first).
    Term,
    /// What Ctrl-C sends.
    Int,
    /// End at once.
    Kill,
    /// Freeze: sockets stay open, nothing answers.
    Stop,
    /// Go on after [`Signal::Stop`].
    Cont,
}

impl Signal {
    const fn name(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Int => "INT",
            Self::Kill => "KILL",
            Self::Stop => "STOP",
            Self::Cont => "CONT",
        }
    }
}

/// A running or ended child. Dropping it kills what still runs, and waits for that.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    pid: u32,
    exit: watch::Receiver<Option<i32>>,
    supervisor: Child,
    /// The pipe. `None` once it was closed on purpose.
    signals: Option<ChildStdin>,
}

impl Process {
    /// Starts `launch`; returns as soon as the process exists, which is before it is ready.
    ///
    /// # Errors
    /// No shell, or the log's directory does not exist. A program that does not exist shows as exit code 127.
    pub async fn start(launch: &Launch) -> Result<Self> {
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(SUPERVISE)
            .arg(format!("supervise-{}", launch.name))
            .arg(&launch.log)
            .arg(&launch.program)
            .args(&launch.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        for name in of_tests() {
            command.env_remove(name);
        }
        command.envs(launch.env.iter().map(|(key, value)| (key, value)));
        if let Some(dir) = &launch.dir {
            command.current_dir(dir);
        }
        let mut supervisor = command
            .spawn()
            .with_context(|| format!("cannot start a shell for {}", launch.name))?;
        let signals = supervisor.stdin.take();
        let reports = supervisor
            .stdout
            .take()
            .ok_or_else(|| anyhow!("no pipe from the shell of {}", launch.name))?;
        let (pid_sender, pid) = oneshot::channel();
        let (exit_sender, exit) = watch::channel(None);
        std::thread::Builder::new()
            .name(format!("reports-{}", launch.name))
            .spawn(move || {
                let mut pid_sender = Some(pid_sender);
                for line in BufReader::new(reports)
                    .lines()
                    .map_while(std::io::Result::ok)
                {
                    match line.split_once(' ') {
                        Some(("pid", number)) => {
                            if let (Some(sender), Ok(number)) =
                                (pid_sender.take(), number.parse::<u32>())
                            {
                                // The receiver is gone only when the start itself was abandoned.
                                sender.send(number).ok();
                            }
                        }
                        Some(("exit", code)) => {
                            exit_sender.send_replace(code.parse().ok());
                        }
                        _ => {}
                    }
                }
                // The shell itself was killed: 128 + SIGKILL, as a shell would say it.
                exit_sender.send_if_modified(|code| code.is_none() && code.replace(137).is_none());
            })
            .context("cannot start a thread")?;
        let Ok(pid) = pid.await else {
            // Not a child of ours any more: the shell failed before it could start anything.
            supervisor
                .wait()
                .with_context(|| format!("cannot wait for the shell of {}", launch.name))?;
            bail!(
                "{} could not be started; is {} writable?",
                launch.name,
                launch.log.display()
            );
        };
        Ok(Self {
            name: launch.name.clone(),
            log: launch.log.clone(),
            pid,
            exit,
            supervisor,
            signals,
        })
    }

    /// Name in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Process id of the program itself (not of the shell above it).
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Resident memory now and at most so far, in bytes, as the kernel counts it.
    ///
    /// # Errors
    /// It has ended.
    pub fn resident_memory(&self) -> Result<(u64, u64)> {
        let path = format!("/proc/{}/status", self.pid);
        let status = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let kib = |name: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let line = line.with_context(|| format!("{path} without {name}"))?;
            let number = line.trim().trim_end_matches("kB").trim_end();
            number.parse().with_context(|| format!("{name} {line}"))
        };
        Ok((kib("VmRSS:")? << 10, kib("VmHWM:")? << 10))
    }

    /// Where its output goes.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Exit code, 128 + signal when a signal ended it, or `None` while it runs.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        *self.exit.borrow()
    }

    /// Waits until it has ended and gives its exit code.
    pub async fn ended(&self) -> i32 {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(code) => code.unwrap_or(137),
            // The reporting thread sets a code before it ends.
            Err(_) => 137,
        }
    }

    /// Runs `ready`, but fails with the end of the log if the process exits first.
    ///
    /// # Errors
    /// Those of `ready`, with the end of the log added, and: the process ended.
    pub async fn while_alive<T>(
        &self,
        what: &str,
        ready: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::select! {
            biased;
            result = ready => result.with_context(|| format!("{} ({what}); end of {}:\n{}", self.name, self.log.display(), self.log_tail())),
            code = self.ended() => bail!("{} ended with code {code} ({what}); end of {}:\n{}", self.name, self.log.display(), self.log_tail()),
        }
    }

    /// Sends a signal. Nothing happens when the process has ended already.
    pub fn signal(&mut self, signal: Signal) {
        if self.exit_code().is_none()
            && let Some(pipe) = &mut self.signals
        {
            // A broken pipe means that it has just ended.
            pipe.write_all(format!("{}\n", signal.name()).as_bytes())
                .ok();
        }
    }

    /// Sends SIGTERM and waits; SIGKILL after `grace`. Returns the exit code.
    pub async fn terminate(&mut self, grace: Duration) -> i32 {
        self.signal(Signal::Term);
        match tokio::time::timeout(grace, self.ended()).await {
            Ok(code) => code,
            Err(_) => self.kill().await,
        }
    }

    /// Sends SIGKILL and waits until the process is gone. Returns the exit code.
    pub async fn kill(&mut self) -> i32 {
        self.signal(Signal::Kill);
        self.ended().await
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.log, QUOTED_LINES)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.signals.take());
        // The shell kills the child, reaps it and ends; that takes a millisecond. An error means: already reaped.
        self.supervisor.wait().ok();
    }
}

/// Variables of this process that are for the tests, such as `MORTISE_BINARY`.
#[must_use]
pub fn of_tests() -> Vec<OsString> {
    let names = std::env::vars_os().map(|(name, _)| name);
    names
        .filter(|name| name.to_string_lossy().starts_with("MORTISE_"))
        .collect()
}

/// The last `count` lines of a text file; a note when it cannot be read.
pub(crate) fn tail(path: &Path, count: usize) -> String {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return format!("(cannot read {}: {error})", path.display()),
    };
    let mut last = std::collections::VecDeque::with_capacity(count);
    for line in BufReader::new(file)
        .split(b'\n')
        .map_while(std::io::Result::ok)
    {
        if last.len() == count {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(&line).into_owned());
    }
    Vec::from(last).join("\n")
}

/// Ids of processes whose command line contains `text` (a state directory, say): what is left of something started.
#[must_use]
pub fn processes_mentioning(text: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut found: Vec<u32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(text))
        })
        .collect();
    found.sort_unstable();
    found
}
