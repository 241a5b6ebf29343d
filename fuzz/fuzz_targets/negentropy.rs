//! A NIP-77 message: answered within the bound of a frame, or refused.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use negentropy::{Id, NegentropyStorageVector};
use ngit_grasp::relay::negentropy::reconcile;

const FRAME: usize = 4_096;

static WORLDS: LazyLock<[NegentropyStorageVector; 3]> = LazyLock::new(|| [0, 40, 1_000].map(items));

fuzz_target!(|frame: &[u8]| {
    for items in WORLDS.iter() {
        if let Ok(reply) = reconcile(items, frame, FRAME) {
            assert_eq!(reply.first(), Some(&0x61));
            assert!(reply.len() <= FRAME);
        }
    }
});

/// Ids that look random and are the same in every run.
fn items(count: u64) -> NegentropyStorageVector {
    let mut items = NegentropyStorageVector::new();
    for n in 0..count {
        let mut id = [0; 32];
        for (word, chunk) in id.chunks_mut(8).enumerate() {
            let mixed = (n * 4 + word as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            chunk.copy_from_slice(&mixed.to_be_bytes());
        }
        items
            .insert(1_700_000_000 + n / 3, Id::from_byte_array(id))
            .expect("an item");
    }
    items.seal().expect("sealed");
    items
}
