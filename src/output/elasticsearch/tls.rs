//! TLS: whom we trust, who we are by a certificate, and what went wrong with either in words.
//!
//! ```toml
//! [output]
//! type  = "elasticsearch"
//! hosts = ["https://search:9200"]
//!
//! [output.tls]
//! ca          = "ca.pem"
//! certificate = "client.pem"
//! key         = "client.key"
//! version_min = "1.3"
//! ```
//!
//! A server is always verified: its certificate leads to an authority that is trusted, is valid now, and is for the
//! host's name. There is no switch to go without.

use std::error::Error as _;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use reqwest::ClientBuilder;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, CertificateError, Error};

use crate::config::Section;

/// A larger file is no certificate.
const FILE_BYTES_MAX: u64 = 16 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    #[default]
    Tls12,
    Tls13,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// PEM file of the only authorities trusted; none: those of the system.
    pub ca: Option<PathBuf>,
    pub identity: Option<Identity>,
    pub version_min: Version,
}

/// PEM files of the certificate that we show, with those that lead from it to an authority, and of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Tls {
    pub fn read(t: &Section<'_>) -> Tls {
        let ca = path(t, "ca");
        let (certificate, key) = (path(t, "certificate"), path(t, "key"));
        let versions = [("1.2", Version::Tls12), ("1.3", Version::Tls13)];
        let version_min = t.one_of("version_min", &versions).or_default();
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (None, None) => None,
            (certificate, _) => {
                let (given, other) =
                    if certificate.is_some() { ("certificate", "key") } else { ("key", "certificate") };
                // one that is there and wrong was told of
                if !t.has(other) {
                    t.fail_at(given, format!("`{given}` is given without `{other}`"), ());
                }
                None
            }
        };
        Tls { ca, identity, version_min }
    }
}

/// A path; not what should be in the file, which no message may show.
fn path(t: &Section<'_>, key: &'static str) -> Option<PathBuf> {
    let item = t.item(key).optional()?;
    if item.is_text() && item.text()?.contains("-----BEGIN") {
        item.hide();
        return item.fail(format!("`{key}` wants the path of a PEM file, not what is in it"), ());
    }
    item.path()
}

/// The files as they are now. Never printed.
#[derive(PartialEq, Eq)]
pub struct Files {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Files {
    /// Reads the files and looks whether they can be used.
    pub fn read(tls: &Tls) -> anyhow::Result<Files> {
        let ca = tls.ca.as_deref().map(authorities).transpose()?;
        let identity = tls.identity.as_ref().map(Identity::read).transpose()?;
        Ok(Files { ca, identity })
    }

    /// `needs_trust` is false where no host is asked by TLS.
    pub fn apply(&self, tls: &Tls, needs_trust: bool, mut http: ClientBuilder) -> anyhow::Result<ClientBuilder> {
        if let Some(pem) = &self.ca {
            let certificates = reqwest::Certificate::from_pem_bundle(pem).context("cannot use the authorities")?;
            http = http.tls_certs_only(certificates);
        } else if !needs_trust {
            // so a machine without certificates is no hindrance
            http = http.tls_certs_only([]);
        }
        if let Some((certificate, key)) = &self.identity {
            let both = [key, b"\n".as_slice(), certificate].concat();
            // its error might quote the key
            let identity = reqwest::Identity::from_pem(&both).ok().context("cannot use the client certificate")?;
            http = http.identity(identity);
        }
        Ok(http.tls_version_min(match tls.version_min {
            Version::Tls12 => reqwest::tls::Version::TLS_1_2,
            Version::Tls13 => reqwest::tls::Version::TLS_1_3,
        }))
    }
}

fn authorities(path: &Path) -> anyhow::Result<Vec<u8>> {
    let pem = read(path, "the authorities")?;
    certificates(&pem).with_context(|| format!("no certificates in PEM form in {}", path.display()))?;
    Ok(pem)
}

impl Identity {
    fn read(&self) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
        let shown = self.key.display();
        let certificate = read(&self.certificate, "the client certificate")?;
        let chain = certificates(&certificate)
            .with_context(|| format!("no certificates in PEM form in {}", self.certificate.display()))?;
        let key = read(&self.key, "the client's key")?;
        if key.windows(9).any(|word| word == b"ENCRYPTED") {
            bail!(
                "the key in {shown} is encrypted: give it without a passphrase, in a file that its owner alone may read"
            );
        }
        // the parser's error would quote the file
        let parsed =
            PrivateKeyDer::from_pem_slice(&key).ok().with_context(|| format!("no key in PEM form in {shown}"))?;
        let provider = rustls::crypto::ring::default_provider();
        match CertifiedKey::from_der(chain, parsed, &provider) {
            Ok(_) => Ok((certificate, key)),
            Err(Error::InconsistentKeys(_)) => {
                bail!("the key in {shown} is not that of the first certificate in {}", self.certificate.display())
            }
            Err(Error::InvalidCertificate(why)) => {
                bail!("the first certificate in {} cannot be read: {why}", self.certificate.display())
            }
            Err(_) => bail!("the key in {shown} is of no kind that is known: RSA, ECDSA or Ed25519"),
        }
    }
}

fn read(path: &Path, what: &str) -> anyhow::Result<Vec<u8>> {
    let failed = || format!("cannot read {what} {}", path.display());
    let bytes = std::fs::metadata(path).with_context(failed)?.len();
    ensure!(bytes <= FILE_BYTES_MAX, "{} is too large for a PEM file", path.display());
    std::fs::read(path).with_context(failed)
}

/// All certificates of a PEM file, of which each can be one; none if there is none, or any is broken.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()?;
    let is_one = |der: &CertificateDer<'_>| rustls::server::ParsedCertificate::try_from(der).is_ok();
    (!all.is_empty() && all.iter().all(is_one)).then_some(all)
}

/// What TLS says of a request that failed, if anything.
pub fn cause(error: &reqwest::Error) -> Option<&Error> {
    let mut inner = error.source();
    while let Some(error) = inner {
        if let Some(found) = error.downcast_ref::<Error>() {
            return Some(found);
        }
        // what an I/O error holds is not its source, but that one's
        let held = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        inner = held.map(|held| held as &dyn std::error::Error).or_else(|| error.source());
    }
    None
}

/// One side does not like the other. With TLS 1.3 a client hears of its certificate only after it has begun to
/// send, but nobody has read that.
pub fn is_refusal(error: &Error) -> bool {
    use AlertDescription as Alert;
    match error {
        Error::InvalidCertificate(_) | Error::PeerIncompatible(_) => true,
        Error::AlertReceived(alert) => matches!(
            alert,
            Alert::ProtocolVersion
                | Alert::HandshakeFailure
                | Alert::CertificateRequired
                | Alert::BadCertificate
                | Alert::UnknownCA
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::CertificateRevoked
                | Alert::AccessDenied
        ),
        _ => false,
    }
}

pub fn words(error: &Error) -> String {
    use AlertDescription as Alert;
    match error {
        Error::InvalidCertificate(why) => bad_certificate(why),
        Error::PeerIncompatible(_) | Error::AlertReceived(Alert::ProtocolVersion | Alert::HandshakeFailure) => {
            "it has no version or cipher of TLS in common with us, see version_min in [output.tls]".to_string()
        }
        Error::AlertReceived(Alert::CertificateRequired) => {
            "it wants a client certificate: name one in [output.tls]".to_string()
        }
        Error::AlertReceived(alert) if is_refusal(error) => {
            format!("it does not take our client certificate, or misses one: {}", spaced(&format!("{alert:?}")))
        }
        Error::InvalidMessage(_) => "it does not speak TLS: is it http:// instead of https://?".to_string(),
        other => other.to_string().to_lowercase(),
    }
}

fn bad_certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => {
            "its certificate is of an authority that is not trusted: name that in [output.tls] ca".to_string()
        }
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("its certificate expired at {}", moment(not_after.as_secs()))
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!(
                "its certificate is valid from {} only: is this machine's clock right?",
                moment(not_before.as_secs())
            )
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let bare = |name: &String| {
                let quoted = name.strip_prefix("DnsName(\"").and_then(|name| name.strip_suffix("\")"));
                quoted.unwrap_or(name).to_string()
            };
            let presented: Vec<String> = presented.iter().map(bare).collect();
            let presented = if presented.is_empty() { "for no name".to_string() } else { presented.join(", ") };
            format!("its certificate is not for {}, but {presented}", expected.to_str())
        }
        CertificateError::Revoked => "its certificate was revoked".to_string(),
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is that of an authority, which no server may show".to_string()
        }
        other => format!("its certificate cannot be used: {}", other.to_string().to_lowercase()),
    }
}

fn moment(secs: u64) -> String {
    crate::time::Time::new(i64::try_from(secs).unwrap_or(i64::MAX), 0).iso()
}

/// `UnknownCA` as `unknown ca`.
fn spaced(name: &str) -> String {
    let mut out = String::new();
    let mut was_lower = false;
    for letter in name.chars() {
        if letter.is_uppercase() && was_lower {
            out.push(' ');
        }
        was_lower = letter.is_lowercase();
        out.extend(letter.to_lowercase());
    }
    out
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").finish_non_exhaustive()
    }
}
