//! The hunt for git data that held events wait for.

pub mod io;
