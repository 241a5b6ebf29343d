//! The yardstick: `git http-backend` behind the smallest web server that it needs. One thread for
//! a connection, one process for a request, bodies of known length only.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub struct Backend {
    address: SocketAddr,
}

impl Backend {
    /// Serves the repositories below a folder until the process ends.
    pub fn start(root: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let root = root.clone();
                std::thread::spawn(move || serve(stream, &root));
            }
        });
        Self { address }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }
}

struct Request {
    method: String,
    path: String,
    query: String,
    protocol: String,
    kind: String,
    encoding: String,
    length: usize,
}

fn serve(stream: TcpStream, root: &PathBuf) {
    stream.set_nodelay(true).expect("a TCP option");
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut writer = stream;
    while let Some(request) = read_head(&mut reader) {
        let mut body = vec![0; request.length];
        if reader.read_exact(&mut body).is_err()
            || answer(&request, &body, root, &mut writer).is_err()
        {
            return;
        }
    }
}

fn read_head(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let method = words.next()?.to_owned();
    let target = words.next()?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = Request {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        protocol: String::new(),
        kind: String::new(),
        encoding: String::new(),
        length: 0,
    };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            return Some(request);
        };
        let value = value.trim().to_owned();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => request.length = value.parse().ok()?,
            "content-type" => request.kind = value,
            "content-encoding" => request.encoding = value,
            "git-protocol" => request.protocol = value,
            _ => {}
        }
    }
}

fn answer(
    request: &Request,
    body: &[u8],
    root: &PathBuf,
    writer: &mut TcpStream,
) -> std::io::Result<()> {
    let mut child = Command::new("git")
        .arg("http-backend")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("REQUEST_METHOD", &request.method)
        .env("PATH_INFO", &request.path)
        .env("QUERY_STRING", &request.query)
        .env("CONTENT_TYPE", &request.kind)
        .env("CONTENT_LENGTH", request.length.to_string())
        .env("HTTP_CONTENT_ENCODING", &request.encoding)
        .env("GIT_PROTOCOL", &request.protocol)
        .env("REMOTE_USER", "bench")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut stdin = child.stdin.take().expect("a pipe");
    let body = body.to_vec();
    std::thread::spawn(move || stdin.write_all(&body));
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut head = String::new();
    let mut status = "200 OK".to_owned();
    loop {
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        match line.trim_end() {
            "" => break,
            line => match line.strip_prefix("Status: ") {
                Some(said) => status = said.to_owned(),
                None => head.push_str(&format!("{line}\r\n")),
            },
        }
    }
    write!(
        writer,
        "HTTP/1.1 {status}\r\n{head}Transfer-Encoding: chunked\r\n\r\n"
    )?;
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let read = stdout.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        let mut framed = format!("{read:x}\r\n").into_bytes();
        framed.extend_from_slice(&chunk[..read]);
        framed.extend_from_slice(b"\r\n");
        writer.write_all(&framed)?;
    }
    child.wait()?;
    writer.write_all(b"0\r\n\r\n")
}
