//! HTTP to the hosts of one cluster: which of them is asked, who we say we are, and whom we trust.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Url};

/// An answer longer than this is not read: no bulk request of ours has one.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// How long a host that failed is passed over while others are there.
const REST: Duration = Duration::from_secs(10);

/// A cluster of this size answers the connection at once or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Who we are. Never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// What stands in a host's URL, if anything.
    #[default]
    None,
    Basic {
        user: String,
        password: String,
    },
    /// `id:key`, or the two already in base64.
    ApiKey(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Credentials::None => "none",
            Credentials::Basic { .. } => "basic",
            Credentials::ApiKey(_) => "api key",
        })
    }
}

impl Credentials {
    fn header(&self) -> anyhow::Result<Option<HeaderValue>> {
        let text = match self {
            Credentials::None => return Ok(None),
            Credentials::Basic { user, password } => format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))),
            Credentials::ApiKey(key) if key.contains(':') => format!("ApiKey {}", STANDARD.encode(key)),
            Credentials::ApiKey(key) => format!("ApiKey {key}"),
        };
        // the error would not say the text, and must not
        let mut value = HeaderValue::from_str(&text).ok().context("credentials with a byte that no header may have")?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// Gives the credentials anew, from where they are kept: asked after each 401 or 403.
pub type Renew = Arc<dyn Fn() -> anyhow::Result<Credentials> + Send + Sync>;

/// Whom to talk to.
#[derive(Clone, Debug)]
pub struct Access {
    pub hosts: Vec<String>,
    pub credentials: Credentials,
    /// PEM file of the only authorities trusted; none: those of the system.
    pub ca: Option<PathBuf>,
    pub timeout: Duration,
    pub is_gzip: bool,
}

pub struct Client {
    http: reqwest::Client,
    hosts: Vec<Host>,
    turn: AtomicUsize,
    auth: Mutex<Option<HeaderValue>>,
    renew: Option<Renew>,
    is_gzip: bool,
}

struct Host {
    /// Without user info; its path ends in `/`.
    url: Url,
    auth: Option<HeaderValue>,
    rests_until: Mutex<Option<Instant>>,
}

/// Whether a host is a URL that can be asked.
pub fn check_host(text: &str) -> Result<(), String> {
    Host::new(text).map(|_| ()).map_err(|error| error.to_string())
}

/// A host without its secrets.
pub fn host_name(text: &str) -> Option<String> {
    Host::new(text).ok().map(|host| host.name().to_string())
}

/// Why there is no answer.
#[derive(Debug)]
pub struct Lost {
    pub why: String,
    /// The host was reached.
    pub connected: bool,
}

/// Who is asked: hosts by HTTP, or an engine that is simulated.
pub trait Exchange: Send + Sync + 'static {
    /// Sends one request. Any HTTP status is an answer.
    fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> impl Future<Output = Result<(u16, Bytes), Lost>> + Send;

    /// Reads the credentials again. What cannot be read leaves them as they were.
    fn renew(&self) -> anyhow::Result<()>;
}

impl Exchange for Client {
    fn renew(&self) -> anyhow::Result<()> {
        if let Some(renew) = &self.renew {
            let header = renew()?.header()?;
            *self.auth.lock().unwrap_or_else(PoisonError::into_inner) = header;
        }
        Ok(())
    }

    /// To a host that is not resting.
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<(u16, Bytes), Lost> {
        let host = self.next();
        let outcome = self.call_host(host, method, path, body).await;
        let is_well = matches!(outcome, Ok((status, _)) if !matches!(status, 502..=504));
        *host.rests_until.lock().unwrap_or_else(PoisonError::into_inner) = (!is_well).then(|| Instant::now() + REST);
        outcome
    }
}

impl Client {
    pub fn new(access: &Access, renew: Option<Renew>) -> anyhow::Result<Client> {
        // an error only says that there is a provider already
        let _ = rustls::crypto::ring::default_provider().install_default();
        let hosts = access.hosts.iter().map(|host| Host::new(host)).collect::<anyhow::Result<Vec<Host>>>()?;
        if hosts.is_empty() {
            bail!("no hosts are given");
        }
        let mut http = reqwest::Client::builder()
            .no_proxy()
            .http1_only()
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT.min(access.timeout))
            .timeout(access.timeout)
            .user_agent(concat!("onceline/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = &access.ca {
            let pem = std::fs::read(path).with_context(|| format!("cannot read the authorities {}", path.display()))?;
            let bad = || format!("no certificates in PEM form in {}", path.display());
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).with_context(bad)?;
            if certificates.is_empty() {
                bail!(bad());
            }
            http = http.tls_certs_only(certificates);
        } else if hosts.iter().all(|host| host.url.scheme() == "http") {
            // nothing to trust, so a machine without certificates is no hindrance
            http = http.tls_certs_only([]);
        }
        let http = http.build().context("cannot set up HTTP")?;
        let auth = Mutex::new(access.credentials.header()?);
        Ok(Client { http, hosts, turn: AtomicUsize::new(0), auth, renew, is_gzip: access.is_gzip })
    }

    async fn call_host(
        &self,
        host: &Host,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<(u16, Bytes), Lost> {
        let lost = |why: String, connected| Lost { why: format!("{}: {why}", host.name()), connected };
        let url = host.url.join(path).map_err(|error| lost(error.to_string(), true))?;
        let mut request = self.http.request(method, url);
        let auth = self.auth.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(auth) = auth.or_else(|| host.auth.clone()) {
            request = request.header(AUTHORIZATION, auth);
        }
        if let Some((kind, body)) = body {
            request = request.header(CONTENT_TYPE, kind);
            request = if self.is_gzip {
                request.header(CONTENT_ENCODING, "gzip").body(gzip(&body).map_err(|e| lost(e.to_string(), true))?)
            } else {
                request.body(body)
            };
        }
        let failed = |error: reqwest::Error| lost(explain(&error), !error.is_connect());
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status().as_u16();
        let mut text = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if text.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(lost(format!("its answer is longer than {ANSWER_BYTES_MAX} bytes"), true));
            }
            text.extend_from_slice(&chunk);
        }
        Ok((status, text.freeze()))
    }

    /// Hosts take turns; one that rests is passed over, or the one that has rested longest is taken.
    fn next(&self) -> &Host {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let count = self.hosts.len();
        let rest = |host: &Host| *host.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        let in_turn = || (0..count).map(|n| &self.hosts[(turn + n) % count]);
        let awake = in_turn().find(|host| rest(host).is_none_or(|until| until <= now));
        awake.or_else(|| in_turn().min_by_key(|host| rest(host))).unwrap_or(&self.hosts[0])
    }
}

impl Host {
    fn new(text: &str) -> anyhow::Result<Host> {
        // the text may hold a password, so no error shows it
        let mut url = Url::parse(text).ok().context("a host is not a URL such as http://127.0.0.1:9200")?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            bail!("a host is not a URL such as http://127.0.0.1:9200");
        }
        let user = unescape(url.username());
        let password = unescape(url.password().unwrap_or_default());
        let auth = match user.is_empty() && password.is_empty() {
            true => None,
            false => Credentials::Basic { user, password }.header()?,
        };
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        if !url.path().ends_with('/') {
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        Ok(Host { url, auth, rests_until: Mutex::new(None) })
    }

    fn name(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }
}

/// Percent signs of a URL's user info resolved.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn gzip(body: &[u8]) -> std::io::Result<Vec<u8>> {
    use std::io::Write;
    let mut out = flate2::write::GzEncoder::new(Vec::with_capacity(body.len() / 4), flate2::Compression::fast());
    out.write_all(body)?;
    out.finish()
}

/// The innermost cause in words; the outer ones only say that something failed.
fn explain(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return if error.is_connect() { "no connection in time" } else { "no answer in time" }.to_string();
    }
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    match inner.downcast_ref::<reqwest::Error>() {
        Some(_) => "the request failed".to_string(),
        None => inner.to_string().to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(hosts: &[&str]) -> Access {
        Access {
            hosts: hosts.iter().map(|host| host.to_string()).collect(),
            credentials: Credentials::None,
            ca: None,
            timeout: Duration::from_secs(1),
            is_gzip: false,
        }
    }

    #[test]
    fn user_info_becomes_a_header_and_is_not_shown() {
        let host = Host::new("https://us%40er:s%3Acret@h:9200/base?x#y").unwrap();
        assert_eq!(host.name(), "https://h:9200/base");
        let auth = host.auth.unwrap();
        assert_eq!(auth.as_bytes(), format!("Basic {}", STANDARD.encode("us@er:s:cret")).as_bytes());
        assert!(!format!("{auth:?}").contains("Basic"));
        for bad in ["", "h:9200", "ftp://h", "http://user:secret@"] {
            let error = Host::new(bad).err().map(|e| format!("{e:#}")).expect(bad);
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn credentials_as_logstash_sends_them() {
        let check = |credentials: Credentials, want: &str| {
            assert_eq!(credentials.header().unwrap().unwrap().as_bytes(), want.as_bytes());
            assert!(!format!("{credentials:?}").contains("key:") && !format!("{credentials:?}").contains("pw"));
        };
        check(Credentials::ApiKey("some_id:some_api_key".to_string()), "ApiKey c29tZV9pZDpzb21lX2FwaV9rZXk=");
        check(Credentials::ApiKey("c29tZV9pZDpzb21lX2FwaV9rZXk=".to_string()), "ApiKey c29tZV9pZDpzb21lX2FwaV9rZXk=");
        check(Credentials::Basic { user: "u".to_string(), password: "pw".to_string() }, "Basic dTpwdw==");
        let odd = Credentials::ApiKey("a\nb".to_string());
        assert!(!format!("{:#}", odd.header().unwrap_err()).contains("a\nb"));
    }

    #[test]
    fn hosts_take_turns_and_rest() {
        let client = Client::new(&access(&["http://a", "http://b", "http://c"]), None).unwrap();
        let name = |client: &Client| client.next().name().to_string();
        assert_eq!([name(&client), name(&client), name(&client)], ["http://a", "http://b", "http://c"]);
        *client.hosts[0].rests_until.lock().unwrap() = Some(Instant::now() + REST);
        assert_eq!([name(&client), name(&client)], ["http://b", "http://b"]);
        for host in &client.hosts[1..] {
            *host.rests_until.lock().unwrap() = Some(Instant::now() + REST * 2);
        }
        assert_eq!(name(&client), "http://a");
    }

    #[test]
    fn no_hosts_and_bad_authorities_are_refused() {
        assert!(Client::new(&access(&[]), None).is_err());
        let mut access = access(&["https://h"]);
        access.ca = Some(PathBuf::from("/nowhere/ca.pem"));
        assert!(Client::new(&access, None).is_err());
    }
}
