//! Replicas prove to each other who they are by the server certificate that they share.
//!
//! All replicas of a service have the same certificate and key, from one Secret. So a replica that calls another one presents this
//! certificate, and accepts exactly this one: no further key, authority or name is needed, and whoever can do it has the key of the
//! service anyway. Replicas with certificates of their own, and replicas of which only one has seen a renewal yet, do not accept each
//! other.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::ServerIdentity;

/// Settings of connections to other replicas.
///
/// # Errors
/// The key is not the certificate's.
pub(super) fn client_config(
    provider: &Arc<CryptoProvider>,
    identity: &ServerIdentity,
) -> Result<Arc<ClientConfig>, Error> {
    let verifier = SameCertificate {
        own: identity.own.clone(),
        provider: Arc::clone(provider),
    };
    let config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())?;
    Ok(Arc::new(config))
}

/// Accepts a server with the certificate of this process, under whatever address.
#[derive(Debug)]
struct SameCertificate {
    own: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for SameCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *end_entity == self.own {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            ))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// Accepts the clients of the configured authorities, and those with the certificate of this process.
#[derive(Debug)]
pub(super) struct ReplicaOrClient {
    pub(super) own: CertificateDer<'static>,
    pub(super) clients: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for ReplicaOrClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.clients.root_hint_subjects()
    }

    fn offer_client_auth(&self) -> bool {
        self.clients.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.clients.client_auth_mandatory()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if *end_entity == self.own {
            return Ok(ClientCertVerified::assertion());
        }
        self.clients
            .verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.clients.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.clients.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.clients.supported_verify_schemes()
    }
}
