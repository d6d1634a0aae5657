//! An authority and its certificates, and an endpoint that speaks TLS before a plain HTTP server.

use std::io::{self, BufReader, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};

use super::http::{Http, read_request, write_answer};

pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM form.
#[derive(Clone)]
pub struct Leaf {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority { issuer: CertifiedIssuer::self_signed(params, key()).expect("an authority") }
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// For these names, good from one year until the beginning of another.
    pub fn leaf(&self, names: &[&str], years: (i32, i32)) -> Leaf {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        (params.not_before, params.not_after) = (date_time_ymd(years.0, 1, 1), date_time_ymd(years.1, 1, 1));
        let key = key();
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Leaf { certificate, key: key.serialize_pem() }
    }

    /// For an endpoint on this machine.
    pub fn here(&self) -> Leaf {
        self.leaf(&["localhost", "127.0.0.1"], (2000, 4000))
    }
}

fn key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key")
}

/// The endpoint. `clients` is the PEM of whose certificates a client must show, if any.
pub struct Tls {
    pub url: String,
    config: Arc<Mutex<Arc<ServerConfig>>>,
    connections: Arc<AtomicUsize>,
}

impl Tls {
    pub fn new(upstream: &str, leaf: &Leaf, clients: Option<&str>) -> Tls {
        Tls::of_versions(upstream, leaf, clients, rustls::ALL_VERSIONS)
    }

    pub fn of_versions(
        upstream: &str,
        leaf: &Leaf,
        clients: Option<&str>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Tls {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let config = Arc::new(Mutex::new(server(leaf, clients, versions)));
        let connections = Arc::new(AtomicUsize::new(0));
        let (upstream, shared, count) = (Http::new(upstream), config.clone(), connections.clone());
        // Ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                let (upstream, config) = (upstream.clone(), shared.lock().expect("a lock").clone());
                // A client that does not like us goes away: that is what this is for.
                std::thread::spawn(move || drop(serve(stream, config, &upstream)));
            }
        });
        Tls { url, config, connections }
    }

    /// From the next connection on.
    pub fn set(&self, leaf: &Leaf, clients: Option<&str>) {
        *self.config.lock().expect("a lock") = server(leaf, clients, rustls::ALL_VERSIONS);
    }

    /// How often somebody connected so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

fn server(leaf: &Leaf, clients: Option<&str>, versions: &[&'static SupportedProtocolVersion]) -> Arc<ServerConfig> {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions);
    let builder = builder.expect("versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(pem));
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
            builder.with_client_cert_verifier(verifier.expect("an authority of clients"))
        }
    };
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).expect("a key");
    Arc::new(builder.with_single_cert(certificates(&leaf.certificate), key).expect("a certificate with its key"))
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().expect("certificates")
}

fn serve(stream: TcpStream, config: Arc<ServerConfig>, upstream: &Http) -> io::Result<()> {
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut reader = BufReader::new(StreamOwned::new(connection, stream.try_clone()?));
    let done = answer(&mut reader, upstream);
    // What was said last must arrive, though the other side may not have been read to its end.
    let _ = stream.shutdown(Shutdown::Write);
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let _ = (&stream).read_to_end(&mut Vec::new());
    done
}

fn answer(reader: &mut BufReader<StreamOwned<ServerConnection, TcpStream>>, upstream: &Http) -> io::Result<()> {
    while let Some(request) = read_request(reader)? {
        let mut headers = request.headers.clone();
        headers
            .retain(|(key, _)| !matches!(key.as_str(), "host" | "content-length" | "transfer-encoding" | "connection"));
        let answer = upstream.request(&request.method, &request.path, &headers, &request.body)?;
        write_answer(reader.get_mut(), &answer, request.keep)?;
        if !request.keep {
            return Ok(());
        }
    }
    Ok(())
}
