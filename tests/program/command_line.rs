//! The command line: exit status, what is said and where, files and how they are compressed.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::rig::{Onceline, Run, Stub, until};
use super::{folder, json, update};

const EVENTS: &[u8] =
    b"{\"@timestamp\":\"2026-03-01T10:00:00Z\",\"n\":1}\n{\"@timestamp\":\"2026-03-01T10:00:01Z\",\"n\":2}\n";
const BAD: &[u8] = b"{\"@timestamp\":\"2026-03-01T10:00:00Z\",\"n\":1}\nno json\nbad \xff byte\n{\"n\":3}\n\n";

fn pipeline(input: &str, output: &str) -> String {
    format!(
        r#"
[[input]]
{input}
codec = "json"

[id]
scheme = "time-hash"
method = "MD5"

[index]
name = "lines-%{{+yyyy.MM.dd}}"

[output]
{output}
"#
    )
}

const STDIN: &str = "type = \"stdin\"";
const SQLITE: &str = "type = \"sqlite\"\npath = \"{dir}/out.sqlite\"";

fn sqlite() -> Onceline {
    Onceline::new(&pipeline(STDIN, SQLITE))
}

fn files(paths: &str) -> Onceline {
    Onceline::new(&pipeline(&format!("type = \"file\"\npaths = {paths}"), SQLITE))
}

#[test]
fn status_0_with_dead_letters_unless_asked() {
    let onceline = sqlite();
    let run = onceline.run(BAD).settled();
    assert_eq!(run.counts(["events_in", "created", "dropped", "dead_lettered"]), [5, 1, 1, 3]);
    assert!(run.stderr.contains("3 dead letters, see ") && run.stdout.is_empty(), "{}", run.stderr);
    let run = sqlite().args(&["--fail-on-dead-letters"]).run(BAD).adds_up();
    assert_eq!((run.status, run.count("dead_lettered")), (Some(1), 3));
    let run = sqlite().args(&["--fail-on-dead-letters"]).run(EVENTS).settled();
    assert_eq!(run.count("created"), 2);
    assert!(!run.stderr.contains("dead letter"), "{}", run.stderr);
}

#[test]
fn dead_letters_say_all_there_is_to_say() {
    let onceline = sqlite();
    let run = onceline.run(BAD).settled();
    let path = onceline.path("state/dead-letters.ndjson");
    let mode = std::fs::metadata(&path).expect("dead letters").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "dead letters can be read by others");
    let names = ["time", "reason", "detail", "event", "id", "index", "action", "status", "error", "attempts", "source"];
    for letter in &run.dead_letters {
        let keys: Vec<&str> = letter.as_object().expect("an object").keys().map(String::as_str).collect();
        assert!(names.iter().all(|name| keys.contains(name)), "{letter}");
        assert!(keys.iter().all(|key| names.contains(key) || *key == "raw_base64"), "{letter}");
        assert!(letter["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{letter}");
        assert!(letter["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{letter}");
    }
    let [text, bytes, event] = run.dead_letters.as_slice() else { panic!("{:?}", run.dead_letters) };
    assert_eq!((&text["reason"], &text["event"]), (&json!("bad-json"), &json!("no json")));
    assert_eq!((&bytes["event"], &bytes["raw_base64"]), (&Value::Null, &json!("YmFkIP8gYnl0ZQ==")));
    assert_eq!((&event["reason"], &event["event"]), (&json!("no-timestamp"), &json!({"n": 3})));
    let offsets: Vec<_> = run.dead_letters.iter().map(|letter| letter["source"].clone()).collect();
    let source = |offset: u64| json!({"name": "stdin", "offset": offset});
    assert_eq!(offsets, [source(44), source(52), source(63)]);
}

#[test]
fn dead_letters_go_where_the_pipeline_says() {
    let pipeline = pipeline(STDIN, SQLITE) + "\n[dead_letter]\npath = \"{dir}/deep/er/dead.ndjson\"\n";
    let onceline = Onceline::new(&pipeline);
    let run = onceline.run(BAD).settled();
    assert!(run.dead_letters.is_empty());
    let text = std::fs::read_to_string(onceline.path("deep/er/dead.ndjson")).expect("dead letters");
    assert_eq!(text.lines().count(), 3);
}

#[test]
fn the_state_folder_is_the_arguments_then_the_files() {
    let onceline = Onceline::new(&(pipeline(STDIN, SQLITE) + "\n[state]\npath = \"{dir}/ours\"\n"));
    let file = onceline.path("pipeline.toml").display().to_string();
    assert_eq!(onceline.call(&["run", &file], BAD).status, Some(0));
    assert!(onceline.path("ours/dead-letters.ndjson").try_exists().unwrap());
    assert_eq!(onceline.call(&["run", &file, "--state", "other"], BAD).status, Some(0));
    assert!(onceline.path("other/dead-letters.ndjson").try_exists().unwrap());
}

#[test]
fn the_summary_goes_to_standard_output_if_asked() {
    let onceline = sqlite();
    let file = onceline.path("pipeline.toml").display().to_string();
    let run = onceline.call(&["run", &file, "--summary", "-", "--state", "state"], EVENTS);
    let summary = json(run.stdout.as_bytes());
    let names = [
        "events_in",
        "created",
        "updated",
        "deleted",
        "duplicates",
        "stale",
        "dropped",
        "dead_lettered",
        "unsettled",
        "retries",
        "requests",
        "bytes_out",
        "seconds",
    ];
    assert!(names.iter().all(|name| summary[name].is_number()), "{summary}");
    assert_eq!(summary["created"], 2);
    assert!(summary.get("pipelines").is_none());
    let run = onceline.call(&["run", &file, "--summary", "no/such/folder.json", "--state", "state"], EVENTS);
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("no/such/folder.json"), "{}", run.stderr);
}

#[test]
fn several_pipelines_run_at_once() {
    let onceline = sqlite();
    let other = pipeline("type = \"file\"\npaths = [\"in.log\"]", "type = \"sqlite\"\npath = \"other.sqlite\"");
    std::fs::write(onceline.path("other.toml"), other).expect("write a pipeline");
    std::fs::write(onceline.path("in.log"), BAD).expect("write the input");
    let run =
        onceline.call(&["run", "--once", "pipeline.toml", "other.toml", "--summary", "-", "--state", "s"], EVENTS);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let summary = json(run.stdout.as_bytes());
    let count = |of: &Value| (of["events_in"].as_u64(), of["created"].as_u64(), of["dead_lettered"].as_u64());
    assert_eq!(count(&summary), (Some(7), Some(3), Some(3)));
    assert_eq!(count(&summary["pipelines"]["pipeline"]), (Some(2), Some(2), Some(0)));
    assert_eq!(count(&summary["pipelines"]["other"]), (Some(5), Some(1), Some(3)));
    let twice = onceline.call(&["run", "pipeline.toml", "pipeline.toml"], EVENTS);
    assert_eq!(twice.status, Some(2), "standard input for two: {}", twice.stderr);
}

#[test]
fn settings_and_the_clock_on_the_command_line() {
    let set = |key: &str| ["--set".to_owned(), key.to_owned()];
    let args = [set("output.path=set.sqlite"), set("input.0.codec=plain"), set("time.missing=now")].concat();
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    args.extend(["--now", "2020-02-29T00:00:00Z"]);
    let onceline = sqlite().args(&args);
    onceline.run(b"some text").settled();
    let rows = onceline.rows("set.sqlite");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].index, "lines-2020.02.29");
    assert_eq!(rows[0].source, json!({"message": "some text", "@timestamp": "2020-02-29T00:00:00.000Z"}));
}

/// Wrong command lines and files: status 2, and words that help.
#[test]
fn status_2_says_what_is_wrong() {
    let onceline = sqlite();
    std::fs::write(onceline.path("wrong.toml"), "[[input]]\ntype = \"stdni\"\n").expect("write");
    std::fs::write(onceline.path("files.toml"), pipeline("type = \"file\"\npaths = [\"a\"]", SQLITE)).expect("write");
    for (args, said) in [
        (&["run"][..], "PIPELINE.toml"),
        (&["run", "none.toml"], "cannot read none.toml"),
        (&["run", "wrong.toml"], "wrong.toml:2:8"),
        (&["check", "wrong.toml"], "did you mean `stdin`"),
        (&["explain", "wrong.toml"], "wrong.toml:2:8"),
        (&["check", "pipeline.toml", "wrong.toml"], "wrong.toml:2:8"),
        (&["run", "pipeline.toml", "--now", "yesterday"], "2026-03-01T12:00:00Z"),
        (&["run", "pipeline.toml", "--set", "output.pth=x"], "did you mean `path`"),
        (&["run", "pipeline.toml", "--set", "output"], "--set"),
        (&["run", "pipeline.toml", "--sumary", "x"], "--summary"),
        (&["explain", "pipeline.toml", "pipeline.toml"], "one pipeline file"),
        (&["explain", "pipeline.toml", "--input", "1"], "no input 1"),
        (&["rnu", "pipeline.toml"], "unrecognized"),
    ] {
        let run = onceline.call(args, EVENTS);
        assert_eq!(run.status, Some(2), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(said), "{args:?} does not say {said}: {}", run.stderr);
        assert!(run.stdout.is_empty(), "{args:?}: {}", run.stdout);
    }
    assert!(!onceline.path("out.sqlite").try_exists().unwrap(), "something ran");
    assert_eq!(onceline.call(&["check", "files.toml"], b"").status, Some(0));
    assert_eq!(onceline.call(&["explain", "files.toml"], EVENTS).stdout.lines().count(), 2);
    assert_eq!(onceline.call(&["--version"], b"").status, Some(0));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(bytes).expect("compress");
    gzip.finish().expect("compress")
}

fn line(n: usize) -> String {
    format!("{{\"@timestamp\":\"2026-03-01T10:00:00Z\",\"n\":{n}}}\n")
}

fn once(onceline: Onceline) -> Onceline {
    onceline.args(&["--once"])
}

#[test]
fn files_plain_and_compressed() {
    let onceline = once(files("[\"{dir}/in/*\", \"{dir}/in/a.log\"]\nexclude = [\"*/x*\"]"));
    std::fs::create_dir(onceline.path("in")).expect("a folder");
    let text = |from: usize| (from..from + 3).map(line).collect::<String>().into_bytes();
    let write = |name: &str, bytes: &[u8]| std::fs::write(onceline.path("in").join(name), bytes).expect("write");
    write("a.log", &text(0));
    write("b.gz", &[gzip(&text(10)), gzip(&text(13))].concat());
    write("c.zst", &zstd::encode_all(&text(20)[..], 3).expect("compress"));
    write("named-as-text.log", &gzip(&text(30)));
    write("empty.log", b"");
    write("empty.gz", &gzip(b""));
    write("xcluded", &text(90));
    std::os::unix::fs::symlink("a.log", onceline.path("in/link")).expect("a link");
    let run = onceline.run(b"").settled();
    assert_eq!(run.counts(["events_in", "created"]), [15, 15]);
    let mut numbers: Vec<_> = onceline.rows("out.sqlite").iter().map(|row| row.source["n"].as_u64()).collect();
    numbers.sort();
    let want = (0..3).chain(10..16).chain(20..23).chain(30..33).map(Some);
    assert_eq!(numbers, want.collect::<Vec<_>>());
    assert_eq!(onceline.run(b"").settled().counts(["created", "duplicates"]), [0, 0]);
    assert_eq!(onceline.args(&["--from-start"]).run(b"").settled().counts(["created", "duplicates"]), [0, 15]);
}

/// A link that leads nowhere or in a circle keeps nobody from the other files; a name that is no file is said.
#[test]
fn links_that_lead_nowhere_and_names_that_are_no_files() {
    let onceline = once(files("[\"{dir}/in/*\", \"{dir}/in/*/*.log\"]"));
    std::fs::create_dir(onceline.path("in")).unwrap();
    std::fs::write(onceline.path("in/good.log"), EVENTS).unwrap();
    for (to, link) in [("nowhere", "in/dangling.log"), ("circle", "in/circle")] {
        std::os::unix::fs::symlink(to, onceline.path(link)).unwrap();
    }
    assert_eq!(onceline.run(b"").settled().count("created"), 2);
    let folder = once(files("[\"{dir}\"]")).run(b"").adds_up();
    assert!(folder.status == Some(1) && folder.stderr.contains("is a folder, not a file"), "{}", folder.stderr);
    let device = once(files("[\"/dev/null\"]")).run(b"").adds_up();
    assert!(device.status == Some(1) && device.stderr.contains("is a pipe or device"), "{}", device.stderr);
}

/// Whatever else a pattern leads to is passed over, and no name of a file looks like a line of the log.
#[test]
fn a_folder_full_of_what_is_no_file() {
    use std::os::unix::{ffi::OsStrExt, fs::symlink, net::UnixListener};
    let onceline = files("[\"{dir}/in/**/*\"]");
    let folder = onceline.path("in");
    let deep = folder.join("deep");
    std::fs::create_dir_all(&deep).expect("folders");
    let pipe = rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    );
    pipe.expect("a pipe");
    let _socket = UnixListener::bind(folder.join("socket")).expect("a socket");
    for (to, link) in [
        ("/dev/zero", "in/zero"),
        ("/dev/full", "in/full"),
        ("nowhere", "in/nowhere"),
        ("circle-b", "in/circle-a"),
        ("circle-a", "in/circle-b"),
        // two of them: ever more ways, and no end to any
        ("..", "in/deep/up"),
        (".", "in/deep/here"),
    ] {
        symlink(to, onceline.path(link)).expect("a link");
    }
    std::fs::write(deep.join("good.log"), line(0)).expect("write");
    std::fs::write(folder.join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), line(1)).expect("write");
    std::fs::write(folder.join("two\nlines\x1b[31m"), line(2)).expect("write");
    let packed = gzip(&line(3).repeat(50).into_bytes());
    std::fs::write(folder.join("cut\nERROR\x1b[31m"), &packed[..packed.len() - 9]).expect("write");
    let check = |run: &Run| {
        let said: Vec<&str> = run.stderr.lines().filter(|line| line.starts_with("ERROR")).collect();
        assert!(said.is_empty() && !run.stderr.contains('\x1b'), "{}", run.stderr);
        assert!(run.stderr.contains("in/cut\u{fffd}ERROR\u{fffd}[31m"), "{}", run.stderr);
    };
    let onceline = once(onceline);
    let run = onceline.run(b"").adds_up();
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    check(&run);
    let numbers = |onceline: &Onceline| -> Vec<u64> {
        onceline.rows("out.sqlite").iter().filter_map(|row| row.source["n"].as_u64()).collect()
    };
    let mut got = numbers(&onceline);
    got.sort_unstable();
    assert_eq!(got, [0, 1, 2, 3]);
    let shown = onceline.says(&["positions", "show", "pipeline.toml", "--state", "state"]);
    assert_eq!((shown.lines().count(), shown.contains('\x1b')), (5, false), "{shown}");

    let onceline = onceline.no_args();
    let running = onceline.start(b"");
    running.until_said("compressed data is damaged", 1);
    std::fs::write(folder.join("more"), line(4)).expect("write");
    until("one more", || numbers(&onceline).contains(&4));
    running.signal(rustix::process::Signal::TERM);
    check(&running.wait().settled());
}

/// One line of very many events costs what it holds, not its square.
#[test]
fn an_array_of_many_events_without_a_time() {
    let line = format!("[{}]\n", vec!["{\"id\":\"x\"}"; 20_000].join(","));
    let run = sqlite().run(line.as_bytes()).settled();
    assert_eq!(run.counts(["events_in", "dead_lettered"]), [20_000, 20_000]);
    let line = format!("[{}]\n", vec!["{}"; 50_001].join(","));
    let run = sqlite().run(line.as_bytes()).settled();
    assert_eq!(run.counts(["events_in", "dead_lettered"]), [1, 1]);
    assert_eq!(run.dead_letters[0]["reason"], "too-large");
}

#[test]
fn a_misspelt_secret_is_not_shown() {
    let toml = pipeline(STDIN, SQLITE).replace("[id]", "[id]\nkye = \"hush-hush\"");
    let run = Onceline::new(&toml).args(&["--set", "id.kee=hush-hush"]).run(b"");
    assert_eq!(run.status, Some(2));
    assert!(run.stderr.contains("did you mean `key`") && !run.stderr.contains("hush-hush"), "{}", run.stderr);
}

#[test]
fn many_small_files() {
    let onceline = once(files("[\"{dir}/in/*.log\"]"));
    std::fs::create_dir(onceline.path("in")).expect("a folder");
    for n in 0..500 {
        let end = if n % 2 == 0 { "\n" } else { "" };
        std::fs::write(onceline.path(&format!("in/{n}.log")), line(n).trim_end().to_owned() + end).expect("write");
    }
    assert_eq!(onceline.run(b"").settled().counts(["events_in", "created"]), [500, 500]);
}

/// What can be read is delivered; the status says that not all was.
fn check_unread(onceline: &Onceline, said: &str, created: u64) {
    let run: Run = onceline.run(b"").adds_up();
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains(said), "{said}: {}", run.stderr);
    assert_eq!(run.counts(["created", "unsettled"]), [created, 0]);
}

#[test]
fn files_that_cannot_be_read() {
    let onceline = once(files("[\"{dir}/none.log\"]"));
    check_unread(&onceline, "none.log", 0);

    let onceline = once(files("[\"{dir}/*.gz\", \"{dir}/*.zst\"]"));
    let text: Vec<u8> = (0..20_000).flat_map(|n| line(n).into_bytes()).collect();
    let mut bytes = gzip(&text);
    bytes.truncate(bytes.len() - 6);
    std::fs::write(onceline.path("cut.gz"), &bytes).expect("write");
    std::fs::write(onceline.path("good.gz"), gzip(line(90_000).as_bytes())).expect("write");
    let run = onceline.run(b"").adds_up();
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("cut.gz"), "{}", run.stderr);
    assert!(onceline.rows("out.sqlite").iter().any(|row| row.source["n"] == 90_000), "a bad file cost a good one");
    assert!(run.count("created") > 1, "what was read before the damage is lost");
    assert_eq!(run.count("dead_lettered"), 0, "half a line became an event");

    let middle = bytes.len() / 2;
    bytes[middle..middle + 40].fill(0x55);
    std::fs::write(onceline.path("cut.gz"), &bytes).expect("write");
    let run = onceline.run(b"").adds_up();
    assert_eq!(run.status, Some(1), "{}", run.stderr);
}

#[test]
fn an_input_that_is_no_pipeline() {
    let onceline = once(files("[\"{dir}/nothing-*.log\"]"));
    let run = onceline.run(b"").settled();
    assert_eq!(run.count("events_in"), 0);
    assert!(run.stderr.contains("no file matches"), "{}", run.stderr);
}

#[test]
fn an_output_that_cannot_be_opened() {
    let onceline = Onceline::new(&pipeline(STDIN, "type = \"sqlite\"\npath = \"{dir}/pipeline.toml\""));
    let run = onceline.run(EVENTS);
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("pipeline.toml"), "{}", run.stderr);
}

#[test]
fn standard_output_that_is_closed() {
    for (command, output) in [("explain", SQLITE), ("run", "type = \"stdout\""), ("run", "type = \"ndjson\"")] {
        let onceline = Onceline::new(&pipeline(STDIN, output));
        let mut command_line = Command::new(env!("CARGO_BIN_EXE_onceline"));
        command_line.args([command, "pipeline.toml", "--state", "state"]).current_dir(onceline.dir());
        command_line.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command_line.spawn().expect("start onceline");
        drop(child.stdout.take());
        let mut stdin = child.stdin.take().expect("a pipe");
        // either the program has ended, or it has taken all
        let _ = stdin.write_all(&EVENTS.repeat(2000));
        drop(stdin);
        let output = child.wait_with_output().expect("an end");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{said}");
        let status = output.status.code();
        match command {
            "explain" => assert_eq!(status, Some(0), "{said}"),
            _ => assert!(status == Some(1) && said.contains("not settled"), "{status:?} {said}"),
        }
    }
}

fn assert_json_lines(log: &str, said: &str) {
    for line in log.lines() {
        let log = json(line.as_bytes());
        assert!(log["level"].is_string() && log["message"].is_string() && log["timestamp"].is_string(), "{line}");
    }
    assert!(log.contains(said), "{log}");
}

#[test]
fn logs_are_json_lines_if_asked() {
    let stub = Stub::new("{\"http\":401}\n{\"http\":500}\n{\"http\":200,\"items\":[429,201]}\n");
    let output = format!(
        "type = \"elasticsearch\"\nhosts = [\"{}\"]\nretry_wait_min = \"1ms\"\nretry_wait_max = \"5ms\"",
        stub.url
    );
    let onceline = Onceline::new(&pipeline(STDIN, &output)).args(&["--log-format", "json", "-vvv"]);
    let run = onceline.run(EVENTS).settled();
    assert_json_lines(&run.stderr, "2 events");
    let wrong = Onceline::new(&pipeline(STDIN, "type = \"nothing\"")).args(&["--log-format", "json"]).run(EVENTS);
    assert_json_lines(&wrong.stderr, "nothing");
    let again =
        Onceline::new(&pipeline(STDIN, "type = \"sqlite\"\npath = \"{dir}/a.sqlite\"")).args(&["--log-format", "json"]);
    let running = again.start_open(EVENTS);
    until("rows", || again.path("a.sqlite").try_exists().unwrap_or(false));
    again.set_pipeline("[[input]]\n");
    running.signal(Signal::HUP);
    running.until_said("go on as they were", 1);
    running.signal(Signal::TERM);
    assert_json_lines(&running.wait().stderr, "missing");
    let quiet = Onceline::new(&pipeline(STDIN, &output)).run(EVENTS).settled();
    assert!(!quiet.stderr.contains("INFO") && !quiet.stderr.contains("DEBUG"), "{}", quiet.stderr);
}

#[test]
fn secrets_are_never_shown() {
    let stub = Stub::new("{\"http\":401}\n{\"http\":403}\n");
    let url = stub.url.replace("http://", "http://me:hunter2-url@");
    let onceline = Onceline::new(&format!(
        r#"
        [[input]]
        type = "stdin"
        codec = "json"
        [[filter]]
        type = "fingerprint"
        source = ["n"]
        key = "hunter2-filter"
        method = "SHA256"
        [id]
        scheme = "time-hash"
        method = "MD5"
        key = "${{ID_KEY}}"
        [index]
        name = "lines"
        [output]
        type = "elasticsearch"
        hosts = ["{url}"]
        user = "me"
        password = "${{PASSWORD:hunter2-default}}"
        retry_wait_min = "1ms"
        retry_wait_max = "5ms"
        "#
    ))
    .env("ID_KEY", "hunter2-id")
    .env("PASSWORD", "hunter2-password");
    let mut said = vec![];
    for args in [
        &["run", "pipeline.toml", "-vvv", "--state", "state", "--summary", "-"][..],
        &["run", "pipeline.toml", "-vvv", "--state", "state", "--log-format", "json"],
        &["check", "pipeline.toml", "-vvv"],
        &["explain", "pipeline.toml", "-vvv", "--metadata"],
        &["run", "pipeline.toml", "-vvv", "--set", "output.passwort=1", "--set", "id.key=5"],
        &["check", "pipeline.toml", "--set", "output.password=hunter2-set", "--set", "output.api_key=hunter2-api"],
        &["check", "pipeline.toml", "--set", "output.hosts=[\"ftp://me:hunter2-host@x\"]"],
    ] {
        let run = onceline.call(args, BAD);
        assert!(run.status.is_some(), "{args:?}");
        said.push(format!("{args:?} {:?}\n{}{}", run.status, run.stdout, run.stderr));
    }
    let letters = std::fs::read_to_string(onceline.path("state/dead-letters.ndjson")).expect("dead letters");
    said.push(letters);
    for text in &said {
        // the arguments that this test gave are not what is looked for
        let text = text.split_once('\n').map_or(text.as_str(), |(_, rest)| rest);
        assert!(!text.contains("hunter2"), "{text}");
        assert!(!text.contains("bWU6aHVudGVyMi"), "{text}");
    }
    assert!(said.iter().any(|text| text.contains("key ")), "check does not say that there is a key");
    assert!(!stub.bulks().is_empty());
}

#[test]
fn a_producer_that_breaks_off_in_a_line() {
    let onceline = sqlite();
    let run = onceline.run(&EVENTS[..EVENTS.len() - 4]).settled();
    assert_eq!(run.counts(["created", "dead_lettered"]), [1, 1]);
    assert_eq!(run.dead_letters[0]["reason"], "bad-json");
}

#[test]
fn a_signal_ends_a_run_whose_input_is_quiet() {
    let onceline = sqlite();
    let running = onceline.start_open(EVENTS);
    // what came is delivered without waiting for more, and can be read meanwhile
    until("two rows", || onceline.rows("out.sqlite").len() == 2);
    running.signal(Signal::TERM);
    assert_eq!(running.wait().settled().counts(["events_in", "created"]), [2, 2]);
}

#[test]
fn killed_and_repeated_leaves_the_same_rows() {
    let onceline = sqlite();
    let input: Vec<u8> = (0..60_000).flat_map(|n| line(n).into_bytes()).collect();
    // the second half never comes
    let running = onceline.start_open(&input[..input.len() / 2]);
    until("a row", || !onceline.rows("out.sqlite").is_empty());
    running.signal(Signal::KILL);
    assert_eq!(running.wait().status, None);
    let before = onceline.rows("out.sqlite").len() as u64;
    assert!(before > 0 && before < 60_000, "killed with {before} rows");
    let run = onceline.run(&input).settled();
    assert_eq!(run.counts(["created", "duplicates"]), [60_000 - before, before]);
    let rows = onceline.rows("out.sqlite");
    assert_eq!((rows.len(), rows.iter().filter(|row| row.version == 2).count() as u64), (60_000, before));
}

#[test]
fn dead_letters_that_cannot_be_written_are_not_settled() {
    let pipeline = pipeline(STDIN, SQLITE) + "\n[dead_letter]\npath = \"{dir}/pipeline.toml/dead.ndjson\"\n";
    let onceline = Onceline::new(&pipeline);
    let running = onceline.start(BAD);
    until("a row", || onceline.rows("out.sqlite").len() == 1);
    running.signal(Signal::TERM);
    running.signal(Signal::INT);
    let run = running.wait().adds_up();
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("dead letters cannot be written"), "{}", run.stderr);
    assert!(run.count("unsettled") >= 3 && run.count("dead_lettered") == 0, "{}", run.summary);
}

/// `tests/golden/check/NAME.toml`: what `check` says of it is `NAME.txt`.
#[test]
fn check_says_what_is_committed() {
    let folder = folder().join("golden/check");
    let mut paths: Vec<_> =
        std::fs::read_dir(&folder).expect("the folder").map(|e| e.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    paths.sort();
    assert!(paths.len() >= 6);
    let onceline = Onceline::new("");
    let mut differing = Vec::new();
    for path in paths {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        std::fs::copy(&path, onceline.path(&name)).expect("copy the pipeline");
        let run = onceline.call(&["check", &name, "--state", "state"], b"");
        assert_eq!(run.status, Some(0), "{name}: {}", run.stderr);
        let golden = path.with_extension("txt");
        if update() {
            std::fs::write(golden, &run.stdout).expect("a writable folder");
        } else if std::fs::read_to_string(golden).unwrap_or_default() != run.stdout {
            differing.push(run.stdout);
        }
        assert!(run.stderr.is_empty(), "{}", run.stderr);
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn progress_is_no_nuisance_without_a_terminal() {
    let run = sqlite().args(&["--progress"]).run(EVENTS).settled();
    assert_eq!(run.count("created"), 2);
    assert!(!run.stderr.contains('\u{1b}') && run.stdout.is_empty(), "{:?}", run.stderr);
}

#[test]
fn what_nobody_reads_of_standard_input_is_told() {
    let said = "there is something on standard input";
    let onceline = once(files("\"in/*\""));
    std::fs::create_dir(onceline.path("in")).expect("a folder");
    std::fs::write(onceline.path("in/a"), "{}\n").expect("a file");
    let run = onceline.run(b"").adds_up();
    assert!(!run.stderr.contains(said), "{}", run.stderr);
    let run = onceline.run(b"{}\n").adds_up();
    assert_eq!(run.stderr.matches(said).count(), 1, "{}", run.stderr);
    let input = std::fs::File::open(onceline.path("in/a")).expect("a file");
    for (input, is_told) in [(Stdio::from(input), true), (Stdio::null(), false)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceline"));
        command.current_dir(onceline.path("")).args(["run", "pipeline.toml", "--once", "--state", "state"]);
        let output = command.stdin(input).output().expect("onceline");
        assert_eq!(String::from_utf8_lossy(&output.stderr).contains(said), is_told, "{output:?}");
    }
}
