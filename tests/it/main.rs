//! Stories on real peers: one module each.
//!
//! `cargo test --workspace` runs all of them; `cargo test --workspace --test stories harness` those of one module.

mod emulator;
mod harness;
