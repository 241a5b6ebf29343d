//! The store as its users see it, on disk and in memory.

mod backup;
mod child;
mod differential;
mod durability;
mod queries;
mod rules;
mod support;
