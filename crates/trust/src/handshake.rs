//! A client's configuration that asks, at each handshake, what the files come to.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use crate::material::provider;
use crate::{Error, Files, Live};

impl Files {
    /// What a client speaks TLS with. Fails when the files cannot be used; later changes are followed, and fail nothing.
    pub fn client_config(&self) -> Result<ClientConfig, Error> {
        let live = self.follow();
        live.current()?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error {
                key: "ca_file",
                file: self.ca_file.clone().unwrap_or_default(),
                problem: error.to_string(),
            })?
            // The library's own verifier judges; only which one it is changes with the files.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Following(Arc::clone(&live))));
        let mut config = match self.client {
            Some(_) => builder.with_client_cert_resolver(Arc::new(Following(live))),
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

/// Answers as the files are now.
#[derive(Debug)]
struct Following(Arc<Live>);

impl ServerCertVerifier for Following {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let current = self.0.current();
        let current = current.map_err(|error| rustls::Error::General(error.to_string()))?;
        current.verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

impl ResolvesClientCert for Following {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.current().ok()?.shown
    }

    fn has_certs(&self) -> bool {
        true
    }
}
