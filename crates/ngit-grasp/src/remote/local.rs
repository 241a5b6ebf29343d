//! What is near this machine: its own addresses, the networks it is attached to, its routers, and
//! where its public name leads. A stranger who names such an address speaks of a machine that sees
//! us as a neighbour, so the guard does not go there.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use super::lookup::LookUps;
use crate::config::ProxyNet;

/// Interfaces come and go with containers and leases, and a name moves. Listing them takes a
/// fraction of a millisecond.
const REFRESH: Duration = Duration::from_secs(60);
/// For our own name. The first connection waits for it, later ones go by what was known.
const NAME_TIMEOUT: Duration = Duration::from_secs(3);

/// A shorter prefix is no network around us: a tunnel to everywhere, or a mistake.
const SHORTEST_V4: u8 = 8;
const SHORTEST_V6: u8 = 16;
/// A customer's network, however little of it an interface says.
const CUSTOMER_V6: u8 = 64;

#[derive(Debug, Clone, Default)]
pub struct LocalNetworks(Vec<ProxyNet>);

impl LocalNetworks {
    /// From the addresses of interfaces, each with the length of its prefix, and the routers.
    pub fn new(
        interfaces: impl IntoIterator<Item = (IpAddr, u8)>,
        routers: impl IntoIterator<Item = IpAddr>,
    ) -> Self {
        let own = interfaces
            .into_iter()
            .map(|(ip, prefix)| on_link(ip, prefix));
        let routers = routers.into_iter().map(ProxyNet::only);
        Self(own.chain(routers).collect())
    }

    /// As the system lists them now.
    pub fn of_this_machine() -> Self {
        let listed = if_addrs::get_if_addrs().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot list the addresses of this machine: strangers may name them");
            Vec::new()
        });
        let interfaces = listed.iter().map(|interface| match &interface.addr {
            if_addrs::IfAddr::V4(of) => (of.ip.into(), of.prefixlen),
            if_addrs::IfAddr::V6(of) => (of.ip.into(), of.prefixlen),
        });
        Self::new(interfaces, routers::list())
    }

    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|net| net.contains(ip))
    }

    fn with(mut self, addresses: &[IpAddr]) -> Self {
        self.0.extend(addresses.iter().copied().map(ProxyNet::only));
        self
    }
}

fn on_link(ip: IpAddr, prefix: u8) -> ProxyNet {
    let network = match ip.to_canonical() {
        IpAddr::V4(_) if prefix < SHORTEST_V4 => None,
        IpAddr::V6(_) if prefix < SHORTEST_V6 => None,
        IpAddr::V4(_) => ProxyNet::new(ip, prefix),
        IpAddr::V6(_) => ProxyNet::new(ip, prefix.min(CUSTOMER_V6)),
    };
    network.unwrap_or_else(|| ProxyNet::only(ip))
}

/// What was found last, and when to look again.
pub struct Local {
    own_host: Option<String>,
    list: fn() -> LocalNetworks,
    known: Mutex<Known>,
    /// Set when our name was asked for once.
    first: OnceCell<()>,
}

#[derive(Default)]
struct Known {
    networks: Arc<LocalNetworks>,
    /// Of our own name, as it was answered last.
    own: Vec<IpAddr>,
    due: Option<Instant>,
}

impl Local {
    pub fn new(own_host: Option<String>, list: fn() -> LocalNetworks) -> Self {
        Self {
            own_host,
            list,
            known: Mutex::default(),
            first: OnceCell::new(),
        }
    }

    /// Not older than a minute, or as old as the last connection.
    pub async fn current(&self, lookups: &LookUps) -> Arc<LocalNetworks> {
        self.first.get_or_init(|| self.refresh(lookups)).await;
        if self.is_due() {
            self.refresh(lookups).await;
        }
        Arc::clone(&self.known().networks)
    }

    /// True for one who asks; the others go on with what is known.
    fn is_due(&self) -> bool {
        let (mut known, now) = (self.known(), Instant::now());
        let is_due = known.due.is_none_or(|due| due <= now);
        if is_due {
            known.due = Some(now + REFRESH);
        }
        is_due
    }

    async fn refresh(&self, lookups: &LookUps) {
        self.known().due = Some(Instant::now() + REFRESH);
        let found = match &self.own_host {
            Some(host) => addresses(host, lookups).await,
            None => Some(Vec::new()),
        };
        let list = self.list;
        let networks = tokio::task::spawn_blocking(list).await.unwrap_or_default();
        let mut known = self.known();
        // A name server that is away does not make our address a stranger's.
        known.own = found.unwrap_or_else(|| std::mem::take(&mut known.own));
        known.networks = Arc::new(networks.with(&known.own));
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn addresses(host: &str, lookups: &LookUps) -> Option<Vec<IpAddr>> {
    if let Ok(ip) = host.parse() {
        return Some(vec![ip]);
    }
    let found = lookups.find(host.to_owned(), 443);
    let found = tokio::time::timeout(NAME_TIMEOUT, found).await.ok()?.ok()?;
    Some(found.iter().map(|address| address.ip()).collect())
}

/// The next hops of this machine, from the tables that the kernel shows. They are below
/// `/proc/self`, where a service sees them that sees nothing else of `/proc`.
#[cfg(target_os = "linux")]
mod routers {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    pub fn list() -> Vec<IpAddr> {
        let read = |name: &str| {
            let text = std::fs::read_to_string(format!("/proc/self/net/{name}"));
            text.unwrap_or_default()
        };
        let (v4, v6) = (read("route"), read("ipv6_route"));
        in_route(&v4).chain(in_ipv6_route(&v6)).collect()
    }

    /// Interface, destination, gateway: numbers as they lie in memory.
    fn in_route(text: &str) -> impl Iterator<Item = IpAddr> {
        let gateways = text.lines().filter_map(|line| {
            let gateway = line.split_ascii_whitespace().nth(2)?;
            u32::from_str_radix(gateway, 16).ok()
        });
        let gateways = gateways.map(|gateway| Ipv4Addr::from(gateway.to_ne_bytes()));
        let gateways = gateways.filter(|gateway| !gateway.is_unspecified());
        gateways.map(IpAddr::V4)
    }

    /// Destination, source, each with the length of its prefix, then the next hop.
    fn in_ipv6_route(text: &str) -> impl Iterator<Item = IpAddr> {
        let hops = text.lines().filter_map(|line| {
            let hop = line.split_ascii_whitespace().nth(4)?;
            u128::from_str_radix(hop, 16).ok()
        });
        let hops = hops.map(Ipv6Addr::from_bits);
        let hops = hops.filter(|hop| !hop.is_unspecified());
        hops.map(IpAddr::V6)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn next_hops_are_read_from_the_tables_of_the_kernel() {
            let gateway = u32::from_ne_bytes([9, 9, 9, 1]);
            let table = format!(
                "Iface\tDestination\tGateway \tFlags\n\
                 eth0\t00000000\t{gateway:08X}\t0003\n\
                 eth0\t00090909\t00000000\t0001\n\
                 broken\n"
            );
            let found: Vec<IpAddr> = in_route(&table).collect();
            assert_eq!(found, ["9.9.9.1".parse::<IpAddr>().unwrap()]);
            let nobody = "0".repeat(32);
            let table = format!(
                "{nobody} 00 {nobody} 00 26064700000100000000000000000001 00000400 eth0\n\
                 26064700000100000000000000000000 40 {nobody} 00 {nobody} 00000100 eth0\n\
                 broken\n"
            );
            let found: Vec<IpAddr> = in_ipv6_route(&table).collect();
            assert_eq!(found, ["2606:4700:1::1".parse::<IpAddr>().unwrap()]);
        }
    }
}

/// Elsewhere a router is known only by the network that it is on.
#[cfg(not(target_os = "linux"))]
mod routers {
    pub fn list() -> Vec<std::net::IpAddr> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_listed() {
        let local = LocalNetworks::of_this_machine();
        assert!(local.contains("127.0.0.1".parse().unwrap()));
        assert!(!local.contains("1.1.1.1".parse().unwrap()));
    }

    #[tokio::test]
    async fn a_name_server_that_is_away_does_not_make_us_strangers() {
        let answers = Arc::new(Mutex::new(vec![Ok("1.2.3.4:443".parse().unwrap())]));
        let next = Arc::clone(&answers);
        let lookups = LookUps::by(move |_, _| {
            let answer = next.lock().unwrap().pop();
            let answer = answer.unwrap_or(Err(std::io::ErrorKind::TimedOut));
            Ok(vec![answer?])
        });
        let local = Local::new(Some("git.example".into()), LocalNetworks::default);
        let ours = "1.2.3.4".parse().unwrap();
        for _ in 0..2 {
            assert!(local.current(&lookups).await.contains(ours));
            local.known().due = None;
        }
        let moved = Ok("1.2.3.5:443".parse().unwrap());
        answers.lock().unwrap().push(moved);
        assert!(
            !local.current(&lookups).await.contains(ours),
            "it has moved"
        );
    }
}
