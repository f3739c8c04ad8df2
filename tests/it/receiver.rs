//! A program outside of the cluster that takes messages over HTTP, and keeps them.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// What was sent.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) path: String,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
}

/// The receiver.
#[derive(Clone, Default)]
pub(crate) struct Receiver(Arc<Mutex<Vec<Message>>>);

impl Receiver {
    /// Begins to listen; returns a URL with this path too.
    pub(crate) async fn start(path: &str) -> Result<(Self, String)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/{path}", listener.local_addr()?);
        let receiver = Self::default();
        let kept = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = kept.clone();
                let answer = service_fn(move |request: Request<Incoming>| {
                    let kept = kept.clone();
                    async move {
                        let content_type = request.headers().get(CONTENT_TYPE);
                        let content_type = content_type.and_then(|it| it.to_str().ok());
                        let mut message = Message {
                            path: request.uri().path().to_owned(),
                            content_type: content_type.unwrap_or_default().to_owned(),
                            body: Bytes::new(),
                        };
                        let body = request.collect().await.map(|body| body.to_bytes());
                        message.body = body.unwrap_or_default();
                        kept.messages().push(message);
                        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
                    }
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), answer));
            }
        });
        Ok((receiver, url))
    }

    /// What was sent so far.
    pub(crate) fn messages(&self) -> MutexGuard<'_, Vec<Message>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
