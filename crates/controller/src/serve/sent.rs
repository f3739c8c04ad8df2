//! A response body: each part that the caller reads counts as progress.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::activity::Activity;

/// The body of a response.
#[derive(Debug)]
pub(super) struct Sent {
    body: Body,
    activity: Arc<Activity>,
}

impl Sent {
    pub(super) const fn new(body: Body, activity: Arc<Activity>) -> Self {
        Self { body, activity }
    }
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() {
            self.activity.record_progress();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
