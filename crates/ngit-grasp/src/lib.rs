//! The `ngit-grasp` server: sockets, threads, configuration and pages around the pure core.
//! It carries inputs to the core and effects to the world; it decides nothing.

pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod crash;
mod disk;
pub mod doctor;
pub mod driver;
pub mod engine;
mod evicting_quota;
mod eviction;
mod fair_slots;
pub mod fetch;
pub mod hosting;
pub mod http;
pub mod identity;
pub mod ingest;
pub mod init;
pub mod inspect;
mod measure;
pub mod metrics;
mod notes;
mod owner;
mod perform;
pub mod phase;
mod purge;
mod quota;
pub mod relay;
pub mod remote;
pub mod status;
pub mod transfer;
mod web;
pub mod writer;
