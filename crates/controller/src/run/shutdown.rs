//! Ending: the first signal asks, the second aborts.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Tells every part of the service that it is to end. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    token: CancellationToken,
}

impl Shutdown {
    /// Not asked for yet, and nobody listens to signals.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks everything to end.
    pub fn trigger(&self) {
        self.token.cancel();
    }

    /// Whether it was asked for.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits until it is asked for.
    pub async fn requested(&self) {
        self.token.cancelled().await;
    }

    /// A token for parts that take one.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Listens to SIGTERM and SIGINT from now on: the first triggers, the second ends the process at once.
    ///
    /// # Errors
    /// The signal handlers could not be installed.
    pub fn on_signals(&self) -> std::io::Result<()> {
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let this = self.clone();
        // Not supervised: it ends with the process, and there is nothing in it that can fail.
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
