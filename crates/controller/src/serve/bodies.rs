//! Reads request bodies: with a timeout, up to the limit of the path, and within a memory budget.
//!
//! Bodies are read before a request enters its concurrency limit, so that callers who send slowly delay only themselves.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use mortise_webhooks::routes::route;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::activity::Activity;

/// From the end of the head to the end of the body. API servers and schedulers send both together.
const SENDING: Duration = Duration::from_secs(10);
/// Unit of the memory budget.
const UNIT: usize = 1 << 10;

/// Memory for the bodies of one kind of path.
#[derive(Debug)]
pub(super) struct Bodies {
    room: Arc<Semaphore>,
}

impl Bodies {
    /// A budget of this many bytes for bodies that were received and whose requests are in progress.
    pub(super) fn with_limit(bytes: usize) -> Self {
        Self {
            room: Arc::new(Semaphore::new(bytes / UNIT)),
        }
    }

    /// The request with its whole body, and the reserved memory. A body that is too large, too slow or exceeds the budget gets
    /// an error response here.
    pub(super) async fn read(
        &self,
        request: Request,
        activity: Option<&Activity>,
    ) -> Result<(Request, Option<OwnedSemaphorePermit>), Response> {
        if request.body().is_end_stream() {
            return Ok((request, None));
        }
        let limit = route(request.uri().path()).map_or(0, |route| route.body_limit);
        let (parts, body) = request.into_parts();
        let whole = tokio::time::timeout(SENDING, self.collect(body, limit));
        let whole = match activity {
            Some(activity) => activity.while_reading(whole).await,
            None => whole.await,
        };
        let (bytes, held) = match whole {
            Ok(collected) => collected?,
            Err(_) => {
                return Err(refused(
                    StatusCode::REQUEST_TIMEOUT,
                    "reading the body timed out",
                ));
            }
        };
        Ok((Request::from_parts(parts, Body::from(bytes)), held))
    }

    async fn collect(
        &self,
        mut body: Body,
        limit: usize,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Response> {
        let too_large = || {
            refused(
                StatusCode::PAYLOAD_TOO_LARGE,
                &format!("the body is larger than {limit} bytes, the limit of this path"),
            )
        };
        let declared = body.size_hint().lower();
        if usize::try_from(declared).is_ok_and(|declared| declared > limit) {
            discard(&mut body, limit.saturating_mul(2)).await;
            return Err(too_large());
        }
        let mut bytes: Vec<u8> = Vec::new();
        let mut held: Option<OwnedSemaphorePermit> = None;
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|_| refused(StatusCode::BAD_REQUEST, "the body is incomplete"))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > limit {
                discard(&mut body, limit).await;
                return Err(too_large());
            }
            // Memory is reserved for received bytes, not for announced ones: an announcement costs nothing.
            let units = (bytes.len() + data.len()).div_ceil(UNIT);
            let more =
                units.saturating_sub(held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits));
            if let Ok(more) = u32::try_from(more) {
                let room = Arc::clone(&self.room).try_acquire_many_owned(more);
                let room = room.map_err(|_| {
                    refused(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "too many request bytes in flight",
                    )
                })?;
                match &mut held {
                    Some(held) => held.merge(room),
                    None => held = Some(room),
                }
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes.into(), held))
    }
}

/// Reads and discards up to `most` bytes: a caller that is still sending when its connection closes does not see the response.
async fn discard(body: &mut Body, most: usize) {
    let mut left = most;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(length) {
            Some(less) => left = less,
            None => return,
        }
    }
}

fn refused(status: StatusCode, message: &str) -> Response {
    let retry = [(http::header::RETRY_AFTER, "1")];
    match status {
        StatusCode::SERVICE_UNAVAILABLE => (status, retry, format!("{message}\n")).into_response(),
        _ => (status, format!("{message}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;

    const PATH: &str = "/admission/v1/validate";

    fn request(body: Body) -> Request {
        Request::post(PATH).body(body).unwrap()
    }

    /// Sends a part, and the rest after this number of seconds.
    fn slow(seconds: u64) -> Body {
        let parts = futures::stream::iter([0, seconds]).then(|seconds| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok::<_, std::io::Error>(Bytes::from_static(b"part"))
        });
        Body::from_stream(parts)
    }

    async fn status(bodies: &Bodies, body: Body) -> Result<Bytes, u16> {
        match bodies.read(request(body), None).await {
            Ok((request, _)) => Ok(request.into_body().collect().await.unwrap().to_bytes()),
            Err(response) => Err(response.status().as_u16()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_bodies_are_rejected() {
        let bodies = Bodies::with_limit(64 << 20);
        assert_eq!(status(&bodies, slow(9)).await.unwrap(), "partpart");
        assert_eq!(status(&bodies, slow(11)).await, Err(408));
        assert_eq!(status(&bodies, Body::empty()).await.unwrap(), "");
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_reserved_for_received_bytes_and_released() {
        let bodies = Bodies::with_limit(4 << 10);
        let (_, held) = bodies
            .read(request(Body::from(vec![0; 3 << 10])), None)
            .await
            .unwrap();
        assert_eq!(
            status(&bodies, Body::from(vec![0; 2 << 10])).await,
            Err(503)
        );
        drop(held);
        assert!(status(&bodies, Body::from(vec![0; 4 << 10])).await.is_ok());
        // Announced, but not sent: it reserves no memory.
        let silent = bodies.read(request(slow(9)), None);
        let (silent, other) = tokio::join!(silent, status(&bodies, Body::from(vec![0; 3 << 10])));
        assert!(silent.is_ok() && other.is_ok());
    }

    #[tokio::test]
    async fn bodies_above_the_limit_of_the_path_are_rejected() {
        let limit = route(PATH).unwrap().body_limit;
        let bodies = Bodies::with_limit(64 << 20);
        assert_eq!(
            status(&bodies, Body::from(vec![0; limit + 1])).await,
            Err(413)
        );
        let unannounced = futures::stream::iter(
            (0..=limit >> 20).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![0; 1 << 20]))),
        );
        assert_eq!(
            status(&bodies, Body::from_stream(unannounced)).await,
            Err(413)
        );
    }
}
