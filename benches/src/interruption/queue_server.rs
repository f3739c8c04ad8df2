//! A queue on loopback that speaks the protocol of SQS, as far as receivers use it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};

/// Most messages of one answer.
const MOST: usize = 10;

#[derive(Debug, Default)]
struct Messages {
    waiting: VecDeque<(usize, String)>,
    /// When each was handed out.
    handed: BTreeMap<usize, Instant>,
    deleted: BTreeSet<usize>,
    calls: usize,
}

/// The queue; it ends with the runtime.
#[derive(Clone, Debug)]
pub(super) struct QueueServer {
    messages: Arc<Mutex<Messages>>,
    address: SocketAddr,
}

impl QueueServer {
    /// Serves these bodies.
    pub(super) async fn start(bodies: Vec<String>) -> Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let messages = Messages {
            waiting: bodies.into_iter().enumerate().collect(),
            ..Messages::default()
        };
        let server = Self {
            messages: Arc::new(Mutex::new(messages)),
            address: listener.local_addr()?,
        };
        let app = Router::new()
            .route("/", post(call))
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(server)
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How long ago a message was handed out.
    pub(super) fn since_handed(&self, message: usize) -> Option<Duration> {
        self.lock().handed.get(&message).map(Instant::elapsed)
    }

    /// Messages that were deleted, and calls that were answered.
    pub(super) fn counts(&self) -> (usize, usize) {
        let messages = self.lock();
        (messages.deleted.len(), messages.calls)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, action: &str, request: &Value) -> Result<Value> {
        let mut messages = self.lock();
        messages.calls += 1;
        match action {
            "AmazonSQS.GetQueueUrl" => {
                Ok(json!({ "QueueUrl": format!("{}/queue", self.endpoint()) }))
            }
            "AmazonSQS.ReceiveMessage" => {
                let count = messages.waiting.len().min(MOST);
                let received: Vec<(usize, String)> = messages.waiting.drain(..count).collect();
                let now = Instant::now();
                messages
                    .handed
                    .extend(received.iter().map(|(index, _)| (*index, now)));
                let message = |(index, body): (usize, String)| json!({ "MessageId": format!("m-{index}"), "ReceiptHandle": index.to_string(), "Body": body });
                let received: Vec<Value> = received.into_iter().map(message).collect();
                Ok(json!({ "Messages": received }))
            }
            "AmazonSQS.DeleteMessageBatch" => {
                let entries = request["Entries"].as_array().cloned().unwrap_or_default();
                let mut done = Vec::new();
                for entry in entries {
                    let handle = entry["ReceiptHandle"].as_str().unwrap_or_default();
                    messages.deleted.insert(handle.parse()?);
                    done.push(json!({ "Id": entry["Id"] }));
                }
                Ok(json!({ "Successful": done, "Failed": [] }))
            }
            other => bail!("no such call: {other}"),
        }
    }
}

async fn call(
    State(server): State<QueueServer>,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, [(&'static str, &'static str); 1], String) {
    let action = headers.get("x-amz-target");
    let action = action.and_then(|action| action.to_str().ok());
    let request = serde_json::from_str(&body).unwrap_or_default();
    let answer = server.answer(action.unwrap_or_default(), &request);
    let kind = [("content-type", "application/x-amz-json-1.0")];
    match answer {
        Ok(answer) => (StatusCode::OK, kind, answer.to_string()),
        Err(error) => (StatusCode::BAD_REQUEST, kind, error.to_string()),
    }
}
