//! What a fetch needs of the web: one question at a time, answered by a status and bytes.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncRead;

/// The way to one repository on one server. Keeps to one place: where the first question was
/// answered, there the others go.
pub trait Transport: Send {
    type Body: AsyncRead + Send + Unpin;

    fn ask(
        &mut self,
        question: Question,
    ) -> impl Future<Output = Result<Reply<Self::Body>, NoReply>> + Send;

    /// How often the server was asked so far, also where it led us on and in vain.
    fn requests(&self) -> u32;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// `GET <repository>/info/refs?service=git-upload-pack`, in version 2 if the server knows it.
    Advert,
    /// `POST <repository>/git-upload-pack`.
    UploadPack { body: Bytes, version: Version },
}

/// Which protocol a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// And version 1, which differs in one line.
    V0,
    V2,
}

#[derive(Debug)]
pub struct Reply<B> {
    pub status: u16,
    pub content_type: String,
    pub retry_after: Option<Duration>,
    pub body: B,
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoReply {
    Unreachable,
    /// Its address is not one that we dial.
    Forbidden,
    TooSlow,
}

pub const ADVERT_TYPE: &str = "application/x-git-upload-pack-advertisement";
pub const REQUEST_TYPE: &str = "application/x-git-upload-pack-request";
pub const RESULT_TYPE: &str = "application/x-git-upload-pack-result";
