//! The fates of an event, and every reason for a refusal in one place.

use std::time::Duration;

/// What happens to an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Store,
    Drop(Refusal),
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
