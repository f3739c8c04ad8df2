//! Images: what is written can be unpacked and started, and the Dockerfile makes the same kind of image.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use mortise_tests::image::{Architecture, Elf, ImageOptions, PROGRAM, USER, unpack, write_layout};

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("mortise-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays behind is no reason to fail.
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// A small program that is there wherever these tests are: the one that writes images.
fn small_program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_image"))
}

/// The header of a program for arm64 that needs no library.
fn static_arm64() -> Vec<u8> {
    let mut header = vec![0; 64];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    header[18..20].copy_from_slice(&183_u16.to_le_bytes());
    header
}

/// Starts the program of an unpacked image by the image's own loader, with the image's libraries and no others.
fn start(root: &Path, args: &[&str]) -> Result<String> {
    let inside = |path: &str| root.join(path.trim_start_matches('/'));
    let program = inside(PROGRAM);
    let elf = Elf::read(&std::fs::read(&program)?)?;
    let loader = inside(&elf.loader.context("a loader")?);
    let folders = [
        "lib/x86_64-linux-gnu",
        "lib/aarch64-linux-gnu",
        "usr/lib",
        "lib64",
        "lib",
    ]
    .map(|folder| inside(folder).display().to_string())
    .join(":");
    let output = Command::new(loader)
        .args(["--inhibit-cache", "--library-path", &folders])
        .arg(program)
        .args(args)
        .env_clear()
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn an_image_is_unpacked_and_started() -> Result<()> {
    let folder = Folder::new("image")?;
    let arm = folder.0.join("arm64");
    std::fs::write(&arm, static_arm64())?;
    let options = ImageOptions {
        programs: vec![(small_program(), "/".into()), (arm, "/nowhere".into())],
        certificates: None,
        name: "mortise:test".to_owned(),
        version: "1.2.3".to_owned(),
        small: false,
    };
    let layout = folder.0.join("layout");
    let architectures = write_layout(&options, &layout)?;
    ensure!(architectures.len() == 2, "{architectures:?}");
    let native = Elf::read(&std::fs::read(small_program())?)?.architecture;
    let image = unpack(&layout, native, &folder.0.join("root"))?;
    let config = &image.config["config"];
    ensure!(config["User"] == USER, "{config}");
    ensure!(
        config["Entrypoint"] == serde_json::json!([PROGRAM]),
        "{config}"
    );
    let said = start(&image.root, &["--version"])?;
    ensure!(said.starts_with("image "), "{said}");
    let passwd = std::fs::read_to_string(image.root.join("etc/passwd"))?;
    ensure!(passwd.contains(":65532:65532:"), "{passwd}");
    unpack(&layout, Architecture::Arm64, &folder.0.join("arm"))?;

    // The same files give the same image.
    let again = folder.0.join("again");
    write_layout(&options, &again)?;
    let index = |layout: &Path| std::fs::read(layout.join("index.json"));
    ensure!(index(&layout)? == index(&again)?, "another image");
    Ok(())
}

#[test]
fn what_cannot_become_an_image_is_named() -> Result<()> {
    let folder = Folder::new("no-image")?;
    let text = folder.0.join("text");
    std::fs::write(&text, "#!/bin/sh\n")?;
    let of = |programs: Vec<(PathBuf, PathBuf)>| ImageOptions {
        programs,
        certificates: None,
        name: "mortise:test".to_owned(),
        version: String::new(),
        small: false,
    };
    let own = small_program();
    for (programs, part) in [
        (vec![(text, "/".into())], "ELF"),
        (
            vec![(own.clone(), "/".into()), (own.clone(), "/".into())],
            "second program",
        ),
        (vec![(own, folder.0.clone())], "No such file"),
        (vec![], "needs a program"),
    ] {
        let error = write_layout(&of(programs), &folder.0.join("layout"));
        let error = format!("{:#}", error.err().context("it was written")?);
        ensure!(error.contains(part), "{error}");
    }
    Ok(())
}

#[test]
fn the_dockerfile_makes_the_same_kind_of_image() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let file = std::fs::read_to_string(root.join("Dockerfile"))?;
    let last = file.rsplit("\nFROM ").next().context("a stage")?;
    let base = last.lines().next().unwrap_or_default();
    ensure!(base.contains("distroless") && !base.contains('@'), "{base}");
    for line in [
        format!("USER {USER}"),
        format!("ENTRYPOINT [\"{PROGRAM}\"]"),
    ] {
        ensure!(
            last.lines().any(|each| each == line),
            "no {line:?} in:\n{last}"
        );
    }
    ensure!(last.contains(&format!(" {PROGRAM}\n")), "{last}");
    let pinned = std::fs::read_to_string(root.join("rust-toolchain.toml"))?;
    let version = pinned.split('"').nth(1).context("a version")?;
    let version = version.strip_suffix(".0").unwrap_or(version);
    ensure!(
        file.contains(&format!("rust:{version}-")),
        "the toolchain is {version}"
    );
    Ok(())
}
