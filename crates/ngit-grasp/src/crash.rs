//! Named places where a test ends the process, as a power cut would. `FAILPOINTS` says which:
//! `after-commit=2*off->return` ends it after the third commit. Without the feature
//! `crash-points`, which a normal build does not have, nothing is here.

/// Reads which points end the process, for the rest of its life.
pub fn arm() {
    #[cfg(feature = "crash-points")]
    std::mem::forget(fail::FailScenario::setup());
}

pub fn before(work: &str) {
    point("before", work);
}

pub fn after(work: &str) {
    point("after", work);
}

#[cfg(feature = "crash-points")]
fn point(moment: &str, work: &str) {
    let name = format!("{moment}-{work}");
    fail::fail_point!(&name, |_| std::process::abort());
}

#[cfg(not(feature = "crash-points"))]
fn point(_moment: &str, _work: &str) {}
