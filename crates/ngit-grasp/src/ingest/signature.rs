//! BIP-340, the one expensive thing about an event.

use grasp_core::Event;
use secp256k1::{XOnlyPublicKey, schnorr};

pub fn is_valid(event: &Event) -> bool {
    let Ok(key) = XOnlyPublicKey::from_byte_array(*event.pubkey.as_bytes()) else {
        return false;
    };
    let signature = schnorr::Signature::from_byte_array(*event.sig.as_bytes());
    schnorr::verify(&signature, event.id.as_bytes(), &key).is_ok()
}
