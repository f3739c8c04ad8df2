//! The files of an image: the program, its loader and libraries, certificates of public authorities, and the user's name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::PROGRAM;
use super::elf::{Architecture, Elf};
use super::tar::Entry;

/// Where certificates of authorities are in the image.
pub(super) const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

const PASSWD: &str =
    "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nnonroot:x:65532:\n";
const NAMES: &str = "hosts: files dns\n";

/// Folders in which a loader looks by itself.
fn library_folders(architecture: Architecture) -> [String; 6] {
    let folder = architecture.folder();
    [
        format!("/lib/{folder}"),
        format!("/usr/lib/{folder}"),
        "/lib64".to_owned(),
        "/usr/lib64".to_owned(),
        "/lib".to_owned(),
        "/usr/lib".to_owned(),
    ]
}

/// A path of the image in the folder that its libraries are taken from.
fn below(sysroot: &Path, path: &str) -> PathBuf {
    sysroot.join(path.trim_start_matches('/'))
}

fn find(sysroot: &Path, architecture: Architecture, library: &str) -> Result<String> {
    let paths = library_folders(architecture).map(|folder| format!("{folder}/{library}"));
    let found = paths
        .into_iter()
        .find(|path| below(sysroot, path).is_file());
    found.with_context(|| format!("{library} is in no library folder of {}", sysroot.display()))
}

/// The files of an image for a program, with the libraries of `sysroot`; and the certificates, if there are any.
pub(super) fn entries(
    program: &[u8],
    sysroot: &Path,
    certificates: Option<Vec<u8>>,
) -> Result<Vec<Entry>> {
    let elf = Elf::read(program)?;
    let mut files: BTreeMap<String, (u32, Vec<u8>)> = BTreeMap::new();
    let mut open = elf.libraries.clone();
    if let Some(loader) = &elf.loader {
        files.insert(loader.clone(), (0o755, read(&below(sysroot, loader))?));
    }
    let loader_name = elf.loader.as_ref().and_then(|path| path.rsplit('/').next());
    let mut seen: BTreeSet<String> = loader_name.map(str::to_owned).into_iter().collect();
    while let Some(library) = open.pop() {
        if !seen.insert(library.clone()) {
            continue;
        }
        let path = find(sysroot, elf.architecture, &library)?;
        let content = read(&below(sysroot, &path))?;
        open.extend(Elf::read(&content).with_context(|| path.clone())?.libraries);
        files.insert(path, (0o755, content));
    }
    for (path, text) in [
        ("/etc/passwd", PASSWD),
        ("/etc/group", GROUP),
        ("/etc/nsswitch.conf", NAMES),
    ] {
        files.insert(path.to_owned(), (0o644, text.as_bytes().to_vec()));
    }
    if let Some(certificates) = certificates {
        files.insert(CERTIFICATES.to_owned(), (0o644, certificates));
    }
    files.insert(PROGRAM.to_owned(), (0o755, program.to_vec()));
    let mut folders: BTreeSet<String> = BTreeSet::new();
    for path in files.keys() {
        let parents = Path::new(path).ancestors().skip(1);
        folders.extend(
            parents
                .filter_map(Path::to_str)
                .map(|path| path.trim_matches('/').to_owned()),
        );
    }
    folders.remove("");
    let folders = folders.into_iter().map(|path| Entry {
        path,
        mode: 0o755,
        content: None,
    });
    let temporary = Entry {
        path: "tmp".to_owned(),
        mode: 0o1777,
        content: None,
    };
    let files = files.into_iter().map(|(path, (mode, content))| Entry {
        path: path.trim_start_matches('/').to_owned(),
        mode,
        content: Some(content),
    });
    Ok(folders.chain([temporary]).chain(files).collect())
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}
