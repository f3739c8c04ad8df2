//! mortise: harness and stories on real peers.
//!
//! The harness starts a real control plane (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok) and a
//! real emulator of AWS (moto) on loopback. What is missing on the test host it builds once, from pinned sources, into
//! `$XDG_CACHE_HOME/mortise/peers`; an unavailable peer is an error, never a skipped test.

pub mod agreement;
pub mod harness;
pub mod image;
