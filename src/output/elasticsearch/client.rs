//! HTTP to the hosts of one cluster: which of them is asked, who we say we are, and whom we trust.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::{Bytes, BytesMut};
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Url};

use super::login::{Login, basic};
use super::tls::{self, Files, Tls};
use super::wait::HostTrouble;

/// An answer longer than this is not read: a request that has one is sent in halves. No answer is decompressed.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// How long a host that failed is passed over while others are there.
const REST: Duration = Duration::from_secs(10);

/// One secret is not asked for more often.
const RENEW_PAUSE: Duration = Duration::from_secs(1);

/// A cluster of this size answers the connection at once or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What engines know a request by, in their lists of tasks and logs. They repeat it with the answer.
const NAME: &str = "x-opaque-id";

/// Whom to talk to.
#[derive(Clone, Debug)]
pub struct Access {
    pub hosts: Vec<String>,
    /// None: what stands in a host's URL, if anything.
    pub login: Option<Login>,
    pub tls: Tls,
    pub timeout: Duration,
    pub is_gzip: bool,
}

pub struct Client {
    access: Access,
    hosts: Vec<Host>,
    turn: AtomicUsize,
    /// The pool of connections, and the files that it was made with.
    http: Mutex<(reqwest::Client, Files)>,
    auth: Mutex<Option<HeaderValue>>,
    /// When the secret was last asked for: one question at a time.
    renewed: tokio::sync::Mutex<Option<Instant>>,
    /// What was last said of a secret or certificate that cannot be read again.
    said: Mutex<String>,
}

struct Host {
    /// Without user info; its path ends in `/`.
    url: Url,
    auth: Option<HeaderValue>,
    rests_until: Mutex<Option<Instant>>,
    trouble: Mutex<HostTrouble>,
}

/// Whether a host is a URL that can be asked.
pub fn check_host(text: &str) -> Result<(), String> {
    Host::new(text).map(|_| ()).map_err(|error| error.to_string())
}

/// A host without its secrets.
pub fn host_name(text: &str) -> Option<String> {
    Host::new(text).ok().map(|host| host.name().to_string())
}

/// Whether credentials go to a host where others can read them on the way.
pub fn sends_plainly(text: &str, has_login: bool) -> bool {
    Host::new(text).is_ok_and(|host| {
        let name = host.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let is_here = name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        host.url.scheme() == "http" && !is_here && (has_login || host.auth.is_some())
    })
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

    /// As `call`, under a name of the request's own: the engine lists what it has at work by it, and repeats it with
    /// the answer. An answer under another name is another request's, and as good as none.
    fn call_named(
        &self,
        name: &str,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> impl Future<Output = Result<(u16, Bytes), Lost>> + Send {
        let _ = name;
        self.call(method, path, body)
    }

    /// Reads the credentials again. What cannot be read leaves them as they were.
    fn renew(&self) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// Whom a 401 refuses reads the credentials again, and asks again later: what is to be said of it.
pub async fn refused(engine: &impl Exchange) -> String {
    let failed = engine.renew().await.err().map(|error| format!(": {error:#}"));
    format!("it answered 401{}", failed.unwrap_or_default())
}

impl Exchange for Client {
    async fn renew(&self) -> anyhow::Result<()> {
        self.renew_tls();
        let Some(login) = self.access.login.clone().filter(Login::can_change) else { return Ok(()) };
        let mut renewed = self.renewed.lock().await;
        if renewed.is_some_and(|at| at.elapsed() < RENEW_PAUSE) {
            return Ok(());
        }
        let header = apart(move || login.header()).await;
        *renewed = Some(Instant::now());
        match header {
            Ok(header) => *lock(&self.auth) = Some(header),
            Err(error) => self.say(&error, "the credentials cannot be read again: going on with those that there are"),
        }
        Ok(())
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<(u16, Bytes), Lost> {
        self.call_named("", method, path, body).await
    }

    /// To a host that is not resting.
    async fn call_named(
        &self,
        name: &str,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<(u16, Bytes), Lost> {
        let host = self.next();
        let start = Instant::now();
        let outcome = self.call_host(host, name, method, path, body).await;
        if outcome.is_err() {
            // perhaps for a certificate that was renewed meanwhile
            self.renew_tls();
        }
        let failure = match &outcome {
            Ok((status @ 502..=504, _)) => Some((format!("{}: it answered {status}", host.name()), true)),
            Ok(_) => None,
            Err(Lost { why, connected }) => Some((why.clone(), *connected)),
        };
        *lock(&host.rests_until) = failure.is_some().then(|| Instant::now() + REST);
        // of a single one the output says what it means for the events
        if self.hosts.len() > 1 {
            let (mut trouble, now) = (lock(&host.trouble), tokio::time::Instant::now());
            match failure {
                Some((why, connected)) => trouble.begins(&why, connected, start.elapsed(), now),
                None => trouble.ends(host.name(), now),
            }
        }
        outcome
    }
}

impl Client {
    pub fn new(access: Access) -> anyhow::Result<Client> {
        // an error only says that there is a provider already
        let _ = rustls::crypto::ring::default_provider().install_default();
        let hosts = access.hosts.iter().map(|host| Host::new(host)).collect::<anyhow::Result<Vec<Host>>>()?;
        if hosts.is_empty() {
            bail!("no hosts are given");
        }
        let files = Files::read(&access.tls)?;
        let http = Mutex::new((connect(&access, &hosts, &files)?, files));
        let auth = Mutex::new(access.login.as_ref().map(Login::header).transpose()?);
        let (turn, renewed, said) = (AtomicUsize::new(0), tokio::sync::Mutex::new(None), Mutex::default());
        Ok(Client { access, hosts, turn, http, auth, renewed, said })
    }

    /// Takes up certificates that were renewed on the disk. What cannot be read leaves those that there are.
    fn renew_tls(&self) {
        if self.access.tls == (Tls { version_min: self.access.tls.version_min, ..Tls::default() }) {
            return;
        }
        let renewed = Files::read(&self.access.tls).and_then(|files| {
            let is_new = lock(&self.http).1 != files;
            if is_new {
                let http = connect(&self.access, &self.hosts, &files)?;
                *lock(&self.http) = (http, files);
                tracing::info!("the certificates of [output.tls] were renewed");
            }
            Ok(())
        });
        if let Err(error) = renewed {
            self.say(&error, "the certificates cannot be read again: going on with those that there are");
        }
    }

    /// Once for each trouble.
    fn say(&self, error: &anyhow::Error, what: &'static str) {
        let error = format!("{error:#}");
        let mut said = lock(&self.said);
        if *said != error {
            tracing::warn!(error, "{what}");
            *said = error;
        }
    }

    async fn call_host(
        &self,
        host: &Host,
        name: &str,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<(u16, Bytes), Lost> {
        let lost = |why: String, connected| Lost { why: format!("{}: {why}", host.name()), connected };
        let url = host.url.join(path).map_err(|error| lost(error.to_string(), true))?;
        let mut request = lock(&self.http).0.request(method, url);
        let auth = lock(&self.auth).clone();
        if let Some(auth) = auth.or_else(|| host.auth.clone()) {
            request = request.header(AUTHORIZATION, auth);
        }
        if !name.is_empty() {
            request = request.header(NAME, name);
        }
        if let Some((kind, body)) = body {
            request = request.header(CONTENT_TYPE, kind);
            request = if self.access.is_gzip {
                request.header(CONTENT_ENCODING, "gzip").body(gzip(&body).map_err(|e| lost(e.to_string(), true))?)
            } else {
                request.body(body)
            };
        }
        let failed = |error: reqwest::Error| {
            let is_refusal = tls::cause(&error).is_some_and(tls::is_refusal);
            lost(explain(&error), !error.is_connect() && !is_refusal)
        };
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status().as_u16();
        // without a name it is taken: not everybody repeats it
        if response.headers().get(NAME).is_some_and(|given| given.as_bytes() != name.as_bytes()) {
            return Err(lost("it answered another request".to_string(), true));
        }
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
        let rest = |host: &Host| *lock(&host.rests_until);
        let in_turn = || (0..count).map(|n| &self.hosts[(turn + n) % count]);
        let awake = in_turn().find(|host| rest(host).is_none_or(|until| until <= now));
        awake.or_else(|| in_turn().min_by_key(|host| rest(host))).unwrap_or(&self.hosts[0])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(access: &Access, hosts: &[Host], files: &Files) -> anyhow::Result<reqwest::Client> {
    let http = reqwest::Client::builder()
        .no_proxy()
        .http1_only()
        .tcp_nodelay(true)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT.min(access.timeout))
        .timeout(access.timeout)
        .user_agent(concat!("onceline/", env!("CARGO_PKG_VERSION")));
    let needs_trust = hosts.iter().any(|host| host.url.scheme() == "https");
    files.apply(&access.tls, needs_trust, http)?.build().context("cannot set up HTTP")
}

/// On a thread of its own, which nobody has to wait for: a command may take its time.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> anyhow::Result<T> + Send + 'static) -> anyhow::Result<T> {
    let (done, result) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("secret".to_string()).spawn(move || drop(done.send(work())))?;
    result.await.context("the thread of a secret ended")?
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
            false => Some(basic(&user, &password)?),
        };
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        if !url.path().ends_with('/') {
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        Ok(Host { url, auth, rests_until: Mutex::new(None), trouble: Mutex::default() })
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
    if let Some(cause) = tls::cause(error) {
        return tls::words(cause);
    }
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    let inner = match inner.downcast_ref::<reqwest::Error>() {
        Some(_) => return "the request failed".to_string(),
        None => inner.to_string().to_lowercase(),
    };
    let is_other = inner.starts_with("invalid http");
    if is_other { "its answer is not HTTP: is it https:// instead of http://?".to_string() } else { inner }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(hosts: &[&str]) -> Access {
        Access {
            hosts: hosts.iter().map(|host| host.to_string()).collect(),
            login: None,
            tls: Tls::default(),
            timeout: Duration::from_secs(1),
            is_gzip: false,
        }
    }

    #[test]
    fn user_info_becomes_a_header_and_is_not_shown() {
        let host = Host::new("https://us%40er:s%3Acret@h:9200/base?x#y").unwrap();
        assert_eq!(host.name(), "https://h:9200/base");
        let auth = host.auth.unwrap();
        assert_eq!(auth, "Basic dXNAZXI6czpjcmV0");
        assert!(!format!("{auth:?}").contains("Basic"));
        for bad in ["", "h:9200", "ftp://h", "http://user:secret@"] {
            let error = Host::new(bad).err().map(|e| format!("{e:#}")).expect(bad);
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn hosts_take_turns_and_rest() {
        let client = Client::new(access(&["http://a", "http://b", "http://c"])).unwrap();
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
        assert!(Client::new(access(&[])).is_err());
        let mut access = access(&["https://h"]);
        access.tls.ca = Some("/nowhere/ca.pem".into());
        assert!(Client::new(access).is_err());
    }

    #[test]
    fn credentials_that_others_can_read_are_noticed() {
        for (host, has_login, want) in [
            ("http://es:9200", true, true),
            ("http://u:p@es:9200", false, true),
            ("http://es:9200", false, false),
            ("https://es:9200", true, false),
            ("http://localhost:9200", true, false),
            ("http://127.0.0.9", true, false),
            ("http://[::1]:9200", true, false),
            ("http://10.0.0.1", true, true),
        ] {
            assert_eq!(sends_plainly(host, has_login), want, "{host}");
        }
    }
}
