//! TLS against a real TLS server: who is trusted, and what is said of each thing that is wrong.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::rig::{Authority, Engine, Leaf, Onceline, Run, Stub, Tls, unique_prefix};

const EVENTS: &[u8] =
    b"{\"@timestamp\":\"2026-01-01T00:00:00Z\",\"id\":\"a\"}\n{\"@timestamp\":\"2026-01-01T00:00:00Z\",\"id\":\"b\"}\n";

/// Files that `[output.tls]` names, in the folder of a run.
struct Files {
    ca: String,
    client: Leaf,
}

/// A run into `url` with `[output.tls]` as given.
fn onceline(url: &str, tls: &str, files: &Files) -> Onceline {
    let onceline = Onceline::new(&format!(
        r#"
        [[input]]
        type = "stdin"
        codec = "json"
        [id]
        scheme = "field"
        field = "%{{id}}"
        [index]
        name = "tls-test"
        [output]
        type = "elasticsearch"
        hosts = ["{url}"]
        retry_wait_min = "1ms"
        retry_wait_max = "20ms"
        [output.tls]
        {tls}
        [tuning]
        drain_max = "1ms"
        "#
    ));
    let write = |name: &str, text: &str| std::fs::write(onceline.path(name), text).expect("write a PEM file");
    write("ca.pem", &files.ca);
    write("client.pem", &files.client.certificate);
    write("client.key", &files.client.key);
    onceline
}

/// What is said of an endpoint that cannot be written to: after some tries the run is stopped.
fn refused(tls: &Tls, table: &str, files: &Files) -> Run {
    let onceline = onceline(&tls.url, table, files);
    let (running, before, started) = (onceline.start(EVENTS), tls.connections(), Instant::now());
    while tls.connections() < before + 8 {
        assert!(started.elapsed() < Duration::from_secs(60), "no tries");
        std::thread::sleep(Duration::from_millis(2));
    }
    running.signal(Signal::TERM);
    let run = running.wait();
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    assert_eq!(run.counts(["created", "dead_lettered"]), [0, 0], "{}", run.stderr);
    run
}

const CA: &str = "ca = '{dir}/ca.pem'";
const CLIENT: &str = "ca = '{dir}/ca.pem'\ncertificate = '{dir}/client.pem'\nkey = '{dir}/client.key'";

#[test]
fn events_arrive_by_tls_with_an_own_authority_and_a_client_certificate() {
    let (ours, theirs) = (Authority::new("servers"), Authority::new("clients"));
    let files = Files { ca: ours.pem(), client: theirs.leaf(&["onceline"], (2000, 4000)) };
    for (clients, table, versions) in [
        (None, CA.to_owned(), rustls::ALL_VERSIONS),
        (None, CA.to_owned(), &[&rustls::version::TLS12][..]),
        (None, format!("{CA}\nversion_min = '1.3'"), rustls::ALL_VERSIONS),
        (Some(theirs.pem()), CLIENT.to_owned(), &[&rustls::version::TLS12]),
        (Some(theirs.pem()), format!("{CLIENT}\nversion_min = '1.3'"), &[&rustls::version::TLS13]),
    ] {
        let stub = Stub::new("");
        let tls = Tls::of_versions(&stub.url, &ours.here(), clients.as_deref(), versions);
        let run = onceline(&tls.url, &table, &files).run(EVENTS).settled();
        assert_eq!((run.count("created"), stub.docs().len()), (2, 2), "{table}: {}", run.stderr);
        // by a name as well as by an address
        let run = onceline(&tls.url.replace("127.0.0.1", "localhost"), &table, &files).run(EVENTS).settled();
        assert_eq!(run.count("duplicates"), 2, "{table}: {}", run.stderr);
    }
}

#[test]
fn a_real_engine_behind_tls() {
    let (ours, engine, prefix) = (Authority::new("servers"), Engine::opensearch(), unique_prefix());
    let tls = Tls::new(&engine.url, &ours.here(), None);
    let files = Files { ca: ours.pem(), client: ours.here() };
    let onceline = onceline(&tls.url, CA, &files).args(&["--set", &format!("index.name={prefix}")]);
    onceline.run(EVENTS).settled();
    assert_eq!(onceline.run(EVENTS).settled().count("duplicates"), 2);
    let docs = engine.docs(&prefix);
    assert_eq!(docs.iter().map(|doc| doc.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn each_refusal_says_why() {
    let (ours, others) = (Authority::new("servers"), Authority::new("others"));
    let good = ours.here();
    let files = Files { ca: ours.pem(), client: others.leaf(&["onceline"], (2000, 4000)) };
    let stub = Stub::new("");
    let only_12 = Tls::of_versions(&stub.url, &good, None, &[&rustls::version::TLS12]);
    let serve = |leaf: &Leaf, clients: Option<&str>| Tls::new(&stub.url, leaf, clients);
    for (tls, table, want) in [
        (serve(&others.here(), None), CA, "is of an authority that is not trusted"),
        (serve(&good, None), "", "is of an authority that is not trusted"),
        (serve(&ours.leaf(&["127.0.0.1"], (2000, 2020)), None), CA, "expired at 2020-01-01T00:00:00.000Z"),
        (serve(&ours.leaf(&["127.0.0.1"], (3000, 4000)), None), CA, "valid from 3000-01-01T00:00:00.000Z only"),
        (serve(&ours.leaf(&["search.example"], (2000, 4000)), None), CA, "not for 127.0.0.1, but search.example"),
        (only_12, "ca = '{dir}/ca.pem'\nversion_min = '1.3'", "no version or cipher of TLS in common"),
        (serve(&good, Some(&ours.pem())), CA, "it wants a client certificate"),
        (serve(&good, Some(&ours.pem())), CLIENT, "it does not take our client certificate"),
    ] {
        let run = refused(&tls, table, &files);
        assert!(run.stderr.contains(want), "{want}: {}", run.stderr);
        let said = run.stderr.lines().filter(|line| line.contains("cannot be written to")).count();
        assert_eq!(said, 1, "{}", run.stderr);
    }
    assert_eq!(stub.docs().len() + stub.bulks().len() + stub.others().len(), 0, "something was said before");
}

#[test]
fn a_scheme_that_is_the_other_one_is_noticed() {
    let (ours, stub) = (Authority::new("servers"), Stub::new(""));
    let files = Files { ca: ours.pem(), client: ours.here() };
    let mut tls = Tls::new(&stub.url, &ours.here(), None);
    tls.url = tls.url.replace("https://", "http://");
    let run = refused(&tls, "", &files);
    assert!(run.stderr.contains("is it https:// instead of http://?"), "{}", run.stderr);
    // a server of plain HTTP answers so to what it cannot read
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("https://{}", listener.local_addr().expect("an address"));
    let onceline = onceline(&url, CA, &files);
    let running = onceline.start(EVENTS);
    for stream in listener.incoming().take(8) {
        let mut stream = stream.expect("a connection");
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    }
    running.signal(Signal::TERM);
    let run = running.wait();
    assert!(run.stderr.contains("is it http:// instead of https://?"), "{}", run.stderr);
}

#[test]
fn files_that_cannot_be_are_refused_at_once() {
    let ours = Authority::new("servers");
    let files = Files { ca: ours.pem(), client: ours.here() };
    let check = |table: &str, status: i32, want: &str, spoil: &dyn Fn(&Onceline)| {
        let onceline = onceline("https://127.0.0.1:1", table, &files);
        spoil(&onceline);
        let run = onceline.run(EVENTS);
        assert_eq!(run.status, Some(status), "{want}: {}", run.stderr);
        assert!(run.stderr.contains(want), "{want}: {}", run.stderr);
        assert!(!run.stderr.contains("MII") && !run.stderr.contains("MIG"), "the key is shown: {}", run.stderr);
    };
    let nothing = |_: &Onceline| {};
    let write = |name: &'static str, text: String| {
        move |onceline: &Onceline| std::fs::write(onceline.path(name), &text).expect("write")
    };
    let other = ours.here();
    check("ca = '{dir}/none.pem'", 1, "cannot read the authorities", &nothing);
    check(CA, 1, "no certificates in PEM form", &write("ca.pem", "text".to_owned()));
    check(CA, 1, "no certificates in PEM form", &write("ca.pem", files.client.key.clone()));
    check(CA, 1, "no certificates in PEM form", &write("ca.pem", ours.pem()[..200].to_owned()));
    check(CLIENT, 1, "no certificates in PEM form", &write("client.pem", String::new()));
    check(CLIENT, 1, "no key in PEM form", &write("client.key", files.ca.clone()));
    check(CLIENT, 1, "is not that of the first certificate", &write("client.key", other.key.clone()));
    let locked = files.client.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    check(CLIENT, 1, "is encrypted", &write("client.key", locked));
    check("certificate = '{dir}/client.pem'", 2, "`certificate` is given without `key`", &nothing);
    check("key = '{dir}/client.key'", 2, "`key` is given without `certificate`", &nothing);
    check("version_min = '1.1'", 2, "allowed: 1.2, 1.3", &nothing);
    let inline = format!("certificate = 'a'\nkey = '''\n{}'''", files.client.key);
    check(&inline, 2, "wants the path of a PEM file", &nothing);
}

#[test]
fn certificates_are_read_again_when_they_are_renewed() {
    let (old, new, clients) = (Authority::new("old"), Authority::new("new"), Authority::new("clients"));
    let stub = Stub::new("");
    let tls = Tls::new(&stub.url, &new.here(), Some(&clients.pem()));
    // neither the authority nor the certificate is the right one yet
    let files = Files { ca: old.pem(), client: old.leaf(&["onceline"], (2000, 4000)) };
    let onceline = onceline(&tls.url, CLIENT, &files);
    let running = onceline.start(EVENTS);
    let wait = |count: usize| {
        let started = Instant::now();
        while tls.connections() < count {
            assert!(started.elapsed() < Duration::from_secs(60), "no tries");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    wait(3);
    std::fs::write(onceline.path("ca.pem"), new.pem()).expect("write");
    wait(tls.connections() + 3);
    let client = clients.leaf(&["onceline"], (2000, 4000));
    // one after the other, as it happens: between them they do not match
    std::fs::write(onceline.path("client.pem"), &client.certificate).expect("write");
    wait(tls.connections() + 3);
    std::fs::write(onceline.path("client.key"), &client.key).expect("write");
    let run = running.wait().settled();
    assert_eq!(run.count("created"), 2);
    assert!(run.stderr.contains("going on with those that there are"), "{}", run.stderr);
    assert_eq!(stub.docs().len(), 2);
}
