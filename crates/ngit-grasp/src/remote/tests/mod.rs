//! Connections to a relay that a test plays, over real sockets on loopback.

mod dialling;
mod ourselves;
mod reconciling;
mod stage;
mod talking;
