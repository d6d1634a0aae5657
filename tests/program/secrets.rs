//! Secrets work by every way they can be given, and are seen nowhere.

use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;

use crate::rig::{Authority, Onceline, Running, Stub, Tls};

const SECRET: &str = "hunter2/+marker";
const EVENTS: &[u8] = b"{\"@timestamp\":\"2026-01-01T00:00:00Z\",\"a\":1}\nnot json\n{\"no\":\"time\"}\n";

/// A pipeline whose every key for a secret has the one: as a text that TOML reads, and of `[output]` as its own lines.
fn pipeline(text: &str, login: &str, hosts: &str) -> String {
    format!(
        r#"
        [[input]]
        type = "stdin"
        codec = "json"
        [[filter]]
        type = "fingerprint"
        source = ["a"]
        method = "SHA256"
        key = {text}
        [id]
        scheme = "time-hash"
        method = "SHA256"
        key = {text}
        [index]
        name = "secrets"
        strict = false
        [output]
        type = "elasticsearch"
        hosts = [{hosts}]
        {login}
        request_timeout = "5s"
        retry_wait_min = "1ms"
        retry_wait_max = "5ms"
        "#
    )
}

/// The secret as it stands, and inside of base64 wherever it may begin.
fn shapes() -> Vec<String> {
    let inside = |before: usize| {
        let text = STANDARD.encode(format!("{}{SECRET}", "x".repeat(before)));
        text[4..text.len() - 4].to_owned()
    };
    let mut shapes: Vec<String> = (0..3).map(inside).collect();
    shapes.push(SECRET.to_owned());
    shapes
}

fn assert_hidden(what: &str, text: &str) {
    for shape in shapes() {
        assert!(!text.contains(&shape), "{what}: {shape} in {text}");
    }
}

/// All that a run left in its folder, but for what the test wrote.
fn assert_hidden_below(folder: &Path) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            assert_hidden_below(&path);
        } else if !matches!(name.as_str(), "pipeline.toml" | "secret") {
            let bytes = std::fs::read(&path).expect("a file");
            assert_hidden(&name, &String::from_utf8_lossy(&bytes));
        }
    }
}

fn await_success(stub: &Stub, running: &Running<'_>) {
    let started = Instant::now();
    assert_hidden("the list of processes", &running.command_line());
    while stub.docs().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(60), "no event arrives: {:?}", stub.bulks());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_hidden("the list of processes", &running.command_line());
}

/// Runs, checks and explains a pipeline of three hosts: one that nobody is at, one that is not to be trusted, and
/// one that refuses us twice before it takes what is `wanted`.
fn check(text: &str, login: &str, wanted: &str, user_info: &str) {
    let stub = Stub::new("{\"http\":401}\n{\"http\":403}\n").wants(wanted);
    let authority = Authority::new("not trusted");
    let tls = Tls::new(&stub.url, &authority.here(), None);
    let at = |url: &str| format!("'{}'", url.replace("://", &format!("://{user_info}")));
    let hosts = [at("http://127.0.0.1:1"), at(&tls.url), at(&stub.url)].join(", ");
    let onceline = Onceline::new(&pipeline(text, login, &hosts)).env("SECRET", SECRET);
    std::fs::write(onceline.path("secret"), format!("{SECRET}\n")).expect("write the secret");
    for format in ["text", "json"] {
        let args = ["-vvv", "--log-format", format];
        for command in ["check", "explain"] {
            let run = onceline.call(&[&[command, "pipeline.toml"], &args[..]].concat(), EVENTS);
            assert_eq!(run.status, Some(0), "{}", run.stderr);
            assert_hidden(command, &format!("{}{}", run.stdout, run.stderr));
        }
    }
    let onceline = onceline.args(&["-vvv"]);
    let running = onceline.start_open(EVENTS);
    await_success(&stub, &running);
    running.signal(Signal::TERM);
    let run = running.wait().adds_up();
    assert_eq!(run.counts(["created", "dead_lettered", "unsettled"]), [1, 2, 0], "{}", run.stderr);
    assert_hidden("run", &format!("{}{}", run.stdout, run.stderr));
    assert!(run.stderr.contains("401") || run.stderr.contains("403"), "{}", run.stderr);
    assert_hidden_below(onceline.dir());
}

#[test]
fn by_every_way_a_secret_is_used_and_seen_nowhere() {
    let literal = format!("\"{SECRET}\"");
    let default = format!("\"${{NOT_SET:{SECRET}}}\"");
    let command = "[\"sh\", \"-c\", \"cat {dir}/secret; cat {dir}/secret >&2\"]";
    let kinds = [
        ("user = \"me\"\npassword", format!("Basic {}", STANDARD.encode(format!("me:{SECRET}")))),
        ("api_key", format!("ApiKey {SECRET}")),
        ("bearer_token", format!("Bearer {SECRET}")),
    ];
    for (key, wanted) in &kinds {
        for (text, login) in [
            (literal.as_str(), format!("{key} = {literal}")),
            ("\"${SECRET}\"", format!("{key} = \"${{SECRET}}\"")),
            (&default, format!("{key} = {default}")),
            (&literal, format!("{key}_file = \"{{dir}}/secret\"")),
            (&literal, format!("{key}_command = {command}")),
        ] {
            check(text, &login, wanted, "");
        }
    }
    let escaped = SECRET.replace('/', "%2F").replace('+', "%2B");
    check(&literal, "", &kinds[0].1, &format!("me:{escaped}@"));
}

#[test]
fn a_command_that_fails_is_told_of_without_its_secret() {
    let stub = Stub::new("");
    let host = format!("'{}'", stub.url);
    let check = |script: &str, want: &str| {
        let login = format!("bearer_token_command = [\"sh\", \"-c\", \"{script}\", \"{SECRET}\"]");
        let onceline = Onceline::new(&pipeline("\"x\"", &login, &host));
        let run = onceline.run(EVENTS);
        assert_eq!(run.status, Some(1), "{}", run.stderr);
        assert!(run.stderr.contains(want), "{want}: {}", run.stderr);
        assert_hidden(script, &run.stderr);
    };
    check(
        "echo $0; echo the vault is sealed >&2; exit 7",
        "sh failed with exit status: 7, and said: the vault is sealed",
    );
    check("echo $0; echo no $0 >&2; exit 1", "and said: no ***");
    check("exit 0", "there is no secret in what sh printed");
    assert!(stub.bulks().is_empty());
}

#[test]
fn secrets_that_change_are_asked_for_again() {
    let stub = Stub::new("").wants("Bearer new");
    let login = "bearer_token_command = [\"sh\", \"-c\", \"cat {dir}/token && date >> {dir}/asked\"]";
    let onceline = Onceline::new(&pipeline("\"x\"", login, &format!("'{}'", stub.url)));
    std::fs::write(onceline.path("token"), "old").expect("write the token");
    let running = onceline.start_open(EVENTS);
    let started = Instant::now();
    while stub.bulks().len() < 3 {
        assert!(started.elapsed() < Duration::from_secs(60), "no tries");
        std::thread::sleep(Duration::from_millis(2));
    }
    // for a moment there is none
    std::fs::remove_file(onceline.path("token")).expect("remove the token");
    std::fs::write(onceline.path("token.new"), "new").expect("write the token");
    std::fs::rename(onceline.path("token.new"), onceline.path("token")).expect("rename the token");
    await_success(&stub, &running);
    running.signal(Signal::TERM);
    assert_eq!(running.wait().adds_up().count("created"), 1);
    let asked = std::fs::read_to_string(onceline.path("asked")).expect("a file").lines().count();
    assert!(asked <= 2 + started.elapsed().as_secs() as usize, "{asked} times");
}

#[test]
fn the_command_line_takes_no_secret() {
    let stub = Stub::new("");
    let onceline = Onceline::new(&pipeline("\"x\"", "", &format!("'{}'", stub.url))).env("SECRET", SECRET);
    let hosts = format!("output.hosts=[\"http://me:{SECRET}@127.0.0.1\"]");
    let table = format!("output={{ type = \"elasticsearch\", api_key = \"{SECRET}\" }}");
    for (key, set) in [
        ("password", format!("output.password={SECRET}")),
        ("api_key", format!("output.api_key=\"{SECRET}\"")),
        ("bearer_token", format!("output.bearer_token=${{NOT_SET:{SECRET}}}")),
        ("key", format!("id.key={SECRET}")),
        ("key", format!("filter.0.key=a${{SECRET}}{SECRET}")),
        ("hosts", hosts),
        ("api_key", table),
    ] {
        let run = onceline.call(&["check", "pipeline.toml", "--set", &set], b"");
        assert_eq!(run.status, Some(2), "{set}: {}", run.stderr);
        let want = format!("`{key}` on the command line is seen by all who list processes");
        assert!(run.stderr.contains(&want), "{set}: {}", run.stderr);
        assert_hidden(&set, &format!("{}{}", run.stdout, run.stderr));
    }
    let args = ["check", "pipeline.toml", "--set", "output.user=me", "--set", "output.password=${SECRET}"];
    let run = onceline.call(&args, b"");
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    assert_hidden("check", &format!("{}{}", run.stdout, run.stderr));
}

#[test]
fn a_key_in_a_file_makes_the_same_ids() {
    let stub = Stub::new("");
    let host = format!("'{}'", stub.url);
    let explain = |text: &str| {
        let onceline = Onceline::new(text);
        std::fs::write(onceline.path("secret"), format!("{SECRET}\n")).expect("write the secret");
        onceline.explain(EVENTS)
    };
    let given = pipeline(&format!("\"{SECRET}\""), "", &host);
    let kept = pipeline("KEY", "", &host).replace("key = KEY", "key_file = \"{dir}/secret\"");
    assert_eq!(explain(&given), explain(&kept));
    let run = Onceline::new(&kept).command("check").run(b"");
    assert_eq!(run.status, Some(2), "{}", run.stderr);
    assert_eq!(run.stderr.matches("`key_file`: cannot read").count(), 2, "{}", run.stderr);
    let both = Onceline::new(&given.replace("key =", "key_file = 'a'\nkey =")).command("check").run(b"");
    assert!(both.stderr.contains("`key_file` and `key` cannot both be given"), "{}", both.stderr);
    assert_hidden("check", &both.stderr);
}
