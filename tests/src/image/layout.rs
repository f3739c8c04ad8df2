//! The image layout: content by its digest, a manifest for each architecture, and an index of them.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::elf::{Architecture, Elf};
use super::rootfs::{self, CERTIFICATES};
use super::{PROGRAM, USER, tar};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// What goes into an image.
#[derive(Clone, Debug)]
pub struct ImageOptions {
    /// Program files, one per architecture, each with the folder that its libraries are taken from.
    pub programs: Vec<(PathBuf, PathBuf)>,
    /// Certificates of public authorities (PEM).
    pub certificates: Option<PathBuf>,
    /// Name and tag.
    pub name: String,
    /// Version in the labels.
    pub version: String,
    /// Size is worth time.
    pub small: bool,
}

struct Blobs<'a>(&'a Path);

impl Blobs<'_> {
    /// Stores content; its descriptor.
    fn put(&self, media_type: &str, content: &[u8]) -> Result<Value> {
        let digest = hex(&Sha256::digest(content));
        let path = self.0.join("blobs/sha256").join(&digest);
        std::fs::write(&path, content).with_context(|| path.display().to_string())?;
        Ok(json!({
            "mediaType": media_type,
            "digest": format!("sha256:{digest}"),
            "size": content.len(),
        }))
    }

    fn put_json(&self, media_type: &str, content: &Value) -> Result<Value> {
        self.put(media_type, content.to_string().as_bytes())
    }

    /// Content by its descriptor, whose digest and size are checked.
    fn get(&self, descriptor: &Value) -> Result<Vec<u8>> {
        let digest = descriptor["digest"].as_str().context("a digest")?;
        let name = digest
            .strip_prefix("sha256:")
            .context("a digest of SHA-256")?;
        let content = rootfs::read(&self.0.join("blobs/sha256").join(name))?;
        ensure!(
            hex(&Sha256::digest(&content)) == name,
            "{digest}: other content"
        );
        ensure!(descriptor["size"] == content.len(), "{digest}: other size");
        Ok(content)
    }

    fn get_json(&self, descriptor: &Value) -> Result<Value> {
        Ok(serde_json::from_slice(&self.get(descriptor)?)?)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes an image layout into an empty or new folder. Returns its architectures.
///
/// # Errors
/// A file cannot be read or written, is no program, lacks a library, or two programs are for one architecture.
pub fn write_layout(options: &ImageOptions, folder: &Path) -> Result<Vec<Architecture>> {
    let blobs = folder.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).with_context(|| blobs.display().to_string())?;
    let blobs = Blobs(folder);
    let certificates = options
        .certificates
        .as_deref()
        .map(rootfs::read)
        .transpose()?;
    let mut manifests = Vec::new();
    let mut architectures = BTreeSet::new();
    for (program, sysroot) in &options.programs {
        let content = rootfs::read(program)?;
        let place = || program.display().to_string();
        let architecture = Elf::read(&content).with_context(place)?.architecture;
        ensure!(
            architectures.insert(architecture),
            "{}: a second program for {}",
            place(),
            architecture.name()
        );
        let entries =
            rootfs::entries(&content, sysroot, certificates.clone()).with_context(place)?;
        let archive = tar::write(&entries)?;
        let manifest = manifest(&blobs, options, architecture, &archive)?;
        manifests.push(manifest);
    }
    ensure!(!manifests.is_empty(), "an image needs a program");
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
    let mut named = blobs.put_json(INDEX, &index)?;
    named["annotations"] = json!({ "org.opencontainers.image.ref.name": options.name });
    let top = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [named] });
    std::fs::write(folder.join("index.json"), top.to_string())?;
    let version = json!({ "imageLayoutVersion": "1.0.0" });
    std::fs::write(folder.join("oci-layout"), version.to_string())?;
    Ok(architectures.into_iter().collect())
}

/// Stores layer, configuration and manifest of one architecture; the manifest's descriptor.
fn manifest(
    blobs: &Blobs<'_>,
    options: &ImageOptions,
    architecture: Architecture,
    archive: &[u8],
) -> Result<Value> {
    let level = if options.small {
        Compression::best()
    } else {
        Compression::none()
    };
    let mut encoder = GzEncoder::new(Vec::new(), level);
    encoder.write_all(archive)?;
    let layer = blobs.put(LAYER, &encoder.finish()?)?;
    let config = json!({
        "architecture": architecture.name(),
        "os": "linux",
        "config": {
            "User": USER,
            "Entrypoint": [PROGRAM],
            "Env": ["PATH=/usr/bin", format!("SSL_CERT_FILE={CERTIFICATES}")],
            "WorkingDir": "/",
            "Labels": {
                "org.opencontainers.image.title": "mortise",
                "org.opencontainers.image.licenses": "Apache-2.0",
                "org.opencontainers.image.version": options.version,
            },
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": [format!("sha256:{}", hex(&Sha256::digest(archive)))],
        },
        "history": [{ "created_by": "mortise image" }],
    });
    let config = blobs.put_json(CONFIG, &config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer],
    });
    let mut descriptor = blobs.put_json(MANIFEST, &manifest)?;
    descriptor["platform"] = json!({ "architecture": architecture.name(), "os": "linux" });
    Ok(descriptor)
}

/// An image on disk, as an engine would have it.
#[derive(Clone, Debug)]
pub struct Unpacked {
    /// Its configuration.
    pub config: Value,
    /// The folder with its files.
    pub root: PathBuf,
}

/// Unpacks the image of an architecture into `root`; every digest on the way is checked.
///
/// # Errors
/// The layout is damaged, or has no image for the architecture.
pub fn unpack(layout: &Path, architecture: Architecture, root: &Path) -> Result<Unpacked> {
    let blobs = Blobs(layout);
    let top: Value = serde_json::from_slice(&rootfs::read(&layout.join("index.json"))?)?;
    let index = blobs.get_json(&top["manifests"][0])?;
    let manifests = index["manifests"].as_array().context("manifests")?;
    let found = manifests
        .iter()
        .find(|each| each["platform"]["architecture"] == architecture.name());
    let found = found.with_context(|| format!("no image for {}", architecture.name()))?;
    let manifest = blobs.get_json(found)?;
    let config = blobs.get_json(&manifest["config"])?;
    let layers = manifest["layers"].as_array().context("layers")?;
    for (number, layer) in layers.iter().enumerate() {
        let compressed = blobs.get(layer)?;
        let mut archive = Vec::new();
        GzDecoder::new(&*compressed).read_to_end(&mut archive)?;
        let digest = format!("sha256:{}", hex(&Sha256::digest(&archive)));
        ensure!(
            config["rootfs"]["diff_ids"][number] == digest,
            "{digest} is not the layer's"
        );
        for entry in tar::read(&archive)? {
            let path = root.join(&entry.path);
            match &entry.content {
                None => std::fs::create_dir_all(&path)?,
                Some(content) => std::fs::write(&path, content)?,
            }
            set_mode(&path, entry.mode)?;
        }
    }
    Ok(Unpacked {
        config,
        root: root.to_owned(),
    })
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .with_context(|| path.display().to_string())
}
