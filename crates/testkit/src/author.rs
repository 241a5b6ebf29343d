//! People who write events: keys from small numbers, so that a test names its authors and gets
//! the same ids every time.

use std::time::{SystemTime, UNIX_EPOCH};

use grasp_core::event::{Unverified, event_id};
use grasp_core::id::to_hex;
use grasp_core::{Event, Kind, Limits, Pubkey, Signature, Timestamp};
use secp256k1::Keypair;

/// A key pair.
#[derive(Debug, Clone)]
pub struct Author {
    keys: Keypair,
    pubkey: Pubkey,
}

impl Author {
    pub fn new(seed: u64) -> Self {
        let mut secret = [0x11; 32];
        secret[24..].copy_from_slice(&seed.to_be_bytes());
        let keys = Keypair::from_secret_bytes(secret).expect("the secret is below the group order");
        let (point, _) = keys.x_only_public_key();
        Self {
            keys,
            pubkey: Pubkey(point.to_byte_array()),
        }
    }

    pub fn pubkey(&self) -> Pubkey {
        self.pubkey
    }

    pub fn npub(&self) -> String {
        self.pubkey.npub()
    }

    pub fn secret_hex(&self) -> String {
        to_hex(&self.keys.to_secret_bytes())
    }

    /// A signed event. The same arguments give the same event.
    pub fn event(&self, kind: u16, created_at: u64, tags: &[&[&str]], content: &str) -> Event {
        self.event_tags(kind, created_at, owned(tags), content)
    }

    pub fn event_tags(
        &self,
        kind: u16,
        created_at: u64,
        tags: Vec<Vec<String>>,
        content: &str,
    ) -> Event {
        let id = event_id(
            &self.pubkey,
            Timestamp(created_at),
            Kind(kind),
            &tags,
            content,
        );
        let sig = self.keys.sign_schnorr_no_aux_rand(&id.0);
        let json = serde_json::json!({
            "id": id,
            "pubkey": self.pubkey,
            "created_at": created_at,
            "kind": kind,
            "tags": tags,
            "content": content,
            "sig": Signature(sig.to_byte_array()),
        });
        Unverified::parse(&json.to_string(), &no_limits())
            .and_then(|event| event.verify(|_| true))
            .expect("an event made here is well-formed")
    }
}

/// An event with a right id and a zero signature: for the store, which does not look at it.
pub fn unsigned(
    pubkey: Pubkey,
    kind: u16,
    created_at: u64,
    tags: &[&[&str]],
    content: &str,
) -> Event {
    unsigned_tags(pubkey, kind, created_at, owned(tags), content)
}

pub fn unsigned_tags(
    pubkey: Pubkey,
    kind: u16,
    created_at: u64,
    tags: Vec<Vec<String>>,
    content: &str,
) -> Event {
    let id = event_id(&pubkey, Timestamp(created_at), Kind(kind), &tags, content);
    let json = serde_json::json!({
        "id": id,
        "pubkey": pubkey,
        "created_at": created_at,
        "kind": kind,
        "tags": tags,
        "content": content,
        "sig": Signature([0; 64]),
    });
    Event::from_stored(&json.to_string()).expect("an event made here is well-formed")
}

/// Unix seconds, for events that a running server must find recent.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the clock is past 1970")
        .as_secs()
}

fn owned(tags: &[&[&str]]) -> Vec<Vec<String>> {
    tags.iter()
        .map(|tag| tag.iter().map(|part| (*part).to_owned()).collect())
        .collect()
}

/// Tests also make events that a server must refuse.
fn no_limits() -> Limits {
    Limits {
        event_bytes: usize::MAX,
        content_bytes: usize::MAX,
        tags: usize::MAX,
        tag_values: usize::MAX,
        ..Limits::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_truly_signed() {
        let author = Author::new(7);
        let event = author.event(1, 1_000, &[&["t", "x"]], "hello \"there\"");
        let key = secp256k1::XOnlyPublicKey::from_byte_array(author.pubkey().0).unwrap();
        let sig = secp256k1::schnorr::Signature::from_byte_array(event.sig.0);
        assert!(secp256k1::schnorr::verify(&sig, &event.id.0, &key).is_ok());
        assert_eq!(
            event,
            author.event(1, 1_000, &[&["t", "x"]], "hello \"there\"")
        );
    }

    #[test]
    fn authors_differ_by_seed() {
        assert_ne!(Author::new(1).pubkey(), Author::new(2).pubkey());
        assert_eq!(Author::new(1).secret_hex(), Author::new(1).secret_hex());
    }

    #[test]
    fn an_unsigned_event_has_the_same_id() {
        let author = Author::new(7);
        let signed = author.event(1, 1_000, &[&["t", "x"]], "hello");
        let unsigned = unsigned(author.pubkey(), 1, 1_000, &[&["t", "x"]], "hello");
        assert_eq!(signed.id, unsigned.id);
    }
}
