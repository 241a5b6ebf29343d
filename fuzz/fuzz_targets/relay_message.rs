//! A websocket text of another relay: understood or refused, and nothing of it is taken for more
//! than it is.

#![no_main]

use grasp_core::Limits;
use grasp_core::event::Unverified;
use grasp_core::sync::io::Complaint;
use libfuzzer_sys::fuzz_target;
use ngit_grasp::remote::codec::{self, Said, Sub};

fuzz_target!(|text: &str| {
    let Some(said) = codec::parse(text) else {
        return;
    };
    let sub = match said {
        Said::Event { sub, json } => {
            let _ = Unverified::parse(json, &Limits::default());
            sub
        }
        Said::Eose { sub, .. } | Said::NegMsg { sub, .. } => sub,
        Said::Closed { sub, reason } | Said::NegErr { sub, reason } => {
            Complaint::read(&reason);
            sub
        }
        Said::Notice(reason) => {
            Complaint::read(&reason);
            return;
        }
        Said::Ok { .. } | Said::Auth(_) | Said::Unknown => return,
    };
    if let Sub::Ours(sub) = sub {
        // However it was spelled, it is the one that we would write.
        let name = serde_json::to_string(&codec::name(sub)).expect("a name is JSON");
        let again = format!(r#"["EOSE",{name}]"#);
        let ours = Said::Eose {
            sub: Sub::Ours(sub),
            complete: false,
        };
        assert_eq!(codec::parse(&again), Some(ours));
    }
});
