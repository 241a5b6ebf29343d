//! The net between us and other relays: lines that come up, stall and break, frames that take
//! their time, and the shell's part of the contract with the core.

mod line;
mod relay;
mod traits;
mod trouble;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use grasp_core::sync::io::{End, Fault, FromRelay, ToRelay};
use grasp_core::{ConnNo, Delivery, Event, EventId, Filter, RelayNo, RelayUrl, SubNo, Timestamp};

use self::line::{Asked, Line, Stage};
pub(crate) use self::relay::Relay;
pub(crate) use self::relay::message_bytes;
use self::relay::{Comparison, Frame, Question};
pub(crate) use self::traits::Traits;
use crate::disk::Disk;

/// A line that is up says so now and then.
const PULSE: Duration = Duration::from_secs(600);
/// The events that a relay lacks, the first few by name.
const SOME: usize = 64;

/// When something happens, and in which weather.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) now: Duration,
    pub(crate) unix: Timestamp,
    pub(crate) calm: bool,
}

/// Something that is on its way.
#[derive(Debug, Clone)]
pub(crate) enum Stir {
    /// The relay has answered the call, or nobody has.
    Dialled {
        conn: ConnNo,
        end: Option<End>,
    },
    /// A question is at the relay.
    Asked {
        conn: ConnNo,
        question: Question,
    },
    /// A frame is here.
    Came {
        conn: ConnNo,
        frame: Frame,
    },
    /// The event of a frame is verified, whatever has become of the line.
    Verified {
        by: Delivery,
        event: Arc<Event>,
        fault: Option<Fault>,
    },
    Pulse {
        conn: ConnNo,
    },
    /// The line breaks.
    Cut {
        conn: ConnNo,
        end: End,
    },
}

/// What the core is to hear now.
#[derive(Debug, Clone)]
pub(crate) enum Word {
    Said {
        relay: RelayNo,
        conn: ConnNo,
        word: FromRelay,
    },
    Event {
        by: Delivery,
        event: Arc<Event>,
    },
}

pub(crate) struct Net {
    rng: Rng,
    relays: Vec<Relay>,
    lines: BTreeMap<ConnNo, Line>,
    later: Vec<(Duration, Stir)>,
    words: VecDeque<Word>,
}

impl Net {
    pub(crate) fn new(mut rng: Rng, traits: Vec<Traits>) -> Self {
        let relay = |(n, traits)| Relay::new(name(&mut rng, n), traits);
        let relays = traits.into_iter().enumerate().map(relay).collect();
        Self {
            rng,
            relays,
            lines: BTreeMap::new(),
            later: Vec::new(),
            words: VecDeque::new(),
        }
    }

    pub(crate) fn relays(&self) -> &[Relay] {
        &self.relays
    }

    /// What is on its way since the last time, and how long it takes.
    pub(crate) fn take_later(&mut self) -> Vec<(Duration, Stir)> {
        std::mem::take(&mut self.later)
    }

    pub(crate) fn next_word(&mut self) -> Option<Word> {
        self.words.pop_front()
    }

    /// Our process is gone, and all its lines with it.
    pub(crate) fn cut_all(&mut self) {
        self.lines.clear();
        self.words.clear();
        self.later.clear();
    }

    /// Somebody posts at a relay.
    pub(crate) fn post(&mut self, at: Moment, relay: usize, event: &Arc<Event>) {
        let Some(there) = self.relays.get_mut(relay) else {
            return;
        };
        let is_new = event.kind.is_ephemeral() || there.take(event, at.unix);
        let lines = self.lines.iter().filter(|(_, line)| line.to == relay);
        let lines: Vec<ConnNo> = lines.map(|(conn, _)| *conn).collect();
        for conn in lines.into_iter().filter(|_| is_new) {
            let (Some(line), Some(there)) = (self.lines.get(&conn), self.relays.get(relay)) else {
                continue;
            };
            let (frames, traits) = (there.spread(&line.session, event), there.traits.clone());
            if self.rng.u32(0..100) < traits.drops {
                continue;
            }
            for frame in frames {
                self.send_back(at, conn, Duration::ZERO, frame, Some(&traits));
            }
        }
    }

    /// The core asks something of a line.
    pub(crate) fn ask(
        &mut self,
        at: Moment,
        (relay, conn): (RelayNo, ConnNo),
        ask: ToRelay,
        disk: &Disk,
    ) {
        let question = match ask {
            ToRelay::Dial { url, .. } => return self.dial(at, relay, conn, &url),
            ToRelay::HangUp => {
                if let Some(line) = self.lines.get_mut(&conn) {
                    line.stage = Stage::Closing;
                    let delay = Duration::from_millis(self.rng.u64(0..50));
                    let end = End::Closed;
                    self.later.push((delay, Stir::Cut { conn, end }));
                }
                return;
            }
            ToRelay::Describe => Question::Describe,
            ToRelay::Subscribe { sub, filters, most } => {
                if let Some(line) = self.lines.get_mut(&conn) {
                    line.asked.insert(sub, Asked::new(&filters, most));
                }
                Question::Subscribe { sub, filters }
            }
            ToRelay::Unsubscribe(sub) => {
                if let Some(line) = self.lines.get_mut(&conn) {
                    line.asked.remove(&sub);
                }
                Question::Unsubscribe(sub)
            }
            ToRelay::Reconcile {
                sub,
                filter,
                aside,
                most,
            } => {
                if let Some(line) = self.lines.get_mut(&conn) {
                    line.comparing.insert(sub);
                }
                Question::Compare(Box::new(comparison(sub, *filter, &aside, most, disk)))
            }
            ToRelay::EndReconcile(sub) => {
                if let Some(line) = self.lines.get_mut(&conn) {
                    line.comparing.remove(&sub);
                }
                return;
            }
            ToRelay::Authenticate { .. } => Question::Authenticate,
        };
        self.send_there(at, conn, question);
    }

    pub(crate) fn stir(&mut self, at: Moment, stir: Stir, disk: &Disk) {
        match stir {
            Stir::Dialled { conn, end: None } => self.come_up(at, conn),
            Stir::Dialled {
                conn,
                end: Some(end),
            }
            | Stir::Cut { conn, end } => self.cut(conn, end),
            Stir::Asked { conn, question } => self.reach(at, conn, question),
            Stir::Came { conn, frame } => self.come(conn, frame),
            Stir::Verified { by, event, fault } => self.verified(by, event, fault, disk),
            Stir::Pulse { conn } => {
                if self.lines.contains_key(&conn) {
                    self.later.push((PULSE, Stir::Pulse { conn }));
                    self.say(conn, FromRelay::Heard);
                }
            }
        }
    }

    fn dial(&mut self, at: Moment, relay: RelayNo, conn: ConnNo, url: &RelayUrl) {
        let place = place(url.as_str());
        let to = self
            .relays
            .iter()
            .position(|to| Some(&to.name) == place.as_ref());
        let Some((to, there)) = to.and_then(|to| Some((to, self.relays.get(to)?))) else {
            let line = Line::new(relay, usize::MAX);
            self.lines.insert(conn, line);
            let end = Some(End::NoSuchHost);
            return self
                .later
                .push((Duration::from_millis(20), Stir::Dialled { conn, end }));
        };
        let away = there.away_until > at.now;
        let refused = !at.calm && self.rng.u32(0..1_000) < there.traits.flaky;
        let end = match (away, self.rng.u8(0..3)) {
            (true, 0) => Some(End::TimedOut),
            (true, 1) => Some(End::Refused),
            (true, _) => Some(End::Http(502)),
            (false, _) => refused.then_some(End::Tls),
        };
        let wait = match end {
            Some(End::TimedOut) => Duration::from_secs(10),
            _ => about(&mut self.rng, there.traits.latency) * 2,
        };
        self.lines.insert(conn, Line::new(relay, to));
        self.later.push((wait, Stir::Dialled { conn, end }));
    }

    fn come_up(&mut self, at: Moment, conn: ConnNo) {
        let Some(line) = self.lines.get_mut(&conn) else {
            return;
        };
        if line.stage != Stage::Dialling {
            return;
        }
        line.stage = Stage::Up;
        self.say(conn, FromRelay::Up);
        self.reach(at, conn, Question::Hello);
        let first = Duration::from_millis(self.rng.u64(0..600_000));
        self.later.push((first, Stir::Pulse { conn }));
    }

    fn cut(&mut self, conn: ConnNo, end: End) {
        if self.lines.contains_key(&conn) {
            self.say(conn, FromRelay::Down(end));
            self.lines.remove(&conn);
        }
    }

    fn send_there(&mut self, at: Moment, conn: ConnNo, question: Question) {
        let Some(line) = self.lines.get_mut(&conn) else {
            return;
        };
        let latency = self.relays.get(line.to).map(|to| to.traits.latency);
        let takes = about(&mut self.rng, latency.unwrap_or_default());
        let delay = line.there.next(at.now, takes);
        self.later.push((delay, Stir::Asked { conn, question }));
    }

    fn reach(&mut self, at: Moment, conn: ConnNo, question: Question) {
        let Some(line) = self
            .lines
            .get_mut(&conn)
            .filter(|line| line.stage == Stage::Up)
        else {
            return;
        };
        let Some(there) = self.relays.get(line.to) else {
            return;
        };
        let answer = there.answer(&mut line.session, question, at.now, &mut self.rng);
        let traits = there.traits.clone();
        for (extra, frame) in answer {
            self.send_back(at, conn, extra, frame, Some(&traits));
        }
    }

    fn send_back(
        &mut self,
        at: Moment,
        conn: ConnNo,
        extra: Duration,
        frame: Frame,
        traits: Option<&Traits>,
    ) {
        let (Some(line), Some(traits)) = (self.lines.get_mut(&conn), traits) else {
            return;
        };
        let takes = about(&mut self.rng, traits.latency);
        let delay = line.back.next(at.now, takes + extra);
        let breaks = !at.calm && self.rng.u32(0..1_000) < traits.flaky;
        self.later.push((delay, Stir::Came { conn, frame }));
        if breaks {
            let end = End::Closed;
            self.later.push((delay, Stir::Cut { conn, end }));
        }
    }

    /// What the shell makes of a frame.
    fn come(&mut self, conn: ConnNo, frame: Frame) {
        let Some(line) = self
            .lines
            .get_mut(&conn)
            .filter(|line| line.stage == Stage::Up)
        else {
            return;
        };
        let word = match frame {
            Frame::Event { sub, event, fault } => return self.event_came(conn, sub, event, fault),
            Frame::Eose { sub } => line.eose(sub),
            Frame::Closed { sub, why } => line.asked.remove(&sub).map(|asked| FromRelay::Closed {
                sub,
                sent: asked.sent,
                why,
            }),
            Frame::Notice(why) => Some(FromRelay::Notice(why)),
            Frame::Challenge => Some(FromRelay::Challenge("riddle".to_owned())),
            Frame::Authenticated(ok) => Some(FromRelay::Authenticated(ok)),
            Frame::Described(said) => Some(FromRelay::Described(said)),
            Frame::Needs { sub, ids } => {
                let open = line.comparing.contains(&sub);
                open.then_some(FromRelay::Needs { sub, ids })
            }
            Frame::Compared {
                sub,
                from,
                ours,
                lacks,
            } => {
                let open = line.comparing.remove(&sub);
                let count = u32::try_from(lacks.len()).unwrap_or(u32::MAX);
                let some = lacks.into_iter().take(SOME).collect();
                open.then_some(FromRelay::Reconciled {
                    sub,
                    from,
                    compared: u32::try_from(ours).unwrap_or(u32::MAX),
                    lacks: count,
                    some,
                })
            }
            Frame::NotCompared { sub, why } => {
                let open = line.comparing.remove(&sub);
                open.then_some(FromRelay::Unreconciled { sub, why })
            }
        };
        if let Some(word) = word {
            self.say(conn, word);
        }
    }

    fn event_came(&mut self, conn: ConnNo, sub: SubNo, event: Arc<Event>, fault: Option<Fault>) {
        let id = Some(event.id);
        if let Some(fault @ Fault::UnknownSubscription) = fault {
            let sub = None;
            return self.say(conn, FromRelay::Bad { sub, id, fault });
        }
        let Some(line) = self.lines.get_mut(&conn) else {
            return;
        };
        let relay = line.relay;
        // What was on its way when we unsubscribed is nobody's fault.
        let Some(asked) = line.asked.get_mut(&sub) else {
            return;
        };
        let fault = asked.judge(&event).or(fault);
        if let Some(fault @ (Fault::OffFilter | Fault::Flood)) = fault {
            let sub = Some(sub);
            return self.say(conn, FromRelay::Bad { sub, id, fault });
        }
        let slow = self.rng.u8(0..10) == 0;
        let most = if slow { 3_000 } else { 20 };
        let delay = Duration::from_millis(self.rng.u64(0..most));
        let by = Delivery { relay, conn, sub };
        self.later
            .push((delay, Stir::Verified { by, event, fault }));
    }

    fn verified(&mut self, by: Delivery, event: Arc<Event>, fault: Option<Fault>, disk: &Disk) {
        let (id, sub) = (event.id, by.sub);
        let word = match fault {
            _ if disk.is_stored(&id) => FromRelay::Known {
                sub,
                id,
                at: event.created_at,
            },
            Some(fault) => FromRelay::Bad {
                sub: Some(sub),
                id: Some(id),
                fault,
            },
            None => return self.words.push_back(Word::Event { by, event }),
        };
        let Delivery { relay, conn, .. } = by;
        self.words.push_back(Word::Said { relay, conn, word });
    }

    fn say(&mut self, conn: ConnNo, word: FromRelay) {
        if let Some(line) = self.lines.get(&conn) {
            let relay = line.relay;
            self.words.push_back(Word::Said { relay, conn, word });
        }
    }
}

/// Our side of a comparison: the newest events that match, whole seconds only, and those aside.
fn comparison(
    sub: SubNo,
    mut filter: Filter,
    aside: &[(Timestamp, EventId)],
    most: u32,
    disk: &Disk,
) -> Comparison {
    let mut found = disk.matching(&filter);
    found.sort_by(|a, b| b.cmp(a));
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut from = filter.since.unwrap_or_default();
    if let Some((cut, _)) = found.get(most).copied() {
        let newest = found.first().map(|(at, _)| *at);
        // One second is never taken apart.
        let whole = found
            .iter()
            .filter(|(at, _)| *at > cut || newest == Some(cut));
        let oldest = whole.map(|(at, _)| *at).min();
        from = oldest.unwrap_or(cut);
    }
    filter.since = Some(from);
    let until = filter.until.unwrap_or(Timestamp(u64::MAX));
    let inside = |at: &Timestamp| *at >= from && *at <= until;
    let all = found.iter().chain(aside).filter(|(at, _)| inside(at));
    let ours: BTreeSet<EventId> = all.map(|(_, id)| *id).collect();
    Comparison {
        sub,
        filter,
        from,
        ours,
    }
}

fn about(rng: &mut Rng, mean: Duration) -> Duration {
    let micros = u64::try_from(mean.as_micros()).unwrap_or(u64::MAX / 2);
    Duration::from_micros(rng.u64(0..=micros * 2))
}

/// Where a relay is: the host in small letters, its port unless it is a default one, its path.
/// An own reading of addresses, so that the core's can be wrong.
pub(crate) fn place(url: &str) -> Option<String> {
    let url = url.trim();
    let (scheme, rest) = url.split_once("://")?;
    if !matches!(scheme.to_lowercase().as_str(), "ws" | "wss") || rest.contains(['@', '?', '#']) {
        return None;
    }
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = match host.split_once(':') {
        Some((host, "80" | "443")) => (host, String::new()),
        Some((host, port)) => (host, format!(":{port}")),
        None => (host, String::new()),
    };
    let host = host.trim_end_matches('.').to_lowercase();
    let path = path.trim_end_matches('/');
    let slash = if path.is_empty() { "" } else { "/" };
    (!host.is_empty()).then(|| format!("{host}{port}{slash}{path}"))
}

fn name(rng: &mut Rng, n: usize) -> String {
    match rng.u8(0..6) {
        0 => format!("r{n}.example:7777"),
        1 => format!("r{n}.example/inbox"),
        _ => format!("r{n}.example"),
    }
}

/// One of the ways to write it.
pub(crate) fn spell(rng: &mut Rng, place: &str) -> String {
    let (host, rest) = match place.find([':', '/']) {
        Some(at) => place.split_at(at),
        None => (place, ""),
    };
    match rng.u8(0..6) {
        0 => format!("ws://{host}{rest}"),
        1 => format!("wss://{}{rest}/", host.to_uppercase()),
        2 => format!("wss://{host}.{rest}"),
        3 if !rest.starts_with(':') => format!("wss://{host}:443{rest}"),
        4 if !rest.starts_with(':') => format!("ws://{host}:80{rest}/"),
        _ => format!("wss://{host}{rest}"),
    }
}
