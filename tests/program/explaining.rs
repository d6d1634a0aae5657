//! `explain --steps` and `--pretty`: what each filter did.

use serde_json::{Value, json};

use super::rig::Onceline;

const PIPELINE: &str = r#"
[[input]]
type = "stdin"
codec = "json"

[[filter]]
type = "dissect"
mapping = { message = "%{verb} %{[url][path]}" }
remove_field = "message"

[[filter]]
type = "mutate"
convert = { n = "integer" }
when = "[n]"

[[filter]]
type = "split"
field = "items"
when = "[items]"

[[filter]]
type = "drop"
when = '[verb] == "HEAD"'

[id]
scheme = "hash"
method = "SHA256"

[index]
name = "lines"

[output]
type = "stdout"
"#;

const EVENTS: &[u8] = b"{\"@timestamp\":\"2026-03-01T10:00:00Z\",\"message\":\"GET /a\",\"n\":\"1\"}\n\
    {\"@timestamp\":\"2026-03-01T10:00:00Z\",\"message\":\"HEAD /\\u001b[31m\"}\nno json\n\
    {\"@timestamp\":\"2026-03-01T10:00:00Z\",\"items\":[1,2]}\n";

fn explain(flags: &[&str]) -> String {
    let onceline = Onceline::new(PIPELINE);
    let args = [&["explain", "pipeline.toml"], flags].concat();
    let run = onceline.call(&args, EVENTS);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    run.stdout
}

#[test]
fn steps_tell_what_each_filter_did() {
    let mut answers: Vec<Value> =
        explain(&["--steps"]).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for step in answers.iter_mut().flat_map(|answer| answer["steps"].as_array_mut().expect("steps")) {
        let micros = step.as_object_mut().expect("an object").remove("micros");
        assert!(micros.and_then(|micros| micros.as_f64()).is_some_and(|micros| micros >= 0.0), "{step}");
    }
    let step = |filter: &str, set: Value, removed: Value| json!({"filter": filter, "set": set, "removed": removed});
    let none = |filter: &str| step(filter, json!({}), json!([]));
    let [dissect, mutate, split, drop] =
        ["filter 1 (dissect)", "filter 2 (mutate)", "filter 3 (split)", "filter 4 (drop)"];
    assert_eq!(
        answers[0]["steps"],
        json!([
            step(dissect, json!({"[verb]": "GET", "[url][path]": "/a"}), json!(["[message]"])),
            step(mutate, json!({"[n]": 1}), json!([])),
            none(split),
            none(drop)
        ])
    );
    let mut dropped = none(drop);
    dropped["ended"] = "drop".into();
    assert_eq!(answers[1]["steps"][3], dropped);
    assert_eq!((&answers[2]["steps"], &answers[2]["outcome"]), (&json!([]), &json!("dead-letter")));
    // the second event is one that split made
    let (first, mut second) =
        (step(split, json!({"[items]": 1}), json!([])), step(split, json!({"[items]": 2}), json!([])));
    second["made"] = true.into();
    assert_eq!((&answers[3]["steps"][2], &answers[4]["steps"][2]), (&first, &second));
    // the answers are those of `explain` without steps
    for (answer, line) in answers.iter_mut().zip(explain(&[]).lines()) {
        answer.as_object_mut().expect("an object").remove("steps");
        assert_eq!(answer, &serde_json::from_str::<Value>(line).expect("JSON"));
    }
    assert_eq!(answers.len(), 5);
}

#[test]
fn pretty_is_text_for_people() {
    let text = explain(&["--pretty", "--steps"]);
    for said in [
        "deliver  lines  index  ",
        "    verb                     \"GET\"\n",
        "    [url][path]              \"/a\"\n",
        "    + [verb]                 \"GET\"\n",
        "    - [message]              \"GET /a\"\n",
        "    ~ [n]                    \"1\" → 1\n",
        "  made of the event above",
        "dead-letter  bad-json: ",
        " µs  drop\n",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "what an event holds does not reach the terminal: {text}");
}

#[test]
fn a_path_stands_for_the_file_that_events_are_of() {
    let onceline = Onceline::new(
        r#"
        [[input]]
        type = "file"
        paths = ["/var/log/*.log"]
        [[filter]]
        type = "mutate"
        add_field = { kind = "app" }
        when = '[@metadata][file][path] == "/var/log/app.log"'
        [time]
        missing = "now"
        [id]
        scheme = "hash"
        method = "SHA1"
        [index]
        name = "logs"
        [output]
        type = "stdout"
        "#,
    );
    let kind = |args: &[&str]| {
        let run = onceline.call(&[&["explain", "pipeline.toml"], args].concat(), b"x\n");
        super::json(run.stdout.as_bytes())["event"]["kind"].clone()
    };
    assert_eq!(kind(&["--path", "/var/log/app.log"]), "app");
    assert_eq!([kind(&[]), kind(&["--path", "/x"])], [serde_json::Value::Null, serde_json::Value::Null]);
}
