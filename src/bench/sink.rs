//! The other side of `onceline bench pipeline`: a bulk endpoint on loopback that counts items and answers that each
//! was created. It runs as a process of its own, so that its work is not counted as ours.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// Listens on a free port of loopback, prints its address, and serves until standard input is closed.
pub fn run() -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut stdout = io::stdout();
    writeln!(stdout, "http://{}", listener.local_addr()?)?;
    stdout.flush()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // a connection that breaks is the client's to say
            std::thread::spawn(move || drop(serve(stream)));
        }
    });
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map(drop)
}

fn serve(stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut answer_to = stream.try_clone()?;
    let mut reader = BufReader::with_capacity(1 << 16, stream);
    let mut body = Vec::new();
    loop {
        let Some((is_bulk, length)) = head(&mut reader)? else { return Ok(()) };
        body.resize(length, 0);
        reader.read_exact(&mut body)?;
        let answer = if is_bulk { bulk(&body) } else { "{\"version\":{\"number\":\"0\"}}".to_string() };
        let length = answer.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        answer_to.write_all(head.as_bytes())?;
        answer_to.write_all(answer.as_bytes())?;
    }
}

/// Reads a request's head: whether it is a bulk request, and the length of its body. None at the end.
fn head(reader: &mut impl BufRead) -> io::Result<Option<(bool, usize)>> {
    let (mut line, mut is_bulk, mut length) = (String::new(), false, 0);
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    is_bulk |= line.starts_with("POST /_bulk");
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        if line.trim_end().is_empty() {
            return Ok(Some((is_bulk, length)));
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
}

/// Every second line is a document.
fn bulk(body: &[u8]) -> String {
    let items = memchr::memchr_iter(b'\n', body).count() / 2;
    let mut answer = String::with_capacity(items * 27 + 32);
    answer.push_str("{\"errors\":false,\"items\":[");
    for n in 0..items {
        answer.push_str(if n == 0 { "{\"create\":{\"status\":201}}" } else { ",{\"create\":{\"status\":201}}" });
    }
    answer.push_str("]}");
    answer
}
