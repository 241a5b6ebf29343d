//! Another git server without the web between: the real `git upload-pack`, and what a test makes
//! of its answers.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use grasp_core::clone_url::CloneUrl;
use grasp_core::git::ObjectId;
use grasp_core::hunt::io::{FetchEnd, Fetched};
use grasp_core::push::Backing;
use grasp_git::fetch::{
    ADVERT_TYPE, Extent, FetchLimits, NoReply, Question, RESULT_TYPE, Reply, Transport, Version,
    Watch, fetch,
};
use grasp_git::{PackFault, Repo, pktline};
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

use crate::support::git_with;

type Twist = Box<dyn Fn(Vec<u8>) -> Vec<u8> + Send + Sync>;

pub struct Host {
    dir: PathBuf,
    pub url: CloneUrl,
    /// Of what is asked of it.
    pub backing: Backing,
    pub version: Version,
    pub settings: Vec<&'static str>,
    pub status: u16,
    pub content_type: Option<&'static str>,
    /// Of a pack's answer.
    pub twist: Option<Twist>,
    /// Of the list of refs.
    pub twist_refs: Option<Twist>,
    /// From this question on, answers do not end.
    pub hangs_at: Option<usize>,
    pub asked: Vec<Question>,
}

/// `git.example/path`.
pub fn url(at: &str) -> CloneUrl {
    CloneUrl::parse(&format!("https://{at}")).unwrap()
}

impl Host {
    pub fn of(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            url: url("git.example/r.git"),
            backing: Backing::State,
            version: Version::V2,
            settings: Vec::new(),
            status: 200,
            content_type: None,
            twist: None,
            twist_refs: None,
            hangs_at: None,
            asked: Vec::new(),
        }
    }

    pub async fn fetch(&mut self, repo: &Repo, wants: &[ObjectId]) -> Fetched {
        self.fetch_within(repo, wants, &FetchLimits::default())
            .await
    }

    pub async fn fetch_within(
        &mut self,
        repo: &Repo,
        wants: &[ObjectId],
        limits: &FetchLimits,
    ) -> Fetched {
        let (url, backing) = (self.url.clone(), self.backing);
        let extent = Extent::Missing(&url, backing);
        fetch(repo, extent, wants, self, &Onlooker::default(), limits).await
    }

    /// The requests for packs, as text.
    pub fn pack_requests(&self) -> Vec<String> {
        let packs = self.asked.iter().filter_map(|question| match question {
            Question::UploadPack { body, .. } => Some(String::from_utf8_lossy(body).into_owned()),
            Question::Advert => None,
        });
        packs.filter(|text| !text.contains("ls-refs")).collect()
    }

    fn run(&self, version: Version, flag: &str, input: &[u8]) -> Vec<u8> {
        let mut args: Vec<&str> = Vec::new();
        for setting in &self.settings {
            args.extend(["-c", setting]);
        }
        args.extend(["upload-pack", "--stateless-rpc", flag, "."]);
        args.retain(|arg| !arg.is_empty());
        let protocol = match version {
            Version::V2 => "version=2",
            Version::V0 => "version=0",
        };
        // It may refuse, and says so in what it prints.
        git_with(&args, &self.dir, input, &[("GIT_PROTOCOL", protocol)]).stdout
    }

    fn answer(&self, question: &Question) -> Vec<u8> {
        match question {
            Question::Advert => {
                let refs = self.run(self.version, "--http-backend-info-refs", &[]);
                match self.version {
                    Version::V2 => refs,
                    Version::V0 => [b"001e# service=git-upload-pack\n0000", &refs[..]].concat(),
                }
            }
            Question::UploadPack { body, version } => {
                assert_eq!(*version, self.version);
                let answer = self.run(*version, "", body);
                let of_refs = String::from_utf8_lossy(body).contains("command=ls-refs");
                let twist = match of_refs {
                    true => &self.twist_refs,
                    false => &self.twist,
                };
                match twist {
                    Some(twist) => twist(answer),
                    None => answer,
                }
            }
        }
    }
}

impl Transport for Host {
    type Body = Box<dyn AsyncRead + Send + Unpin>;

    async fn ask(&mut self, question: Question) -> Result<Reply<Self::Body>, NoReply> {
        self.asked.push(question.clone());
        let usual = match question {
            Question::Advert => ADVERT_TYPE,
            Question::UploadPack { .. } => RESULT_TYPE,
        };
        let answer = std::io::Cursor::new(self.answer(&question));
        let body: Self::Body = match self.hangs_at.is_some_and(|at| self.asked.len() >= at) {
            true => Box::new(answer.chain(Silence)),
            false => Box::new(answer),
        };
        Ok(Reply {
            status: self.status,
            content_type: self.content_type.unwrap_or(usual).to_owned(),
            retry_after: Some(Duration::from_secs(7)),
            body,
        })
    }

    fn requests(&self) -> u32 {
        u32::try_from(self.asked.len()).unwrap_or(u32::MAX)
    }
}

/// Never a byte, never an end.
struct Silence;

impl AsyncRead for Silence {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Poll::Pending
    }
}

/// Counts, and ends a fetch that brings more than it may.
#[derive(Default)]
pub struct Onlooker {
    pub flowing: AtomicU64,
    pub arrived: AtomicU64,
    pub bytes: AtomicU64,
    pub most: Option<u64>,
    /// What the disk has room for.
    pub room: Option<u64>,
    pub refused: Mutex<Vec<String>>,
}

impl Watch for Onlooker {
    fn flowing(&self) {
        self.flowing.fetch_add(1, Ordering::Relaxed);
    }

    fn took(&self, bytes: u64) -> Result<(), FetchEnd> {
        let all = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        match self.most.is_some_and(|most| all > most) {
            true => Err(FetchEnd::Full),
            false => Ok(()),
        }
    }

    fn refused(&self, fault: &PackFault) {
        self.refused.lock().unwrap().push(fault.to_string());
    }

    fn arrived(&self) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
    }

    fn copies(&self, bytes: u64) -> Result<(), FetchEnd> {
        match self.room.is_some_and(|room| bytes > room) {
            true => Err(FetchEnd::DiskLow),
            false => Ok(()),
        }
    }
}

/// The packets of an answer, and what of it is pack.
pub fn take_apart(answer: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut head, mut pack) = (Vec::new(), Vec::new());
    let mut rest = answer;
    while let Ok(Some((packet, taken))) = pktline::decode(rest) {
        match packet {
            pktline::Packet::Data([1, data @ ..]) => pack.extend_from_slice(data),
            pktline::Packet::Data([2, ..]) => {}
            _ if pack.is_empty() => head.extend_from_slice(&rest[..taken]),
            _ => {}
        }
        rest = &rest[taken..];
    }
    (head, pack)
}

/// The same answer with another pack.
pub fn with_pack(answer: &[u8], pack: &[u8]) -> Vec<u8> {
    let (head, _) = take_apart(answer);
    let mut out = bytes::BytesMut::from(&head[..]);
    pktline::put_band(&mut out, pktline::Band::Data, pack);
    pktline::put_flush(&mut out);
    out.to_vec()
}

/// The same answer up to the middle of its pack, in whole packets.
pub fn half(answer: &[u8]) -> Vec<u8> {
    let (_, pack) = take_apart(answer);
    let mut half = with_pack(answer, &pack[..pack.len() / 2]);
    half.truncate(half.len() - b"0000".len());
    half
}
