//! Moving data in and out: backup and restore of the store, export and import as JSON lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use grasp_core::admit::Refusal;
use grasp_core::event::Unverified;
use grasp_core::{Answer, EventId, Filter, Limits, Origin};
use grasp_store::{Backup, BackupSummary, Budget, Progress, Query, Store, StoreError, Want};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::app::{StartError, open_store};
use crate::clock::{Clock, unix_now};
use crate::config::{Config, DatabaseBackend};
use crate::engine::Engine;
use crate::hosting::Repositories;
use crate::identity::{PUBLIC_FILE, SECRET_FILE, known, write_private};
use crate::ingest::{Ingest, Lane, Reply, Word};
use crate::metrics::Metrics;
use crate::owner::{self, OwnerError};

/// Refused lines that are shown one by one.
const MAX_SHOWN: usize = 20;
/// Events that came before what they belong to, and are tried again after it.
const MAX_EARLY_BYTES: usize = 256 * 1024 * 1024;
/// How long repositories may take to be brought in step with what was imported.
const SETTLE: Duration = Duration::from_secs(3_600);

#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Owner(#[from] OwnerError),
    #[error("the memory backend keeps nothing on disk; set NGIT_DATABASE_BACKEND=lmdb")]
    InMemory,
    #[error("the server that runs on this data must be stopped first: {0}")]
    Running(StoreError),
}

fn io_error(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> TransferError {
    let path = path.into();
    move |source| TransferError::Io { path, source }
}

pub(crate) fn on_disk(config: &Config) -> Result<&Path, TransferError> {
    match config.database_backend {
        DatabaseBackend::Lmdb => Ok(&config.relay_data_path),
        DatabaseBackend::Memory => Err(TransferError::InMemory),
    }
}

pub(crate) fn stopped(error: StoreError) -> TransferError {
    match error {
        error @ StoreError::Locked { .. } => TransferError::Running(error),
        error => error.into(),
    }
}

/// The rules at work on the data of a server that is stopped: nobody is served, no other relay is
/// asked.
pub(crate) fn engine(config: &Config) -> Result<Engine, TransferError> {
    let store = Arc::new(open_store(config).map_err(stopped)?);
    let metrics = Arc::new(Metrics::new().map_err(StartError::from)?);
    let repositories = Arc::new(Repositories::new(config.git_data_path.clone()));
    let (policy, clock) = (config.policy(), Clock::start());
    let engine = Engine::start(policy, &store, &repositories, &metrics, clock, None);
    Ok(engine.map_err(StartError::from)?)
}

/// What is on disk, beside a server that may be running. Opened as the user to whom it belongs, and
/// nothing below the folder is opened later.
pub(crate) fn look(config: &Config) -> Result<Store, TransferError> {
    let data = on_disk(config)?;
    Ok(owner::as_owner(&[data], || Store::open_read_only(data))??)
}

/// Events and owner key, consistent, while the server may be running.
pub fn backup(config: &Config, dir: &Path, as_json: bool) -> Result<(), TransferError> {
    let data = on_disk(config)?;
    let store = look(config)?;
    let keys = owner::as_owner(&[data], || read_keys(data))??;
    let bar = spinner("copying events");
    let summary = store.backup(dir, &keys)?;
    bar.finish_and_clear();
    if as_json {
        return print_json(&as_value(&summary, dir));
    }
    say(&format!(
        "{}, {} bytes in {}",
        counted(&summary),
        summary.bytes,
        dir.display()
    ));
    Ok(())
}

/// Into a data directory that has no events yet.
pub fn restore(config: &Config, dir: &Path, as_json: bool) -> Result<(), TransferError> {
    let data = on_disk(config)?;
    // The backup may be for root alone, so it is opened before the data is.
    let backup = Backup::open(dir)?;
    let keys = read_keys(dir)?;
    owner::act_for(&[data])?;
    let bar = spinner("checking and copying events");
    // The key first: events without it would begin a new identity at the next start.
    let first = || bar.suspend(|| restore_keys(&keys, data));
    let summary = backup.restore_after(data, first).map_err(stopped)?;
    bar.finish_and_clear();
    if as_json {
        return print_json(&as_value(&summary, data));
    }
    say(&format!(
        "{} restored to {}",
        counted(&summary),
        data.display()
    ));
    Ok(())
}

/// The files of the owner key that are there, with their names. What is there and cannot be read is
/// an error: a backup without the key would look whole.
fn read_keys(dir: &Path) -> Result<Vec<(&'static str, String)>, StoreError> {
    let mut keys = Vec::new();
    for name in [SECRET_FILE, PUBLIC_FILE] {
        let path = dir.join(name);
        let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        if path
            .symlink_metadata()
            .is_err_and(|error| is_missing(&error))
        {
            continue;
        }
        match read_short(&path) {
            Ok(text) => keys.push((name, text)),
            Err(source) => return Err(StoreError::Io { path, source }),
        }
    }
    Ok(keys)
}

/// A key has 63 characters.
const MAX_KEY_BYTES: u64 = 4_096;

/// Of a plain file. Another thing under its name may have no end, or nobody who writes to it.
fn read_short(path: &Path) -> io::Result<String> {
    let mut options = File::options();
    options.read(true);
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits();
    let nonblock = i32::try_from(nonblock).unwrap_or_default();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, nonblock);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is not a file"));
    }
    let mut text = String::new();
    file.take(MAX_KEY_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn restore_keys(keys: &[(&str, String)], data: &Path) -> Result<(), StoreError> {
    for (name, text) in keys {
        let target = data.join(name);
        if target.exists() {
            say(&format!(
                "{} is there already and was kept",
                target.display()
            ));
        } else {
            let written = write_private(&target, text);
            written.map_err(|source| StoreError::Io {
                path: target,
                source,
            })?;
        }
    }
    let backed = keys.iter().find(|(name, _)| *name == PUBLIC_FILE);
    let backed = backed
        .map(|(_, npub)| npub.trim())
        .filter(|npub| !npub.is_empty());
    match (backed, known(data)) {
        (Some(backed), Some(kept)) if backed != kept => say(&format!(
            "WARNING: this server stays {kept}, and the backup is of {backed}. To be that one, \
             move {SECRET_FILE} and {PUBLIC_FILE} in {} away and put those of the backup there.",
            data.display()
        )),
        _ => {}
    }
    Ok(())
}

/// For people.
fn counted(summary: &BackupSummary) -> String {
    match summary.held {
        0 => format!("{} events", summary.events),
        held => format!(
            "{} events and {held} that wait for git data",
            summary.events
        ),
    }
}

/// For programs.
fn as_value(summary: &BackupSummary, directory: &Path) -> Value {
    json!({
        "events": summary.events,
        "held": summary.held,
        "bytes": summary.bytes,
        "directory": directory,
    })
}

fn print_json(value: &Value) -> Result<(), TransferError> {
    let printed = writeln!(io::stdout(), "{value:#}");
    printed.map_err(io_error("standard output"))
}

/// All events, newest first, one JSON object a line, and then those that wait for their git data.
pub fn export(config: &Config, file: Option<&Path>) -> Result<(), TransferError> {
    let store = look(config)?;
    let path = file.unwrap_or(Path::new("standard output"));
    let mut out: Box<dyn Write> = match file {
        Some(path) => Box::new(BufWriter::new(
            File::create_new(path).map_err(io_error(path))?,
        )),
        None => Box::new(BufWriter::new(io::stdout().lock())),
    };
    let served = export_served(&store, &mut out, path)?;
    let mut held = 0_u64;
    let mut written = Ok(());
    store.each_held(|event, remembered| {
        if !remembered && written.is_ok() {
            written = writeln!(out, "{}", event.json());
            held += 1;
        }
    })?;
    written.and_then(|()| out.flush()).map_err(io_error(path))?;
    let waiting = match held {
        0 => String::new(),
        held => format!(", {held} of them wait for git data"),
    };
    say(&format!("{} events exported{waiting}", served + held));
    Ok(())
}

fn export_served(store: &Store, out: &mut dyn Write, path: &Path) -> Result<u64, TransferError> {
    let bar = bar(store.stats()?.events, "{bar:30} {pos}/{len} events {eta}");
    let mut query = Query::new(vec![Filter::default()], usize::MAX, Want::Json).with_hidden();
    let mut exported = 0_u64;
    let mut failure = None;
    loop {
        let progress = store.advance(&mut query, Budget::SLICE, unix_now(), |found| {
            if failure.is_none() {
                failure = writeln!(out, "{}", found.json).err();
                exported += 1;
            }
        })?;
        if let Some(error) = failure {
            return Err(io_error(path)(error));
        }
        bar.set_position(exported);
        if progress == Progress::Done {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(exported)
}

/// Reads JSON lines through the same rules as a client's events. True when every line was an
/// event that is now here, or was, or has been replaced or deleted by its author.
pub fn import(config: &Config, file: Option<&Path>, as_json: bool) -> Result<bool, TransferError> {
    let data = on_disk(config)?;
    let (source, bytes): (Box<dyn Read>, u64) = match file {
        Some(path) => {
            let file = File::open(path).map_err(io_error(path))?;
            let bytes = file.metadata().map(|meta| meta.len()).unwrap_or(0);
            (Box::new(file), bytes)
        }
        None => (Box::new(io::stdin().lock()), 0),
    };
    owner::act_for(&[data, &config.git_data_path])?;
    let engine = engine(config)?;
    let bar = bar(bytes, "{bar:30} {bytes}/{total_bytes} {eta}");
    let tally = read_lines(
        BufReader::new(source),
        &engine.ingest,
        &config.limits(),
        &bar,
    );
    if !engine.settle(SETTLE) {
        say("not everything could be brought in step in time");
    }
    engine.stop();
    bar.finish_and_clear();
    let tally = tally.map_err(io_error(file.unwrap_or(Path::new("standard input"))))?;
    if as_json {
        print_json(&tally.as_value())?;
    } else {
        tally.report();
    }
    Ok(tally.refused == 0)
}

fn read_lines(
    mut source: impl BufRead,
    ingest: &Ingest,
    limits: &Limits,
    bar: &ProgressBar,
) -> io::Result<Tally> {
    let waiting = tokio::runtime::Builder::new_current_thread().build()?;
    let entrance = Entrance {
        ingest,
        limits,
        waiting: &waiting,
    };
    let (answers, answered) = unbounded();
    let mut tally = Tally::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        // One byte more than the limit tells a long line from a good one.
        let most = limits.event_bytes as u64 + 2;
        let read = (&mut source).take(most).read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        if read as u64 == most && line.last() != Some(&b'\n') {
            skip_line(&mut source)?;
        }
        bar.inc(read as u64);
        let text = String::from_utf8_lossy(&line);
        tally.submit(number, text.trim(), &entrance, &answers);
        tally.collect(&answered);
    }
    drop(answers);
    for answer in answered {
        tally.count(answer);
    }
    tally.try_again(&entrance);
    Ok(tally)
}

/// Where events go in.
struct Entrance<'e> {
    ingest: &'e Ingest,
    limits: &'e Limits,
    waiting: &'e Runtime,
}

fn skip_line(source: &mut impl BufRead) -> io::Result<()> {
    loop {
        let available = source.fill_buf()?;
        if available.is_empty() {
            return Ok(());
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(available.len(), |end| end + 1);
        source.consume(used);
        if end.is_some() {
            return Ok(());
        }
    }
}

struct Answered {
    line: u64,
    text: String,
    word: Word,
}

struct LineReply {
    line: u64,
    text: String,
    answers: Sender<Answered>,
}

impl Reply for LineReply {
    fn send(self: Box<Self>, _: EventId, word: Word) {
        let Self {
            line,
            text,
            answers,
        } = *self;
        let _ = answers.send(Answered { line, text, word });
    }
}

/// An event whose repository was not here when it came.
struct Early {
    line: u64,
    text: String,
    why: Refusal,
}

#[derive(Default)]
struct Tally {
    lane: Lane,
    stored: u64,
    held: u64,
    known: u64,
    superseded: u64,
    refused: u64,
    early: Vec<Early>,
    early_bytes: usize,
}

impl Tally {
    fn submit(
        &mut self,
        number: u64,
        text: &str,
        entrance: &Entrance<'_>,
        answers: &Sender<Answered>,
    ) {
        if text.is_empty() {
            return;
        }
        let event = match Unverified::parse(text, entrance.limits) {
            Ok(event) => event,
            Err(error) => return self.refuse(number, &error.to_string()),
        };
        let ingest = entrance.ingest;
        // This thread has nothing else to do: it waits where a connection would park.
        let room = ingest.share(None).room(&event);
        let room = entrance.waiting.block_on(room);
        let reply = LineReply {
            line: number,
            text: text.to_owned(),
            answers: answers.clone(),
        };
        ingest.submit(&mut self.lane, event, Origin::Import, Box::new(reply), room);
    }

    /// An export has the newest first, so that states come before their announcements: what came
    /// too early is tried again, the other way round, until that brings nothing more.
    fn try_again(&mut self, entrance: &Entrance<'_>) {
        loop {
            let early = std::mem::take(&mut self.early);
            self.early_bytes = 0;
            let before = early.len();
            let (answers, answered) = unbounded();
            for event in early.into_iter().rev() {
                self.submit(event.line, &event.text, entrance, &answers);
                self.collect(&answered);
            }
            drop(answers);
            for answer in answered {
                self.count(answer);
            }
            if self.early.len() == before {
                break;
            }
        }
        for event in std::mem::take(&mut self.early) {
            self.refuse(event.line, &event.why.to_string());
        }
    }

    fn collect(&mut self, answered: &Receiver<Answered>) {
        while let Ok(answer) = answered.try_recv() {
            self.count(answer);
        }
    }

    fn count(&mut self, answered: Answered) {
        match answered.word {
            Word::Answer(Answer::Accepted) => self.stored += 1,
            Word::Answer(Answer::Held) => self.held += 1,
            Word::Answer(Answer::Duplicate) => self.known += 1,
            Word::Answer(Answer::Refused(
                Refusal::Replaced | Refusal::Deleted | Refusal::Vanished,
            )) => {
                self.superseded += 1;
            }
            Word::Answer(Answer::Refused(why)) if why.is_early() && self.has_room() => {
                let Answered { line, text, .. } = answered;
                self.early_bytes = self.early_bytes.saturating_add(text.len());
                self.early.push(Early { line, text, why });
            }
            Word::Answer(Answer::Refused(refusal)) => {
                self.refuse(answered.line, &refusal.to_string())
            }
            Word::Unverifiable(error) => self.refuse(answered.line, &error.to_string()),
        }
    }

    fn has_room(&self) -> bool {
        self.early_bytes < MAX_EARLY_BYTES
    }

    fn refuse(&mut self, line: u64, why: &str) {
        self.refused += 1;
        if self.refused <= MAX_SHOWN as u64 {
            say(&format!("line {line}: {why}"));
        }
    }

    fn as_value(&self) -> Value {
        json!({
            "imported": self.stored,
            "held": self.held,
            "known": self.known,
            "superseded": self.superseded,
            "refused": self.refused,
        })
    }

    fn report(&self) {
        say(&format!(
            "{} events imported, {} wait for git data, {} were here already, {} replaced or \
             deleted, {} refused",
            self.stored, self.held, self.known, self.superseded, self.refused
        ));
    }
}

/// Progress and results go to standard error: standard output is for data.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

pub(crate) fn bar(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), target());
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn spinner(message: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, target()).with_message(message);
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    bar
}

fn target() -> ProgressDrawTarget {
    if io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    }
}
