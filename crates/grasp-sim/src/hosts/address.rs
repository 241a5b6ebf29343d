//! Where a repository is at a git server, and the ways to write it. An own reading of addresses, so
//! that the core's can be wrong.

use fastrand::Rng;

/// One repository at one server, whatever the spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Site {
    /// The host in small letters, and its port unless it is a default one.
    pub(crate) domain: String,
    pub(crate) path: String,
}

/// `None` for what nobody can clone from over the web.
pub(crate) fn site(url: &str) -> Option<Site> {
    let (scheme, rest) = url.trim().split_once("://")?;
    let web = matches!(scheme.to_lowercase().as_str(), "http" | "https");
    if !web || rest.contains(['@', '?', '#']) {
        return None;
    }
    let (host, path) = rest.split_once('/')?;
    let (host, port) = match host.split_once(':') {
        Some((host, "80" | "443")) => (host, String::new()),
        Some((host, port)) => (host, format!(":{port}")),
        None => (host, String::new()),
    };
    let host = host.trim_end_matches('.').to_lowercase();
    let path = path.trim_end_matches('/').to_owned();
    let domain = format!("{host}{port}");
    (!host.is_empty() && !path.is_empty()).then_some(Site { domain, path })
}

/// One of the ways to write it.
pub(crate) fn spell(rng: &mut Rng, domain: &str, path: &str) -> String {
    let (host, port) = match domain.find(':') {
        Some(at) => domain.split_at(at),
        None => (domain, ""),
    };
    match rng.u8(0..10) {
        0 => format!("http://{host}{port}/{path}"),
        1 => format!("HTTPS://{}{port}/{path}/", host.to_uppercase()),
        2 => format!("https://{host}.{port}/{path}"),
        3 if port.is_empty() => format!("https://{host}:443/{path}"),
        4 if port.is_empty() => format!("http://{host}:443/{path}//"),
        5 if port.is_empty() => format!("https://{host}:80/{path}"),
        _ => format!("https://{host}{port}/{path}"),
    }
}
