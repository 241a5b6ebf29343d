//! The fates of an event, and every reason for a refusal in one place.

use std::time::Duration;

use crate::git::ObjectId;
use crate::nip34::{Announcement, Identifier, IdentifierError, RepoId, State, Target};

/// What happens to an event: the only three fates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Store,
    Hold(Needs),
    Drop(Refusal),
}

/// What an event waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needs {
    /// An announcement: a state with refs that is applied.
    State(Announcement),
    /// A state: its objects, in a repository that it speaks for.
    Refs(State),
    /// A pull request or its update: one commit, in one of these repositories.
    Tip { tip: ObjectId, repos: Vec<RepoId> },
    /// Things that are held themselves; it comes with any of them.
    Release(Vec<Cause>),
    /// Things that nobody has shown us yet.
    Arrival(Vec<Cause>),
    /// Its text asks for what cannot be. It expires.
    Nothing,
}

/// What may change the verdict on an event that waits for another event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Cause {
    /// An announcement with this identifier, by anybody.
    Announced(Identifier),
    Came(Target),
}

/// Why an event does not come in. Its text is the NIP-01 message with its prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("invalid: created_at is more than {} ahead of the relay's clock", span(.0))]
    TooFarAhead(Duration),
    #[error("invalid: created_at is more than {} old", span(.0))]
    TooOld(Duration),
    #[error("invalid: the event has expired")]
    Expired,
    #[error("invalid: an event of kind 22242 belongs in an AUTH message")]
    AuthAsEvent,
    #[error("auth-required: this event is protected, only its author may publish it")]
    AuthRequired,
    #[error("restricted: this event is protected, only its author may publish it")]
    NotTheAuthor,
    #[error("invalid: no relay tag of this request to vanish names this relay")]
    VanishElsewhere,
    #[error("rate-limited: more than {0} events a minute from this address")]
    AddressRate(u32),
    #[error("rate-limited: more than {0} events a minute from this key")]
    KeyRate(u32),
    #[error("invalid: {0}")]
    Identifier(IdentifierError),
    #[error("restricted: the announcement does not list this service in both clone and relays")]
    NotListed,
    #[error("restricted: no repository here has the author among its maintainers")]
    NotMaintainer,
    #[error("restricted: it belongs to no repository that is hosted here")]
    Orphan,
    #[error("blocked: this server does not take repositories of that name or author")]
    RepositoryBlocked,
    #[error("blocked: this server does not take events of this author")]
    AuthorBlocked,
    #[error("rate-limited: too many events of this author wait for their git data")]
    TooManyHeld,
    #[error("rate-limited: too many events from this address wait for their git data")]
    TooManyHeldFromAddress,
    #[error("invalid: an announcement of more than {} KiB is not held", .0 / 1024)]
    TooLargeToHold(usize),
    #[error("rate-limited: too many events wait for their git data, try again later")]
    PurgatoryFull,
    #[error("rate-limited: it waited longest of all that came from there, and made way for others")]
    Evicted,
    #[error("rate-limited: more than a day's share of bytes from this relay, repository or key")]
    SyncQuota,
    #[error("rate-limited: more than a day's share of bytes from this address or key")]
    PublishedQuota,
    #[error("error: the disk is nearly full, only maintainers of hosted repositories may publish")]
    DiskFull,
    #[error("rate-limited: its repositories take no more pull requests of this author")]
    TooManyTips,
    #[error("replaced: a newer version is stored")]
    Replaced,
    #[error("blocked: its author has deleted this event")]
    Deleted,
    #[error("blocked: its author has asked to vanish from this relay")]
    Vanished,
    #[error("error: the event could not be stored, try again later")]
    StoreFailed,
}

impl Refusal {
    /// Something else that comes may change it.
    pub fn is_early(&self) -> bool {
        matches!(
            self,
            Refusal::Orphan | Refusal::NotListed | Refusal::NotMaintainer
        )
    }

    /// All that `label` says.
    pub const LABELS: [&'static str; 23] = [
        "created_at",
        "expired",
        "auth_as_event",
        "protected",
        "vanish_elsewhere",
        "address_rate",
        "key_rate",
        "identifier",
        "not_listed",
        "not_maintainer",
        "orphan",
        "blocked",
        "purgatory_full",
        "too_large_to_hold",
        "evicted",
        "sync_quota",
        "published_quota",
        "disk_full",
        "too_many_tips",
        "replaced",
        "deleted",
        "vanished",
        "store_failed",
    ];

    /// A short, stable word for metrics; the set is closed.
    pub fn label(&self) -> &'static str {
        match self {
            Refusal::TooFarAhead(_) | Refusal::TooOld(_) => "created_at",
            Refusal::Expired => "expired",
            Refusal::AuthAsEvent => "auth_as_event",
            Refusal::AuthRequired | Refusal::NotTheAuthor => "protected",
            Refusal::VanishElsewhere => "vanish_elsewhere",
            Refusal::AddressRate(_) => "address_rate",
            Refusal::KeyRate(_) => "key_rate",
            Refusal::Identifier(_) => "identifier",
            Refusal::NotListed => "not_listed",
            Refusal::NotMaintainer => "not_maintainer",
            Refusal::Orphan => "orphan",
            Refusal::RepositoryBlocked | Refusal::AuthorBlocked => "blocked",
            Refusal::TooManyHeld | Refusal::TooManyHeldFromAddress | Refusal::PurgatoryFull => {
                "purgatory_full"
            }
            Refusal::TooLargeToHold(_) => "too_large_to_hold",
            Refusal::Evicted => "evicted",
            Refusal::SyncQuota => "sync_quota",
            Refusal::PublishedQuota => "published_quota",
            Refusal::DiskFull => "disk_full",
            Refusal::TooManyTips => "too_many_tips",
            Refusal::Replaced => "replaced",
            Refusal::Deleted => "deleted",
            Refusal::Vanished => "vanished",
            Refusal::StoreFailed => "store_failed",
        }
    }
}

fn span(span: &Duration) -> String {
    match span.as_secs() {
        seconds if seconds != 0 && seconds % 86_400 == 0 => format!("{} days", seconds / 86_400),
        seconds if seconds != 0 && seconds % 60 == 0 => format!("{} minutes", seconds / 60),
        seconds => format!("{seconds} seconds"),
    }
}
