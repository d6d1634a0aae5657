//! The `[output]` section of a pipeline file whose type is `elasticsearch`.

use std::time::Duration;

use super::client::{check_host, host_name, sends_plainly};
use super::login::{Kind, Login};
use super::tls::Tls;
use super::{Compression, Config, Template};
use crate::config::Section;
use crate::output::Action;
use crate::secret::{Kept, Keys};

/// A request cannot be larger than what its places are counted with.
const BULK_BYTES_MAX: u64 = 1 << 30;

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let default = Config::default();
        let hosts = hosts(t, &default.hosts);
        let action = Action::read(t);
        let login = login(t);
        if let Some(hosts) = &hosts {
            warn_of_plain(t, hosts, login.as_ref());
        }
        let tls_table = t.table_or_empty("tls");
        let tls = Tls::read(&tls_table);
        tls_table.finish();
        let template = template(&t.table_or_empty("template"));
        let positive = Duration::from_millis(1)..=Duration::from_secs(3600);
        let wait_min = t.duration("retry_wait_min", positive.clone()).or(default.retry_wait_min);
        let wait_max = t.duration("retry_wait_max", positive.clone()).or(default.retry_wait_max);
        if wait_min > wait_max {
            t.fail_at("retry_wait_min", "`retry_wait_min` is longer than `retry_wait_max`", ());
        }
        let compressions = [("none", Compression::None), ("gzip", Compression::Gzip)];
        let bytes = t.bytes("bulk_bytes_max", 1..=BULK_BYTES_MAX).or(default.bulk_bytes_max as u64);
        Some(Config {
            action,
            login,
            tls,
            bulk_bytes_max: usize::try_from(bytes).unwrap_or(default.bulk_bytes_max),
            bulk_items_max: t.integer("bulk_items_max", 1..=1_000_000).or(default.bulk_items_max),
            requests_in_flight_max: t.integer("requests_in_flight_max", 1..=256).or(default.requests_in_flight_max),
            request_timeout: t.duration("request_timeout", positive).or(default.request_timeout),
            retry_wait_min: wait_min,
            retry_wait_max: wait_max,
            item_retries_max: t.integer("item_retries_max", 0..=10_000).or(default.item_retries_max),
            compression: t.one_of("compression", &compressions).or(default.compression),
            // last, so that every key was asked for
            hosts: hosts?,
            template: template?,
            ..default
        })
    }
}

fn hosts(t: &Section<'_>, default: &[String]) -> Option<Vec<String>> {
    if !t.has("hosts") {
        return Some(default.to_vec());
    }
    let given = t.item("hosts").optional()?;
    // one may stand alone, as with every list of texts
    let items = if given.is_text() { vec![given] } else { given.items()? };
    let read = items.into_iter().map(|item| -> Option<String> {
        let text = item.text()?;
        // user info: no message may show it
        let text = if text.contains('@') { item.secret()?.reveal().to_string() } else { text };
        match check_host(&text) {
            Ok(()) => Some(text),
            Err(why) => item.fail(why, "wanted: a URL, as in \"http://127.0.0.1:9200\""),
        }
    });
    // all of them are looked at, whatever is wrong with the first
    read.collect::<Vec<_>>().into_iter().collect()
}

/// What a request can say who we are by.
const PASSWORD: Keys = ["password", "password_file", "password_command"];
const API_KEY: Keys = ["api_key", "api_key_file", "api_key_command"];
const BEARER_TOKEN: Keys = ["bearer_token", "bearer_token_file", "bearer_token_command"];

/// Who we are, or how to find it out; none if nothing is said.
fn login(t: &Section<'_>) -> Option<Login> {
    let user = t.text("user").optional();
    let kinds = [PASSWORD, API_KEY, BEARER_TOKEN];
    let [password, api_key, bearer_token] = kinds.map(|keys| Kept::read(t, keys));
    let mut there = kinds.into_iter().filter_map(|keys| keys.into_iter().find(|key| t.has(key)));
    let (first, second) = (there.next(), there.next());
    if let (Some(first), Some(second)) = (first, second) {
        t.fail_at(second, format!("`{second}` and `{first}` cannot both be given"), ());
    }
    let given = PASSWORD.into_iter().find(|key| t.has(key));
    match (&user, given) {
        (Some(_), None) => t.fail_at(
            "user",
            "`user` is given without a password",
            "give `password`, `password_file` or `password_command`",
        ),
        (None, Some(key)) if !t.has("user") => t.fail_at(key, format!("`{key}` is given without `user`"), ()),
        _ => {}
    }
    let user = user.unwrap_or_default();
    password
        .map(|kept| Login { kind: Kind::Basic { user }, kept })
        .or(api_key.map(|kept| Login { kind: Kind::ApiKey, kept }))
        .or(bearer_token.map(|kept| Login { kind: Kind::Bearer, kept }))
}

/// Whoever listens on the way reads what is not encrypted.
fn warn_of_plain(t: &Section<'_>, hosts: &[String], login: Option<&Login>) {
    let is_open = |host: &&String| sends_plainly(host, login.is_some());
    if let Some(host) = hosts.iter().find(is_open).and_then(|host| host_name(host)) {
        t.warn_at("hosts", format!("credentials go to {host} unencrypted"), "write https://");
    }
}

/// None inside: no template is to be installed. None outside: an error was noted.
fn template(t: &Section<'_>) -> Option<Option<Template>> {
    let default = Template::default();
    let is_wanted = t.bool("install").or(false);
    let shards = t.integer("shards", 1..=1024).or(default.shards);
    let routing_shards = t.integer("routing_shards", 1..=1024 * 1024).or(default.routing_shards);
    let template = Template {
        name: t.text("name").or_default(),
        index_pattern: t.text("index_pattern").or_default(),
        shards,
        replicas: t.integer("replicas", 0..=100).or(default.replicas),
        routing_shards,
        priority: t.integer("priority", 0..=i64::from(u32::MAX)).or(default.priority),
    };
    if !routing_shards.is_multiple_of(shards) {
        let why = format!("`routing_shards` {routing_shards} is not a multiple of `shards` {shards}");
        t.fail_at(if t.has("routing_shards") { "routing_shards" } else { "shards" }, why, ());
        return None;
    }
    Some(is_wanted.then_some(template))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Secret};

    fn read(text: &str) -> (Option<Config>, String) {
        let (config, report) = config::read("a.toml", text.as_bytes(), &[], &|_| None, |root| {
            let t = root.table("output").required()?;
            t.text("type").optional();
            Config::read(&t)
        });
        (config, report.render(false))
    }

    #[test]
    fn a_whole_section() {
        let text = "[output]\ntype = 'elasticsearch'\nhosts = ['http://a:9200', 'https://b']\naction = 'create'\n\
            user = 'u'\npassword = 'pw'\nbulk_bytes_max = '1MiB'\nrequest_timeout = '5s'\ncompression = 'gzip'\n\
            tls = { ca = 'ca.pem' }\n[output.template]\ninstall = true\nname = 't'\nshards = 2\n";
        let (config, report) = read(text);
        let config = config.expect(&report);
        assert_eq!(config.hosts, ["http://a:9200", "https://b"]);
        assert_eq!((config.action, config.bulk_bytes_max), (Action::Create, 1 << 20));
        let login = Login { kind: Kind::Basic { user: "u".to_string() }, kept: Kept::Given(Secret::new("pw")) };
        assert_eq!(config.login, Some(login));
        assert_eq!((config.tls.ca, config.request_timeout), (Some("ca.pem".into()), Duration::from_secs(5)));
        assert_eq!(config.template.map(|t| (t.name, t.shards, t.routing_shards)), Some(("t".to_string(), 2, 720)));
        assert!(read("[output]\n").0.is_some_and(|config| config.template.is_none()));
    }

    #[test]
    fn what_cannot_be_is_refused_and_shows_no_secret() {
        let check = |text: &str, want: &str| {
            let (config, report) = read(&format!("[output]\n{text}\n"));
            assert!(config.is_none() && report.contains(want), "{text}: {report}");
            assert!(!report.contains("s3cret"), "{report}");
        };
        check("hosts = ['a:9200']", "a URL");
        check("hosts = ['ftp://u:s3cret@a']", "a URL");
        check("user = 'u'", "without a password");
        check("password = 's3cret'", "without `user`");
        check("user = 'u'\npassword = 's3cret'\napi_key = 's3cret'", "cannot both be given");
        check("retry_wait_min = '1m'", "longer than");
        check("requests_in_flight_max = 0", "requests_in_flight_max");
        check("template = { shards = 7 }", "not a multiple");
    }
}
