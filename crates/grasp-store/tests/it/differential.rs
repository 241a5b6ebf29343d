//! The store against the naive model, in many small worlds.

use grasp_store::Store;

use crate::world::World;

#[test]
fn the_store_in_memory_agrees_with_the_model() {
    for seed in 0..600 {
        World::new(seed, Store::in_memory()).live();
    }
}

#[test]
fn the_store_on_disk_agrees_with_the_model() {
    for seed in 10_000..10_250 {
        let dir = tempfile::tempdir().unwrap();
        World::new(seed, Store::open(dir.path()).unwrap()).live();
    }
}
