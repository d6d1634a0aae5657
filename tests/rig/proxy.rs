//! A proxy before a real engine that breaks chosen bulk requests; all other requests pass.

use std::io::{self, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::http::{Answer, Headers, Http, Request, cut, read_answer, read_request, write_answer};

/// What happens to one bulk request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    None,
    /// The connection ends before the engine sees the request.
    CutBefore,
    /// The engine has the request and is at work; the connection ends at once.
    CutDelivered,
    /// The engine has done it and answered; the answer never arrives.
    CutAnswer,
    /// The answer arrives late.
    Delay(Duration),
    /// The answer arrives with half of its body, the length as promised, then the connection ends.
    Truncate,
    /// The answer arrives as 200 with a body that is not JSON.
    Garble,
    /// The engine gets it twice, and answers the second.
    Repeat,
    /// The engine never sees it; the answer has this status.
    Refuse(u16),
    /// The engine does not see the request; what arrives is the answer to the bulk request before it.
    Stale,
}

pub struct Proxy {
    pub url: String,
    seen: Arc<Mutex<Seen>>,
}

type Rule = dyn Fn(usize) -> Fault + Send + Sync;

/// What came, and what was done to it.
#[derive(Default)]
struct Seen {
    faults: Vec<Fault>,
    lines: u64,
}

impl Proxy {
    /// `rule` gives the fate of the n-th bulk request, counted from 0 over all connections.
    pub fn new(upstream: &str, rule: impl Fn(usize) -> Fault + Send + Sync + 'static) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (upstream, rule, log): (_, Arc<Rule>, _) = (Http::new(upstream), Arc::new(rule), seen.clone());
        // Ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (upstream, rule, log) = (upstream.clone(), rule.clone(), log.clone());
                std::thread::spawn(move || {
                    // Either side may end a connection at any time; that is what this is for.
                    let _ = serve(&stream, &upstream, &*rule, &log);
                    cut(&stream);
                });
            }
        });
        Proxy { url, seen }
    }

    /// What was done to each bulk request so far.
    pub fn faults(&self) -> Vec<Fault> {
        self.seen.lock().expect("a lock").faults.clone()
    }

    /// How many lines the bulk requests had, of bodies that were not compressed: two for a document.
    pub fn lines(&self) -> u64 {
        self.seen.lock().expect("a lock").lines
    }
}

fn serve(stream: &TcpStream, upstream: &Http, rule: &Rule, seen: &Mutex<Seen>) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut last = None;
    while let Some(request) = read_request(&mut reader)? {
        let fault = if is_bulk(&request) {
            let mut seen = seen.lock().expect("a lock");
            seen.lines += memchr::memchr_iter(b'\n', &request.body).count() as u64;
            let fault = rule(seen.faults.len());
            seen.faults.push(fault);
            fault
        } else {
            Fault::None
        };
        if let (Fault::Stale, Some(answer)) = (fault, &last) {
            let mut stream = stream;
            write_answer(&mut stream, answer, request.keep)?;
        } else if fault == Fault::CutBefore || !pass(stream, upstream, &request, fault, &mut last)? {
            return Ok(());
        }
    }
    Ok(())
}

fn is_bulk(request: &Request) -> bool {
    request.path.split('?').next().is_some_and(|path| path.ends_with("/_bulk"))
}

/// Passes a request on and its answer back; false: the connection ends here.
fn pass(
    mut stream: &TcpStream,
    upstream: &Http,
    request: &Request,
    fault: Fault,
    last: &mut Option<Answer>,
) -> io::Result<bool> {
    if let Fault::Refuse(status) = fault {
        write_answer(&mut stream, &Answer { status, headers: Headers::new(), body: Vec::new() }, request.keep)?;
        return Ok(request.keep);
    }
    let mut headers = request.headers.clone();
    headers.retain(|(key, _)| {
        !matches!(key.as_str(), "host" | "content-length" | "transfer-encoding" | "connection" | "expect")
    });
    let sent = upstream.deliver(&request.method, &request.path, &headers, &request.body)?;
    if fault == Fault::CutDelivered {
        // The engine's side stays open until it has answered: only the client loses its connection.
        std::thread::spawn(move || read_answer(&sent).map(drop));
        return Ok(false);
    }
    let mut answer = read_answer(&sent)?;
    if fault == Fault::Repeat {
        answer = upstream.request(&request.method, &request.path, &headers, &request.body)?;
    }
    match fault {
        Fault::CutAnswer => return Ok(false),
        Fault::Delay(time) => std::thread::sleep(time),
        Fault::Garble => {
            answer.status = 200;
            answer.body = b"<html>the gateway has a problem</html>".to_vec();
        }
        Fault::Truncate => {
            let mut bytes = Vec::new();
            write_answer(&mut bytes, &answer, request.keep)?;
            bytes.truncate(bytes.len() - answer.body.len() / 2);
            stream.write_all(&bytes)?;
            return Ok(false);
        }
        Fault::None | Fault::CutBefore | Fault::CutDelivered | Fault::Repeat | Fault::Stale | Fault::Refuse(_) => {}
    }
    write_answer(&mut stream, &answer, request.keep)?;
    if is_bulk(request) {
        *last = Some(answer);
    }
    Ok(request.keep)
}
