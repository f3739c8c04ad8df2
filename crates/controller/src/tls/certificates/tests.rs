use mortise_apis::labels::WellKnown;

use super::*;
use crate::clock::SystemClock;
use crate::pem::{ALL, EXTENDER_CA_KEY, TLS_KEY, chain};

fn shared() -> Arc<ServiceState> {
    ServiceState::new(
        Arc::new(SystemClock),
        WellKnown::core(),
        "test",
        serde_json::Value::Null,
    )
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!(
            "mortise-{name}-{:016x}",
            crate::client::backoff::random()
        ));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// The server certificate that a client receives.
async fn shown(tls: &Tls, files: &Files) -> Vec<u8> {
    let mut roots = rustls::RootCertStore::empty();
    for cert in chain(&files[CA_CERT]).unwrap() {
        roots.add(cert).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (near, far) = tokio::io::duplex(64 << 10);
    let acceptor = tokio_rustls::TlsAcceptor::from(tls.current().unwrap().config.clone());
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
    let (near, far) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
    drop(far.unwrap());
    let near = near.unwrap();
    near.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

/// Replaces files as the kubelet does: a new directory, then one swap of a symlink.
fn swap(root: &Path, generation: u32, files: &Files) {
    let data = root.join(format!("..{generation}"));
    std::fs::create_dir_all(&data).unwrap();
    for (name, bytes) in files {
        std::fs::write(data.join(name), bytes).unwrap();
        let link = root.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(Path::new("..data").join(name), link).unwrap();
        }
    }
    let fresh = root.join("..data_tmp");
    std::os::unix::fs::symlink(format!("..{generation}"), &fresh).unwrap();
    std::fs::rename(fresh, root.join("..data")).unwrap();
}

/// A set of files that looks externally managed.
fn foreign() -> Files {
    let mut files = Files::new();
    issue::ensure(&mut files, &server_names(&[], None), Timestamp::now()).unwrap();
    files.remove(CA_KEY);
    files.remove(EXTENDER_CA_KEY);
    files
}

#[tokio::test]
async fn a_swapped_link_is_noticed_and_a_torn_set_is_not_used() {
    let scratch = Scratch::new("swap");
    let (first, second) = (foreign(), foreign());
    swap(&scratch.0, 1, &first);
    let mut certificates = Certificates::new(
        &CertificateSource::Directory(scratch.0.clone()),
        &[],
        None,
        shared(),
    )
    .unwrap();
    assert!(certificates.refresh().await.unwrap());
    assert!(!certificates.refresh().await.unwrap(), "nothing changed");
    let tls = certificates.tls();
    let shown_first = shown(&tls, &first).await;
    assert_eq!(shown_first, chain(&first[TLS_CERT]).unwrap()[0].to_vec());
    let torn = Files::from_iter(
        second
            .clone()
            .into_iter()
            .chain([(TLS_KEY.to_owned(), first[TLS_KEY].clone())]),
    );
    swap(&scratch.0, 2, &torn);
    let error = certificates.refresh().await.unwrap_err().to_string();
    assert!(error.contains("tls.key"), "{error}");
    assert_eq!(shown(&tls, &first).await, shown_first, "the old one stays");
    swap(&scratch.0, 3, &second);
    assert!(
        certificates.refresh().await.unwrap(),
        "a failed load is tried again"
    );
    assert_eq!(
        shown(&tls, &second).await,
        chain(&second[TLS_CERT]).unwrap()[0].to_vec()
    );
    assert!(
        !scratch.0.join(CA_KEY).exists(),
        "files of others are only read"
    );
}

#[tokio::test]
async fn an_empty_directory_is_filled_once_and_keys_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new("fill");
    let directory = scratch.0.join("certs");
    let files =
        ensure_directory(&directory, &["example.test".to_owned()], Timestamp::now()).unwrap();
    assert_eq!(files.len(), ALL.len());
    for name in ALL {
        let mode = std::fs::metadata(directory.join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(
            mode,
            if name.ends_with(".key") { 0o600 } else { 0o644 },
            "{name}"
        );
    }
    let again =
        ensure_directory(&directory, &["example.test".to_owned()], Timestamp::now()).unwrap();
    assert_eq!(again, files);
    let mut certificates = Certificates::new(
        &CertificateSource::Directory(directory),
        &["example.test".to_owned()],
        None,
        shared(),
    )
    .unwrap();
    assert!(certificates.refresh().await.unwrap());
    assert_eq!(certificates.files(), Some(&files));
}

#[test]
fn a_secret_needs_a_cluster() {
    let refused = Certificates::new(&CertificateSource::default(), &[], None, shared())
        .err()
        .unwrap();
    assert_eq!(refused.exit_code(), 2);
}
