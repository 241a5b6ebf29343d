//! Settings that are one of a few words, or name people and repositories, and what to log.

use grasp_core::{Identifier, MaintainerRule, Pubkey, RepoId, RepoPattern};

use super::value::{Rules, Setting, refusal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseBackend {
    Lmdb,
    Memory,
}

impl Setting for DatabaseBackend {
    fn expects(_: &Rules) -> String {
        "lmdb or memory".into()
    }

    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "lmdb" => Ok(Self::Lmdb),
            "memory" => Ok(Self::Memory),
            _ => Err(refusal::<Self>(text, rules)),
        }
    }

    fn show(&self, _: &Rules) -> String {
        match self {
            Self::Lmdb => "lmdb".into(),
            Self::Memory => "memory".into(),
        }
    }
}

/// Who we are to a relay that asks (NIP-42).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthKey {
    Service,
    Owner,
    Never,
}

impl Setting for AuthKey {
    fn expects(_: &Rules) -> String {
        "service, owner or never".into()
    }

    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "service" => Ok(Self::Service),
            "owner" => Ok(Self::Owner),
            "never" => Ok(Self::Never),
            _ => Err(refusal::<Self>(text, rules)),
        }
    }

    fn show(&self, _: &Rules) -> String {
        match self {
            Self::Service => "service".into(),
            Self::Owner => "owner".into(),
            Self::Never => "never".into(),
        }
    }
}

impl Setting for MaintainerRule {
    fn expects(_: &Rules) -> String {
        "reciprocal or listed".into()
    }

    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "reciprocal" => Ok(Self::Reciprocal),
            "listed" => Ok(Self::Listed),
            _ => Err(refusal::<Self>(text, rules)),
        }
    }

    fn show(&self, _: &Rules) -> String {
        match self {
            Self::Reciprocal => "reciprocal".into(),
            Self::Listed => "listed".into(),
        }
    }
}

impl Setting for Pubkey {
    fn expects(_: &Rules) -> String {
        "an npub".into()
    }

    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        Self::from_npub(text).map_err(|_| refusal::<Self>(text, rules))
    }

    fn show(&self, _: &Rules) -> String {
        self.npub()
    }
}

impl Setting for RepoPattern {
    fn expects(_: &Rules) -> String {
        "an npub, an npub/identifier or an identifier".into()
    }

    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        let wrong = || refusal::<Self>(text, rules);
        if !text.starts_with("npub1") {
            let identifier = Identifier::parse(text).map_err(|_| wrong())?;
            return Ok(Self::Identifier(identifier.as_str().to_owned()));
        }
        let Some((owner, identifier)) = text.split_once('/') else {
            let owner = Pubkey::from_npub(text).map_err(|_| wrong())?;
            return Ok(Self::Owner(owner));
        };
        let owner = Pubkey::from_npub(owner).map_err(|_| wrong())?;
        let identifier = Identifier::parse(identifier).map_err(|_| wrong())?;
        Ok(Self::Repo(RepoId::new(owner, identifier)))
    }

    fn show(&self, _: &Rules) -> String {
        match self {
            Self::Owner(owner) => owner.npub(),
            Self::Repo(repo) => repo.to_string(),
            Self::Identifier(identifier) => identifier.clone(),
        }
    }
}

/// What to log, in the syntax of `tracing_subscriber::EnvFilter`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter(String);

impl LogFilter {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for LogFilter {
    fn expects(_: &Rules) -> String {
        "off, error, warn, info, debug, trace or a filter such as info,grasp_core=debug".into()
    }

    /// `EnvFilter` takes a lone word that is no level for the name of a module, so a misspelt
    /// level would silence the log.
    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
        let is_level = |part: &str| {
            LEVELS
                .iter()
                .any(|level| part.trim().eq_ignore_ascii_case(level))
        };
        let names_a_level = text.contains('=') || text.split(',').any(is_level);
        if names_a_level && tracing_subscriber::EnvFilter::try_new(text).is_ok() {
            return Ok(Self(text.into()));
        }
        Err(refusal::<Self>(text, rules))
    }

    fn show(&self, _: &Rules) -> String {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_log_level_is_refused() {
        let rules = Rules::of("NGIT_LOG_LEVEL");
        for text in ["info", "WARN", "info,grasp_core=debug", "ngit_grasp=trace"] {
            assert!(LogFilter::parse(text, &rules).is_ok(), "{text}");
        }
        for text in ["inof", "info,a=b=c", "grasp_core=loud"] {
            assert!(LogFilter::parse(text, &rules).is_err(), "{text}");
        }
    }
}
