//! Sync with other relays in virtual time: what they say, and exactly what is asked of them.

mod connecting;
mod history;
mod memory;
mod peers;
mod pressure;
mod recalls;
mod watching;
