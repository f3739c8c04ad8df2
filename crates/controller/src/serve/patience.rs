//! Write timeout for callers that do not read their response.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a write may wait for the caller to read.
const STALLED: Duration = Duration::from_secs(30);

/// A connection whose writes fail when the caller reads nothing for half a minute.
#[derive(Debug)]
pub(super) struct Unstalled<S> {
    io: S,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Unstalled<S> {
    pub(super) const fn new(io: S) -> Self {
        Self { io, waiting: None }
    }

    /// Passes on the result of a write, or fails when it has waited for too long.
    fn in_time<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let waiting = self
            .waiting
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(STALLED)));
        match waiting.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client does not read the response",
            ))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unstalled<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unstalled<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.in_time(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.in_time(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.io).poll_shutdown(context);
        self.in_time(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_does_not_read_times_out() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let mut ours = Unstalled::new(ours);
        let error = ours.write_all(&[0; 4 << 10]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);

        let (ours, mut reader) = tokio::io::duplex(1 << 10);
        let mut ours = Unstalled::new(ours);
        let slow = async {
            let mut buffer = [0; 1 << 10];
            for _ in 0..4 {
                tokio::time::sleep(STALLED - Duration::from_secs(1)).await;
                reader.read_exact(&mut buffer).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(ours.write_all(&[0; 4 << 10]), slow);
        written.unwrap();
        theirs.read_u8().await.unwrap();
    }
}
