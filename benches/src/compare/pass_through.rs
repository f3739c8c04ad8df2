//! An extender that passes everything and does nothing else: any extender loses at least as much throughput.
//!
//! It responds with the request, byte by byte, on a plain connection, without looking at the pod. So it is faster than
//! one that could be used: that must read, decide, and know who asks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::report::progress;

/// Longest question: 5,000 names and a pod are a quarter of it.
const LONGEST: usize = 1 << 20;

/// It is served until this is dropped.
pub(crate) struct PassThrough {
    url: String,
    times: Arc<Times>,
    task: JoinHandle<()>,
}

/// Of all calls so far.
#[derive(Debug, Default)]
struct Times {
    calls: AtomicU64,
    micros: AtomicU64,
}

impl Drop for PassThrough {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PassThrough {
    /// Listens on a free port of the test host.
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let url = format!("http://{}/extender/v1", listener.local_addr()?);
        let times = Arc::new(Times::default());
        let kept = Arc::clone(&times);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let times = Arc::clone(&kept);
                tokio::spawn(async move {
                    if let Err(error) = serve(stream, &times).await {
                        progress(&format!("the pass-through extender: {error:#}"));
                    }
                });
            }
        });
        Ok(Self { url, times, task })
    }

    /// What kube-scheduler's `urlPrefix` says.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Calls so far, and the seconds that they took, from the first byte of a question to the first of its answer.
    pub(crate) fn calls(&self) -> (f64, f64) {
        let Times { calls, micros } = &*self.times;
        #[expect(
            clippy::cast_precision_loss,
            reason = "calls and microseconds of an hour"
        )]
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        (of(calls), of(micros) / 1e6)
    }
}

async fn serve(mut stream: TcpStream, times: &Times) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut read: Vec<u8> = Vec::with_capacity(64 << 10);
    let mut begun = Instant::now();
    loop {
        let Some(end) = whole(&read)? else {
            ensure!(read.len() < LONGEST, "a question of over {LONGEST} bytes");
            let is_new = read.is_empty();
            if stream.read_buf(&mut read).await? == 0 {
                ensure!(read.is_empty(), "the connection ended within a question");
                return Ok(());
            }
            if is_new {
                begun = Instant::now();
            }
            continue;
        };
        let answer = answer(std::str::from_utf8(&read[..end])?)?;
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        );
        let took = u64::try_from(begun.elapsed().as_micros())?;
        times.calls.fetch_add(1, Ordering::Relaxed);
        times.micros.fetch_add(took, Ordering::Relaxed);
        stream.write_all((head + &answer).as_bytes()).await?;
        read.drain(..end);
    }
}

/// Where the first request ends; `None` while it has not come as a whole.
fn whole(read: &[u8]) -> Result<Option<usize>> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(head) = read.windows(END.len()).position(|part| part == END) else {
        return Ok(None);
    };
    let lines = std::str::from_utf8(&read[..head])?.lines();
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .context("a request without Content-Length")?;
    let end = head + END.len() + length.1.trim().parse::<usize>()?;
    Ok((read.len() >= end).then_some(end))
}

/// The names as they came; scores of nothing.
fn answer(request: &str) -> Result<String> {
    let names = request
        .split_once("\"NodeNames\":[")
        .and_then(|(_, rest)| rest.split_once(']'));
    let (names, _) = names.context("a question without names")?;
    if request.starts_with("POST /extender/v1/prioritize ") {
        let scores = names
            .split(',')
            .filter(|name| !name.is_empty())
            .map(|name| format!("{{\"Host\":{name},\"Score\":0}}"));
        return Ok(format!("[{}]", scores.collect::<Vec<_>>().join(",")));
    }
    ensure!(
        request.starts_with("POST /extender/v1/filter "),
        "a question that is not answered: {}",
        request.lines().next().unwrap_or_default()
    );
    Ok(format!("{{\"NodeNames\":[{names}]}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_when_it_is_there_as_a_whole() {
        let body = r#"{"Pod":{},"Nodes":null,"NodeNames":["a","b"]}"#;
        let asked = |verb: &str| {
            let length = body.len();
            format!(
                "POST /extender/v1/{verb} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"
            )
        };
        let filter = asked("filter");
        for cut in 0..filter.len() {
            assert_eq!(whole(&filter.as_bytes()[..cut]).unwrap(), None, "{cut}");
        }
        let two = filter.clone() + &asked("prioritize");
        assert_eq!(whole(two.as_bytes()).unwrap(), Some(filter.len()));
        assert_eq!(answer(&filter).unwrap(), r#"{"NodeNames":["a","b"]}"#);
        assert_eq!(
            answer(&asked("prioritize")).unwrap(),
            r#"[{"Host":"a","Score":0},{"Host":"b","Score":0}]"#
        );
        assert!(answer(&asked("preempt")).is_err());
        assert!(whole(b"GET / HTTP/1.1\r\n\r\n").is_err());
    }
}
