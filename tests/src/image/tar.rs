//! The part of the tar format that an image layer needs: folders and files of root, at time zero.
//!
//! # Source
//! POSIX `ustar`.

use std::path::{Component, Path};

use anyhow::{Context as _, Result, bail, ensure};

const BLOCK: usize = 512;

/// Something in a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Path without a slash at its beginning.
    pub(super) path: String,
    /// Permissions.
    pub(super) mode: u32,
    /// Content; `None`: a folder.
    pub(super) content: Option<Vec<u8>>,
}

/// `value` in octal digits, filling a field that ends with a zero.
fn octal(header: &mut [u8], value: u64) -> Result<()> {
    let digits = format!("{value:0width$o}", width = header.len() - 1);
    let place = header
        .get_mut(..digits.len())
        .context("number too large for tar")?;
    place.copy_from_slice(digits.as_bytes());
    Ok(())
}

/// The fields of a header, as ranges.
const NAME: std::ops::Range<usize> = 0..100;
const MODE: std::ops::Range<usize> = 100..108;
const USER: std::ops::Range<usize> = 108..116;
const GROUP: std::ops::Range<usize> = 116..124;
const SIZE: std::ops::Range<usize> = 124..136;
const TIME: std::ops::Range<usize> = 136..148;
const SUM: std::ops::Range<usize> = 148..156;
const KIND: usize = 156;
const MAGIC: std::ops::Range<usize> = 257..265;

fn header(entry: &Entry) -> Result<[u8; BLOCK]> {
    let mut header = [0; BLOCK];
    let is_folder = entry.content.is_none();
    let name = format!("{}{}", entry.path, if is_folder { "/" } else { "" });
    ensure!(name.len() < NAME.len(), "{name}: longer than tar allows");
    header[..name.len()].copy_from_slice(name.as_bytes());
    let size = entry.content.as_ref().map_or(0, Vec::len);
    octal(&mut header[MODE], entry.mode.into())?;
    octal(&mut header[USER], 0)?;
    octal(&mut header[GROUP], 0)?;
    octal(&mut header[SIZE], u64::try_from(size)?)?;
    octal(&mut header[TIME], 0)?;
    header[KIND] = if is_folder { b'5' } else { b'0' };
    header[MAGIC].copy_from_slice(b"ustar\x0000");
    header[SUM].fill(b' ');
    let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
    octal(&mut header[SUM.start..SUM.end - 1], sum)?;
    Ok(header)
}

/// The entries as one archive.
pub(super) fn write(entries: &[Entry]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for entry in entries {
        out.extend(header(entry)?);
        if let Some(content) = &entry.content {
            out.extend(content);
            out.resize(out.len().next_multiple_of(BLOCK), 0);
        }
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    Ok(out)
}

fn number(field: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(field)?.trim_matches(['\0', ' ']);
    u64::from_str_radix(text, 8).with_context(|| format!("{text:?} in a header"))
}

/// What an archive of [`write`] contains.
pub(super) fn read(mut archive: &[u8]) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    while let Some((header, rest)) = archive.split_at_checked(BLOCK) {
        if header.iter().all(|byte| *byte == 0) {
            return Ok(entries);
        }
        let name = header[NAME]
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        let name = String::from_utf8(name.to_vec())?;
        let inside = Path::new(&name)
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        ensure!(inside, "{name}: leads out of the image");
        let size = usize::try_from(number(&header[SIZE])?)?;
        let (content, rest) = rest
            .split_at_checked(size)
            .context("the archive ends early")?;
        let padding = size.next_multiple_of(BLOCK) - size;
        archive = rest.get(padding..).context("the archive ends early")?;
        let content = match header[KIND] {
            b'0' => Some(content.to_vec()),
            b'5' => None,
            other => bail!("{name}: kind {other} is not written here"),
        };
        entries.push(Entry {
            path: name.trim_end_matches('/').to_owned(),
            mode: u32::try_from(number(&header[MODE])?)?,
            content,
        });
    }
    bail!("the archive has no end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() -> Result<()> {
        let entry = |path: &str, mode, content: Option<&[u8]>| Entry {
            path: path.to_owned(),
            mode,
            content: content.map(<[u8]>::to_vec),
        };
        let entries = [
            entry("tmp", 0o1777, None),
            entry("tmp/empty", 0o644, Some(b"")),
            entry("tmp/full", 0o755, Some(&[7; BLOCK])),
            entry("tmp/more", 0o644, Some(&[7; BLOCK + 1])),
        ];
        let archive = write(&entries)?;
        assert_eq!(archive.len() % BLOCK, 0);
        assert_eq!(read(&archive)?, entries);
        assert!(read(&archive[..archive.len() - 2 * BLOCK]).is_err());
        assert!(write(&[entry(&"x".repeat(100), 0, None)]).is_err());
        assert!(read(&write(&[entry("../x", 0o644, Some(b""))])?).is_err());
        Ok(())
    }
}
