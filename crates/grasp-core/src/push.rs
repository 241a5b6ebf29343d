//! May this push happen, and what would it complete? A push moves nothing by itself: it brings
//! the objects of a state that somebody with authority has signed.

use std::collections::BTreeSet;

use crate::git::{ObjectId, RefName, Refs};
use crate::id::{EventId, Pubkey};
use crate::nip34::{Rank, State};

/// Tips of pull requests in one push.
const MAX_TIPS: usize = 64;
/// Differences shown to the person who pushes.
const MAX_SHOWN: usize = 5;

/// One line of a push: what a ref shall be. The old value that the client believes in plays no
/// part: the signed state does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub name: RefName,
    /// `None` deletes.
    pub new: Option<ObjectId>,
}

/// What a push will do when its objects are here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The state that it completes; `None` when heads and tags stay as they are.
    pub state: Option<Rank>,
    /// Tips of pull requests.
    pub tips: Vec<(EventId, ObjectId)>,
    /// Of some of them the event is not here.
    pub early: bool,
}

/// Whose word stands behind what a push brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backing {
    /// Nobody's yet.
    None,
    /// Authors of pull requests: anybody may be one.
    PullRequests,
    /// A maintainer's.
    State,
}

impl Plan {
    pub fn backing(&self) -> Backing {
        match (self.state, self.early) {
            (Some(_), _) => Backing::State,
            (None, false) => Backing::PullRequests,
            (None, true) => Backing::None,
        }
    }

    /// Whether there is anything that a pack could be for. What nobody asked for is not taken.
    pub fn wants_objects(&self) -> bool {
        self.state.is_some() || !self.tips.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Take(Plan),
    /// The objects are kept for the state that they belong to; the refs stay.
    KeepObjects(PushRefusal),
    Refuse(PushRefusal),
}

/// Why a push is refused. The text reaches the person who pushes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PushRefusal {
    #[error("this repository is not hosted here")]
    NotHosted,
    #[error("this server takes no pushes")]
    ReadOnly,
    #[error("nothing to do: the list of refs is empty")]
    Empty,
    #[error("{0} is named twice")]
    Twice(RefName),
    #[error("only refs/heads/, refs/tags/ and refs/nostr/<event id> can be pushed, not {0}")]
    Namespace(String),
    #[error("no state event of a maintainer waits for this push; publish one (kind 30618) first")]
    NoState,
    #[error("the state {} of {} expects otherwise: {}", .state, .author.npub(), .differences.join("; "))]
    Differs {
        state: EventId,
        author: Pubkey,
        differences: Vec<String>,
    },
    #[error("the state {} of {} has more: push {} too", .state, .author.npub(), .missing.join(", "))]
    Partial {
        state: EventId,
        author: Pubkey,
        missing: Vec<String>,
    },
    #[error("a newer state was applied meanwhile: {0}")]
    Superseded(EventId),
    #[error("event {event} says that its commit is {tip}")]
    WrongTip { event: EventId, tip: String },
    #[error("refs/nostr/ is not deleted by a push: it goes with its event")]
    NostrDelete,
    #[error("too many tips wait for their event, try again later")]
    TooManyTips,
    #[error("this repository takes no more pull requests of the author of {0}")]
    TipsFull(EventId),
    #[error("the objects could not be taken: {0}")]
    Objects(String),
    #[error("the refs could not be written, try again later")]
    Failed,
}

impl PushRefusal {
    /// All that `label` says.
    pub const LABELS: [&'static str; 10] = [
        "not_hosted",
        "read_only",
        "malformed",
        "no_state",
        "differs",
        "partial",
        "superseded",
        "nostr_ref",
        "objects",
        "failed",
    ];

    /// A short, stable word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            PushRefusal::NotHosted => "not_hosted",
            PushRefusal::ReadOnly => "read_only",
            PushRefusal::Empty | PushRefusal::Twice(_) | PushRefusal::Namespace(_) => "malformed",
            PushRefusal::NoState => "no_state",
            PushRefusal::Differs { .. } => "differs",
            PushRefusal::Partial { .. } => "partial",
            PushRefusal::Superseded(_) => "superseded",
            PushRefusal::WrongTip { .. }
            | PushRefusal::NostrDelete
            | PushRefusal::TooManyTips
            | PushRefusal::TipsFull(_) => "nostr_ref",
            PushRefusal::Objects(_) => "objects",
            PushRefusal::Failed => "failed",
        }
    }
}

/// What is known of the event that a `refs/nostr/` name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tip {
    Unknown,
    At(ObjectId),
    /// The event is here and is no pull request, or its commit is no object id.
    None,
}

/// `present` are the heads and tags now, `states` those that wait and that the repository would
/// take, in any order.
pub fn judge(
    commands: &[Command],
    present: &Refs,
    states: &[&State],
    tip: impl Fn(&EventId) -> Tip,
) -> Decision {
    if commands.is_empty() {
        return Decision::Refuse(PushRefusal::Empty);
    }
    let mut plan = Plan::default();
    let mut result = present.clone();
    let mut names = BTreeSet::new();
    for command in commands {
        if !names.insert(&command.name) {
            return Decision::Refuse(PushRefusal::Twice(command.name.clone()));
        }
        match command.name.event() {
            Some(event) => match judge_tip(event, command.new, &tip) {
                Ok(_) if plan.tips.len() == MAX_TIPS => {
                    return Decision::Refuse(PushRefusal::TooManyTips);
                }
                Ok((event, commit)) => {
                    plan.early |= tip(&event) == Tip::Unknown;
                    plan.tips.push((event, commit));
                }
                Err(refusal) => return Decision::Refuse(refusal),
            },
            None => set(&mut result, command),
        }
    }
    if result == *present {
        return Decision::Take(plan);
    }
    let wanted = |state: &&&State| state.refs.as_ref().is_ok_and(|to| to.refs == result);
    match states.iter().filter(wanted).map(|state| state.rank).max() {
        Some(rank) => {
            plan.state = Some(rank);
            Decision::Take(plan)
        }
        None => explain(commands, &result, states),
    }
}

fn set(refs: &mut Refs, command: &Command) {
    match command.new {
        Some(id) => refs.insert(command.name.clone(), id),
        None => refs.remove(&command.name),
    };
}

/// May that commit stand under the event's name?
pub fn judge_tip(
    event: EventId,
    new: Option<ObjectId>,
    tip: &impl Fn(&EventId) -> Tip,
) -> Result<(EventId, ObjectId), PushRefusal> {
    let new = new.ok_or(PushRefusal::NostrDelete)?;
    match tip(&event) {
        Tip::Unknown => Ok((event, new)),
        Tip::At(known) if known == new => Ok((event, new)),
        Tip::At(known) => Err(PushRefusal::WrongTip {
            event,
            tip: known.to_string(),
        }),
        Tip::None => Err(PushRefusal::WrongTip {
            event,
            tip: "none".to_owned(),
        }),
    }
}

/// Compares with the newest state: what is wrong, or else what is missing.
fn explain(commands: &[Command], result: &Refs, states: &[&State]) -> Decision {
    let Some(newest) = states.iter().max_by_key(|state| state.rank) else {
        return Decision::Refuse(PushRefusal::NoState);
    };
    let Ok(targets) = &newest.refs else {
        return Decision::Refuse(PushRefusal::NoState);
    };
    let (state, author) = (newest.rank.id, newest.author);
    let wrong = commands
        .iter()
        .filter(|command| command.name.event().is_none())
        .filter(|command| targets.refs.get(&command.name) != command.new.as_ref());
    let differences: Vec<String> = wrong
        .take(MAX_SHOWN)
        .map(|command| difference(&command.name, targets.refs.get(&command.name)))
        .collect();
    if !differences.is_empty() {
        return Decision::Refuse(PushRefusal::Differs {
            state,
            author,
            differences,
        });
    }
    Decision::KeepObjects(PushRefusal::Partial {
        state,
        author,
        missing: missing(result, &targets.refs),
    })
}

fn difference(name: &RefName, wanted: Option<&ObjectId>) -> String {
    match wanted {
        Some(id) => format!("{name} at {id}"),
        None => format!("no {name}"),
    }
}

fn missing(result: &Refs, wanted: &Refs) -> Vec<String> {
    let lacking = wanted
        .iter()
        .filter(|(name, id)| result.get(*name) != Some(*id))
        .map(|(name, _)| name.to_string());
    let surplus = result
        .keys()
        .filter(|name| !wanted.contains_key(*name))
        .map(|name| format!("the deletion of {name}"));
    lacking.chain(surplus).take(MAX_SHOWN).collect()
}
