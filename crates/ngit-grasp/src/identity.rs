//! The server's own key. It is made once, kept in a file only its owner can read, and never
//! replaced silently: a key that has gone missing is an error, not a new identity.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use grasp_core::Pubkey;
use grasp_core::id::to_hex;
use secp256k1::{Keypair, SecretKey};
use sha2::{Digest as _, Sha256};

pub const SECRET_FILE: &str = "owner.nsec";
/// Remembers that there was a key, and which.
pub const PUBLIC_FILE: &str = "owner.npub";

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("NGIT_RELAY_OWNER_NSEC is not a secret key: give an nsec or 64 hex characters")]
    BadSetting,
    #[error("{} does not hold a secret key", .0.display())]
    BadFile(PathBuf),
    #[error(
        "this server has been {npub}, and {} does not hold that key. Put the key back, or set \
         NGIT_RELAY_OWNER_NSEC; to become somebody else on purpose, remove {}",
        .secret.display(), .public.display()
    )]
    Lost {
        secret: PathBuf,
        public: PathBuf,
        npub: String,
    },
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Where the key came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Setting,
    File(PathBuf),
    Created(PathBuf),
}

pub struct Identity {
    pub pubkey: Pubkey,
    pub origin: Origin,
    secret: SecretKey,
}

impl Identity {
    pub fn secret(&self) -> &SecretKey {
        &self.secret
    }

    /// Another secret, made from the key: the same after every start, and it says nothing of the
    /// key. A tagged hash as in BIP-340.
    pub fn derived(&self, purpose: &str) -> [u8; 32] {
        let tag = Sha256::digest(purpose);
        let mut hasher = Sha256::new();
        hasher.update(tag);
        hasher.update(tag);
        hasher.update(self.secret.to_secret_bytes());
        hasher.finalize().into()
    }

    /// What a command on this machine shows the server, to prove that it may read the key.
    pub fn pass(&self) -> String {
        to_hex(&self.derived("ngit-grasp operator"))
    }

    /// The key of the settings, else of the data directory. Makes none.
    pub fn present(setting: Option<&str>, dir: &Path) -> Option<Self> {
        let file = || fs::read_to_string(dir.join(SECRET_FILE)).ok();
        let text = setting.map(str::to_owned).or_else(file)?;
        let key = parse_secret(text.trim())?;
        Some(Self::of(&key, Origin::Setting))
    }

    /// The key of the settings, else of the data directory, else a new one.
    pub fn load(setting: Option<&str>, dir: &Path) -> Result<Self, IdentityError> {
        if let Some(text) = setting {
            let key = parse_secret(text).ok_or(IdentityError::BadSetting)?;
            let identity = Self::of(&key, Origin::Setting);
            identity.remember(dir)?;
            return Ok(identity);
        }
        let secret = dir.join(SECRET_FILE);
        let text = match fs::read_to_string(&secret) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => {
                return Err(IdentityError::Io {
                    path: secret,
                    source,
                });
            }
        };
        if text.trim().is_empty() {
            return Self::create(dir);
        }
        let key =
            parse_secret(text.trim()).ok_or_else(|| IdentityError::BadFile(secret.clone()))?;
        let identity = Self::of(&key, Origin::File(secret.clone()));
        match remembered(dir)? {
            Some(npub) if npub != identity.pubkey.npub() => Err(lost(dir, npub)),
            _ => identity.remember(dir).map(|()| identity),
        }
    }

    fn create(dir: &Path) -> Result<Self, IdentityError> {
        if let Some(npub) = remembered(dir)? {
            return Err(lost(dir, npub));
        }
        let secret = dir.join(SECRET_FILE);
        let io = |source| IdentityError::Io {
            path: secret.clone(),
            source,
        };
        fs::create_dir_all(dir).map_err(io)?;
        let key = new_secret().map_err(io)?;
        write_private(&secret, &format!("{}\n", nsec(&key))).map_err(io)?;
        let identity = Self::of(&key, Origin::Created(secret.clone()));
        identity.remember(dir)?;
        Ok(identity)
    }

    fn of(key: &SecretKey, origin: Origin) -> Self {
        let (public, _) = Keypair::from_secret_key(key).x_only_public_key();
        Self {
            pubkey: Pubkey(public.to_byte_array()),
            origin,
            secret: *key,
        }
    }

    fn remember(&self, dir: &Path) -> Result<(), IdentityError> {
        let path = dir.join(PUBLIC_FILE);
        let npub = self.pubkey.npub();
        if remembered(dir)?.as_ref() == Some(&npub) {
            return Ok(());
        }
        fs::create_dir_all(dir)
            .and_then(|()| replace(&path, &format!("{npub}\n"), 0o644))
            .map_err(|source| IdentityError::Io { path, source })
    }
}

/// Who this server has been, as far as that can be read.
pub fn known(dir: &Path) -> Option<String> {
    remembered(dir).ok()?
}

/// Only what is not there, or was never written to its end, is nobody.
fn remembered(dir: &Path) -> Result<Option<String>, IdentityError> {
    let path = dir.join(PUBLIC_FILE);
    match fs::read_to_string(&path) {
        Ok(npub) if npub.trim().is_empty() => Ok(None),
        Ok(npub) => Ok(Some(npub.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(IdentityError::Io { path, source }),
    }
}

fn lost(dir: &Path, npub: String) -> IdentityError {
    IdentityError::Lost {
        secret: dir.join(SECRET_FILE),
        public: dir.join(PUBLIC_FILE),
        npub,
    }
}

/// Who a secret key is.
pub fn npub_of(secret: &str) -> Option<String> {
    let key = parse_secret(secret)?;
    Some(Identity::of(&key, Origin::Setting).pubkey.npub())
}

fn parse_secret(text: &str) -> Option<SecretKey> {
    let bytes: [u8; 32] = if text.starts_with("nsec1") {
        let (hrp, bytes) = bech32::decode(text).ok()?;
        (hrp.as_str() == "nsec").then_some(bytes)?.try_into().ok()?
    } else {
        grasp_core::EventId::from_hex(text).ok()?.0
    };
    SecretKey::from_secret_bytes(bytes).ok()
}

fn nsec(key: &SecretKey) -> String {
    let hrp = bech32::Hrp::parse_unchecked("nsec");
    // 63 characters: below the length limit, the only error there is.
    bech32::encode::<bech32::Bech32>(hrp, &key.to_secret_bytes()).unwrap_or_default()
}

fn new_secret() -> io::Result<SecretKey> {
    loop {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        // All but one in 2^128 values are keys.
        if let Ok(key) = SecretKey::from_secret_bytes(bytes) {
            return Ok(key);
        }
    }
}

/// Writes a file that only its owner may read; whole and durable when this returns.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    replace(path, text, 0o600)
}

fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    let mut file = options.open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_folder_of(path)
}

/// Without it the name of the file may be gone after a power cut.
fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(dir: &Path) -> Result<Identity, IdentityError> {
        Identity::load(None, dir)
    }

    #[test]
    fn a_key_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let first = load(dir.path()).unwrap();
        assert_eq!(first.origin, Origin::Created(dir.path().join(SECRET_FILE)));
        let second = load(dir.path()).unwrap();
        assert_eq!(second.origin, Origin::File(dir.path().join(SECRET_FILE)));
        assert_eq!(first.pubkey, second.pubkey);
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        load(dir.path()).unwrap();
        let mode = fs::metadata(dir.path().join(SECRET_FILE))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_lost_key_is_an_error_and_never_a_new_identity() {
        let dir = tempfile::tempdir().unwrap();
        let npub = load(dir.path()).unwrap().pubkey.npub();
        fs::write(dir.path().join(SECRET_FILE), " \n").unwrap();
        let error = load(dir.path()).err().unwrap();
        assert!(
            matches!(&error, IdentityError::Lost { npub: lost, .. } if *lost == npub),
            "{error}"
        );
        fs::remove_file(dir.path().join(SECRET_FILE)).unwrap();
        assert!(matches!(load(dir.path()), Err(IdentityError::Lost { .. })));
        fs::write(dir.path().join(SECRET_FILE), "nonsense").unwrap();
        assert!(matches!(load(dir.path()), Err(IdentityError::BadFile(_))));
    }

    #[test]
    fn a_name_that_a_power_cut_left_empty_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let npub = load(dir.path()).unwrap().pubkey.npub();
        fs::write(dir.path().join(PUBLIC_FILE), "").unwrap();
        assert_eq!(known(dir.path()), None);
        assert_eq!(load(dir.path()).unwrap().pubkey.npub(), npub);
        assert_eq!(known(dir.path()), Some(npub));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_never_a_new_identity() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(PUBLIC_FILE)).unwrap();
        assert!(matches!(load(dir.path()), Err(IdentityError::Io { .. })));
        assert!(!dir.path().join(SECRET_FILE).exists());
        let setting = "1".repeat(64);
        assert!(Identity::load(Some(&setting), dir.path()).is_err());
    }

    #[test]
    fn files_appear_whole_and_what_a_killed_start_left_does_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        for name in [SECRET_FILE, PUBLIC_FILE] {
            fs::write(dir.path().join(format!("{name}.new")), "half").unwrap();
        }
        load(dir.path()).unwrap();
        let names = fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [PUBLIC_FILE, SECRET_FILE]);
    }

    #[test]
    fn a_setting_that_is_gone_is_a_lost_key_too() {
        let dir = tempfile::tempdir().unwrap();
        Identity::load(Some(&"1".repeat(64)), dir.path()).unwrap();
        assert!(matches!(load(dir.path()), Err(IdentityError::Lost { .. })));
        fs::write(dir.path().join(SECRET_FILE), "2".repeat(64)).unwrap();
        assert!(
            matches!(load(dir.path()), Err(IdentityError::Lost { .. })),
            "nor is it another"
        );
        fs::write(dir.path().join(SECRET_FILE), "1".repeat(64)).unwrap();
        assert!(load(dir.path()).is_ok());
    }

    #[test]
    fn the_setting_takes_nsec_and_hex() {
        let hex = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa";
        let nsec = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5";
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let by_hex = Identity::load(Some(hex), dir).unwrap();
        let by_nsec = Identity::load(Some(nsec), dir).unwrap();
        assert_eq!(by_hex.pubkey, by_nsec.pubkey);
        assert!(Identity::load(Some("nsec1bad"), dir).is_err());
        assert!(Identity::load(Some(&"0".repeat(64)), dir).is_err());
    }
}
