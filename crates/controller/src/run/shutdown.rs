//! Shutdown: the first signal requests it, the second aborts.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Requests the shutdown of every component. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    token: CancellationToken,
}

impl Shutdown {
    /// Not requested yet; no signal handler is installed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the shutdown.
    pub fn trigger(&self) {
        self.token.cancel();
    }

    /// Whether it was requested.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits until it is requested.
    pub async fn requested(&self) {
        self.token.cancelled().await;
    }

    /// A token for components that take one.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Handles SIGTERM and SIGINT from now on: the first triggers, the second exits immediately.
    ///
    /// # Errors
    /// The signal handlers could not be installed.
    pub fn on_signals(&self) -> std::io::Result<()> {
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let this = self.clone();
        // Not supervised: it runs until the process exits, and cannot fail.
        tokio::spawn(async move {
            for first in [true, false] {
                let name = tokio::select! {
                    _ = term.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                if first {
                    tracing::info!(signal = name, "shutting down");
                    this.trigger();
                } else {
                    tracing::warn!(signal = name, "second signal, exiting immediately");
                    std::process::abort();
                }
            }
        });
        Ok(())
    }
}
