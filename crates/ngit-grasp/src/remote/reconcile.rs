//! NIP-77, the side that asks. What is ours is read from the store in slices; each message of the
//! relay is answered on a thread that may take its time. Bounded in items, rounds and needs.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use grasp_core::shares::ShareLimits;
use grasp_core::sync::io::Complaint;
use grasp_core::{EventId, Filter, Network, SubNo, Timestamp};
use grasp_store::{Budget, Progress, Query, Store, Want};
use negentropy::{Id, Negentropy, NegentropyStorageVector};
use rustc_hash::FxHashSet;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout};

use super::codec;
use crate::clock::unix_now;
use crate::quota::{Account, Permit, Quota};

/// Index rows read in one slice: a few milliseconds.
const SLICE: Budget = Budget(10_000);
/// Slices and messages worked on at once, whatever the number of relays.
const READERS: usize = 2;
/// Items of all comparisons: 2,000,000 x 40 bytes = 80 MB. Relays at the addresses of one network
/// have an eighth, because whoever answers slowly holds his for minutes: room for a comparison with
/// all that may be set aside. A single second that is full may take 150,000 more, 6 MB.
const ITEMS: ShareLimits = ShareLimits {
    in_all: 2_000_000,
    per_network: 250_000,
};
/// Items of a single second, which cannot be divided further.
const SECOND_ITEMS: usize = 200_000;
/// A comparison that waits so long for its turn or for room here is put off.
const LONGEST_WAIT: Duration = Duration::from_secs(5 * 60);
/// Until then it says that it waits, so many times in the time that a request may take.
const BEATS: u32 = 3;
/// What takes longer than that is too large. Whoever answers slowly keeps room from others.
const LONGEST: Duration = Duration::from_secs(10 * 60);
/// What a relay claims to have, in one comparison.
const MAX_NEEDS: usize = 200_000;
/// A round halves what is unclear at least four times; the rest are lists in small frames.
const MAX_ROUNDS: usize = 256;
/// One word to the core.
const LIST: usize = 1_000;
/// Missing events that are named.
const NAMED: usize = 64;
/// A message before hex doubles it: with that it is below strfry's 128 KiB.
pub const FRAME: u32 = 60_000;
/// Less is not enough for the protocol.
const MIN_FRAME: u32 = 4_096;

/// What all comparisons share.
pub struct Desk {
    store: Arc<Store>,
    readers: Arc<Semaphore>,
    room: Quota,
    beat: Duration,
}

/// What is compared.
pub struct Task {
    pub sub: SubNo,
    pub filter: Filter,
    pub aside: Arc<[(Timestamp, EventId)]>,
    pub most: u32,
    /// Bytes of a message before hex.
    pub frame: u32,
    /// Whose room it takes.
    pub account: Account,
}

/// What comes of it, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Say(String),
    Needs(Vec<EventId>),
    Done {
        from: Timestamp,
        compared: u32,
        lacks: u32,
        some: Vec<EventId>,
    },
    Failed(Complaint),
}

/// Bytes of a NEG-MSG's payload to a relay that takes messages of that length.
pub fn frame_for(message_bytes: u32) -> u32 {
    let hex = message_bytes.saturating_sub(256);
    (hex / 2).clamp(MIN_FRAME, FRAME)
}

/// Compares until both sides agree; `said` brings the relay's messages.
pub async fn run(
    desk: Arc<Desk>,
    task: Task,
    mut said: mpsc::Receiver<Vec<u8>>,
    steps: mpsc::UnboundedSender<(SubNo, Step)>,
) {
    let sub = task.sub;
    // Whoever listens is gone with the connection; then this ends with it.
    let tell = |step| drop(steps.send((sub, step)));
    let result = compare(&desk, task, &mut said, &tell).await;
    tell(result.unwrap_or_else(Step::Failed));
}

async fn compare(
    desk: &Desk,
    task: Task,
    said: &mut mpsc::Receiver<Vec<u8>>,
    tell: &impl Fn(Step),
) -> Result<Step, Complaint> {
    let sub = task.sub;
    let (side, first, filter, _room) = while_we_wait(desk.beat, desk.prepare(task), tell).await?;
    tell(Step::Say(codec::neg_open(sub, &filter, &first)));
    let rounds = timeout(LONGEST, converse(desk, sub, side, said, tell));
    rounds.await.unwrap_or(Err(Complaint::TooManyEvents))
}

/// Round after round, until nothing is unclear.
async fn converse(
    desk: &Desk,
    sub: SubNo,
    mut side: Side,
    said: &mut mpsc::Receiver<Vec<u8>>,
    tell: &impl Fn(Step),
) -> Result<Step, Complaint> {
    for _ in 0..MAX_ROUNDS {
        // Nobody brings messages any more when the connection is gone.
        let frame = said.recv().await.ok_or(Complaint::Ours)?;
        let round;
        let answer = desk.work(move |_| side.round(&frame));
        (side, round) = while_we_wait(desk.beat, answer, tell).await??;
        if round.needs.is_empty() {
            tell(Step::Needs(Vec::new()));
        }
        for list in round.needs.chunks(LIST) {
            tell(Step::Needs(list.to_vec()));
        }
        match round.reply {
            Some(reply) => tell(Step::Say(codec::neg_msg(sub, &reply))),
            None => {
                tell(Step::Say(codec::neg_close(sub)));
                return Ok(side.done());
            }
        }
    }
    Err(Complaint::TooManyEvents)
}

/// Our own part of the work. That it takes long is no silence of the relay.
async fn while_we_wait<T>(
    beat: Duration,
    work: impl Future<Output = Result<T, Complaint>>,
    tell: &impl Fn(Step),
) -> Result<T, Complaint> {
    let mut work = pin!(work);
    let until = Instant::now() + LONGEST_WAIT;
    loop {
        match timeout(beat, &mut work).await {
            Ok(done) => return done,
            Err(_) if Instant::now() >= until => return Err(Complaint::Ours),
            Err(_) => tell(Step::Needs(Vec::new())),
        }
    }
}

type Found = Vec<(Timestamp, EventId)>;

/// What we have of a filter, from some second on.
struct Ours {
    items: Found,
    from: Timestamp,
    /// Asks for nothing before it.
    filter: Filter,
}

impl Ours {
    /// What of these lies in the stretch of time that is compared.
    fn aside(&self, aside: &[(Timestamp, EventId)]) -> Found {
        let until = self.filter.until.unwrap_or(Timestamp(u64::MAX));
        let within = |(at, _): &&(Timestamp, EventId)| *at >= self.from && *at <= until;
        aside.iter().filter(within).copied().collect()
    }
}

impl Desk {
    /// A request without a word for `request_timeout` has failed.
    pub fn new(store: Arc<Store>, request_timeout: Duration) -> Self {
        Self {
            beat: request_timeout / BEATS,
            store,
            readers: Arc::new(Semaphore::new(READERS)),
            room: Quota::new(ITEMS),
        }
    }

    /// For all that is compared with relays at addresses of this network.
    pub fn account(&self, network: Network) -> Account {
        self.room.account(Some(network.into()))
    }

    /// Runs one piece of work on a thread that may wait for the disk.
    async fn work<T: Send + 'static>(
        &self,
        piece: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T, Complaint> {
        let permit = Arc::clone(&self.readers).acquire_owned().await;
        let permit = permit.map_err(|_| Complaint::Ours)?;
        let store = Arc::clone(&self.store);
        // The permit is the thread's: whoever waits for it may be gone before it ends.
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            piece(&store)
        });
        done.await.map_err(|_| Complaint::Ours)
    }

    /// All that is done before the relay is asked: our side, its first message, what the relay is
    /// asked to compare, and the room that it takes.
    async fn prepare(&self, task: Task) -> Result<(Side, Vec<u8>, Filter, Permit), Complaint> {
        let (most, set_aside) = (task.most as usize, task.aside.len());
        let collected = self.collect(&task.account, task.filter, most, set_aside);
        let (ours, mut room) = collected.await?;
        let filter = ours.filter.clone();
        let aside = ours.aside(&task.aside);
        room.shrink_to(ours.items.len() + aside.len());
        let opened = self.work(move |_| Side::open(ours, aside, task.frame));
        let (side, first) = opened.await?.map_err(broken)?;
        Ok((side, first, filter, room))
    }

    /// The newest, whole seconds only, with room for them and for so many that are set aside.
    /// Nothing is read before there is room for all that may be found.
    async fn collect(
        &self,
        account: &Account,
        filter: Filter,
        most: usize,
        aside: usize,
    ) -> Result<(Ours, Permit), Complaint> {
        let most = most.max(1);
        let mut room = account.wait(most + 1 + aside).await;
        let mut items = self.scan(filter.clone(), most + 1).await?;
        let last = match items.last() {
            Some((last, _)) if items.len() > most => *last,
            _ => {
                let from = filter.since.unwrap_or_default();
                let ours = Ours {
                    items,
                    from,
                    filter,
                };
                return Ok((ours, room));
            }
        };
        items.retain(|(at, _)| *at > last);
        let mut from = Timestamp(last.0.saturating_add(1));
        if items.is_empty() {
            // Given back first: two that hold some and wait for more would wait for each other.
            drop((items, room));
            room = account.wait(SECOND_ITEMS + 1 + aside).await;
            items = self.second(&filter, last).await?;
            from = last;
        }
        let since = Some(from);
        let ours = Ours {
            items,
            from,
            filter: Filter { since, ..filter },
        };
        Ok((ours, room))
    }

    /// All of a second that is fuller than a whole comparison should be.
    async fn second(&self, filter: &Filter, at: Timestamp) -> Result<Found, Complaint> {
        let mut filter = filter.clone();
        (filter.since, filter.until) = (Some(at), Some(at));
        let items = self.scan(filter, SECOND_ITEMS + 1).await?;
        if items.len() > SECOND_ITEMS {
            return Err(Complaint::TooManyEvents);
        }
        Ok(items)
    }

    async fn scan(&self, filter: Filter, max: usize) -> Result<Found, Complaint> {
        // What is hidden is ours all the same.
        let mut query = Query::new(vec![filter], max, Want::Ids).with_hidden();
        let mut found = Vec::new();
        loop {
            let slice = self.work(move |store| {
                let visit = |item: grasp_store::Found<'_>| found.push((item.created_at, item.id));
                let progress = store.advance(&mut query, SLICE, unix_now(), visit);
                (query, found, progress)
            });
            let progress;
            (query, found, progress) = slice.await?;
            match progress {
                Ok(Progress::More) => {}
                Ok(Progress::Done) => return Ok(found),
                Err(error) => {
                    tracing::error!(%error, "what is ours cannot be read");
                    return Err(Complaint::Ours);
                }
            }
        }
    }
}

fn broken(error: negentropy::Error) -> Complaint {
    tracing::debug!(%error, "a comparison failed");
    Complaint::Invalid
}

/// Our side of a comparison, and what is known of the difference.
struct Side {
    negentropy: Negentropy<'static, NegentropyStorageVector>,
    from: Timestamp,
    compared: u32,
    /// Not really ours: nobody lacks it.
    aside: FxHashSet<EventId>,
    needs: usize,
    lacks: u32,
    some: Vec<EventId>,
}

/// What one message of the relay told.
struct Round {
    needs: Vec<EventId>,
    reply: Option<Vec<u8>>,
}

impl Side {
    fn open(ours: Ours, aside: Found, frame: u32) -> Result<(Self, Vec<u8>), negentropy::Error> {
        let mut items = ours.items;
        let stored: FxHashSet<EventId> = items.iter().map(|(_, id)| *id).collect();
        let aside: Found = aside
            .into_iter()
            .filter(|(_, id)| !stored.contains(id))
            .collect();
        items.extend(&aside);
        items.sort_unstable();
        items.dedup();
        let mut storage = NegentropyStorageVector::with_capacity(items.len());
        for (at, id) in items {
            storage.insert(at.0, Id::from_byte_array(id.0))?;
        }
        storage.seal()?;
        let mut negentropy = Negentropy::owned(storage, u64::from(frame))?;
        let first = negentropy.initiate()?;
        let side = Self {
            negentropy,
            from: ours.from,
            compared: u32::try_from(stored.len()).unwrap_or(u32::MAX),
            aside: aside.into_iter().map(|(_, id)| id).collect(),
            needs: 0,
            lacks: 0,
            some: Vec::new(),
        };
        Ok((side, first))
    }

    fn round(mut self, frame: &[u8]) -> Result<(Self, Round), Complaint> {
        let (mut have, mut need) = (Vec::new(), Vec::new());
        let reply = self
            .negentropy
            .reconcile_with_ids(frame, &mut have, &mut need)
            .map_err(broken)?;
        for id in have {
            self.note_lack(EventId(id.to_bytes()));
        }
        self.needs += need.len();
        if self.needs > MAX_NEEDS {
            return Err(Complaint::TooManyEvents);
        }
        let needs = need.into_iter().map(|id| EventId(id.to_bytes())).collect();
        Ok((self, Round { needs, reply }))
    }

    fn note_lack(&mut self, id: EventId) {
        if self.aside.contains(&id) {
            return;
        }
        self.lacks = self.lacks.saturating_add(1);
        if self.some.len() < NAMED {
            self.some.push(id);
        }
    }

    fn done(self) -> Step {
        Step::Done {
            from: self.from,
            compared: self.compared,
            // To say the same in every round makes it no more.
            lacks: self.lacks.min(self.compared),
            some: self.some,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Steps = mpsc::UnboundedReceiver<(SubNo, Step)>;

    /// What a comparison asks room for; it keeps room for ten.
    const ASKED: usize = 10 + 1 + 10;

    type Begun = (tokio::task::JoinHandle<()>, mpsc::Sender<Vec<u8>>, Steps);

    fn begin(desk: &Arc<Desk>) -> Begun {
        begin_at(desk, "192.0.2.1")
    }

    /// Whoever holds the sender may answer it.
    fn begin_at(desk: &Arc<Desk>, address: &str) -> Begun {
        let (said, heard) = mpsc::channel(1);
        let (steps, told) = mpsc::unbounded_channel();
        let aside: Found = (0..10).map(|n| (Timestamp(n), EventId([9; 32]))).collect();
        let task = Task {
            sub: SubNo(1),
            filter: Filter::default(),
            aside: aside.into(),
            most: 10,
            frame: FRAME,
            account: desk.account(Network::of(address.parse().unwrap())),
        };
        let task = tokio::spawn(run(Arc::clone(desk), task, heard, steps));
        (task, said, told)
    }

    fn desk(room: usize) -> Arc<Desk> {
        desk_with(room, room)
    }

    fn desk_with(in_all: usize, per_network: usize) -> Arc<Desk> {
        let desk = Desk::new(Arc::new(Store::in_memory()), Duration::from_secs(30));
        let limits = ShareLimits {
            in_all: in_all as u64,
            per_network: per_network as u64,
        };
        Arc::new(Desk {
            room: Quota::new(limits),
            ..desk
        })
    }

    /// How much of so much is free.
    fn free(desk: &Desk, all: usize) -> usize {
        let anybody = desk.room.account(None);
        (0..=all).rev().find(|n| anybody.take(*n).is_ok()).unwrap()
    }

    async fn next(told: &mut Steps) -> Step {
        told.recv().await.unwrap().1
    }

    #[tokio::test(start_paused = true)]
    async fn a_comparison_waits_for_room_and_says_so() {
        let desk = desk(ASKED + 9);
        let (first, _answers, mut told) = begin(&desk);
        assert!(matches!(next(&mut told).await, Step::Say(_)));
        let (_second, _said, mut waits) = begin(&desk);
        assert_eq!(next(&mut waits).await, Step::Needs(Vec::new()), "it waits");
        first.abort();
        assert!(matches!(next(&mut waits).await, Step::Say(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_comparison_without_room_is_put_off_and_no_relay_is_blamed() {
        let desk = desk(ASKED);
        let _held = desk.room.account(None).take(5).unwrap();
        let (_task, _said, mut told) = begin(&desk);
        let began = Instant::now();
        for n in 1..30 {
            assert_eq!(next(&mut told).await, Step::Needs(Vec::new()));
            assert_eq!(began.elapsed().as_secs(), n * 10);
        }
        assert_eq!(next(&mut told).await, Step::Failed(Complaint::Ours));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_answers_too_slowly_gives_its_room_back() {
        let desk = desk(ASKED);
        let (_task, _said, mut told) = begin(&desk);
        assert!(matches!(next(&mut told).await, Step::Say(_)));
        let end = Step::Failed(Complaint::TooManyEvents);
        assert_eq!(next(&mut told).await, end);
        assert_eq!(free(&desk, ASKED), ASKED);
    }

    /// Names cost nothing, and addresses do.
    #[tokio::test(start_paused = true)]
    async fn relays_of_one_network_that_answer_slowly_keep_no_room_from_others() {
        let desk = desk_with(8 * ASKED, ASKED);
        let mut slow: Vec<Begun> = (0..40).map(|_| begin(&desk)).collect();
        let (_, _, told) = slow.first_mut().unwrap();
        assert!(matches!(next(told).await, Step::Say(_)));
        // All that they may have is theirs before the other comes.
        let (_, _, waits) = slow.last_mut().unwrap();
        assert_eq!(next(waits).await, Step::Needs(Vec::new()), "it waits");
        let (_task, _said, mut told) = begin_at(&desk, "198.51.100.1");
        assert!(matches!(next(&mut told).await, Step::Say(_)), "at once");
    }

    /// Both threads that read are busy elsewhere.
    #[tokio::test(start_paused = true)]
    async fn room_is_taken_before_anything_is_read_and_what_is_not_needed_given_back() {
        let desk = desk(ASKED);
        let readers = desk.readers.acquire_many(2).await.unwrap();
        let (_task, _said, mut told) = begin(&desk);
        assert_eq!(next(&mut told).await, Step::Needs(Vec::new()), "it waits");
        assert_eq!(free(&desk, ASKED), 0);
        drop(readers);
        assert!(matches!(next(&mut told).await, Step::Say(_)));
        assert_eq!(free(&desk, ASKED), ASKED - 10);
    }

    #[tokio::test]
    async fn a_second_that_is_full_takes_room_of_its_own() {
        let author = testkit::Author::new(1);
        let notes: Vec<_> = (0..30)
            .map(|n| author.event(1, 7, &[], &n.to_string()))
            .collect();
        let desk = desk(SECOND_ITEMS + 1);
        desk.store.apply(&notes).unwrap();
        let account = desk.room.account(None);
        let collected = desk.collect(&account, Filter::default(), 10, 0).await;
        let (ours, _room) = collected.ok().unwrap();
        assert_eq!((ours.items.len(), ours.from), (30, Timestamp(7)));
        assert_eq!(free(&desk, 1), 0);
    }
}
