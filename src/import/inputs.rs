//! Inputs and their codecs: a table of what has a counterpart, and how, and why the rest has none.

use super::Mapping;
use super::effects::Writes;
use super::expression::{Expr, Operand};
use super::flow::Step;
use super::options::Kind::{Bool, Bytes, Duration, Number, Table, Text, Texts};
use super::options::Rule::{As, Elsewhere, Ignored, Lost, Note, Same, Unless};
use super::options::{Rules, ours, value};
use super::probe;
use super::toml::{Block, Toml};
use super::tree::{Node, Plugin, Value, each_plugin};

/// Inputs that have a counterpart: Logstash's name, ours, and what becomes of the settings.
const INPUTS: &[(&str, &str, Rules)] = &[
    ("stdin", "stdin", &[]),
    (
        "file",
        "file",
        &[
            ("path", As("paths", Texts)),
            ("exclude", Same(Texts)),
            ("start_position", Elsewhere),
            ("mode", Elsewhere),
            (
                "sincedb_path",
                Note("positions are kept in the state folder; `onceline run --from-start` reads all again"),
            ),
            ("sincedb_write_interval", Ignored),
            ("sincedb_clean_after", Ignored),
            ("stat_interval", As("poll_interval", Duration)),
            ("discover_interval", Ignored),
            ("close_older", As("close_after", Duration)),
            ("max_open_files", As("open_files_max", Number)),
            ("file_chunk_size", Ignored),
            ("file_chunk_count", Ignored),
            ("file_sort_by", Ignored),
            ("file_sort_direction", Ignored),
            ("delimiter", Unless(&["\n", "\\n"], "a record ends at a line end")),
            ("ignore_older", Lost("files are read however old they are; `exclude` leaves some out by name")),
            ("exit_after_read", Note("`onceline run --once` reads the files to their ends and stops")),
            ("check_archive_validity", Ignored),
            ("file_completed_action", Unless(&["log"], "files are never deleted")),
            ("file_completed_log_path", Lost("no list of files read is kept; `onceline positions show` prints it")),
        ],
    ),
];

/// What every input has.
const COMMON: Rules = &[
    ("add_field", Elsewhere),
    ("tags", Elsewhere),
    ("type", Elsewhere),
    ("codec", Elsewhere),
    ("ecs_compatibility", Ignored),
    ("threads", Ignored),
];

const NOT_YET: &str = "onceline has no such input yet";
const PUSHED: &str = "nothing is received over the network: let the sender write files, or pipe its events in";

/// Why an input has no counterpart.
const REASONS: &[(&str, &str)] = &[
    ("azure_event_hubs", NOT_YET),
    ("beats", PUSHED),
    ("elastic_agent", PUSHED),
    ("exec", "no program is run: pipe its output into `onceline run`"),
    ("gelf", PUSHED),
    ("generator", "for trying: pipe lines into `onceline explain`"),
    ("heartbeat", "no events are made here"),
    ("http", PUSHED),
    ("jdbc", NOT_YET),
    ("kafka", NOT_YET),
    ("lumberjack", PUSHED),
    ("pipe", "no program is run: pipe its output into `onceline run`"),
    ("pipeline", "pipelines are not chained: put the two into one file"),
    ("redis", NOT_YET),
    ("syslog", PUSHED),
    ("tcp", PUSHED),
    ("udp", PUSHED),
    ("unix", PUSHED),
];

/// Codecs that have a counterpart: Logstash's name, ours, and what becomes of the settings.
const CODECS: &[(&str, &str, Rules)] = &[
    ("plain", "plain", &[("charset", Same(Text)), ("format", Ignored)]),
    (
        "line",
        "plain",
        &[
            ("charset", Same(Text)),
            ("format", Ignored),
            ("delimiter", Unless(&["\n", "\\n"], "a record ends at a line end")),
        ],
    ),
    ("json", "json", &[("charset", Unless(&["UTF-8"], "JSON is UTF-8")), ("target", Same(Text))]),
    (
        "json_lines",
        "json",
        &[
            ("charset", Unless(&["UTF-8"], "JSON is UTF-8")),
            ("target", Same(Text)),
            ("delimiter", Unless(&["\n", "\\n"], "a record ends at a line end")),
            ("decode_size_limit_bytes", Lost("`line_bytes_max` of the input bounds a line")),
        ],
    ),
    (
        "multiline",
        "multiline",
        &[
            ("pattern", Same(Text)),
            ("what", Same(Text)),
            ("negate", Same(Bool)),
            ("charset", Same(Text)),
            ("multiline_tag", Same(Text)),
            ("max_lines", Same(Number)),
            ("max_bytes", Same(Bytes)),
            ("auto_flush_interval", Same(Duration)),
            ("patterns_dir", Same(Texts)),
            ("ecs_compatibility", Same(Text)),
        ],
    ),
    (
        "csv",
        "csv",
        &[
            ("columns", Same(Texts)),
            ("separator", Same(Text)),
            ("quote_char", Same(Text)),
            ("charset", Same(Text)),
            ("autodetect_column_names", Same(Bool)),
            ("autogenerate_column_names", Same(Bool)),
            ("skip_empty_columns", Same(Bool)),
            ("skip_empty_rows", Same(Bool)),
            ("skip_header", Same(Bool)),
            ("convert", Same(Table)),
            ("target", Same(Text)),
        ],
    ),
    (
        "cef",
        "cef",
        &[
            ("raw_data_field", Same(Text)),
            ("device", Same(Text)),
            ("default_timezone", Same(Text)),
            ("locale", Same(Text)),
            ("ecs_compatibility", Same(Text)),
            ("delimiter", Unless(&["\n", "\\n", "\r\n", "\\r\\n"], "a record ends at a line end")),
            ("reverse_mapping", Ignored),
            ("vendor", Ignored),
            ("product", Ignored),
            ("version", Ignored),
            ("signature", Ignored),
            ("name", Ignored),
            ("severity", Ignored),
            ("fields", Ignored),
        ],
    ),
];

/// The settings by which an input marks its events.
const MARKS: [&str; 3] = ["type", "tags", "add_field"];

impl Mapping<'_> {
    /// The inputs, and the filters that mark their events.
    pub fn inputs(&mut self, nodes: &[Node]) -> (Vec<Block>, Vec<Step>) {
        let mut plugins: Vec<&Plugin> = Vec::new();
        each_plugin(nodes, &mut |plugin| plugins.push(plugin));
        if let Some(Node::Branch(branch)) = nodes.iter().find(|node| matches!(node, Node::Branch(_))) {
            let place = branch.arms.first().map_or_else(Default::default, |arm| arm.place);
            self.lost(place, "if", "inputs stand under no condition");
        }
        let (mut blocks, mut mapped) = (Vec::new(), Vec::new());
        for plugin in plugins.iter().copied() {
            let is_second_stdin = plugin.name == "stdin" && mapped.iter().any(|other: &&Plugin| other.name == "stdin");
            let input = match is_second_stdin {
                true => Err("standard input is read by one input only".to_string()),
                false => self.input(plugin),
            };
            match input {
                Ok(block) => {
                    blocks.push(block);
                    mapped.push(plugin);
                }
                Err(why) => blocks.push(self.kept(plugin, &why)),
            }
        }
        if mapped.is_empty() {
            let why = "no input has a counterpart: pipe the events in";
            let mut block = Block::new("[[input]]").comment(why).text("type", "stdin");
            // what is piped in is as it was sent
            if let Some((plugin, codec)) = plugins.iter().find_map(|plugin| Some((*plugin, plugin.get("codec")?))) {
                self.codec(plugin, codec, &mut block);
            }
            blocks.push(block);
            mapped.extend(plugins.first().filter(|_| plugins.len() == 1));
        }
        let steps = self.marks(&mapped);
        (blocks, steps)
    }

    fn input(&mut self, plugin: &Plugin) -> Result<Block, String> {
        let Some((_, name, rules)) = INPUTS.iter().find(|(name, ..)| *name == plugin.name) else {
            let known = REASONS.iter().find(|(name, _)| *name == plugin.name);
            return Err(known.map_or(format!("onceline has no input `{}`", plugin.name), |(_, why)| why.to_string()));
        };
        let remarks = self.remarks.len();
        let mut block = Block::new("[[input]]").text("type", *name);
        block.comments = self.heading(plugin);
        self.settings(plugin, &[rules, COMMON], &mut block);
        if *name == "file" {
            let is_new_only = plugin.text("mode").is_none_or(|mode| mode == "tail")
                && plugin.text("start_position").is_none_or(|from| from == "end");
            if is_new_only {
                block.add("read_from", Toml::Text("end".to_string()));
            }
        }
        self.accepted(plugin, &mut block).inspect_err(|_| self.remarks.truncate(remarks))?;
        if let Some(codec) = plugin.get("codec") {
            self.codec(plugin, codec, &mut block);
        }
        if self.mentions_file_path {
            block.add("add_location", Toml::Raw("true".to_string()));
        }
        if !probe::problems(&block.render()).is_empty() {
            block.remove("add_location");
        }
        Ok(block)
    }

    fn codec(&mut self, plugin: &Plugin, codec: &Value, block: &mut Block) {
        let own = match codec {
            Value::Plugin(codec) => (**codec).clone(),
            other => {
                let place = plugin.place_of("codec");
                let name = other.scalar().unwrap_or_default();
                let (settings, comments, inner_comments) = Default::default();
                Plugin { place, end: place.at, name, settings, comments, inner_comments }
            }
        };
        let known = CODECS.iter().find(|(name, ..)| *name == own.name);
        let mut table = Block::default();
        let name = known.map_or(own.name.as_str(), |(_, name, _)| name);
        table.add("type", Toml::Text(name.to_string()));
        let quiet: Rules = &[("ecs_compatibility", Ignored)];
        self.settings(&own, &[known.map_or(&[], |(.., rules)| *rules), quiet], &mut table);
        if let Some(ecs) = self.options.ecs_compatibility().filter(|_| matches!(name, "multiline" | "cef"))
            && !table.has("ecs_compatibility")
        {
            table.add("ecs_compatibility", Toml::Text(ecs.to_string()));
        }
        if name == "json" && self.mentions_bad_json {
            table.add("on_error", Toml::Text("tag".to_string()));
        }
        let mut entries = Vec::new();
        for line in table.lines {
            match line {
                super::toml::Line::Entry(key, value) => entries.push((key, value)),
                super::toml::Line::Comment(text) => block.remark(text),
            }
        }
        if entries.len() == 1 && name == "plain" {
            return;
        }
        let whole = |entries: &[(String, Toml)]| match entries {
            [(_, name)] => name.clone(),
            entries => Toml::Table(entries.to_vec()),
        };
        loop {
            let probe = Block { lines: Vec::new(), ..Block::new("[[input]]") }.text("type", "stdin");
            let mut probed = probe;
            probed.add("codec", whole(&entries));
            let found = probe::problems(&probed.render());
            if found.is_empty() {
                block.add("codec", whole(&entries));
                return;
            }
            let before = entries.len();
            entries.retain(|(key, _)| !found.unknown_keys.contains(key));
            if entries.len() == before {
                let why = format!("onceline has no codec `{}`, so each line is an event", own.name);
                let why =
                    if found.other.iter().any(|m| m.contains("unknown value")) { why } else { found.other.join("; ") };
                block.comments.extend(self.kept_quietly(&own, &format!("has no counterpart: {why}")).comments);
                self.lost(own.place, &format!("codec {}", own.name), &why);
                return;
            }
            for key in found.unknown_keys {
                block.remark(format!("codec `{name}`: `{key}` has no counterpart"));
                self.lost(
                    own.place_of(&key),
                    &format!("`{key}`"),
                    &format!("the codec `{name}` has no such option here"),
                );
            }
        }
    }

    /// `type`, `tags` and `add_field` of inputs, and the `path` that the file input sets, as filters.
    fn marks(&mut self, inputs: &[&Plugin]) -> Vec<Step> {
        let mut steps = Vec::new();
        let marks = |plugin: &Plugin| MARKS.map(|name| plugin.get(name).cloned());
        let is_same = inputs.windows(2).all(|pair| marks(pair[0]) == marks(pair[1]));
        for (number, plugin) in inputs.iter().enumerate() {
            if is_same && number > 0 {
                break;
            }
            let origin = if is_same { Vec::new() } else { origin(plugin) };
            if let Some(kind) = plugin.get("type") {
                // a line of text brings none
                let is_text = plugin.get("codec").and_then(Value::scalar).is_none_or(|codec| codec == "plain");
                let not_yet = Expr::Not(Box::new(Expr::Field("[type]".to_string())));
                let when = [origin.clone(), if is_text { Vec::new() } else { vec![not_yet] }].concat();
                self.mark(plugin, "type", kind, when, &mut steps);
            }
            for name in ["add_field", "tags"] {
                if let Some(value) = plugin.get(name) {
                    self.mark(plugin, name, value, origin.clone(), &mut steps);
                }
            }
        }
        let file = inputs.iter().find(|plugin| plugin.name == "file");
        if let Some(plugin) = file.filter(|_| self.mentions_path) {
            let mut block = Block::new("[[filter]]").text("type", "mutate");
            block.comments.push(format!("{}: Logstash's file input sets it", plugin.place.line(self.sources)));
            let path = Toml::Text("%{[@metadata][file][path]}".to_string());
            block.add("add_field", Toml::Table(vec![("path".to_string(), path)]));
            let is_there = Expr::Field("[@metadata][file][path]".to_string());
            steps.push(Step { block, when: vec![is_there], writes: Writes::default() });
        }
        steps
    }

    fn mark(&mut self, plugin: &Plugin, name: &str, from: &Value, when: Vec<Expr>, steps: &mut Vec<Step>) {
        let place = plugin.place_of(name);
        let made = match name {
            "type" => from
                .scalar()
                .ok_or("a text is wanted".to_string())
                .and_then(|kind| ours(&kind))
                .map(|kind| ("add_field", Toml::Table(vec![("type".to_string(), Toml::Text(kind))]))),
            "tags" => value(Texts, from).map(|tags| ("add_tag", tags)),
            _ => value(super::options::Kind::Table, from).map(|fields| ("add_field", fields)),
        };
        let mut block = Block::new("[[filter]]").text("type", "mutate");
        block.comments.push(format!("{}: `{name}` of the input", place.line(self.sources)));
        match made {
            Ok((key, value)) => block.add(key, value),
            Err(why) => return self.lost(place, &format!("`{name}`"), &why),
        }
        let found = probe::problems(&block.render());
        if found.is_empty() {
            steps.push(Step { block, when, writes: Writes::default() });
        } else {
            self.lost(place, &format!("`{name}`"), &found.other.join("; "));
        }
    }
}

/// What tells the events of an input from those of others.
fn origin(plugin: &Plugin) -> Vec<Expr> {
    let path = "[@metadata][file][path]".to_string();
    if plugin.name != "file" {
        return vec![Expr::Not(Box::new(Expr::Field(path)))];
    }
    let patterns: Vec<String> = plugin.texts("path").iter().map(|path| pattern(path)).collect();
    let found = patterns.join("|");
    let pattern = if patterns.len() == 1 { format!("^{found}$") } else { format!("^({found})$") };
    vec![Expr::Match { found: true, left: Operand::Field(path), pattern }]
}

/// A pattern of paths as one of texts.
fn pattern(path: &str) -> String {
    let mut out = String::new();
    let mut chars = path.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '*' if chars.peek() == Some(&'*') => {
                chars.next();
                chars.next_if_eq(&'/');
                out += "(.*/)?";
            }
            '*' => out += "[^/]*",
            '?' => out += "[^/]",
            '[' | ']' | '-' => out.push(c),
            c if c.is_alphanumeric() || matches!(c, '/' | '_' | ' ') => out.push(c),
            c => out.extend(['\\', c]),
        }
    }
    out
}
