//! Stories about the core: what happens, and exactly which effects follow, in virtual time.

mod admission;
mod stage;
mod storing;
mod time;
