//! Real peers for tests: build them, start them, talk to them, and leave nothing behind.
//!
//! | noun | file |
//! |---|---|
//! | [`Peers`], [`Venv`]: programs built from pinned sources, cached | `peers.rs`, `recipe.rs` |
//! | [`Process`]: a child that cannot outlive this process | `process.rs`, `supervise.sh` |
//! | [`StateDir`], [`Port`], [`Authority`], [`Kubeconfig`] | one file each |
//! | [`ControlPlane`]: etcd, kube-apiserver and whichever others are asked for | `control_plane.rs`, `builder.rs`, `component.rs` |
//! | [`ExtenderConfig`], [`SchedulerOptions`]: the scheduler's configuration | `scheduler.rs` |
//! | [`Moto`]: AWS, with capacity pools, prices, faults and events to set; [`NodeFactory`]: its instances join a cluster | `moto.rs`, `moto_account.rs`, `moto_instance.rs`, `moto_profiles.rs`, `moto_query.rs`, `node_factory.rs` |
//! | [`Mortise`]: the program under test as a child process | `mortise.rs` |
//! | [`wait_until`]: the only place that waits by polling | `wait.rs` |
//! | [`Helm`]: the real one, on the charts of this repository | `helm.rs` |
//! | [`Http`]: a small client, mutual TLS when given an identity | `http.rs` |
//! | [`FaultProxy`]: fault injection for a network and an API server; [`WatchFault`]: one watch alone | `fault_proxy.rs`, `watch_faults.rs` |

mod apply;
mod builder;
mod certificates;
mod component;
mod control_plane;
mod fault_proxy;
mod helm;
mod http;
mod kubeconfig;
mod mortise;
mod moto;
mod moto_account;
mod moto_instance;
mod moto_profiles;
mod moto_query;
mod node_factory;
mod peers;
mod ports;
mod process;
mod recipe;
mod scheduler;
mod stages;
mod state_dir;
mod wait;
mod watch_faults;

pub use builder::Builder;
pub use certificates::{Authority, Identity};
pub use component::Component;
pub use control_plane::{ControlPlane, KubectlOutput};
pub use fault_proxy::{Bad, FaultProxy, Forwarded, Requests, Rule};
pub use helm::Helm;
pub use http::{Http, Reply};
pub use kubeconfig::Kubeconfig;
pub use mortise::{Mortise, MortiseOptions, mortise_binary, prepare_certificates};
pub use moto::{Fault, Fixtures, Moto, Pool};
pub use moto_account::{Denials, Reservation};
pub use moto_instance::Instance;
pub use moto_profiles::InstanceProfile;
pub use moto_query::Caller;
pub use node_factory::NodeFactory;
pub use peers::{Peers, Venv, extender_types, kueue, otlp_spans, promtool};
pub use ports::Port;
pub use process::{Launch, Process, Signal, of_tests, processes_mentioning};
pub use scheduler::{ExtenderConfig, SchedulerOptions, Verbs};
pub use stages::Stages;
pub use state_dir::StateDir;
pub use wait::wait_until;
pub use watch_faults::{Reads, WatchFault};

/// Writes one line of progress to standard error, also under `cargo test`, which captures only what macros print.
pub(crate) fn progress(line: &str) {
    use std::io::Write as _;
    // A closed standard error must not stop a test.
    writeln!(std::io::stderr(), "mortise-tests: {line}").ok();
}
