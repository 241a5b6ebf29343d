//! The end of the process at each step, by its name. One story goes from the announcement to the
//! deletion; it is cut at every point that it passes, each time that it passes it, and must go on
//! after the restart where it was cut.

use std::sync::Arc;
use std::time::Instant;

use futures_util::{StreamExt as _, stream};
use grasp_core::Event;
use testkit::{Client, Project, Server, WorkTree, json};

use super::{Ledger, Request, Signed, World, blocking, next_state};
use crate::hosted::{directory, grasp_with, remote_ref};
use crate::support::{DEADLINE, stored};

/// Work of the server that has a point before it and one after it.
const WORK: [&str; 10] = [
    "create", "probe", "share", "apply", "set_tips", "retire", "remove", "look", "commit", "adopt",
];
/// Stories at once: each waits for the disk more than it works.
const AT_ONCE: usize = 4;
/// A story does nothing so often.
const MOST_CUTS: usize = 60;

/// What people do, and what is served from then on.
enum Step {
    Publish(Event),
    Push(Push),
    Restart,
}

struct Push {
    tree: Arc<WorkTree>,
    project: Project,
    refspecs: Vec<String>,
    serves: Vec<Event>,
}

/// The same for every server.
struct Plot {
    steps: Vec<Step>,
    fresh: Project,
    /// What the repository that stays is at in the end.
    main: String,
}

#[derive(Debug)]
struct Cut;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crash_at_each_step_by_its_name_loses_nothing() {
    let both = WORK.map(|work| [format!("before-{work}"), format!("after-{work}")]);
    let names = both.into_iter().flatten();
    let names = names.chain(["before-report".to_owned()]);
    let walks = stream::iter(names).map(|name| tokio::spawn(cut_each_time(name)));
    let cuts: Vec<usize> = walks
        .buffer_unordered(AT_ONCE)
        .map(|cuts| cuts.unwrap())
        .collect()
        .await;
    println!("{} cuts", cuts.iter().sum::<usize>());
}

/// At the first time that the point is passed, at the second, until the story is through.
async fn cut_each_time(point: String) -> usize {
    let mut world = World::new(armed(&point, 0), 1);
    let plot = world.plot();
    let mut cuts = 0;
    loop {
        world.story = format!("{point} after {cuts}");
        if !world.is_cut(&plot).await {
            assert!(cuts > 0, "{point} is never passed");
            return cuts;
        }
        cuts += 1;
        assert!(cuts < MOST_CUTS, "{point} is passed without end");
        world.server = armed(&point, cuts);
    }
}

fn armed(point: &str, passed: usize) -> Server {
    let word = format!("{point}={passed}*off->return");
    grasp_with(&[("FAILPOINTS", &word)])
}

impl World {
    /// False if the story went through without passing the point once more.
    async fn is_cut(&mut self, plot: &Plot) -> bool {
        let mut next = 0;
        let played = self.play(plot, &mut next).await;
        let cut = played.and_then(|()| self.stop()).is_err();
        self.server.wait_for_end();
        self.server.set("FAILPOINTS", "");
        self.server.restart();
        self.assert_kept(plot, next).await;
        if cut {
            let went_on = self.play(plot, &mut next).await;
            assert!(went_on.is_ok(), "{}: {}", self.story, self.server.log());
            self.assert_kept(plot, next).await;
        }
        cut
    }

    /// An end in order waits for what is still under way, and may pass the point too.
    fn stop(&mut self) -> Result<(), Cut> {
        match self.server.has_ended() || !self.server.terminate().success() {
            true => Err(Cut),
            false => Ok(()),
        }
    }

    fn plot(&self) -> Plot {
        let (hers, his) = (self.hers(), self.his());
        let fresh = Project::new(&self.dave.author, "fresh");
        let announcements = [&hers, &his, &fresh].map(|one| one.announcement(self.tick()));
        let [announced, co_announced, abandoned] = announcements;
        let states = [(); 2].map(|()| next_state(&self.alice, &hers, self.tick()));
        let [first, second] = &states;
        let request = self.request();
        let steps = vec![
            Step::Publish(announced.clone()),
            Step::Publish(first.event.clone()),
            self.push_of(first, &[&announced]),
            Step::Publish(co_announced.clone()),
            Step::Publish(second.event.clone()),
            self.push_of(second, &[&announced, &co_announced]),
            Step::Restart,
            Step::Publish(request.event.clone()),
            Step::Push(Push {
                tree: Arc::clone(&self.carol.tree),
                project: hers.clone(),
                refspecs: vec![format!("+{}:refs/nostr/{}", request.tip, request.event.id)],
                serves: vec![request.event.clone(), announced, second.event.clone()],
            }),
            Step::Publish(abandoned),
            Step::Publish(self.deletion(&fresh)),
            Step::Publish(self.deletion(&hers)),
        ];
        *self.ledger() = Ledger {
            states: states.to_vec(),
            requests: vec![request],
        };
        let main = self.alice.tree.head();
        Plot { steps, fresh, main }
    }

    fn request(&self) -> Request {
        let tip = self.carol.tree.head();
        Request {
            event: self.hers().pull_request(&self.carol.author, &tip),
            tip,
            acknowledged: false,
            pushed: false,
        }
    }

    fn push_of(&self, state: &Signed, more: &[&Event]) -> Step {
        let refs = state.heads.iter();
        let mut serves = vec![state.event.clone()];
        serves.extend(more.iter().map(|event| (*event).clone()));
        Step::Push(Push {
            tree: Arc::clone(&self.alice.tree),
            project: self.hers(),
            refspecs: refs.map(|(name, id)| format!("+{id}:{name}")).collect(),
            serves,
        })
    }

    fn deletion(&self, project: &Project) -> Event {
        let address = project.address();
        let at = self.tick();
        project.owner.event(5, at, &[&["a", &address]], "")
    }

    /// From the first step that nobody has acknowledged.
    async fn play(&mut self, plot: &Plot, next: &mut usize) -> Result<(), Cut> {
        while let Some(step) = plot.steps.get(*next) {
            self.take(step).await?;
            *next += 1;
        }
        self.end(plot).await
    }

    async fn take(&mut self, step: &Step) -> Result<(), Cut> {
        match step {
            Step::Publish(event) => {
                let client = Client::try_connect(&self.server.ws_url()).await;
                let answer = client.ok_or(Cut)?.try_publish(event).await;
                let (taken, why) = answer.ok_or(Cut)?;
                assert!(taken, "{}: {why}", self.story);
            }
            Step::Push(push) => {
                let mut args = vec!["push".to_owned(), push.project.url(&self.server)];
                args.extend_from_slice(&push.refspecs);
                let tree = Arc::clone(&push.tree);
                let said = blocking(move || {
                    let args: Vec<&str> = args.iter().map(String::as_str).collect();
                    tree.try_git(&args)
                });
                let said = said.await;
                let alone = said.ok || !said.stderr.contains("rejected");
                assert!(alone, "{}: {}", self.story, said.stderr);
                said.ok.then_some(()).ok_or(Cut)?;
            }
            Step::Restart => self.server.restart(),
        }
        Ok(())
    }

    /// What was deleted goes, what is left stays.
    async fn end(&mut self, plot: &Plot) -> Result<(), Cut> {
        let gone = [&self.hers(), &plot.fresh].map(|project| directory(&self.server, project));
        let deadline = Instant::now() + DEADLINE;
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(20));
        while gone.iter().any(|dir| dir.exists()) {
            if self.server.has_ended() {
                return Err(Cut);
            }
            let log = self.server.log();
            assert!(Instant::now() < deadline, "{}: {gone:?}\n{log}", self.story);
            looks.tick().await;
        }
        Ok(())
    }

    /// It, or what has replaced it.
    async fn await_newest(&self, client: &mut Client, event: &Event) {
        let filter =
            json!({"kinds": [event.kind], "authors": [event.pubkey], "since": event.created_at});
        let deadline = Instant::now() + DEADLINE;
        while stored(client, std::slice::from_ref(&filter))
            .await
            .is_empty()
        {
            let log = self.server.log();
            assert!(
                Instant::now() < deadline,
                "{}: {event:?} is lost\n{log}",
                self.story
            );
            tokio::task::yield_now().await;
        }
    }

    /// What was acknowledged is there, and what is there is whole.
    async fn assert_kept(&self, plot: &Plot, next: usize) {
        let mut client = Client::connect(&self.server.ws_url()).await;
        let done = plot.steps.get(..next).unwrap_or_default();
        let last = done.iter().rev().find_map(|step| match step {
            Step::Push(push) => Some(push),
            _ => None,
        });
        // The deletion, which is the last step, may be done before it is acknowledged.
        let left = plot.steps.len() - next;
        if let Some(push) = last.filter(|_| left > 1) {
            for event in &push.serves {
                self.await_newest(&mut client, event).await;
            }
        }
        // Made for an announcement that nobody has acknowledged, a repository may stay empty.
        let announced = |project: &Project| {
            let is_his = |step: &&Step| match step {
                Step::Publish(event) => event.id == project.announcement(event.created_at.0).id,
                _ => false,
            };
            done.iter().any(|step| is_his(&step))
        };
        let mut projects = vec![self.hers(), self.his(), plot.fresh.clone()];
        projects.retain(announced);
        self.assert_whole(&projects).await;
        if left == 0 {
            let main = remote_ref(&self.his().url(&self.server), "refs/heads/main");
            assert_eq!(main.as_ref(), Some(&plot.main), "{}", self.story);
        }
    }
}
