//! Stories about the core: what happens, and exactly which effects follow, in virtual time.

mod admission;
mod announcements;
mod cost;
mod counted;
mod disk;
mod failures;
mod hunt;
mod hunted;
mod lost;
mod maintainers;
mod pruning;
mod pull_requests;
mod purgatory;
mod pushes;
mod related;
mod scene;
mod slow_git;
mod stage;
mod states;
mod storing;
mod sync;
mod synced;
mod time;
