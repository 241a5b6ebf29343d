//! The hunt for git data in virtual time: which servers are asked, when, and for what.

mod chance;
mod domains;
mod drips;
mod ends;
mod fairness;
mod field;
mod servers;
mod timing;
