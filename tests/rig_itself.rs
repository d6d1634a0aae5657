//! Tests of the test rig: the stub follows its script, the proxy breaks what it is told to break.

mod rig;

use std::time::Duration;

use rig::{Fault, Http, Proxy, Stub};
use serde_json::{Value, json};

fn creates(ids: &[&str]) -> Vec<u8> {
    let line = |id: &&str| format!("{{\"create\":{{\"_index\":\"i\",\"_id\":\"{id}\"}}}}\n{{\"is\":\"{id}\"}}\n");
    ids.iter().map(line).collect::<String>().into_bytes()
}

fn statuses(answer: &Value) -> Vec<u64> {
    let items = answer["items"].as_array().expect("items");
    items.iter().map(|item| item["create"]["status"].as_u64().expect("a status")).collect()
}

#[test]
fn stub_follows_its_script() {
    let stub = Stub::new(
        r#"{"http":200,"preload":["b"],"items":[201,409,429,{"status":400,"type":"mapper_parsing_exception","reason":"no"}],"reply":"normal"}
{"http":200,"items":[201],"reply":"apply the writes, then close the socket without answering"}
{"http":413}
{"http":403,"body":"expired"}
{"http":200,"items":[201]}
"#,
    );
    let http = Http::new(&stub.url);
    let first = http.bulk("/_bulk", &creates(&["a", "b", "c", "d"])).json();
    assert_eq!(statuses(&first), [201, 409, 429, 400]);
    assert_eq!(first["errors"], true);
    assert_eq!(first["items"][3]["create"]["error"], json!({"type": "mapper_parsing_exception", "reason": "no"}));
    assert!(http.request("POST", "/_bulk", &vec![], &creates(&["c"])).is_err(), "the answer is lost");
    assert_eq!(http.bulk("/_bulk", &creates(&["e"])).status, 413);
    let refused = http.bulk("/_bulk", &creates(&["e"]));
    assert_eq!((refused.status, refused.text().as_str()), (403, "expired"));
    // Fewer items than documents, as the script has it; only what is acknowledged is stored.
    assert_eq!(statuses(&http.bulk("/_bulk", &creates(&["e", "f"])).json()), [201]);
    // After the script: what is true.
    assert_eq!(statuses(&http.bulk("/_bulk", &creates(&["a", "b", "c", "d", "f"])).json()), [409, 409, 409, 201, 201]);
    assert_eq!(stub.ids()[1], ["c"]);
    assert_eq!(stub.bulks()[0].header("content-type"), Some("application/x-ndjson"));
    let ids: Vec<String> = stub.docs().into_keys().map(|(_, id)| id).collect();
    assert_eq!(ids, ["a", "b", "c", "d", "e", "f"]);
}

#[test]
fn stub_filters_as_the_engines_do() {
    let stub = Stub::new("");
    let http = Http::new(&stub.url);
    http.bulk("/_bulk", &creates(&["a"]));
    let ask = |paths: &str, ids: &[&str]| http.bulk(&format!("/_bulk?filter_path={paths}"), &creates(ids)).json();
    let conflict = "version_conflict_engine_exception";
    assert_eq!(
        ask("errors,items.*.status,items.*.error.type", &["a", "b"]),
        json!({"errors": true, "items": [{"create": {"status": 409, "error": {"type": conflict}}}, {"create": {"status": 201}}]})
    );
    assert_eq!(
        ask("errors%2Citems.*.error.type", &["a", "c"]),
        json!({"errors": true, "items": [{"create": {"error": {"type": conflict}}}]})
    );
    assert_eq!(ask("errors,items.*.error", &["d"]), json!({"errors": false}));
}

#[test]
fn stub_answers_other_requests() {
    let stub = Stub::new("").then(429);
    let http = Http::new(&stub.url);
    assert_eq!(http.get("/").json()["version"]["number"], "8.17.0");
    assert_eq!(http.get("/_alias/x").status, 404);
    assert_eq!(http.get("/_resolve/index/x").json()["data_streams"], json!([]));
    assert_eq!(http.put("/_index_template/x", &json!({})).status, 200);
    assert_eq!(statuses(&http.bulk("/_bulk", &creates(&["a"])).json()), [429]);
    assert_eq!(stub.others().len(), 4);
    assert!(stub.docs().is_empty());
}

/// A client of the kind the program has: connections kept, bodies chunked and compressed.
#[test]
fn stub_reads_chunked_gzip_on_a_kept_connection() {
    use std::io::{Read, Write};
    let stub = Stub::new("");
    let mut stream = std::net::TcpStream::connect(stub.url.trim_start_matches("http://")).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    for id in ["a", "b"] {
        let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        zip.write_all(&creates(&[id])).expect("write to memory");
        let zipped = zip.finish().expect("write to memory");
        let (head, tail) = zipped.split_at(7);
        let mut bytes =
            b"POST /_bulk HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in [head, tail, b""] {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        stream.write_all(&bytes).expect("a sent request");
        let mut answer = Vec::new();
        while !answer.ends_with(b"}") {
            let mut part = [0; 1024];
            let len = stream.read(&mut part).expect("an answer");
            assert_ne!(len, 0, "the connection was kept");
            answer.extend_from_slice(&part[..len]);
        }
    }
    assert_eq!(stub.ids(), [["a"], ["b"]]);
}

#[test]
fn proxy_breaks_what_it_is_told_to() {
    let stub = Stub::new("");
    let faults = [
        Fault::None,
        Fault::CutBefore,
        Fault::CutAnswer,
        Fault::Truncate,
        Fault::Garble,
        Fault::Delay(Duration::from_millis(1)),
        Fault::Repeat,
        Fault::Refuse(503),
    ];
    let proxy = Proxy::new(&stub.url, move |n| faults[n]);
    let http = Http::new(&proxy.url);
    // Other requests do not count and pass.
    assert_eq!(http.get("/").status, 200);
    let send = |id: &str| http.request("POST", "/_bulk", &vec![], &creates(&[id]));
    assert_eq!(statuses(&send("none").expect("an answer").json()), [201]);
    assert!(send("before").is_err());
    assert!(send("answer").is_err());
    assert!(send("truncate").is_err());
    assert_eq!(send("garble").expect("an answer").json(), Value::Null);
    assert_eq!(statuses(&send("delay").expect("an answer").json()), [201]);
    assert_eq!(statuses(&send("repeat").expect("an answer").json()), [409]);
    assert_eq!(send("refuse").expect("an answer").status, 503);
    assert_eq!((proxy.faults(), proxy.lines()), (faults.to_vec(), 16));
    // All but the one cut before and the one refused were delivered.
    assert_eq!(stub.ids(), [["none"], ["answer"], ["truncate"], ["garble"], ["delay"], ["repeat"], ["repeat"]]);
}

#[test]
fn stub_counts_many() {
    let stub = Stub::new("").lean().refuses(0.5, 429);
    let http = Http::new(&stub.url);
    let body: String =
        (0..100).map(|n| format!("{{\"create\":{{\"_id\":\"{n}\"}}}}\n{{\"a\":0,\"n\":{n}}}\n")).collect();
    let answer = http.bulk("/i/_bulk", body.as_bytes()).json();
    let created: Vec<u64> = (0..).zip(statuses(&answer)).filter(|(_, status)| *status == 201).map(|(n, _)| n).collect();
    let mut numbers = stub.numbers();
    numbers.sort_unstable();
    assert_eq!((&numbers, stub.len()), (&created, created.len()));
    assert_eq!(stub.items(), (100, 100 - created.len() as u64));
    assert!((20..80).contains(&created.len()) && stub.bulks().is_empty());
}
