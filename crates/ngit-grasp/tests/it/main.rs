//! The real server as a process, and a real client beside it: what the wire says is what counts.

mod crash;
mod differential;
mod http;
mod lifecycle;
mod limits;
mod nip01;
mod nips;
mod support;
mod transfer;
mod wire;
