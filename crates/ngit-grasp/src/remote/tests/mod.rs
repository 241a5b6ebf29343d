//! Connections to a relay that a test plays, over real sockets on loopback.

mod dialling;
mod reconciling;
mod stage;
mod talking;
