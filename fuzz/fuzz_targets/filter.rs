//! A filter: what is understood is understood the same way again.

#![no_main]

use grasp_core::Filter;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(filter) = Filter::parse(text) {
        let written = serde_json::to_string(&filter).expect("a filter is JSON");
        assert_eq!(Filter::parse(&written), Ok(filter));
    }
});
