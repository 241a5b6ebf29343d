//! Which repository and which of its endpoints a path means. The path is split first and decoded
//! after, once: an escaped slash stays within its segment.

use grasp_core::service::percent_decoded;
use grasp_core::{Identifier, Pubkey, RepoId};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub repo: RepoId,
    pub endpoint: Endpoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    Page,
    InfoRefs,
    UploadPack,
    ReceivePack,
    /// Below a repository, and nothing that we serve.
    Other,
}

impl Route {
    /// `/<npub>/<percent-encoded identifier>.git/...`; `None` for everything else.
    pub fn parse(path: &str) -> Option<Self> {
        let rest = path.strip_prefix('/')?;
        let (owner, rest) = rest.split_once('/')?;
        let (name, below) = rest.split_once('/').unwrap_or((rest, ""));
        let identifier = percent_decoded(name.strip_suffix(".git")?)?;
        let owner = Pubkey::from_npub(owner).ok()?;
        let identifier = Identifier::parse(&identifier).ok()?;
        let endpoint = match below {
            "" => Endpoint::Page,
            "info/refs" => Endpoint::InfoRefs,
            "git-upload-pack" => Endpoint::UploadPack,
            "git-receive-pack" => Endpoint::ReceivePack,
            _ => Endpoint::Other,
        };
        Some(Self {
            repo: RepoId::new(owner, identifier),
            endpoint,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> Option<(String, Endpoint)> {
        let npub = Pubkey([1; 32]).npub();
        let route = Route::parse(&path.replace("NPUB", &npub))?;
        Some((route.repo.identifier.to_string(), route.endpoint))
    }

    #[test]
    fn paths_are_split_before_they_are_decoded() {
        let found = |name: &str, endpoint| Some((name.to_owned(), endpoint));
        assert_eq!(parse("/NPUB/a.git"), found("a", Endpoint::Page));
        assert_eq!(parse("/NPUB/a.git/"), found("a", Endpoint::Page));
        assert_eq!(
            parse("/NPUB/a%20b.git/info/refs"),
            found("a b", Endpoint::InfoRefs)
        );
        assert_eq!(
            parse("/NPUB/a%2Fb.git/git-upload-pack"),
            found("a/b", Endpoint::UploadPack)
        );
        assert_eq!(parse("/NPUB/x.git.git"), found("x.git", Endpoint::Page));
        assert_eq!(parse("/NPUB/a.git/HEAD"), found("a", Endpoint::Other));
        assert_eq!(
            parse("/NPUB/a.git/../b.git/info/refs"),
            found("a", Endpoint::Other)
        );
    }

    #[test]
    fn what_is_not_a_repository_is_nothing() {
        for path in [
            "/",
            "/NPUB",
            "/NPUB/",
            "/NPUB/a",
            "/NPUB/.git",
            "/NPUB/%2E%2E.git/info/refs",
            "/NPUB/..%00.git",
            "/NPUB/a%zz.git",
            "/NPUB/%FF.git",
            "/npub1xyz/a.git",
            "//NPUB/a.git",
            "/x/NPUB/a.git",
        ] {
            assert_eq!(parse(path), None, "{path}");
        }
        let upper = Pubkey([1; 32]).npub().to_uppercase();
        assert_eq!(Route::parse(&format!("/{upper}/a.git")), None);
    }
}
