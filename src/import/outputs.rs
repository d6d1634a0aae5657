//! Outputs: one is kept, the others stay as comments. Conditions around the one that is kept become a `drop` filter;
//! outputs that differ by their index only become one, with the index in `@metadata`.

use super::Mapping;
use super::effects::Writes;
use super::expression::Expr;
use super::flow::{Step, guard};
use super::options::Kind::{Duration, Text};
use super::options::Rule::{As, Elsewhere, Ignored, Lost, Same, Unless};
use super::options::{Rules, ours};
use super::toml::{Block, Toml};
use super::tree::{Node, Plugin, Value};

const ROLLS: &str =
    "what rolls over holds an event twice when it is sent again later; name the index by the event's time";
const TEMPLATE: &str = "put the template there yourself, or let `[output.template]` make one";
const UPDATES: &str = "whole documents are written, no parts of them";
const VERSIONS: &str = "documents carry no version of yours yet";
const CERTIFICATE: &str = "the server's certificate is always verified, against `tls.ca` or the system's authorities";
const CLIENT: &str = "write certificate and key to PEM files, and those to `tls.certificate` and `tls.key`";

/// The settings of the output to Elasticsearch and OpenSearch.
const ENGINE: Rules = &[
    ("hosts", Elsewhere),
    ("index", Elsewhere),
    ("document_id", Elsewhere),
    ("action", Elsewhere),
    ("user", Elsewhere),
    ("password", Elsewhere),
    ("api_key", Same(Text)),
    ("cloud_id", Lost("write the address to `hosts`")),
    ("cloud_auth", Lost("write `user` and `password`")),
    ("auth_type", Lost("requests are not signed; take `user` and `password`, or `api_key`")),
    ("ssl", Elsewhere),
    ("ssl_enabled", Elsewhere),
    ("cacert", Elsewhere),
    ("ssl_certificate_authorities", Elsewhere),
    ("ssl_certificate_verification", Unless(&["true"], CERTIFICATE)),
    ("ssl_verification_mode", Unless(&["full"], CERTIFICATE)),
    ("ca_trusted_fingerprint", Lost("write the authority to `tls.ca`")),
    ("ssl_certificate", Elsewhere),
    ("ssl_key", Elsewhere),
    ("ssl_keystore_path", Lost(CLIENT)),
    ("ssl_keystore_password", Lost(CLIENT)),
    ("keystore", Lost(CLIENT)),
    ("keystore_password", Lost(CLIENT)),
    ("truststore", Lost("write the authorities to a PEM file, and that to `tls.ca`")),
    ("truststore_password", Lost("a PEM file needs none")),
    ("ssl_truststore_path", Lost("write the authorities to a PEM file, and that to `tls.ca`")),
    ("ssl_truststore_password", Lost("a PEM file needs none")),
    ("ssl_supported_protocols", Ignored),
    ("ssl_cipher_suites", Ignored),
    ("pipeline", Lost("no ingest pipeline is named in requests; set `index.default_pipeline` of the index")),
    ("routing", Lost("a document is routed by its id")),
    ("parent", Lost("there are no joins")),
    ("join_field", Lost("there are no joins")),
    ("version", Lost(VERSIONS)),
    ("version_type", Lost(VERSIONS)),
    ("manage_template", Unless(&["false"], TEMPLATE)),
    ("template", Lost(TEMPLATE)),
    ("template_name", Lost(TEMPLATE)),
    ("template_overwrite", Unless(&["false"], "a template that onceline did not make is left alone")),
    ("template_api", Ignored),
    ("legacy_template", Ignored),
    ("ilm_enabled", Unless(&["false", "auto"], ROLLS)),
    ("ilm_rollover_alias", Lost(ROLLS)),
    ("ilm_pattern", Lost(ROLLS)),
    ("ilm_policy", Lost(ROLLS)),
    ("data_stream", Elsewhere),
    ("data_stream_type", Elsewhere),
    ("data_stream_dataset", Elsewhere),
    ("data_stream_namespace", Elsewhere),
    ("data_stream_auto_routing", Unless(&["false"], "the index name is made of the fields that it names")),
    ("data_stream_sync_fields", Unless(&["false"], "no fields are added")),
    ("retry_initial_interval", As("retry_wait_min", Duration)),
    ("retry_max_interval", As("retry_wait_max", Duration)),
    ("timeout", As("request_timeout", Duration)),
    ("retry_on_conflict", Ignored),
    ("http_compression", Elsewhere),
    ("compression_level", Elsewhere),
    ("sniffing", Unless(&["false"], "only the `hosts` that are named are asked")),
    ("sniffing_delay", Ignored),
    ("sniffing_path", Ignored),
    ("healthcheck_path", Ignored),
    ("resurrect_delay", Ignored),
    ("pool_max", Ignored),
    ("pool_max_per_route", Ignored),
    ("validate_after_inactivity", Ignored),
    ("path", Lost("an engine answers at the root of its address")),
    ("bulk_path", Lost("an engine answers at `/_bulk`")),
    ("custom_headers", Lost("requests have no headers of yours")),
    ("proxy", Lost("engines are asked without a proxy")),
    ("parameters", Lost("requests have no parameters of yours")),
    ("doc_as_upsert", Unless(&["false"], UPDATES)),
    ("upsert", Lost(UPDATES)),
    ("script", Lost(UPDATES)),
    ("script_lang", Ignored),
    ("script_type", Ignored),
    ("script_var_name", Ignored),
    ("scripted_upsert", Unless(&["false"], UPDATES)),
    ("document_type", Ignored),
    ("default_server_major_version", Ignored),
    ("failure_type_logging_whitelist", Ignored),
    ("silence_errors_in_log", Ignored),
    ("dlq_custom_codes", Ignored),
    ("dlq_on_failed_indexname_interpolation", Ignored),
    ("target_bulk_bytes", Ignored),
    ("ecs_compatibility", Ignored),
    ("codec", Ignored),
    ("workers", Ignored),
    ("flush_size", Ignored),
    ("idle_flush_time", Ignored),
];

const SECOND: &str = "a pipeline has one output";
/// The field of the index, where several outputs are one.
const INDEX: &str = "index";

/// With none of these an output of Logstash 8 writes into a data stream by itself.
const NO_STREAM: &[&str] = &[
    "index",
    "document_id",
    "document_type",
    "version",
    "version_type",
    "template",
    "template_name",
    "template_overwrite",
    "ilm_enabled",
    "ilm_rollover_alias",
    "ilm_pattern",
    "ilm_policy",
    "doc_as_upsert",
    "upsert",
    "script",
    "parent",
    "join_field",
];

/// An output with what it stands under.
pub struct Found<'a> {
    pub plugin: &'a Plugin,
    when: Vec<Expr>,
    /// The arms around it: which `if`, and which arm of it.
    arms: Vec<(usize, usize)>,
}

/// What the outputs leave to `[index]` and `[id]`, and the filters that go before them.
#[derive(Default)]
pub struct Chosen<'a> {
    pub plugin: Option<&'a Plugin>,
    pub block: Block,
    pub index: String,
    pub document_id: Option<String>,
    pub is_stream: bool,
    /// It delivers to an engine.
    pub is_engine: bool,
    pub steps: Vec<Step>,
    pub others: Vec<Block>,
}

pub fn is_engine(plugin: &Plugin) -> bool {
    matches!(plugin.name.as_str(), "elasticsearch" | "opensearch" | "amazon_es")
}

/// All outputs, in the order written.
pub fn found(nodes: &[Node]) -> Vec<Found<'_>> {
    let mut out = Vec::new();
    collect(nodes, &[], &[], &mut 0, &mut out);
    out
}

fn collect<'a>(
    nodes: &'a [Node],
    when: &[Expr],
    arms: &[(usize, usize)],
    branches: &mut usize,
    out: &mut Vec<Found<'a>>,
) {
    for node in nodes {
        match node {
            Node::Plugin(plugin) => out.push(Found { plugin, when: when.to_vec(), arms: arms.to_vec() }),
            Node::Branch(branch) => {
                *branches += 1;
                let number = *branches;
                let conditions: Vec<&Expr> =
                    branch.arms.iter().filter_map(|arm| arm.condition.as_ref()).map(|c| &c.expr).collect();
                for (at, arm) in branch.arms.iter().enumerate() {
                    let when = [when, &guard(&conditions, at)].concat();
                    collect(&arm.body, &when, &[arms, &[(number, at)]].concat(), branches, out);
                }
            }
        }
    }
}

/// Which of the outputs is kept; those that go with it come after it.
pub fn choose<'a, 'b>(found: &'b [Found<'a>], wanted: Option<usize>) -> Vec<&'b Found<'a>> {
    if let Some(number) = wanted {
        return found.get(number - 1).into_iter().collect();
    }
    let engines: Vec<&Found<'_>> = found.iter().filter(|found| is_engine(found.plugin)).collect();
    let is_apart = |a: &Found<'_>, b: &Found<'_>| {
        let parting = a.arms.iter().zip(&b.arms).find(|(a, b)| a != b);
        parting.is_some_and(|(a, b)| a.0 == b.0)
    };
    let all_apart = engines.iter().enumerate().all(|(at, a)| engines[at + 1..].iter().all(|b| is_apart(a, b)));
    let rest = |found: &Found<'_>| -> Vec<(String, Value)> {
        let settings = found.plugin.settings.iter().filter(|s| s.name != "index" && s.name != "id");
        let mut rest: Vec<(String, Value)> = settings.map(|s| (s.name.clone(), s.value.clone())).collect();
        rest.sort_by(|a, b| a.0.cmp(&b.0));
        rest
    };
    let has_index = |found: &&&Found<'_>| found.plugin.text("index").is_some();
    let is_one = engines.len() > 1 && all_apart && engines.iter().all(|e| has_index(&e));
    if is_one && engines.windows(2).all(|pair| rest(pair[0]) == rest(pair[1])) {
        return engines;
    }
    engines.into_iter().next().or(found.first()).into_iter().collect()
}

impl Mapping<'_> {
    pub fn outputs<'b>(&mut self, found: &'b [Found<'b>]) -> Chosen<'b> {
        let kept = choose(found, self.options.output);
        let Some(first) = kept.first().copied() else {
            let block = Block::new("[output]").comment("the source has no output").text("type", "stdout");
            return Chosen { block, index: "logstash".to_string(), ..Chosen::default() };
        };
        let mut chosen = self.output(first.plugin);
        chosen.plugin = Some(first.plugin);
        chosen.block.comments = [self.heading(first.plugin), std::mem::take(&mut chosen.block.comments)].concat();
        if kept.len() > 1 {
            chosen.steps = self.indices(&kept);
            chosen.index = format!("%{{{}}}", self.own_field(INDEX));
        } else if let Some(only) = Expr::all(first.when.clone()) {
            let line = first.plugin.place.line(self.sources);
            let block = Block::new("[[filter]]").comment(format!("{line}: other events do not go to this output"));
            let step = Step::new(block.text("type", "drop"), Writes::default());
            match only.written() {
                Some(_) => chosen.steps.push(Step { when: vec![only.negated()], ..step }),
                None => {
                    self.lost(first.plugin.place, "if", "the condition around this output cannot be said in `when`")
                }
            }
        }
        let places: Vec<_> = kept.iter().map(|found| found.plugin.place).collect();
        for (number, found) in found.iter().enumerate() {
            if places.contains(&found.plugin.place) {
                continue;
            }
            chosen.others.push(self.other(found.plugin, number + 1));
        }
        chosen
    }

    fn other(&mut self, plugin: &Plugin, number: usize) -> Block {
        if plugin.name == "stdout" {
            let why = "is for looking: `onceline explain` shows what becomes of events";
            self.note(plugin.place, &plugin.name, why);
            return self.kept_quietly(plugin, why);
        }
        let why = match is_engine(plugin) || matches!(plugin.name.as_str(), "file" | "null") {
            true => format!("{SECOND}: `--output {number}` writes the pipeline file of this one"),
            false => format!("onceline has no output `{}`", plugin.name),
        };
        self.kept(plugin, &why)
    }

    /// The index of each output that goes into one, as a field.
    fn indices(&mut self, kept: &[&Found<'_>]) -> Vec<Step> {
        let (mut steps, field) = (Vec::new(), self.own_field(INDEX));
        for found in kept {
            let index = calendar(&found.plugin.text("index").unwrap_or_default());
            let line = found.plugin.place.line(self.sources);
            let mut block = Block::new("[[filter]]").comment(format!("{line}: the index of this output"));
            block.add("type", Toml::Text("mutate".to_string()));
            let index = ours(&index).unwrap_or(index);
            block.add("add_field", Toml::Table(vec![(field.clone(), Toml::Text(index))]));
            steps.push(Step { block, when: found.when.clone(), writes: Writes::default() });
        }
        let block = Block::new("[[filter]]").comment("no output takes the others").text("type", "drop");
        let without = Expr::Not(Box::new(Expr::Field(field)));
        steps.push(Step { block, when: vec![without], writes: Writes::default() });
        steps
    }

    fn output(&mut self, plugin: &Plugin) -> Chosen<'static> {
        let index = "logstash".to_string();
        match plugin.name.as_str() {
            _ if is_engine(plugin) => self.engine(plugin),
            "stdout" => Chosen { block: Block::new("[output]").text("type", "stdout"), index, ..Chosen::default() },
            "null" => {
                let block = Block::new("[output]").text("type", "ndjson").text("path", "/dev/null");
                Chosen { block, index, ..Chosen::default() }
            }
            "file" => Chosen { block: self.file(plugin), index, ..Chosen::default() },
            name => {
                let why = format!("onceline has no output `{name}`");
                let mut block = Block::new("[output]").text("type", "stdout");
                block.comments = self.kept(plugin, &why).comments;
                Chosen { block, index, ..Chosen::default() }
            }
        }
    }

    fn file(&mut self, plugin: &Plugin) -> Block {
        const FILE: Rules = &[
            ("path", Elsewhere),
            ("codec", Ignored),
            ("flush_interval", Ignored),
            ("write_behavior", Ignored),
            ("create_if_deleted", Ignored),
            ("stale_cleanup_interval", Ignored),
            ("gzip", Unless(&["false"], "files are written as they are")),
            ("dir_mode", Lost("the umask decides")),
            ("file_mode", Lost("the umask decides")),
        ];
        let path = plugin.text("path").filter(|path| !path.contains("%{")).and_then(|path| ours(&path).ok());
        let mut block = match path {
            Some(path) => {
                let why = "a line with action, index and id stands before each event, as `_bulk` wants it";
                self.note(plugin.place, "file", why);
                Block::new("[output]").comment(why).text("type", "ndjson").text("path", path)
            }
            None => {
                let why = "a file's name does not follow from events: redirect standard output";
                self.lost(plugin.place_of("path"), "`path`", why);
                Block::new("[output]").comment(why).text("type", "stdout")
            }
        };
        self.settings(plugin, &[FILE], &mut block);
        if self.accepted(plugin, &mut block).is_err() {
            block = Block::new("[output]").text("type", "stdout");
        }
        block
    }

    fn engine(&mut self, plugin: &Plugin) -> Chosen<'static> {
        let mut block = Block::new("[output]").text("type", "elasticsearch");
        let is_https = plugin.flag("ssl") || plugin.flag("ssl_enabled");
        let hosts: Vec<String> = plugin
            .texts("hosts")
            .iter()
            .flat_map(|hosts| hosts.split_whitespace())
            .map(|host| url(host, is_https))
            .collect();
        let hosts: Vec<Toml> = hosts.iter().filter_map(|host| ours(host).ok()).map(Toml::Text).collect();
        if !hosts.is_empty() {
            block.add("hosts", Toml::List(hosts));
        }
        let is_stream = plugin.flag("data_stream") || self.is_stream_by_default(plugin);
        match plugin.text("action").as_deref() {
            _ if is_stream => block.add("action", Toml::Text("create".to_string())),
            None | Some("index") => {}
            Some("create") => block.add("action", Toml::Text("create".to_string())),
            Some(_) => {
                let why = "only `index` and `create` are known; this pipeline writes whole documents";
                self.lost(plugin.place_of("action"), "`action`", why);
                block.remark(format!("`action` has no counterpart: {why}"));
            }
        }
        match (plugin.text("user"), plugin.text("password")) {
            (Some(user), Some(password)) => {
                for (key, value) in [("user", user), ("password", password)] {
                    block.add(key, Toml::Text(ours(&value).unwrap_or_else(|_| "${PASSWORD}".to_string())));
                }
            }
            (None, None) => {}
            _ => self.lost(plugin.place, &plugin.name, "`user` and `password` are given together or not at all"),
        }
        let ca = plugin.text("cacert").or(plugin.texts("ssl_certificate_authorities").into_iter().next());
        let files = [("ca", ca), ("certificate", plugin.text("ssl_certificate")), ("key", plugin.text("ssl_key"))];
        let files = files.into_iter().filter_map(|(key, file)| Some((key.to_string(), Toml::Text(ours(&file?).ok()?))));
        let files: Vec<(String, Toml)> = files.collect();
        if !files.is_empty() {
            block.add("tls", Toml::Table(files));
        }
        let level = plugin.text("compression_level").and_then(|level| level.parse().ok()).unwrap_or(0);
        if plugin.flag("http_compression") || level > 0 {
            block.add("compression", Toml::Text("gzip".to_string()));
        }
        self.settings(plugin, &[ENGINE], &mut block);
        if let Err(why) = self.accepted(plugin, &mut block) {
            self.lost(plugin.place, &plugin.name, &why);
            block = Block::new("[output]").comment(format!("its settings are not taken here: {why}"));
            block.add("type", Toml::Text("elasticsearch".to_string()));
        }
        let index = match (is_stream, plugin.text("index")) {
            (true, _) => {
                let why = format!("a data stream: {ROLLS}");
                self.note(plugin.place_of("data_stream"), "`data_stream`", &why);
                let part = |name: &str, default: &str| plugin.text(name).unwrap_or(default.to_string());
                let kind = part("data_stream_type", "logs");
                format!(
                    "{kind}-{}-{}",
                    part("data_stream_dataset", "generic"),
                    part("data_stream_namespace", "default")
                )
            }
            (false, Some(index)) => calendar(&index),
            (false, None) if self.is_ecs(plugin) => "ecs-logstash-%{+yyyy.MM.dd}".to_string(),
            (false, None) => "logstash-%{+yyyy.MM.dd}".to_string(),
        };
        let document_id = plugin.text("document_id");
        Chosen { block, index, document_id, is_stream, is_engine: true, ..Chosen::default() }
    }
}

impl Mapping<'_> {
    fn is_ecs(&self, plugin: &Plugin) -> bool {
        plugin.text("ecs_compatibility").map_or(self.options.is_ecs(), |mode| mode != "disabled")
    }

    /// Logstash 8 and later write into a data stream where nothing in the configuration is against it.
    fn is_stream_by_default(&self, plugin: &Plugin) -> bool {
        let is_against = |name: &str| {
            NO_STREAM.contains(&name)
                || name == "action" && plugin.text(name).as_deref() != Some("create")
                || name == "manage_template" && plugin.flag(name)
                || name == "data_stream" && !plugin.flag(name)
        };
        plugin.name == "elasticsearch"
            && self.options.is_ecs()
            && self.is_ecs(plugin)
            && !plugin.settings.iter().any(|setting| is_against(&setting.name))
    }
}

/// An address with its scheme and port, which Logstash adds by itself.
fn url(host: &str, is_https: bool) -> String {
    let scheme = if is_https { "https" } else { "http" };
    let host = host.trim_end_matches('/');
    let is_variable = host.starts_with("${") && host.find('}') == Some(host.len() - 1);
    if is_variable && (host.contains("://") || !host.contains(':')) {
        return host.to_string();
    }
    let (scheme, rest) = host.split_once("://").filter(|_| !host.starts_with("${")).unwrap_or((scheme, host));
    let authority = rest.split('/').next().unwrap_or(rest);
    let has_port = is_variable
        || authority.rsplit_once(':').is_some_and(|(_, port)| {
            port.contains('}') || !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
        });
    let (authority, path) = rest.split_at(authority.len());
    format!("{scheme}://{authority}{}{path}", if has_port { "" } else { ":9200" })
}

/// `yyyy` for `YYYY`, which is the same in Joda's patterns and the year of the week in Java's.
pub fn calendar(template: &str) -> String {
    let (mut out, mut rest) = (String::new(), template);
    while let Some(at) = rest.find("%{+") {
        let end = rest[at..].find('}').map_or(rest.len(), |end| at + end);
        let pattern = &rest[at..end];
        out += &rest[..at];
        out += &if pattern.contains(['w', 'x', '\'']) { pattern.to_string() } else { pattern.replace('Y', "y") };
        rest = &rest[end..];
    }
    out += rest;
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (host, want) in [
            ("es", "http://es:9200"),
            ("es:9201", "http://es:9201"),
            ("https://es", "https://es:9200"),
            ("http://u:p@es:80/x/", "http://u:p@es:80/x"),
            ("https://es/x", "https://es:9200/x"),
            ("${ES}", "${ES}"),
            ("${ES:http://es:9200}", "${ES:http://es:9200}"),
            ("${ES:es:9200}", "http://${ES:es:9200}"),
            ("${ES}:9200", "http://${ES}:9200"),
        ] {
            assert_eq!(url(host, false), want, "{host}");
        }
        assert_eq!(url("es", true), "https://es:9200");
    }

    #[test]
    fn years() {
        assert_eq!(calendar("a-%{+YYYY.MM}-YYYY-%{b}"), "a-%{+yyyy.MM}-YYYY-%{b}");
        assert_eq!(calendar("%{+xxxx.ww}%{+YYYY.ww}"), "%{+xxxx.ww}%{+YYYY.ww}");
    }
}
