//! Another relay: its events, and how it answers. It knows nothing of us but what we ask.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use grasp_core::filter::Filter;
use grasp_core::nip34::Rank;
use grasp_core::sync::io::{Complaint, Description, Fault};
use grasp_core::{Event, EventId, SubNo, Timestamp};

use super::traits::{Auth, Compares, Document, Eose, Lie, Traits};

const MINUTE: Duration = Duration::from_secs(60);
/// Ids in one list of needs.
const LIST: usize = 20;
/// Less than the overlap with which catching up looks back.
const BACKDATED: Duration = Duration::from_secs(300);

pub(crate) struct Relay {
    /// Host, port and path, as [`super::place`] spells them.
    pub(crate) name: String,
    pub(crate) traits: Traits,
    events: BTreeMap<EventId, Arc<Event>>,
    /// Newest first, and in one second the lowest id.
    order: BTreeSet<(Reverse<Timestamp>, EventId)>,
    /// What was posted long after its date: who asks for what is new does not see it.
    backdated: BTreeSet<EventId>,
    /// Nobody reaches it before.
    pub(crate) away_until: Duration,
}

/// What reaches a relay.
#[derive(Debug, Clone)]
pub(crate) enum Question {
    Hello,
    Describe,
    Subscribe { sub: SubNo, filters: Arc<[Filter]> },
    Unsubscribe(SubNo),
    Compare(Box<Comparison>),
    Authenticate,
}

#[derive(Debug, Clone)]
pub(crate) struct Comparison {
    pub(crate) sub: SubNo,
    /// Without a beginning before `from`.
    pub(crate) filter: Filter,
    pub(crate) from: Timestamp,
    pub(crate) ours: BTreeSet<EventId>,
}

/// What comes back.
#[derive(Debug, Clone)]
pub(crate) enum Frame {
    Event {
        sub: SubNo,
        event: Arc<Event>,
        fault: Option<Fault>,
    },
    Eose {
        sub: SubNo,
    },
    Closed {
        sub: SubNo,
        why: Complaint,
    },
    Notice(Complaint),
    Challenge,
    Authenticated(bool),
    Described(Option<Description>),
    Needs {
        sub: SubNo,
        ids: Vec<EventId>,
    },
    Compared {
        sub: SubNo,
        from: Timestamp,
        ours: usize,
        lacks: Vec<EventId>,
    },
    NotCompared {
        sub: SubNo,
        why: Complaint,
    },
}

/// What a relay knows of one line to us.
#[derive(Default)]
pub(crate) struct Session {
    open: BTreeMap<SubNo, Arc<[Filter]>>,
    authenticated: bool,
    requests: VecDeque<Duration>,
}

impl Relay {
    pub(crate) fn new(name: String, traits: Traits) -> Self {
        Self {
            name,
            traits,
            events: BTreeMap::new(),
            order: BTreeSet::new(),
            backdated: BTreeSet::new(),
            away_until: Duration::ZERO,
        }
    }

    pub(crate) fn is_backdated(&self, id: &EventId) -> bool {
        self.backdated.contains(id)
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.events.values()
    }

    /// Whether it is new there.
    pub(crate) fn take(&mut self, event: &Arc<Event>, now: Timestamp) -> bool {
        if self.events.contains_key(&event.id) {
            return false;
        }
        if let Some(address) = event.address().filter(|_| self.traits.tidy) {
            let same = |other: &&Arc<Event>| other.address().as_ref() == Some(&address);
            let others: Vec<Rank> = self
                .events
                .values()
                .filter(same)
                .map(|e| Rank::of(e))
                .collect();
            if others.iter().any(|other| *other > Rank::of(event)) {
                return false;
            }
            for other in others {
                self.events.remove(&other.id);
                self.order.remove(&(Reverse(other.created_at), other.id));
            }
        }
        if event.created_at.saturating_add(BACKDATED) < now {
            self.backdated.insert(event.id);
        }
        self.order.insert((Reverse(event.created_at), event.id));
        self.events.insert(event.id, Arc::clone(event));
        true
    }

    /// A new event goes to whoever watches.
    pub(crate) fn spread(&self, session: &Session, event: &Arc<Event>) -> Vec<Frame> {
        let watches = |filters: &Arc<[Filter]>| filters.iter().any(|filter| filter.matches(event));
        let open = session.open.iter();
        open.filter(|(_, filters)| watches(filters))
            .map(|(sub, _)| self.frame(*sub, event))
            .collect()
    }

    /// What it says to a question, and how much later than it could.
    pub(crate) fn answer(
        &self,
        session: &mut Session,
        question: Question,
        now: Duration,
        rng: &mut Rng,
    ) -> Vec<(Duration, Frame)> {
        let frames = match question {
            Question::Hello if self.traits.auth != Auth::Unasked => vec![Frame::Challenge],
            Question::Hello => Vec::new(),
            Question::Describe => vec![Frame::Described(self.describe())],
            Question::Authenticate => {
                session.authenticated = self.traits.auth != Auth::InVain;
                vec![Frame::Authenticated(session.authenticated)]
            }
            Question::Unsubscribe(sub) => {
                session.open.remove(&sub);
                Vec::new()
            }
            Question::Subscribe { sub, filters } => match self.refuses(session, &filters, now) {
                Some(why) if self.traits.names_refused => vec![Frame::Closed { sub, why }],
                Some(why) if why == Complaint::AuthRequired => vec![Frame::Closed { sub, why }],
                Some(why) => vec![Frame::Notice(why)],
                None => {
                    let answer = self.stored(sub, &filters, rng);
                    session.open.insert(sub, filters);
                    return answer;
                }
            },
            Question::Compare(comparison) => match self.refuses(session, &[], now) {
                Some(why) => vec![Frame::NotCompared {
                    sub: comparison.sub,
                    why,
                }],
                None => self.compare(session, *comparison, rng),
            },
        };
        frames
            .into_iter()
            .map(|frame| (Duration::ZERO, frame))
            .collect()
    }

    fn refuses(
        &self,
        session: &mut Session,
        filters: &[Filter],
        now: Duration,
    ) -> Option<Complaint> {
        let bounds = &self.traits.bounds;
        if matches!(self.traits.auth, Auth::First | Auth::InVain) && !session.authenticated {
            return Some(Complaint::AuthRequired);
        }
        if let Some(rate) = self.traits.rate {
            while session
                .requests
                .front()
                .is_some_and(|at| *at + MINUTE < now)
            {
                session.requests.pop_front();
            }
            if session.requests.len() >= rate {
                return Some(Complaint::RateLimited);
            }
            session.requests.push_back(now);
        }
        if filters.is_empty() {
            return None;
        }
        if bounds
            .subscriptions
            .is_some_and(|most| session.open.len() >= most)
        {
            return Some(Complaint::TooManySubscriptions);
        }
        if bounds.filters.is_some_and(|most| filters.len() > most) {
            return Some(Complaint::TooManyFilters);
        }
        let too_large = |most| message_bytes(filters) > most;
        bounds
            .bytes
            .is_some_and(too_large)
            .then_some(Complaint::TooLarge)
    }

    fn describe(&self) -> Option<Description> {
        let bounds = &self.traits.bounds;
        let number = |bound: Option<usize>, factor: usize| {
            bound.and_then(|bound| u32::try_from(bound * factor).ok())
        };
        let factor = match self.traits.document {
            Document::None => return None,
            Document::True => 1,
            Document::Wrong => 5,
        };
        Some(Description {
            subscriptions: number(bounds.subscriptions, factor),
            filters: number(bounds.filters, factor),
            message_bytes: number(bounds.bytes, factor),
            limit: number(self.traits.cap, factor),
            reconciles: self.traits.compares_sets() || self.traits.document == Document::Wrong,
            ..Description::default()
        })
    }

    /// The stored events that match, and the end of them.
    fn stored(&self, sub: SubNo, filters: &[Filter], rng: &mut Rng) -> Vec<(Duration, Frame)> {
        let mut found: Vec<&Arc<Event>> = Vec::new();
        let mut seen = BTreeSet::new();
        for filter in filters {
            let most = filter.limit.unwrap_or(usize::MAX);
            let most = most.min(self.traits.cap.unwrap_or(usize::MAX));
            let of_filter = self.matching(filter).take(most);
            found.extend(of_filter.filter(|event| seen.insert(event.id)));
        }
        if self.traits.shuffles {
            rng.shuffle(&mut found);
        }
        let asked_by_id = filters.iter().any(|filter| filter.ids.is_some());
        if self.traits.lie == Some(Lie::Hollow) && asked_by_id {
            found.retain(|_| rng.bool());
        }
        let mut frames = Vec::new();
        for event in found {
            self.add(&mut frames, sub, event, rng);
        }
        let mut frames: Vec<_> = frames
            .into_iter()
            .map(|frame| (Duration::ZERO, frame))
            .collect();
        self.end(&mut frames, sub);
        frames
    }

    /// One event, and what a liar makes of it.
    fn add(&self, frames: &mut Vec<Frame>, sub: SubNo, event: &Arc<Event>, rng: &mut Rng) {
        frames.push(self.frame(sub, event));
        if self.traits.repeats && rng.u8(0..4) == 0 {
            frames.push(self.frame(sub, event));
        }
        let fault = match self.traits.lie {
            Some(Lie::Forged) if rng.bool() => Fault::WrongSignature,
            Some(Lie::TooLarge) if rng.u8(0..4) == 0 => Fault::TooLarge,
            Some(Lie::Confused) if rng.u8(0..4) == 0 => Fault::UnknownSubscription,
            Some(Lie::OffFilter) if rng.bool() => {
                let other = rng.choice(self.events.values().collect::<Vec<_>>());
                frames.extend(other.map(|other| self.frame(sub, other)));
                return;
            }
            Some(Lie::Endless) => {
                for _ in 0..20 {
                    frames.push(self.frame(sub, event));
                }
                return;
            }
            _ => return,
        };
        let (event, fault) = (Arc::clone(event), Some(fault));
        frames.push(Frame::Event { sub, event, fault });
    }

    fn end(&self, frames: &mut Vec<(Duration, Frame)>, sub: SubNo) {
        let eose = Frame::Eose { sub };
        match self.traits.eose {
            _ if self.traits.lie == Some(Lie::Hasty) => frames.insert(0, (Duration::ZERO, eose)),
            Eose::Plain => frames.push((Duration::ZERO, eose)),
            Eose::Twice => frames.extend([(Duration::ZERO, eose.clone()), (Duration::ZERO, eose)]),
            Eose::Late(secs) => frames.push((Duration::from_secs(secs), eose)),
            Eose::Never => {}
        }
    }

    fn frame(&self, sub: SubNo, event: &Arc<Event>) -> Frame {
        Frame::Event {
            sub,
            event: Arc::clone(event),
            fault: None,
        }
    }

    fn matching<'a>(&'a self, filter: &'a Filter) -> Box<dyn Iterator<Item = &'a Arc<Event>> + 'a> {
        if let Some(ids) = &filter.ids {
            let found = ids.iter().filter_map(|id| self.events.get(id));
            return Box::new(found.filter(|event| filter.matches(event)));
        }
        let ordered = self.order.iter().filter_map(|(_, id)| self.events.get(id));
        Box::new(ordered.filter(|event| filter.matches(event)))
    }

    /// The difference, by set algebra.
    fn compare(&self, session: &Session, asked: Comparison, rng: &mut Rng) -> Vec<Frame> {
        let Comparison {
            sub,
            filter,
            from,
            ours,
        } = asked;
        if self.traits.auth == Auth::Comparing && !session.authenticated {
            let why = Complaint::AuthRequired;
            return vec![Frame::NotCompared { sub, why }];
        }
        let theirs: BTreeSet<EventId> = self.matching(&filter).map(|event| event.id).collect();
        let why = match self.traits.compares {
            Compares::Ignores => return Vec::new(),
            Compares::Complains => return vec![Frame::Notice(Complaint::Unsupported)],
            Compares::Refuses => Some(Complaint::Unsupported),
            Compares::Most(most) => (theirs.len() > most).then_some(Complaint::TooManyEvents),
            Compares::Yes => None,
        };
        if let Some(why) = why {
            return vec![Frame::NotCompared { sub, why }];
        }
        let mut needs: Vec<EventId> = theirs.difference(&ours).copied().collect();
        if self.traits.lie == Some(Lie::Hollow) {
            needs.extend((0..rng.usize(0..10)).map(|_| EventId([rng.u8(..); 32])));
        }
        rng.shuffle(&mut needs);
        let lists = needs.chunks(LIST).map(|ids| Frame::Needs {
            sub,
            ids: ids.to_vec(),
        });
        let lacks = ours.difference(&theirs).copied().collect();
        lists
            .chain([Frame::Compared {
                sub,
                from,
                ours: ours.len(),
                lacks,
            }])
            .collect()
    }
}

/// The size of a REQ with these filters.
pub(crate) fn message_bytes(filters: &[Filter]) -> usize {
    let size = |filter: &Filter| serde_json::to_string(filter).map_or(0, |text| text.len());
    filters.iter().map(size).sum::<usize>() + filters.len() + 20
}
