//! A world around the real core, from one seed, in virtual time.
//!
//! First a storm: users publish, publish again and give up, the disk is slow, full or gone, the
//! process dies between any two steps. Then a calm, in which everything must come right. The
//! result is compared with a model that knows nothing of how the core works. The same seed
//! gives the same story to the letter.

mod checkers;
mod climate;
mod disk;
mod model;
mod trace;
mod workload;
mod world;

pub use trace::Trace;
pub use world::{Failure, Summary, run};
