//! What must hold of everything that is asked of other relays, at every step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use grasp_core::sync::io::{Description, FromRelay, ToRelay};
use grasp_core::{ConnNo, EventId, Filter, SubNo};

use crate::crowd::is_us;
use crate::net::{Word, message_bytes, place};

const HOUR: Duration = Duration::from_secs(60 * 60);
/// Words that one relay gets within an hour. Worlds that put three values into a filter and remember
/// ten events need some ten thousand, for what is looked at in turn and for what there is no room
/// to hold; a loop that nothing slows, many more.
const PER_HOUR: usize = 20_000;

/// Watches one life of the process.
#[derive(Default)]
pub(crate) struct SyncChecks {
    lines: BTreeMap<ConnNo, Line>,
    /// What each relay has said of its limits in this life.
    said: BTreeMap<String, Description>,
    /// Where each missing event is being fetched.
    fetching: BTreeMap<EventId, (ConnNo, SubNo)>,
    /// When each relay was asked for something, for an hour.
    asked: BTreeMap<String, VecDeque<Duration>>,
}

struct Line {
    place: String,
    up: bool,
    open: BTreeSet<SubNo>,
    /// Of these, which had their EOSE.
    answered: BTreeSet<SubNo>,
    used: BTreeSet<SubNo>,
}

impl SyncChecks {
    pub(crate) fn asked(
        &mut self,
        conn: ConnNo,
        ask: &ToRelay,
        now: Duration,
    ) -> Result<(), String> {
        if let ToRelay::Dial { url, .. } = ask {
            return self.dialled(conn, url.as_str());
        }
        self.is_not_too_often(conn, now)?;
        let Some(line) = self.lines.get_mut(&conn) else {
            return Err(format!("{conn:?} is down and was asked {ask:?}"));
        };
        if let ToRelay::HangUp = ask {
            self.ended(conn);
            return Ok(());
        }
        if !line.up {
            return Err(format!("{conn:?} is not up yet and was asked {ask:?}"));
        }
        match ask {
            ToRelay::Subscribe { sub, filters, .. } => {
                if !line.used.insert(*sub) {
                    return Err(format!("{sub:?} is used twice on {conn:?}"));
                }
                line.open.insert(*sub);
                self.keeps_to_limits(conn, filters)?;
                self.fetches_once(conn, *sub, filters)
            }
            ToRelay::Reconcile { sub, .. } if !line.used.insert(*sub) => {
                Err(format!("{sub:?} is used twice on {conn:?}"))
            }
            ToRelay::Unsubscribe(sub) => {
                line.open.remove(sub);
                self.fetched(conn, *sub);
                Ok(())
            }
            // It was left meanwhile, and is nobody we know.
            ToRelay::Describe => {
                self.said.remove(&line.place);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whatever a relay does, it is not asked without end.
    fn is_not_too_often(&mut self, conn: ConnNo, now: Duration) -> Result<(), String> {
        let Some(line) = self.lines.get(&conn) else {
            return Ok(());
        };
        let asked = self.asked.entry(line.place.clone()).or_default();
        asked.push_back(now);
        while asked.front().is_some_and(|at| *at + HOUR <= now) {
            asked.pop_front();
        }
        match asked.len() > PER_HOUR {
            true => Err(format!(
                "{} is asked {} times in an hour",
                line.place,
                asked.len()
            )),
            false => Ok(()),
        }
    }

    fn dialled(&mut self, conn: ConnNo, url: &str) -> Result<(), String> {
        let Some(place) = place(url) else {
            return Err(format!("{url} is dialled and no address"));
        };
        if is_us(&place) {
            return Err(format!("{url} is dialled, and that is us"));
        }
        if self.lines.values().any(|line| line.place == place) {
            return Err(format!("{url} is dialled twice"));
        }
        let line = Line {
            place,
            up: false,
            open: BTreeSet::new(),
            answered: BTreeSet::new(),
            used: BTreeSet::new(),
        };
        match self.lines.insert(conn, line) {
            Some(_) => Err(format!("{conn:?} is used twice")),
            None => Ok(()),
        }
    }

    /// No more than the relay has said that it allows.
    fn keeps_to_limits(&self, conn: ConnNo, filters: &[Filter]) -> Result<(), String> {
        let Some(line) = self.lines.get(&conn) else {
            return Ok(());
        };
        let Some(said) = self.said.get(&line.place) else {
            return Ok(());
        };
        let over = |bound: Option<u32>, asked: usize| {
            bound.is_some_and(|bound| usize::try_from(bound).is_ok_and(|bound| asked > bound))
        };
        let place = &line.place;
        if over(said.subscriptions, line.open.len()) {
            let open = line.open.len();
            return Err(format!(
                "{open} subscriptions are open at {place}: {said:?}"
            ));
        }
        if over(said.filters, filters.len()) {
            return Err(format!("{} filters go to {place}: {said:?}", filters.len()));
        }
        if said.message_bytes.is_some() && over(said.message_bytes, message_bytes(filters)) {
            let bytes = message_bytes(filters);
            return Err(format!(
                "a message of {bytes} bytes goes to {place}: {said:?}"
            ));
        }
        Ok(())
    }

    fn fetches_once(&mut self, conn: ConnNo, sub: SubNo, filters: &[Filter]) -> Result<(), String> {
        for id in filters
            .iter()
            .filter_map(|filter| filter.ids.as_ref())
            .flatten()
        {
            if let Some((other, _)) = self.fetching.insert(*id, (conn, sub)) {
                return Err(format!(
                    "{id} is fetched over {conn:?} and {other:?} at once"
                ));
            }
        }
        Ok(())
    }

    fn fetched(&mut self, conn: ConnNo, sub: SubNo) {
        self.fetching.retain(|_, by| *by != (conn, sub));
    }

    fn ended(&mut self, conn: ConnNo) {
        self.lines.remove(&conn);
        self.fetching.retain(|_, (by, _)| *by != conn);
    }

    pub(crate) fn hears(&mut self, word: &Word) {
        let (conn, word) = match word {
            Word::Said { conn, word, .. } => (conn, word),
            // Whatever becomes of it, it was delivered.
            Word::Event { event, .. } => {
                self.fetching.remove(&event.id);
                return;
            }
        };
        let Some(line) = self.lines.get_mut(conn) else {
            return;
        };
        match word {
            FromRelay::Up => line.up = true,
            FromRelay::Down(_) => self.ended(*conn),
            FromRelay::Described(Some(said)) => {
                let place = line.place.clone();
                self.said.insert(place, *said);
            }
            FromRelay::Closed { sub, .. } => {
                line.open.remove(sub);
                self.fetched(*conn, *sub);
            }
            FromRelay::Eose { sub, .. } => {
                line.answered.insert(*sub);
            }
            // Whatever it says, it means the newest request without an answer.
            FromRelay::Notice(_) => {
                let newest = line.open.difference(&line.answered).max().copied();
                if let Some(sub) = newest {
                    line.open.remove(&sub);
                    self.fetched(*conn, sub);
                }
            }
            FromRelay::Known { id, .. } => {
                self.fetching.remove(id);
            }
            _ => {}
        }
    }
}
