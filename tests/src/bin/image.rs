//! `image`: a container image from program files, without a container engine. See `just image --help`.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;
use mortise_tests::image::{ImageOptions, write_layout};

/// Writes an OCI image layout from programs that were built for one architecture each. `skopeo copy oci:DIR docker://NAME` or `crane push
/// DIR NAME` sends it to a registry.
#[derive(Debug, Parser)]
#[command(name = "image", version)]
struct Options {
    /// Program file; repeat for a second architecture. Libraries are taken from this host, or from SYSROOT.
    #[arg(
        long,
        required = true,
        value_name = "FILE[=SYSROOT]",
        value_parser = program
    )]
    binary: Vec<(PathBuf, PathBuf)>,
    /// Folder to write; it must be empty or new.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Name and tag of the image.
    #[arg(long, default_value = concat!("mortise:", env!("CARGO_PKG_VERSION")))]
    name: String,
    /// Certificates of public authorities (PEM).
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/ssl/certs/ca-certificates.crt"
    )]
    certificates: PathBuf,
    /// Do not compress.
    #[arg(long)]
    fast: bool,
}

fn program(text: &str) -> Result<(PathBuf, PathBuf), String> {
    let (file, sysroot) = text.split_once('=').unwrap_or((text, "/"));
    if file.is_empty() || sysroot.is_empty() {
        return Err("must be a file, or FILE=SYSROOT".to_owned());
    }
    Ok((file.into(), sysroot.into()))
}

fn main() -> Result<()> {
    let options = Options::parse();
    let entries = std::fs::read_dir(&options.out).map_or(0, Iterator::count);
    anyhow::ensure!(
        entries == 0,
        "--out {}: must be empty or new",
        options.out.display()
    );
    let image = ImageOptions {
        programs: options.binary,
        certificates: Some(options.certificates),
        name: options.name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        small: !options.fast,
    };
    let architectures = write_layout(&image, &options.out)?;
    let names: Vec<&str> = architectures.iter().map(|each| each.name()).collect();
    writeln!(
        std::io::stdout(),
        "{} for {} in {}",
        image.name,
        names.join(" and "),
        options.out.display()
    )
    .context("cannot write to standard output")
}
