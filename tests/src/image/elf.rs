//! What an image needs to know of a program file: its architecture, its loader and its libraries.
//!
//! # Source
//! The ELF specification, 64 bit, little endian.

use anyhow::{Context as _, Result, bail, ensure};

/// What a program runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Architecture {
    /// 64-bit x86.
    Amd64,
    /// 64-bit Arm.
    Arm64,
}

impl Architecture {
    /// Its name in images.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The part of library folders' names that says which architecture they are for.
    pub(super) const fn folder(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-linux-gnu",
            Self::Arm64 => "aarch64-linux-gnu",
        }
    }
}

/// The header of a program or library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// What it runs on.
    pub architecture: Architecture,
    /// Path of its loader; `None`: it is static, or a library.
    pub loader: Option<String>,
    /// File names of the libraries it names.
    pub libraries: Vec<String>,
}

fn number<const N: usize>(file: &[u8], at: usize) -> Result<[u8; N]> {
    let end = at.checked_add(N).context("offset too large")?;
    let bytes = file
        .get(at..end)
        .with_context(|| format!("the file ends before {end}"))?;
    Ok(bytes.try_into()?)
}

fn short(file: &[u8], at: usize) -> Result<usize> {
    Ok(u16::from_le_bytes(number(file, at)?).into())
}

fn word(file: &[u8], at: usize) -> Result<u32> {
    Ok(u32::from_le_bytes(number(file, at)?))
}

fn long(file: &[u8], at: usize) -> Result<usize> {
    Ok(u64::from_le_bytes(number(file, at)?).try_into()?)
}

/// The text that ends with a zero.
fn text(file: &[u8], at: usize) -> Result<String> {
    let rest = file.get(at..).context("text outside of the file")?;
    let bytes = rest.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8(bytes.to_vec())?)
}

struct Segment {
    kind: u32,
    offset: usize,
    address: usize,
    size: usize,
}

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const LOADER: u32 = 3;
const NEEDED: usize = 1;
const TEXTS: usize = 5;

fn segments(file: &[u8]) -> Result<Vec<Segment>> {
    let (start, size, count) = (long(file, 32)?, short(file, 54)?, short(file, 56)?);
    let at = |index: usize| start + index * size;
    (0..count)
        .map(|index| {
            let at = at(index);
            Ok(Segment {
                kind: word(file, at)?,
                offset: long(file, at + 8)?,
                address: long(file, at + 16)?,
                size: long(file, at + 32)?,
            })
        })
        .collect()
}

impl Elf {
    /// Reads a program file.
    ///
    /// # Errors
    /// It is not one for Linux on an architecture that images are made for.
    pub fn read(file: &[u8]) -> Result<Self> {
        ensure!(
            file.starts_with(b"\x7fELF\x02\x01"),
            "not a 64-bit little-endian ELF file"
        );
        let architecture = match short(file, 18)? {
            62 => Architecture::Amd64,
            183 => Architecture::Arm64,
            other => bail!("processor {other}: images are made for amd64 (62) and arm64 (183)"),
        };
        let segments = segments(file)?;
        let loader = segments
            .iter()
            .find(|each| each.kind == LOADER)
            .map(|each| text(file, each.offset))
            .transpose()?;
        let mut entries = Vec::new();
        if let Some(dynamic) = segments.iter().find(|each| each.kind == DYNAMIC) {
            for index in 0..dynamic.size / 16 {
                let at = dynamic.offset + index * 16;
                entries.push((long(file, at)?, long(file, at + 8)?));
            }
        }
        let texts = entries
            .iter()
            .find(|(tag, _)| *tag == TEXTS)
            .map(|(_, address)| *address);
        let offset = |address: usize| {
            segments
                .iter()
                .filter(|each| each.kind == LOAD)
                .find(|each| (each.address..each.address + each.size).contains(&address))
                .map(|each| address - each.address + each.offset)
        };
        let needed = entries.iter().filter(|(tag, _)| *tag == NEEDED);
        let libraries = needed
            .map(|(_, at)| {
                let texts = texts.and_then(offset).context("no table of texts")?;
                text(file, texts + at)
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            architecture,
            loader,
            libraries,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_names_its_loader_and_the_c_library() -> Result<()> {
        let own = std::fs::read(std::env::current_exe()?)?;
        let elf = Elf::read(&own)?;
        assert!(elf.loader.is_some());
        assert!(
            elf.libraries.iter().any(|name| name == "libc.so.6"),
            "{elf:?}"
        );
        // A file that ends early is an error, never a panic.
        for length in [0, 5, 18, 63, 200, 1000] {
            assert!(
                Elf::read(own.get(..length).unwrap_or_default()).is_err(),
                "{length}"
            );
        }
        Ok(())
    }
}
