//! Container images without a container engine: an OCI image layout is written from program files, one per architecture.
//!
//! Problem: an image must be buildable, and checked, where no engine runs. Invariant: the same program files give the same bytes:
//! no times, no owners but root, files in order.
//!
//! # Source
//! The OCI image format and image layout specifications, version 1.

mod elf;
mod layout;
mod rootfs;
mod tar;

pub use elf::{Architecture, Elf};
pub use layout::{ImageOptions, Unpacked, unpack, write_layout};

/// Path of the program in the image.
pub const PROGRAM: &str = "/usr/bin/mortise";
/// User and group that the program runs as.
pub const USER: &str = "65532:65532";
