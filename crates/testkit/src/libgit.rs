//! Git as clients with libgit2 speak it: protocol v0, chunked bodies, and a command for every
//! refspec also when there is nothing to change.

use std::path::Path;

use git2::{Direction, FetchOptions, PushOptions, RemoteCallbacks, Repository};

/// What a push was told.
#[derive(Debug, Default)]
pub struct Told {
    /// Each ref, and why not, if not.
    pub refs: Vec<(String, Option<String>)>,
    /// Words for the person.
    pub words: String,
    /// The failure of the whole, if it failed.
    pub error: Option<String>,
}

impl Told {
    /// Every ref was taken.
    pub fn is_ok(&self) -> bool {
        self.error.is_none() && self.refs.iter().all(|(_, refused)| refused.is_none())
    }

    /// Why a ref was refused.
    pub fn refusal(&self, name: &str) -> Option<&str> {
        let (_, refused) = self.refs.iter().find(|(found, _)| found == name)?;
        refused.as_deref()
    }
}

/// One line of the advertisement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    pub name: String,
    pub id: String,
    /// Where a symbolic ref points to.
    pub target: Option<String>,
}

pub fn push(repository: &Path, url: &str, refspecs: &[&str]) -> Told {
    let repository = Repository::open(repository).expect("a repository");
    let mut told = Told::default();
    let Told { refs, words, .. } = &mut told;
    let mut callbacks = RemoteCallbacks::new();
    callbacks.push_update_reference(|name, refused| {
        refs.push((name.to_owned(), refused.map(str::to_owned)));
        Ok(())
    });
    callbacks.sideband_progress(|bytes| {
        words.push_str(&String::from_utf8_lossy(bytes));
        true
    });
    let mut options = PushOptions::new();
    options.remote_callbacks(callbacks);
    let mut remote = repository.remote_anonymous(url).expect("a remote");
    let result = remote.push(refspecs, Some(&mut options));
    drop(options);
    told.error = result.err().map(|error| error.message().to_owned());
    told
}

pub fn fetch(repository: &Path, url: &str, refspecs: &[&str]) {
    let repository = Repository::open(repository).expect("a repository");
    let mut remote = repository.remote_anonymous(url).expect("a remote");
    let mut options = FetchOptions::new();
    remote
        .fetch(refspecs, Some(&mut options), None)
        .unwrap_or_else(|error| panic!("fetch {refspecs:?} from {url}: {error}"));
}

/// The advertisement for fetching.
pub fn list(url: &str) -> Vec<Advertised> {
    let mut remote = git2::Remote::create_detached(url).expect("a remote");
    remote
        .connect(Direction::Fetch)
        .unwrap_or_else(|error| panic!("connect to {url}: {error}"));
    let heads = remote.list().expect("the list of a connected remote");
    let advertised = |head: &git2::RemoteHead<'_>| Advertised {
        name: head.name().to_owned(),
        id: head.oid().to_string(),
        target: head.symref_target().map(str::to_owned),
    };
    heads.iter().map(advertised).collect()
}
