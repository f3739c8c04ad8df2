//! Certificate files in a directory, as the kubelet or an operator writes them.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use super::CertificateError;
use crate::pem::{ALL, Files};

/// Reads every existing certificate file. Files are polled, not watched: a mounted Secret changes by the swap of a symlink
/// above the files, which a watch of the files would miss.
pub(super) fn load(directory: &Path) -> Result<Files, CertificateError> {
    let mut files = Files::new();
    for name in ALL {
        let path = directory.join(name);
        match fs::read(&path) {
            Ok(bytes) => drop(files.insert(name.to_owned(), bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => {
                return Err(CertificateError::File {
                    path: path.display().to_string(),
                    source,
                });
            }
        }
    }
    Ok(files)
}

/// Writes every file whose contents differ, each atomically.
pub(super) fn store(directory: &Path, files: &Files) -> Result<(), CertificateError> {
    let failed = |path: &Path, source| CertificateError::File {
        path: path.display().to_string(),
        source,
    };
    fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    for (name, bytes) in files {
        let path = directory.join(name);
        if fs::read(&path).is_ok_and(|old| old == *bytes) {
            continue;
        }
        let secret = name.ends_with(".key");
        write(
            &directory.join(format!(".{name}.new")),
            &path,
            bytes,
            secret,
        )
        .map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

fn write(temporary: &Path, path: &Path, bytes: &[u8], secret: bool) -> io::Result<()> {
    let mode = if secret { 0o600 } else { 0o644 };
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(temporary)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(temporary, path)
}
