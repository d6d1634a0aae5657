//! `onceline import logstash`: golden imports, Logstash's own cases of its language, ids against those computed here,
//! and configurations made up by chance, whose import must always be a good pipeline file. `UPDATE=1` rewrites the
//! golden files.

mod mmdb;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use onceline::batch::{Batch, Span};
use onceline::condition::Condition;
use onceline::config;
use onceline::filter::{self, Clock, Step};
use onceline::import::expression::{Expr, Operand};
use onceline::import::tree::{Branch, Node, Number, Plugin, Value as Held};
use onceline::import::{Import, Options, Source, logstash, parse};
use onceline::json::Scanner;
use onceline::pipeline::read;
use onceline::time::Time;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn source(text: &str) -> [Source; 1] {
    [Source { name: "t.conf".to_string(), text: text.to_string() }]
}

fn import(text: &str) -> Import {
    let sources = source(text);
    logstash(&sources, &Options::default()).unwrap_or_else(|wrong| panic!("{}", wrong.render(&sources)))
}

/// What is wrong with a pipeline file; variables without a default have a text.
fn problems(toml: &str) -> String {
    let env = |name: &str| toml.contains(&format!("${{{name}}}")).then(|| "https://127.0.0.1:9200".to_string());
    let (_, report) = read::read(Path::new("imported.toml"), toml.as_bytes(), &read::Options::default(), &env);
    // what the configuration chose is warned of, as anywhere
    if report.has_errors() { report.render(false) } else { String::new() }
}

/// The files of `tests/import`; a first line `# --flag value` gives the command line.
fn golden() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(top().join("tests/import")).unwrap();
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "conf"));
    files.sort();
    files
}

#[test]
fn imports_are_as_committed() {
    let mut differing = Vec::new();
    for file in golden() {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let flags = text.lines().next().and_then(|line| line.strip_prefix("# --"));
        let flags = flags.map(|flags| format!("--{flags}")).unwrap_or_default();
        let run = Command::new(env!("CARGO_BIN_EXE_onceline"))
            .args(["import", "logstash"])
            .args(flags.split_whitespace())
            .arg(&file)
            .output()
            .unwrap();
        let toml = String::from_utf8(run.stdout).unwrap();
        let said = format!("{}exit status {}\n", String::from_utf8(run.stderr).unwrap(), run.status.code().unwrap());
        if run.status.code() != Some(2) {
            assert_eq!(problems(&toml), "", "{name}");
        }
        for (end, got) in [("toml", toml), ("err", said)] {
            let beside = file.with_extension(end);
            if std::env::var_os("UPDATE").is_some() {
                std::fs::write(&beside, &got).unwrap();
            } else if std::fs::read_to_string(&beside).ok() != Some(got) {
                differing.push(format!("{name}: its .{end}"));
            }
        }
    }
    assert!(differing.is_empty(), "not as committed, see `UPDATE=1`: {differing:#?}");
}

/// The ids that an imported pipeline gives to events.
fn ids(toml: &str, lines: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("imported.toml");
    std::fs::write(&path, toml).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_onceline"))
        .args(["explain", path.to_str().unwrap(), "--state", folder.path().to_str().unwrap()])
        .env_remove("FINGERPRINT_KEY")
        .env("PASSWORD", "secret")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    run.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let out = run.wait_with_output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| line["id"].as_str().map_or_else(|| line.to_string(), str::to_string)).collect()
}

fn hmac_md5(key: &str, text: &str) -> String {
    let mut mac = Hmac::<md5::Md5>::new_from_slice(key.as_bytes()).unwrap();
    mac.update(text.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}

fn hmac_sha256(key: &str, text: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
    mac.update(text.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}

/// 2011-04-19T03:44:02Z.
const LINE: &str =
    r#"{"@timestamp":"2011-04-19T03:44:02.250Z","message":"payment – authorised","user":"ann","order":"o-7"}"#;
const SECONDS: &str = "4dad0502";
const MESSAGE: &str = "payment – authorised";

fn check_ids(conf: &str, want: &str) {
    let import = import(conf);
    assert_eq!(problems(&import.toml), "", "{}", import.toml);
    assert_eq!(ids(&import.toml, &format!("{LINE}\n")), [want], "{conf}\n{}", import.toml);
}

fn check_golden_ids(name: &str, want: &str) {
    check_ids(&std::fs::read_to_string(top().join("tests/import").join(name)).unwrap(), want);
}

#[test]
fn ids_are_those_of_logstash() {
    let both = format!("{SECONDS}{}", hmac_md5("test", MESSAGE));
    check_golden_ids("fingerprint-tsprefix.conf", &both);
    let sha256 = hmac_sha256("secret", MESSAGE);
    check_golden_ids("fingerprint-sprintf.conf", &format!("{SECONDS}{sha256}"));
    let joined = Sha1::digest(format!("|message|{MESSAGE}|user|ann|"));
    check_golden_ids("fingerprint-several.conf", &hex::encode(joined));
    use base64::Engine;
    let base64 = base64::engine::general_purpose::STANDARD.encode(Sha256::digest("o-7"));
    check_golden_ids("fingerprint-stored.conf", &base64);
}

/// Every spelling of the time in hex, with the fingerprint of `message` by HMAC-MD5.
#[test]
fn the_time_prefix_in_its_spellings() {
    let want = format!("{SECONDS}{}", hmac_md5("test", MESSAGE));
    let fingerprint = r#"fingerprint { target => "[@metadata][fp]" method => "MD5" key => "test" }"#;
    for code in [
        "event.set('[@metadata][ts]', event.get('@timestamp').to_i.to_s(16))",
        "event.set('@metadata[ts]', event.get('@timestamp').to_i.to_s(16))",
        "event.set('@metadata[ts]', event.timestamp.to_i.to_s(16));",
        "event.set('[@metadata][ts]', event.get('[@timestamp]').to_i.to_s 16)",
        "event.set '[@metadata][ts]', (event.get('@timestamp').to_i).to_s(16)",
        "event.set('[@metadata][ts]', '%x' % event.get('@timestamp').to_i)",
        "event.set('[@metadata][ts]', '%08x' % [event.get('@timestamp').to_i])",
        "event.set('[@metadata][ts]', sprintf('%x', event.get('@timestamp').to_i))",
        "event.set('[@metadata][ts]', format('%08x', event.get('@timestamp').time.to_i))",
        "event['[@metadata][ts]'] = event['@timestamp'].to_i.to_s(16)",
        "t = event.get('@timestamp').to_i # seconds\n event.set('[@metadata][ts]', t.to_s(16).rjust(8, '0'))",
        "ts = event.get('@timestamp').to_i.to_s(16)\nevent.set('[@metadata][ts]', ts)",
    ] {
        for quote in ["\"", "'"] {
            let code = if quote == "'" { code.replace('\'', "\"") } else { code.to_string() };
            check_ids(
                &format!(
                    "input {{ stdin {{ codec => json }} }} filter {{ {fingerprint} ruby {{ code => {quote}{code}{quote} }} }}
                     output {{ elasticsearch {{ document_id => \"%{{[@metadata][ts]}}%{{[@metadata][fp]}}\" }} }}"
                ),
                &want,
            );
        }
    }
}

#[test]
fn other_ways_to_an_id() {
    let wrap = |filters: &str, id: &str| {
        format!(
            "input {{ stdin {{ codec => json }} }} filter {{ {filters} }}
             output {{ elasticsearch {{ index => 'i' document_id => '{id}' }} }}"
        )
    };
    let md5 = |text: &str| hex::encode(md5::Md5::digest(text));
    // the whole id by Ruby, with a digest or with a fingerprint
    let set = "event.set('[@metadata][id]', ";
    let time = "event.get('@timestamp').to_i.to_s(16)";
    check_ids(
        &wrap(
            &format!(
                "ruby {{ code => \"require 'digest/md5'; {set}{time} + Digest::MD5.hexdigest(event.get('message')))\" }}"
            ),
            "%{[@metadata][id]}",
        ),
        &format!("{SECONDS}{}", md5(MESSAGE)),
    );
    check_ids(
        &wrap(
            &format!(
                "fingerprint {{ method => 'MD5' target => '[@metadata][fp]' }}
                 ruby {{ code => \"{set}{time} + event.get('[@metadata][fp]'))\" }}"
            ),
            "%{[@metadata][id]}",
        ),
        &format!("{SECONDS}{}", md5(MESSAGE)),
    );
    // one source, joined all the same; and sources that are changed later
    let one =
        "fingerprint { method => 'MD5' concatenate_sources => true source => 'user' target => '[@metadata][fp]' }";
    check_ids(&wrap(one, "%{[@metadata][fp]}"), &md5("|user|ann|"));
    let several = "fingerprint { method => 'MD5' concatenate_sources => true source => ['user', 'message']
                   target => '[@metadata][fp]' } mutate { uppercase => 'user' remove_field => 'message' }";
    check_ids(&wrap(several, "%{[@metadata][fp]}"), &md5(&format!("|message|{MESSAGE}|user|ann|")));
    let changed =
        "fingerprint { method => 'MD5' target => '[@metadata][fp]' } mutate { replace => { 'message' => 'x' } }";
    check_ids(&wrap(changed, "%{[@metadata][fp]}"), &md5(MESSAGE));
    // what stays a template
    check_ids(&wrap("", "%{order}-%{user}"), "o-7-ann");
    check_ids(
        &wrap("fingerprint { method => 'MD5' target => '[@metadata][fp]' }", "%{+%s}-%{[@metadata][fp]}"),
        &format!("1303184642-{}", md5(MESSAGE)),
    );
    check_ids(&wrap("fingerprint { method => 'MURMUR3' target => 'fp' source => 'user' }", "%{fp}"), "891354358");
}

fn number(number: &Number) -> Value {
    match number {
        Number::Integer(digits) => digits.parse::<i64>().map_or_else(|_| json!(digits), |n| json!(n)),
        Number::Float(float) => json!(float),
    }
}

fn held(value: &Held) -> Value {
    match value {
        Held::Text(text) => json!(text),
        Held::Number(n) => number(n),
        Held::List(list) => list.iter().map(held).collect(),
        Held::Hash(entries) => {
            let key = |key: &Held| match held(key) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            Value::Object(entries.iter().map(|(k, v)| (key(k), held(v))).collect())
        }
        Held::Plugin(inner) => plugin(inner),
    }
}

fn plugin(plugin: &Plugin) -> Value {
    let args: Map<String, Value> = plugin.settings.iter().map(|s| (s.name.clone(), held(&s.value))).collect();
    json!({ "plugin": plugin.name, "args": args })
}

fn operand(operand: &Operand) -> Value {
    match operand {
        Operand::Field(field) => json!({ "field": field }),
        Operand::Text(text) => json!({ "value": text }),
        Operand::Number(n) => json!({ "value": number(n) }),
        Operand::List(list) => json!({ "value": list.iter().map(held).collect::<Vec<_>>() }),
        Operand::Pattern(pattern) => json!({ "regex": pattern }),
        Operand::Call(_) => json!({ "call": null }),
    }
}

fn expr(of: &Expr) -> Value {
    let two = |op: &str, l: Value, r: Value| json!({ "op": op, "l": l, "r": r });
    let title = |name: &str| name[..1].to_uppercase() + &name[1..];
    match of {
        Expr::Join(join, left, right) => two(&title(join.name()), expr(left), expr(right)),
        Expr::Not(inner) => json!({ "not": expr(inner) }),
        Expr::Truthy(field) => json!({ "truthy": { "field": field } }),
        Expr::Field(field) => json!({ "field": field }),
        Expr::Constant(constant) => operand(constant),
        Expr::Compare(sign, left, right) => {
            let names = [("==", "Eq"), ("!=", "Neq"), ("<", "Lt"), ("<=", "Lte"), (">", "Gt"), (">=", "Gte")];
            let name = names.iter().find(|(written, _)| *written == sign.name()).unwrap().1;
            two(name, operand(left), operand(right))
        }
        Expr::Match { found, left, pattern } => {
            two(if *found { "RegexEq" } else { "RegexNeq" }, operand(left), json!({ "regex": pattern }))
        }
        Expr::In(item, place) => two("In", operand(item), operand(place)),
    }
}

fn nodes(of: &[Node]) -> Vec<Value> {
    let one = |node: &Node| match node {
        Node::Plugin(inner) => Some(plugin(inner)),
        Node::Branch(Branch { arms }) => {
            let mut rest = Value::Null;
            for arm in arms.iter().rev() {
                let body = nodes(&arm.body);
                let body = if body.is_empty() { Value::Null } else { Value::Array(body) };
                rest = match &arm.condition {
                    None => body,
                    Some(_) if body.is_null() && rest.is_null() => Value::Null,
                    Some(condition) => {
                        let is_last = std::ptr::eq(arm, &arms[0]);
                        let whole = json!({ "if": expr(&condition.expr), "then": body, "else": rest });
                        if is_last { whole } else { json!([whole]) }
                    }
                };
            }
            (!rest.is_null()).then_some(rest)
        }
    };
    of.iter().filter_map(one).collect()
}

fn same(got: &Value, want: &Value) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("got {got}, want {want}")) }
}

fn syntax(case: &Value) -> Result<(), String> {
    let (text, want) = (case["in"].as_str().unwrap(), &case["want"]);
    let escapes = case["config"]["config.support_escapes"] == json!(true);
    match parse(&source(text), escapes) {
        Err(wrong) if want["parse"] == "ok" => Err(wrong.message),
        Err(_) => Ok(()),
        Ok(_) if want["parse"] == "reject" => Err("is accepted".to_string()),
        Ok(config) => {
            let mut tree = Map::new();
            for (name, section) in [("input", &config.inputs), ("filter", &config.filters), ("output", &config.outputs)]
            {
                let section = nodes(section);
                if !section.is_empty() {
                    tree.insert(name.to_string(), section.into());
                }
            }
            same(&tree.into(), &want["tree"])
        }
    }
}

fn batch_of(text: &str) -> Batch {
    let mut entries = Vec::new();
    let text = text.as_bytes().to_vec();
    Scanner::default().scan(&text, true, &mut entries).unwrap();
    let whole = Span::new(0, text.len());
    let mut batch = Batch::new(text, Arc::default());
    batch.push_json(whole, 0, whole, 0, &entries);
    batch
}

fn condition(case: &Value) -> Result<(), String> {
    let condition = Condition::parse(case["config"]["condition"].as_str().unwrap()).map_err(|wrong| wrong.message)?;
    let batch = batch_of(&case["in"].to_string());
    match (condition.holds(&batch.event(0)), &case["want"]) {
        (Err(_), want) if want["raises"] == json!(true) => Ok(()),
        (Err(fault), _) => Err(fault.0),
        (Ok(got), want) => same(&json!(got), &want["condition"]),
    }
}

/// The filter of an import, read with the variables of a case.
fn filter_of(case: &Value, filters: &str) -> Result<Step, String> {
    let import = import(&format!("filter {{ {filters} }}"));
    // what the keystore gave, the environment gives
    let env = |name: &str| {
        let given = ["keystore", "env"].map(|from| case["config"][from][name].as_str());
        given.into_iter().flatten().next().map(str::to_string)
    };
    let (steps, report) = config::read("t.toml", import.toml.as_bytes(), &[], &env, |root| {
        let tables = root.tables("filter").required()?;
        let steps = tables.iter().map(filter::read).collect::<Option<Vec<_>>>();
        root.skip_rest();
        steps
    });
    let step = steps.filter(|_| !report.has_errors()).and_then(|mut steps| steps.pop());
    step.ok_or_else(|| format!("{}{}", import.toml, report.render(false)))
}

/// Variables, through an import and the reader of pipeline files.
fn variable(case: &Value) -> Result<(), String> {
    let want = &case["want"];
    let (settings, names): (String, &[&str]) = match &case["in"] {
        Value::String(text) => match text.strip_prefix("m { x1 => ").and_then(|rest| rest.strip_suffix(" }")) {
            Some(value) => (format!("replace => {{ \"x1\" => {value} }}"), &["x1"]),
            None => (format!("replace => {{ \"value\" => \"{text}\" }}"), &["value"]),
        },
        both => {
            let key = both["h"].as_object().unwrap().keys().next().unwrap();
            (
                format!("add_tag => [\"{}\"] replace => {{ \"{key}\" => \"{key}\" }}", both["a"][0].as_str().unwrap()),
                &[],
            )
        }
    };
    let step = match filter_of(case, &format!("mutate {{ {settings} }}")) {
        Err(report) => return same(&json!(true), &want["config_error"]).map_err(|_| report),
        Ok(step) => step,
    };
    let mut batch = batch_of("{}");
    step.apply(&mut batch, &Clock { now: Time::new(0, 0) });
    let mut out = Vec::new();
    batch.event(0).write_source(&mut out);
    let event: Value = serde_json::from_slice(&out).unwrap();
    for name in names {
        same(&event[name], &want[name])?;
    }
    if names.is_empty() {
        same(&event["tags"], &want["a"])?;
        same(&event[want["h_keys"][0].as_str().unwrap()], &want["h_values"][0])?;
    }
    Ok(())
}

/// A pattern of a condition, and what stands for inputs and outputs that are not there.
fn other(case: &Value) -> Result<(), String> {
    let (text, want) = (case["in"].as_str().unwrap(), &case["want"]);
    if want.get("pattern").is_some() {
        let step = filter_of(case, &format!("{text} {{ mutate {{ add_tag => 'x' }} }}"))?;
        let when = step.when.unwrap();
        return same(&json!(when.as_str().split('/').nth(1)), &want["pattern"]);
    }
    let import = import(text);
    let table: toml::Table = toml::from_str(&import.toml).unwrap();
    same(&json!({ "input": table["input"][0]["type"], "output": table["output"]["type"] }), want)
}

#[test]
fn logstash_conf_syntax_cases() {
    let read = |path: &str| std::fs::read_to_string(top().join(path)).unwrap();
    let differences = read("docs/differences.md");
    let listed: BTreeSet<&str> =
        differences.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
    let (mut report, mut count) = (String::new(), 0);
    for line in read("tests/cases/logstash/conf_syntax.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let id = case["id"].as_str().unwrap();
        let result = if case["want"].get("parse").is_some() {
            syntax(&case)
        } else if case["config"].get("condition").is_some() {
            condition(&case)
        } else if case["config"].get("type").is_some() {
            // the unit test of `import::options` looks at them
            continue;
        } else if case["want"].get("pattern").is_some() || case["config"].get("flag").is_some() {
            other(&case)
        } else {
            variable(&case)
        };
        count += 1;
        match (result, listed.contains(id)) {
            (Err(wrong), false) => report += &format!("{id}: {wrong} ({})\n", case["what"]),
            (Ok(()), true) => report += &format!("{id}: listed as a difference, but none\n"),
            _ => {}
        }
    }
    assert!(report.is_empty(), "\n{report}");
    assert!(count >= 90, "only {count} cases");
}

/// What is read, as JSON, or the place and message of what is wrong.
fn check_syntax(text: &str, want: &str) {
    let got = match parse(&source(text), false) {
        Ok(config) => json!([nodes(&config.inputs), nodes(&config.filters), nodes(&config.outputs)]).to_string(),
        Err(wrong) => wrong.render(&source(text)).lines().next().unwrap().to_string(),
    };
    let json = |text: &str| serde_json::from_str::<Value>(text).ok();
    let is_same = got == want || json(want).is_some_and(|want| json(&got) == Some(want));
    let shown: String = text.chars().take(200).collect();
    assert!(is_same, "{shown}\n got {got}\nwant {want}");
}

#[test]
fn language() {
    let filter = |inner: &str, want: &str| check_syntax(&format!("filter {{ {inner} }}"), want);
    check_syntax("", "[[],[],[]]");
    check_syntax(
        "input{a1{}}filter{}input{b1{}}#end",
        r#"[[{"plugin":"a1","args":{}},{"plugin":"b1","args":{}}],[],[]]"#,
    );
    filter("if { }", r#"[[],[{"plugin":"if","args":{}}],[]]"#);
    filter("else { }", r#"[[],[{"plugin":"else","args":{}}],[]]"#);
    filter("m { a => 010 b => -0 }", r#"[[],[{"plugin":"m","args":{"a":8,"b":0}}],[]]"#);
    filter("m { 'a' => xy \"b\" => xx-y }", "t.conf:1:33: white space is wanted before the next setting");
    filter("m { a => \"b\\\\\" }", "t.conf:1:19: this string is not closed: a backslash before \" keeps it open");
    filter("m { a => { k => 1 } }", "t.conf:1:22: a word has two characters at least: put it in quotes");
    filter(
        "m { a => { \"k\" => 1 # c\n \"l\" => 2 } }",
        "t.conf:2:2: white space and no comment is wanted between the entries of a hash",
    );
    filter("m { a => { \"k\" => 1 # c\n } }", r#"[[],[{"plugin":"m","args":{"a":{"k":1}}}],[]]"#);
    filter("m { a => { \"k\" => x1 { } } }", "t.conf:1:28: no plugin can stand in a hash");
    filter(
        "m { match => { \"k\" => \"1\" } match => { \"k\" => \"2\" \"l\" => \"3\" } }",
        r#"[[],[{"plugin":"m","args":{"match":{"k":["1","2"],"l":"3"}}}],[]]"#,
    );
    filter(
        "if [a] and [b] and [c] or [d] { m { } }",
        r#"[[],[{"if":{"op":"And","l":{"field":"[a]"},"r":{"op":"Or",
        "l":{"op":"And","l":{"field":"[b]"},"r":{"field":"[c]"}},"r":{"field":"[d]"}}},
        "then":[{"plugin":"m","args":{}}],"else":null}],[]]"#,
    );
    filter(
        "if [a]and!([b])or[c]in[d] { m { } } elseif [e] { n1 { } } else { o1 { } }",
        r#"[[],[{"if":{"op":"Or","l":{"op":"And","l":{"field":"[a]"},"r":{"not":{"truthy":{"field":"[b]"}}}},
        "r":{"op":"In","l":{"field":"[c]"},"r":{"field":"[d]"}}},"then":[{"plugin":"m","args":{}}],
        "else":[{"if":{"truthy":{"field":"[e]"}},"then":[{"plugin":"n1","args":{}}],"else":[{"plugin":"o1","args":{}}]}]}],[]]"#,
    );
    filter(
        "if foo([a]) == 1 { m { } }",
        r#"[[],[{"if":{"op":"Eq","l":{"field":"[a]"},"r":{"value":1}},
        "then":[{"plugin":"m","args":{}}],"else":null}],[]]"#,
    );
    filter(
        "if [a] && [b] { m { } }",
        "t.conf:1:17: `{`, `and`, `or`, `xor` or `nand` is wanted after a condition, found `&`: write `and`",
    );
    filter(
        "if [a] not  in [b] { m { } }",
        r#"[[],[{"if":{"not":{"op":"In","l":{"field":"[a]"},"r":{"field":"[b]"}}},
        "then":[{"plugin":"m","args":{}}],"else":null}],[]]"#,
    );
    check_syntax("filter { m { a => 1", "t.conf:1:12: this `{` is not closed");
    check_syntax("filter {\n  m { }\n", "t.conf:1:8: this `{` is not closed");
    check_syntax(
        "output { a => 1 }",
        "t.conf:1:12: `{` is wanted after `a`, found `=`: a setting stands within a plugin",
    );
    let chain = format!("filter {{ if [a] {} {{ drop {{ }} }} }}", "or [a] ".repeat(900));
    assert!(import(&chain).remarks.iter().all(|remark| !remark.is_lost));
    let chain = format!("filter {{ if [a] {} {{ m {{ }} }} }}", "or [a] ".repeat(100_000));
    assert!(parse(&source(&chain), false).is_err());
    check_syntax(&format!("filter {{ {}", "if [a] { ".repeat(3000)), "t.conf:1:1804: nested too deeply");
}

/// Part of an import that must be there, or must not be.
#[track_caller]
/// What is no text is hashed as Logstash writes it, also where filters change it later.
#[test]
fn ids_of_what_is_no_text() {
    let line =
        r#"{"@timestamp":"2011-04-19T03:44:02Z","order":17,"rate":1e7,"list":["x","y"],"message":17,"status":"OK"}"#;
    let check = |filters: &str, want: &str| {
        let import = import(&format!(
            "input {{ stdin {{ codec => json }} }} filter {{ {filters} }}
             output {{ elasticsearch {{ index => 'i' document_id => '%{{[@metadata][fp]}}' }} }}"
        ));
        assert_eq!(import.lost(), 0, "{:?}", import.remarks);
        assert_eq!(ids(&import.toml, &format!("{line}\n")), [want], "{filters}\n{}", import.toml);
    };
    let print = |source: &str| format!("fingerprint {{ {source} method => 'SHA1' target => '[@metadata][fp]' }}");
    let sha1 = |text: &str| hex::encode(Sha1::digest(text));
    check(&format!("{} mutate {{ remove_field => 'order' }}", print("source => 'order'")), &sha1("17"));
    check(&print(""), &sha1("17"));
    let several = print("source => ['order', 'status', 'none'] concatenate_sources => true");
    check(&format!("{several} mutate {{ lowercase => 'status' }}"), &sha1("|none||order|17|status|OK|"));
    let one = print("source => 'none' concatenate_sources => true");
    check(&one, &sha1("|none||"));
    // where it has to be said in other words, it is told
    let import = import(
        "filter { fingerprint { source => ['a', 'b'] concatenate_sources => true target => '[@metadata][fp]' }
                  mutate { remove_field => 'a' } ruby { code => \"event.set('[@metadata][ts]', event.get('@timestamp').to_i.to_s(16))\" } }
         output { elasticsearch { index => 'i' document_id => '%{[@metadata][ts]}%{[@metadata][fp]}' } }",
    );
    assert!(
        import.remarks.iter().any(|remark| remark.is_lost && remark.text.contains("are not those that are stored"))
    );
}

/// Names that are made here are none of the configuration's.
#[test]
fn own_fields_meet_no_others() {
    let import = import(
        "input { stdin { codec => json } }
         filter { mutate { add_field => { '[@metadata][index]' => 'mine' '[@metadata][if1]' => 'x' } }
                  if [a] { mutate { replace => { 'a' => '' } } mutate { add_tag => 'a' } } }
         output { if [b] { elasticsearch { index => '%{[@metadata][index]}' } } else { elasticsearch { index => 'c' } } }",
    );
    assert_eq!(problems(&import.toml), "", "{}", import.toml);
    for own in ["[@metadata][index_]", "[@metadata][if1_]"] {
        assert!(import.toml.contains(own), "{}", import.toml);
    }
}

#[test]
fn the_index_where_none_is_named() {
    let index = |version: Option<(u32, u32)>, settings: &str| {
        let source = source(&format!("output {{ elasticsearch {{ {settings} }} }}"));
        let import = logstash(&source, &Options { version, ..Options::default() }).unwrap();
        let toml: toml::Table = import.toml.parse().unwrap();
        toml["index"]["name"].as_str().unwrap().to_string()
    };
    for (version, settings, want) in [
        (None, "", "logstash-%{+yyyy.MM.dd}"),
        (Some((7, 17)), "", "logstash-%{+yyyy.MM.dd}"),
        (Some((8, 15)), "", "logs-generic-default"),
        (Some((8, 15)), "action => 'create'", "logs-generic-default"),
        (Some((8, 15)), "data_stream => false", "ecs-logstash-%{+yyyy.MM.dd}"),
        (Some((8, 15)), "document_id => '%{x}'", "ecs-logstash-%{+yyyy.MM.dd}"),
        (Some((8, 15)), "ecs_compatibility => disabled", "logstash-%{+yyyy.MM.dd}"),
        (Some((8, 15)), "index => 'x'", "x"),
    ] {
        assert_eq!(index(version, settings), want, "{version:?} {settings}");
    }
}

fn check_import(filters: &str, want: &[&str], without: &[&str]) {
    let import =
        import(&format!("input {{ stdin {{ codec => json }} }} filter {{ {filters} }} output {{ stdout {{ }} }}"));
    assert_eq!(problems(&import.toml), "", "{}", import.toml);
    for part in want {
        assert!(import.toml.contains(part), "no `{part}` in\n{}", import.toml);
    }
    for part in without {
        assert!(!import.toml.contains(part), "`{part}` in\n{}", import.toml);
    }
}

#[test]
fn conditions_keep_their_meaning() {
    let tag = |name: &str| format!("mutate {{ add_tag => '{name}' }}");
    let (a, b) = (tag("a"), tag("b"));
    // one filter, or filters that leave alone what is read: said at each
    check_import(&format!("if [x] == 1 {{ {a} {b} }}"), &["when    = \"[x] == 1\""], &["if1"]);
    check_import("if [x] == 1 { mutate { replace => { 'x' => '2' } } }", &["when    = \"[x] == 1\""], &["if1"]);
    // changed before another filter of the block, of its `else`, or by a tag that is asked for
    let change = "mutate { replace => { 'x' => '2' } }";
    check_import(
        &format!("if [x] == 1 {{ {change} {a} }}"),
        &["\"[@metadata][if1]\" = \"1\"", "when    = \"[@metadata][if1]\""],
        &[],
    );
    check_import(
        &format!("if [x] == 1 {{ {change} }} else if [y] {{ {a} }} else {{ {b} }}"),
        &["\"![@metadata][if1] and [y]\"", "'[@metadata][if1] == \"2\"'", "\"![@metadata][if1]\""],
        &[],
    );
    check_import(&format!("if 'a' not in [tags] {{ {a} {b} }}"), &["[@metadata][if1]"], &[]);
    check_import(&format!("if 'c' not in [tags] {{ {a} {b} }}"), &["'\"c\" not in [tags]'"], &["if1"]);
    check_import(&format!("if [x][y] {{ mutate {{ remove_field => '[x]' }} {a} }}"), &["[@metadata][if1]"], &[]);
    check_import(&format!("if [x] {{ json {{ source => 'j' }} {a} }}"), &["[@metadata][if1]"], &[]);
    check_import(&format!("if [x] {{ json {{ source => 'j' target => 'k' }} {a} }}"), &[], &["if1"]);
    // arms that exclude one another, and nests
    check_import(
        &format!("if [t] == 'a' {{ {a} }} else if [t] in ['b', 'c'] {{ {b} }} else {{ drop {{ }} }}"),
        &["'[t] == \"a\"'", "'[t] in [\"b\", \"c\"]'", "'[t] != \"a\" and [t] not in [\"b\", \"c\"]'"],
        &["if1"],
    );
    check_import(
        &format!("if [p] or [q] {{ if [r] =~ /a\\/b/ {{ {a} }} else {{ {b} }} }}"),
        &[r"'([p] or [q]) and [r] =~ /a\/b/'", r"'([p] or [q]) and [r] !~ /a\/b/'"],
        &[],
    );
    // what `when` cannot say
    check_import(
        &format!("if ['x','y'] in [z] {{ {a} }} else {{ {b} }}"),
        &["cannot be said in `when`", "#   add_tag"],
        &["\nadd_tag"],
    );
}

#[test]
fn what_looks_up_has_counterparts() {
    check_import(
        "cidr { address => ['%{ip}'] network => ['10.0.0.0/8', '::1'] refresh_interval => 60 add_tag => ['in'] }",
        &["= \"cidr\"", "= [\"10.0.0.0/8\", \"::1\"]", "refresh_interval = 60"],
        &["counterpart"],
    );
    let regexes = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(regexes.path(), "user_agent_parsers: []\nos_parsers: []\ndevice_parsers: []\n").unwrap();
    let agent = "useragent { source => 'a' target => 'ua' lru_cache_size => 100";
    check_import(
        &format!("{agent} regexes => '{}' }}", regexes.path().display()),
        &["= \"useragent\"", "= \"ua\"", "regexes = "],
        &["counterpart", "lru_cache_size"],
    );
    check_import(&format!("{agent} }}"), &["Logstash brings patterns along"], &["= \"useragent\""]);
    check_import("geoip { source => 'a' }", &["Logstash brings a database along"], &["= \"geoip\""]);
    let database = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(database.path(), mmdb::database("City", &[])).unwrap();
    check_import(
        &format!(
            "geoip {{ source => 'a' cache_size => 9 fields => ['ip'] database => '{}' }}",
            database.path().display()
        ),
        &["= \"geoip\"", "= [\"ip\"]", "database = "],
        &["counterpart", "cache_size"],
    );
    let codec = "cef { delimiter => '\\r\\n' device => 'host' ecs_compatibility => 'v1' raw_data_field => 'raw' }";
    let import = import(&format!("input {{ stdin {{ codec => {codec} }} }} output {{ stdout {{ }} }}"));
    assert_eq!(problems(&import.toml), "", "{}", import.toml);
    assert!(import.toml.contains("= \"cef\""), "{}", import.toml);
    assert!(import.toml.contains("device = \"host\""), "{}", import.toml);
    assert!(!import.toml.contains("counterpart"), "{}", import.toml);
}

/// The codec and the marks of an input that has no counterpart are those of what is piped in.
#[test]
fn an_input_without_a_counterpart_has_its_codec() {
    let import = import("input { kafka { codec => json tags => 'k' } } output { stdout { } }");
    assert!(import.toml.contains("type  = \"stdin\"\ncodec = \"json\""), "{}", import.toml);
    assert!(import.toml.contains("add_tag = [\"k\"]"), "{}", import.toml);
}

#[test]
fn several_files_and_flags() {
    let sources = [
        ("a.conf", "input { stdin { } }\nfilter { mutate { add_tag => 'a\\tb' } }"),
        ("b.conf", "filter {\n bad {} }"),
    ];
    let sources = sources.map(|(name, text)| Source { name: name.to_string(), text: text.to_string() });
    let options = Options { escapes: true, version: Some((9, 4)), output: None };
    let import = logstash(&sources, &options).unwrap();
    assert!(
        import.toml.contains("add_tag = [\"a\\tb\"]") && import.toml.contains("# b.conf:2: bad"),
        "{}",
        import.toml
    );
    let lost = import.remarks.iter().filter(|remark| remark.is_lost).map(|remark| remark.render(&sources));
    assert_eq!(lost.collect::<Vec<_>>(), ["b.conf:2:2: bad: no counterpart: onceline has no filter `bad`"]);
    let broken = [Source { name: "c.conf".to_string(), text: "input { \u{e9} }".to_string() }];
    let wrong = logstash(&broken, &Options::default()).unwrap_err();
    assert_eq!(wrong.render(&broken), "c.conf:1:9: a name is wanted, found `é`\n  1 | input { é }\n    |         ^\n");
    let two = source("output { file { path => '/a' } elasticsearch { index => 'x' } }");
    let second = logstash(&two, &Options { output: Some(1), ..Options::default() }).unwrap();
    assert!(second.toml.contains("type = \"ndjson\""), "{}", second.toml);
    assert!(logstash(&two, &Options { output: Some(3), ..Options::default() }).is_err());
}

fn a_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{2,6}",
        r#"[ -!#-~é]{0,12}"#,
        Just("%{[a][b]}-%{+YYYY.MM.dd}".to_string()),
        Just("%{x".to_string()),
        Just("${VAR:dflt}${1x}$${".to_string()),
        Just("a\\\\'''\\n".to_string()),
        Just("${A:{b}".to_string()),
    ]
}

fn a_value() -> impl Strategy<Value = String> {
    let quoted = || a_text().prop_map(|text| format!("\"{}\"", text.trim_end_matches('\\').replace('"', "")));
    let leaf = prop_oneof![quoted(), "[a-z]{2,5}", "-?[1-9][0-9]{0,3}(\\.[0-9])?", Just("true".to_string())];
    leaf.prop_recursive(2, 8, 3, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|list| format!("[{}]", list.join(", "))),
            prop::collection::btree_map("[a-z]{2,4}", inner, 0..3).prop_map(|map| {
                let entries: Vec<String> = map.into_iter().map(|(key, value)| format!("{key} => {value}")).collect();
                format!("{{ {} }}", entries.join(" "))
            }),
        ]
    })
}

fn a_plugin(names: &'static [&'static str], settings: &'static [&'static str]) -> impl Strategy<Value = String> {
    let setting = (prop::sample::select(settings), a_value()).prop_map(|(name, value)| format!("{name} => {value}"));
    (prop::sample::select(names), prop::collection::btree_set(setting, 0..4)).prop_map(|(name, settings)| {
        let mut seen = BTreeSet::new();
        let settings = settings.into_iter().filter(|s| seen.insert(s.split(' ').next().unwrap_or("").to_string()));
        format!("{name} {{ {} }}", settings.collect::<Vec<_>>().join("\n"))
    })
}

fn a_condition() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("[a]".to_string()),
        Just("![tags]".to_string()),
        Just("[type] == \"x\"".to_string()),
        Just("\"_grokparsefailure\" in [tags]".to_string()),
        Just("[n] >= 5.5".to_string()),
        Just("[m] =~ /a\\/[\"']b/".to_string()),
        Just("[f] in ['one']".to_string()),
        a_text().prop_map(|text| format!("[t] != '{}'", text.replace('\'', "").trim_end_matches('\\'))),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        let join = prop::sample::select(&["and", "or", "xor", "nand"][..]);
        (inner.clone(), join, inner).prop_map(|(a, join, b)| format!("({a}) {join} ({b})"))
    })
}

const FILTERS: &[&str] =
    &["mutate", "date", "json", "drop", "fingerprint", "grok", "ruby", "useragent", "kv", "nothing"];
const FILTER_SETTINGS: &[&str] = &[
    "match",
    "source",
    "target",
    "add_field",
    "remove_field",
    "add_tag",
    "rename",
    "replace",
    "convert",
    "gsub",
    "method",
    "key",
    "timezone",
    "percentage",
    "code",
    "tag_on_failure",
    "id",
    "concatenate_sources",
    "copy",
    "split",
];
const OUTPUTS: &[&str] = &["elasticsearch", "opensearch", "stdout", "file", "null", "kafka"];
const OUTPUT_SETTINGS: &[&str] = &[
    "hosts",
    "index",
    "document_id",
    "action",
    "user",
    "password",
    "path",
    "codec",
    "ssl",
    "cacert",
    "pipeline",
    "timeout",
    "data_stream",
    "retry_max_interval",
    "api_key",
];
const INPUT_SETTINGS: &[&str] = &[
    "path",
    "codec",
    "type",
    "tags",
    "add_field",
    "exclude",
    "stat_interval",
    "close_older",
    "sincedb_path",
    "ignore_older",
];

fn a_body(names: &'static [&'static str], settings: &'static [&'static str]) -> impl Strategy<Value = String> {
    let plugin = a_plugin(names, settings).prop_map(|plugin| plugin + "\n");
    plugin.prop_recursive(3, 12, 3, |inner| {
        let body = || prop::collection::vec(inner.clone(), 0..3).prop_map(|parts| parts.concat());
        prop_oneof![
            body(),
            (a_condition(), body()).prop_map(|(c, body)| format!("if {c} {{ {body} }}\n")),
            (a_condition(), body(), a_condition(), body(), body())
                .prop_map(|(c, x, d, y, z)| { format!("if {c} {{ {x} }} else if {d} {{ {y} }} else {{ {z} }}\n") }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the configuration, its import is a pipeline file that `check` takes.
    #[test]
    fn imports_are_good_pipelines(
        inputs in a_body(&["stdin", "file", "beats", "kafka"], INPUT_SETTINGS),
        filters in a_body(FILTERS, FILTER_SETTINGS),
        outputs in a_body(OUTPUTS, OUTPUT_SETTINGS),
        version in prop::option::of((7u32..10, 0u32..6)),
    ) {
        let text = format!("input {{ {inputs} }}\nfilter {{ {filters} }}\noutput {{ {outputs} }}\n");
        let options = Options { version, ..Options::default() };
        if let Ok(import) = logstash(&source(&text), &options) {
            let said = problems(&import.toml);
            prop_assert!(said.is_empty(), "{}\n{}\n{}", said, text, import.toml);
        }
    }

    /// No text makes it stop, and what is refused is refused at a place.
    #[test]
    fn nothing_makes_it_panic(cut in 0usize..2000, extra in "[ -~\\n\u{e9}]{0,6}", file in 0usize..100) {
        let files = golden();
        let mut text = std::fs::read_to_string(&files[file % files.len()]).unwrap();
        let mut at = cut % (text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        text.insert_str(at, &extra);
        let sources = source(&text);
        if let Err(wrong) = parse(&sources, cut % 2 == 0) {
            prop_assert!(wrong.place.at <= text.len());
            wrong.render(&sources);
        }
    }
}
