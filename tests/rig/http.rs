//! The little HTTP that the rig needs: a blocking client of one request a connection, and the server's side of
//! reading a request and writing an answer.

use std::io::{self, BufRead, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// The longest wait for an answer: a stuck server fails the test instead of hanging it.
const ANSWER_SECS_MAX: u64 = 120;

pub type Headers = Vec<(String, String)>;

/// The first header of this name.
pub fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// A client of one server, `http://host:port`.
#[derive(Clone, Debug)]
pub struct Http {
    address: String,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Headers,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

impl Http {
    pub fn new(url: &str) -> Http {
        let address = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Http { address }
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None)
    }

    pub fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, Some(body))
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, Some(body))
    }

    pub fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, None)
    }

    /// A body of action and source lines, to `/_bulk` or another path such as `/_bulk?filter_path=errors`.
    pub fn bulk(&self, path: &str, body: &[u8]) -> Answer {
        let headers = vec![("content-type".to_owned(), "application/x-ndjson".to_owned())];
        self.request("POST", path, &headers, body).expect("an answer to a bulk request")
    }

    fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let mut headers = Headers::new();
        if body.is_some() {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        let bytes = body.map(Value::to_string).unwrap_or_default();
        self.request(method, path, &headers, bytes.as_bytes())
            .unwrap_or_else(|error| panic!("{method} {path} at {}: {error}", self.address))
    }

    pub fn request(&self, method: &str, path: &str, headers: &Headers, body: &[u8]) -> io::Result<Answer> {
        let stream = self.deliver(method, path, headers, body)?;
        read_answer(&stream)
    }

    /// Sends a request and leaves the answer unread.
    pub fn deliver(&self, method: &str, path: &str, headers: &Headers, body: &[u8]) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(ANSWER_SECS_MAX)))?;
        // HTTP/1.0: one request a connection, and no chunked answer.
        let mut head =
            format!("{method} {path} HTTP/1.0\r\nhost: {}\r\ncontent-length: {}\r\n", self.address, body.len());
        for (key, value) in headers {
            head += &format!("{key}: {value}\r\n");
        }
        head += "\r\n";
        stream.write_all(head.as_bytes())?;
        // A server that refuses the head may close before it has read the body; its answer still counts.
        match stream.write_all(body) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                Err(error)
            }
            _ => Ok(stream),
        }
    }
}

pub fn read_answer(stream: &TcpStream) -> io::Result<Answer> {
    let mut reader = io::BufReader::new(stream);
    let start = line(&mut reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = start.split(' ').nth(1).and_then(|text| text.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    let headers = read_headers(&mut reader)?;
    let mut body = Vec::new();
    reader.read_to_end(&mut body)?;
    let promised = header(&headers, "content-length").and_then(|text| text.parse().ok()).unwrap_or(body.len());
    // The answer to HEAD promises a length and has no body.
    if body.len() < promised && !body.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Answer { status, headers, body })
}

/// A request as a server reads it; the body without its chunking, still compressed if it came so.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: Headers,
    pub body: Vec<u8>,
    /// The connection stays open after the answer.
    pub keep: bool,
}

/// The next request of a connection; none when the client closed it.
pub fn read_request<S: Read + Write>(reader: &mut io::BufReader<S>) -> io::Result<Option<Request>> {
    let Some(start) = line(reader)? else {
        return Ok(None);
    };
    let mut words = start.split(' ').map(str::to_owned);
    let (Some(method), Some(path), Some(protocol)) = (words.next(), words.next(), words.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let headers = read_headers(reader)?;
    if header(&headers, "expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let body = read_body(reader, &headers)?;
    let close = header(&headers, "connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    Ok(Some(Request { method, path, headers, body, keep: protocol == "HTTP/1.1" && !close }))
}

fn read_headers(reader: &mut impl BufRead) -> io::Result<Headers> {
    let mut headers = Headers::new();
    loop {
        let text = line(reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if text.is_empty() {
            return Ok(headers);
        }
        let (key, value) = text.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
        headers.push((key.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn read_body(reader: &mut impl BufRead, headers: &Headers) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if header(headers, "transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        loop {
            let size = line(reader)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let digits = size.split(';').next().unwrap_or_default().trim();
            let len = usize::from_str_radix(digits, 16).map_err(|_| io::ErrorKind::InvalidData)?;
            let start = body.len();
            body.resize(start + len, 0);
            reader.read_exact(&mut body[start..])?;
            line(reader)?;
            if len == 0 {
                return Ok(body);
            }
        }
    }
    let len = header(headers, "content-length").map_or(Ok(0), str::parse).map_err(|_| io::ErrorKind::InvalidData)?;
    body.resize(len, 0);
    reader.read_exact(&mut body)?;
    Ok(body)
}

/// One line without its end; none at the end of the connection.
fn line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut text = String::new();
    if reader.read_line(&mut text)? == 0 {
        return Ok(None);
    }
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}

pub fn write_answer(stream: &mut impl Write, answer: &Answer, keep: bool) -> io::Result<()> {
    let connection = if keep { "keep-alive" } else { "close" };
    let mut bytes = format!(
        "HTTP/1.1 {} -\r\ncontent-length: {}\r\nconnection: {connection}\r\n",
        answer.status,
        answer.body.len()
    )
    .into_bytes();
    for (key, value) in answer.headers.iter().filter(|(key, _)| key != "content-length" && key != "connection") {
        bytes.extend_from_slice(format!("{key}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&answer.body);
    stream.write_all(&bytes)
}

/// Ends a connection both ways at once, whoever still reads from it.
pub fn cut(stream: &TcpStream) {
    // An error only says that it has ended already.
    let _ = stream.shutdown(Shutdown::Both);
}
