//! Who we are for relays that ask (NIP-42). By default a key of its own, made from the owner's:
//! the same after every start, and no stranger learns from it whose server this is.

use grasp_core::event::event_id;
use grasp_core::id::to_hex;
use grasp_core::{EventId, Kind, Pubkey, Timestamp};
use secp256k1::{Keypair, SecretKey, schnorr};
use serde_json::json;

use crate::config::AuthKey;
use crate::identity::Identity;

/// Signs answers to challenges.
#[derive(Clone)]
pub struct Signer(Keypair);

/// An answer, as JSON, and the id by which the relay says what it thinks of it.
#[derive(Debug)]
pub struct Proof {
    pub id: EventId,
    pub json: String,
}

impl Signer {
    /// `None` when nothing shall be signed.
    pub fn new(which: AuthKey, owner: &Identity) -> Option<Self> {
        let key = match which {
            // All but one in 2^128 values are keys.
            AuthKey::Service => {
                SecretKey::from_secret_bytes(owner.derived("ngit-grasp sync auth")).ok()?
            }
            AuthKey::Owner => *owner.secret(),
            AuthKey::Never => return None,
        };
        Some(Self(Keypair::from_secret_key(&key)))
    }

    pub fn pubkey(&self) -> Pubkey {
        Pubkey(self.0.x_only_public_key().0.to_byte_array())
    }

    /// Proves to the relay at that address who answers its challenge.
    pub fn answer(&self, relay: &str, challenge: &str, now: Timestamp) -> Proof {
        let pubkey = self.pubkey();
        let pair = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
        let tags = [pair("relay", relay), pair("challenge", challenge)];
        let id = event_id(&pubkey, now, Kind::AUTH, &tags, "");
        let signature = schnorr::sign(id.as_bytes(), &self.0);
        let json = json!({
            "id": id, "pubkey": pubkey, "created_at": now.0, "kind": Kind::AUTH.0,
            "tags": tags, "content": "", "sig": to_hex(signature.as_byte_array()),
        });
        Proof {
            id,
            json: json.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::signature;
    use grasp_core::event::Unverified;
    use grasp_core::{Limits, Service};

    fn owner() -> Identity {
        let key = "07".repeat(32);
        Identity::present(Some(&key), std::path::Path::new("nowhere")).unwrap()
    }

    #[test]
    fn our_own_relay_takes_the_answer() {
        let us = Service::of_host("relay.example", None);
        let signer = Signer::new(AuthKey::Service, &owner()).unwrap();
        let proof = signer.answer("wss://relay.example", "say \"hi\"", Timestamp(1_000));
        let event = Unverified::parse(&proof.json, &Limits::default()).unwrap();
        assert_eq!(event.id(), proof.id);
        let claim = event.claim();
        let checked = grasp_core::auth::check(claim, "say \"hi\"", &us, Timestamp(1_001));
        assert_eq!(checked, Ok(signer.pubkey()));
        assert!(event.verify(signature::is_valid).is_ok());
    }

    #[test]
    fn the_owners_key_is_shown_only_when_the_operator_says_so() {
        let key = |which| Signer::new(which, &owner()).map(|signer| signer.pubkey());
        let public = owner().pubkey;
        assert_eq!(key(AuthKey::Owner), Some(public));
        assert_eq!(key(AuthKey::Never), None);
        assert_eq!(key(AuthKey::Service), key(AuthKey::Service));
        assert_ne!(key(AuthKey::Service), Some(public));
    }
}
