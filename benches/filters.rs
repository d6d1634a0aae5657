//! `cargo bench --bench filters`: what an event costs with the filters that people bring from elsewhere: lines of
//! Apache by `grok` and by `dissect`, of syslog by `grok`, JSON with three `mutate`s, stack traces by `multiline`.
//! Nanoseconds of CPU an event, by `onceline bench pipeline` over the same generated lines each time. `-- NAME` for
//! those whose name begins so. ONCELINE_BENCH_PROGRAM is another build to measure.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use fastrand::Rng;
use serde_json::Value;

type Failed = Box<dyn std::error::Error>;

const LINES: u32 = 200_000;
const ROUNDS: &str = "7";

/// The same end of each pipeline.
const REST: &str = "[time]\nmissing = \"now\"\n[id]\nscheme = \"time-hash\"\nmethod = \"MD5\"\n\
                    [index]\nname = \"bench-%{+yyyy.MM.dd}\"\nstrict = false\n[output]\ntype = \"stdout\"\n";

struct Case {
    name: &'static str,
    lines: fn(&mut Rng, u32) -> String,
    codec: &'static str,
    filters: &'static str,
}

const CASES: &[Case] = &[
    Case { name: "apache combined, no filter", lines: apache, codec: "\"plain\"", filters: "" },
    Case {
        name: "apache combined by grok",
        lines: apache,
        codec: "\"plain\"",
        filters: "[[filter]]\ntype = \"grok\"\nmatch = { message = \"%{COMBINEDAPACHELOG}\" }\n",
    },
    Case {
        name: "apache combined by grok, v8 names",
        lines: apache,
        codec: "\"plain\"",
        filters: "[[filter]]\ntype = \"grok\"\necs_compatibility = \"v8\"\n\
                  match = { message = \"%{COMBINEDAPACHELOG}\" }\n",
    },
    Case {
        name: "apache combined by grok and date",
        lines: apache,
        codec: "\"plain\"",
        filters: "[[filter]]\ntype = \"grok\"\nmatch = { message = \"%{COMBINEDAPACHELOG}\" }\n\
                  [[filter]]\ntype = \"date\"\nmatch = [\"timestamp\", \"dd/MMM/yyyy:HH:mm:ss Z\"]\n",
    },
    Case {
        name: "apache combined by dissect",
        lines: apache,
        codec: "\"plain\"",
        filters: "[[filter]]\ntype = \"dissect\"\nmapping = { message = '%{clientip} %{ident} %{auth} [%{timestamp}] \
                  \"%{verb} %{request} HTTP/%{httpversion}\" %{response} %{bytes} \"%{referrer}\" \"%{agent}\"' }\n",
    },
    Case {
        name: "syslog by grok and date",
        lines: syslog,
        codec: "\"plain\"",
        filters: "[[filter]]\ntype = \"grok\"\nmatch = { message = \"%{SYSLOGLINE}\" }\noverwrite = [\"message\"]\n\
                  [[filter]]\ntype = \"date\"\nmatch = [\"timestamp\", \"MMM d HH:mm:ss\", \"MMM dd HH:mm:ss\"]\n",
    },
    Case { name: "JSON, no filter", lines: json, codec: "\"json\"", filters: "" },
    Case {
        name: "JSON with three mutates",
        lines: json,
        codec: "\"json\"",
        filters: "[[filter]]\ntype = \"mutate\"\nrename = { host = \"[host][name]\" }\n\
                  [[filter]]\ntype = \"mutate\"\nconvert = { status = \"integer\" }\nlowercase = [\"level\"]\n\
                  [[filter]]\ntype = \"mutate\"\nadd_field = { env = \"prod-%{service}\" }\n\
                  remove_field = [\"trace_id\"]\n",
    },
    Case {
        name: "java traces by multiline",
        lines: java,
        codec: "{ type = \"multiline\", pattern = '^\\d{4}-', negate = true, what = \"previous\" }",
        filters: "",
    },
];

fn main() -> Result<(), Failed> {
    let names: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let folder = tempfile::tempdir()?;
    println!("| pipeline | bytes | decode | filters | id, index, body | whole way | events a CPU-second |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for case in CASES {
        if names.is_empty() || names.iter().any(|name| case.name.starts_with(name.as_str())) {
            println!("{}", row(case, folder.path())?);
        }
    }
    Ok(())
}

fn row(case: &Case, folder: &Path) -> Result<String, Failed> {
    let (lines, pipeline) = (folder.join("lines.log"), folder.join("pipeline.toml"));
    let mut random = Rng::with_seed(7);
    let mut file = BufWriter::new(File::create(&lines)?);
    (0..LINES).try_for_each(|number| writeln!(file, "{}", (case.lines)(&mut random, number)))?;
    file.into_inner()?;
    let Case { name, codec, filters, .. } = case;
    fs::write(&pipeline, format!("[[input]]\ntype = \"stdin\"\ncodec = {codec}\n{filters}{REST}"))?;
    let program = std::env::var_os("ONCELINE_BENCH_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_onceline").into());
    let mut command = Command::new(program);
    command.args(["bench", "pipeline", "--json", "--rounds", ROUNDS, "--input"]).arg(&lines).arg(&pipeline);
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let stages = report["stages"].as_array().ok_or("no stages")?;
    let ns = |stage: &str| stages.iter().find(|row| row["stage"] == stage).and_then(|row| row["ns"].as_f64());
    let ns = |stage| ns(stage).ok_or_else(|| format!("no stage {stage}"));
    let bytes = report["bytes"].as_u64().unwrap_or(0) / report["events"].as_u64().unwrap_or(1).max(1);
    let (cut, decode, whole) = (ns("cut records")?, ns("decode")?, ns("whole way")?);
    Ok(format!(
        "| {name} | {bytes} | {:.0} | {:.0} | {:.0} | {whole:.0} | {:.0} |",
        cut + decode,
        ns("filters")?,
        ns("digest")? + ns("id, index, body")?,
        1e9 / whole
    ))
}

fn pick<'a>(random: &mut Rng, from: &[&'a str]) -> &'a str {
    from[random.usize(..from.len())]
}

fn apache(random: &mut Rng, number: u32) -> String {
    let [a, b, c, d] = [223, 255, 255, 255].map(|most| random.u8(1..=most));
    let user = pick(random, &["-", "-", "-", "ann", "ben"]);
    let (minute, second) = (number / 60 % 60, number % 60);
    let verb = pick(random, &["GET", "GET", "GET", "POST", "HEAD"]);
    let path =
        pick(random, &["/", "/index.html", "/api/v1/orders", "/static/app.9f8e7d.js", "/img/logo.png", "/search"]);
    let (session, bytes) = (random.u64(..1 << 48), random.u32(..90_000));
    let status = pick(random, &["200", "200", "200", "304", "404", "500", "302"]);
    let referrer = pick(random, &["-", "https://shop.example/", "https://shop.example/search?q=boots"]);
    let agent = pick(
        random,
        &[
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36",
            "Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15",
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:121.0) Gecko/20100101 Firefox/121.0",
            "curl/8.5.0",
        ],
    );
    format!(
        "{a}.{b}.{c}.{d} - {user} [12/Mar/2026:10:{minute:02}:{second:02} +0000] \
         \"{verb} {path}?s={session:x} HTTP/1.1\" {status} {bytes} \"{referrer}\" \"{agent}\""
    )
}

fn syslog(random: &mut Rng, number: u32) -> String {
    let host = pick(random, &["web-1", "web-2", "db-1"]);
    let (minute, second, process, port) = (number / 60 % 60, number % 60, random.u16(100..), random.u16(1024..));
    let user = pick(random, &["ann", "ben", "root"]);
    format!(
        "Mar 12 10:{minute:02}:{second:02} {host} sshd[{process}]: Accepted publickey for {user} \
         from 192.0.2.17 port {port} ssh2"
    )
}

fn json(random: &mut Rng, number: u32) -> String {
    let level = pick(random, &["INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR"]);
    let service = pick(random, &["orders", "billing", "catalog", "gateway"]);
    let (host, order, trace) = (random.u8(..12), random.u32(..100_000_000), random.u64(..));
    let (minute, second, millis) = (number / 60 % 60, number % 60, random.u16(..1000));
    let status = pick(random, &["200", "200", "201", "404", "500"]);
    let took = random.u16(..2500);
    format!(
        "{{\"@timestamp\":\"2026-03-12T10:{minute:02}:{second:02}.{millis:03}Z\",\"level\":\"{level}\",\
         \"service\":\"{service}\",\"host\":\"{service}-{host}\",\"message\":\"order {order} was stored\",\
         \"trace_id\":\"{trace:016x}\",\"duration_ms\":{took},\"status\":\"{status}\",\"user\":{{\"id\":{order}}}}}"
    )
}

/// One event in two is a trace of six lines.
fn java(random: &mut Rng, number: u32) -> String {
    let (minute, second, millis) = (number / 60 % 60, number % 60, random.u16(..1000));
    let order = random.u32(..100_000);
    let head = format!("2026-03-12 10:{minute:02}:{second:02},{millis:03}");
    if number.is_multiple_of(2) {
        return format!("{head} INFO  [exec-{}] com.example.Orders - order {order} was stored", number % 16);
    }
    format!(
        "{head} ERROR [exec-{}] com.example.Orders - order {order} failed\njava.lang.IllegalStateException: no stock\n\
         \tat com.example.stock.Stock.take(Stock.java:42)\n\
         \tat com.example.orders.OrderService.place(OrderService.java:118)\n\
         Caused by: java.sql.SQLTransientConnectionException: pool - no connection within 30000ms.\n\
         \tat com.zaxxer.hikari.pool.HikariPool.createTimeoutException(HikariPool.java:696)\n\t... 12 more",
        number % 16
    )
}
