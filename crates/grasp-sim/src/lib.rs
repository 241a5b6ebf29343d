//! A world around the real core, from one seed, in virtual time.
//!
//! First a storm: users publish, publish again and give up, people announce repositories, sign
//! states, push, argue and delete, the disk is slow or full, git fails, the process dies between
//! any two steps. Then a calm, in which everything must come right. The result is compared with
//! a model that knows nothing of how the core works. The same seed gives the same story to the
//! letter.
//!
//! [`disk`], [`git`] and [`forge`] also serve the stories of the core.

mod checkers;
mod climate;
mod company;
mod crowd;
pub mod disk;
mod ending;
pub mod forge;
pub mod git;
mod hosts;
mod hunt_checks;
mod hunt_model;
mod mirrors;
mod model;
mod net;
mod people;
mod sync_checks;
mod sync_model;
mod trace;
mod workload;
mod world;

pub use climate::policy;
pub use company::Company;
pub use trace::Trace;
pub use world::{Failure, Summary, run};
