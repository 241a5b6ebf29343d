//! Smart HTTP in a few lines, enough for the real git to clone from us and push to us.

use std::sync::Arc;

use grasp_git::{
    CommandLimits, CommandReader, LsRefs, PackLimits, Protocol, Quarantine, Repo, Report,
    ServeLimits, Service, advertise, upload_pack,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::PATIENCE;

/// Serves one repository to any number of clients until it is dropped.
pub struct Host {
    pub url: String,
    task: tokio::task::JoinHandle<()>,
}

impl Host {
    pub async fn start(repo: &Repo) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/repo", listener.local_addr().unwrap());
        let repo = Arc::new(repo.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&repo)));
            }
        });
        Self { url, task }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: TcpStream, repo: Arc<Repo>) {
    let (head, body) = read_request(&mut stream).await;
    let protocol = head
        .lines()
        .find_map(|line| line.strip_prefix("git-protocol: "))
        .map_or(Protocol::V0, Protocol::from_header);
    let path = head.split(' ').nth(1).unwrap();
    let body = match path.trim_start_matches("/repo") {
        "/info/refs?service=git-upload-pack" => {
            advertise(Service::UploadPack, protocol, &repo.refs().unwrap()).to_vec()
        }
        "/info/refs?service=git-receive-pack" => {
            advertise(Service::ReceivePack, protocol, &repo.refs().unwrap()).to_vec()
        }
        "/git-upload-pack" => fetch(&repo, protocol, body).await,
        "/git-receive-pack" => push(&repo, body).await,
        other => panic!("{other}"),
    };
    let kind = match path.split_once("service=") {
        Some((_, service)) => format!("application/x-{service}-advertisement"),
        None => format!("application/x-{}-result", path.rsplit('/').next().unwrap()),
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(&body).await;
}

/// Lengths only; clients are told to send neither chunks nor gzip.
async fn read_request(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut received = Vec::new();
    loop {
        let end = received.windows(4).position(|part| part == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8(received[..end].to_vec()).unwrap();
            let (first, rest) = head.split_once("\r\n").unwrap();
            let head = format!("{first}\n{}", rest.to_lowercase().replace("\r\n", "\n"));
            assert!(!head.contains("gzip\n"), "{head}");
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |value| value.parse().unwrap());
            let mut body = received.split_off(end + 4);
            while body.len() < length {
                stream.read_buf(&mut body).await.unwrap();
            }
            return (head, body);
        }
        assert!(stream.read_buf(&mut received).await.unwrap() > 0);
    }
}

async fn fetch(repo: &Repo, protocol: Protocol, body: Vec<u8>) -> Vec<u8> {
    if protocol == Protocol::V2
        && let Some(asked) = LsRefs::parse(&body).unwrap()
    {
        return asked.answer(&repo.refs().unwrap()).to_vec();
    }
    let body = std::io::Cursor::new(body);
    let mut served = upload_pack(repo, protocol, body, &ServeLimits::default())
        .await
        .unwrap();
    let mut response = Vec::new();
    while let Some(chunk) = served.chunk().await.unwrap() {
        response.extend_from_slice(&chunk);
    }
    response
}

/// Does what is asked, unless a branch is called `no`.
async fn push(repo: &Repo, body: Vec<u8>) -> Vec<u8> {
    let mut reader = CommandReader::new(CommandLimits::default());
    let head = reader.feed(&body).unwrap().unwrap();
    let names = head.commands.iter().map(|command| command.name.as_str());
    let mut report = Report {
        refs: names.collect(),
        messages: vec!["hello from here"],
        ..Report::default()
    };
    if report.refs.iter().any(|name| name.ends_with("/no")) {
        report.refused = Some("not this one");
        return report.encode(&head.capabilities).to_vec();
    }
    if head.commands.iter().any(|command| command.new.is_some()) {
        let mut quarantine = Quarantine::begin(repo).unwrap();
        let limits = PackLimits::default();
        quarantine
            .receive_pack(&head.rest[..], &limits)
            .await
            .unwrap();
        let tips: Vec<_> = head.commands.iter().filter_map(|one| one.new).collect();
        quarantine.check_connected(&tips, PATIENCE).await.unwrap();
        quarantine.migrate().unwrap();
    }
    repo.edit_refs(|refs| {
        for command in &head.commands {
            let target = command.target.clone().unwrap();
            match command.new {
                Some(new) => refs.insert(target, new),
                None => refs.remove(&target),
            };
        }
    })
    .unwrap();
    report.encode(&head.capabilities).to_vec()
}
