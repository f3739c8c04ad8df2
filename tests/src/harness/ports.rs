//! Loopback ports that stay ours.
//!
//! A port that the kernel hands out for `bind(0)` may be taken by any outgoing connection between the moment we close it
//! and the moment the program binds it, and again while a component is restarted. Ports here lie below the range of
//! outgoing connections, are claimed by a lock that ends with this process, and are tried before they are given out.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::TcpListener;

use anyhow::{Context as _, Result, bail};

use super::peers::cache_root;

/// Lowest port given out; below live well-known services.
const LOWEST: u16 = 15_000;
/// How many ports there are to choose from; 15,000 to 27,999 is below the ephemeral range of every usual system.
const COUNT: u16 = 13_000;

/// A TCP port on 127.0.0.1 that no other harness on this test host uses while this value lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// The lock; it ends when the file is closed, also by `kill -9`. `None`: the number was given by a person.
    _claim: Option<File>,
}

impl Port {
    /// Claims a free port.
    ///
    /// # Errors
    /// The lock directory cannot be written, or no port is free.
    pub fn claim() -> Result<Self> {
        let dir = cache_root()?.join("ports");
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        // Anywhere to begin with, so that parallel test processes seldom meet; this is the standard library's entropy.
        let start = std::collections::hash_map::RandomState::new()
            .build_hasher()
            .finish();
        let ephemeral = first_ephemeral_port();
        for step in 0..u64::from(COUNT) {
            let number =
                LOWEST + u16::try_from((start.wrapping_add(step)) % u64::from(COUNT)).unwrap_or(0);
            if number >= ephemeral {
                continue;
            }
            let path = dir.join(number.to_string());
            let claim = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .with_context(|| format!("cannot open {}", path.display()))?;
            if claim.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Ok(Self {
                    number,
                    _claim: Some(claim),
                });
            }
        }
        bail!(
            "no free port between {LOWEST} and {} on 127.0.0.1",
            LOWEST + COUNT - 1
        )
    }

    /// Uses this number as it is, as a person asked.
    ///
    /// # Errors
    /// Something listens there already.
    pub fn fixed(number: u16) -> Result<Self> {
        TcpListener::bind(("127.0.0.1", number)).with_context(|| {
            format!("port {number} on 127.0.0.1 is not free; choose another base")
        })?;
        Ok(Self {
            number,
            _claim: None,
        })
    }

    /// The number.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:<number>`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.number)
    }
}

/// First port that the kernel gives to outgoing connections; Linux's default when it cannot be read.
fn first_ephemeral_port() -> u16 {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(32_768)
}
