//! Who may connect: a number in all and a number per address.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) struct Gate {
    room: Arc<Semaphore>,
    per_ip: usize,
    /// Only addresses with open connections are in it.
    taken: Mutex<FxHashMap<IpAddr, usize>>,
}

/// One connection's place, given back when dropped.
pub(crate) struct Slot {
    _room: OwnedSemaphorePermit,
    _seat: Option<Seat>,
}

/// One connection of one address.
pub(super) struct Seat {
    gate: Arc<Gate>,
    network: IpAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    InAll,
    PerIp,
}

impl Gate {
    pub(super) fn new(in_all: usize, per_ip: usize) -> Arc<Self> {
        Arc::new(Self {
            room: Arc::new(Semaphore::new(in_all.min(Semaphore::MAX_PERMITS))),
            per_ip,
            taken: Mutex::default(),
        })
    }

    /// A place for a connection; `counted` is the address to count, if any.
    pub(super) fn enter(self: &Arc<Self>, counted: Option<IpAddr>) -> Result<Slot, Full> {
        let room = Arc::clone(&self.room)
            .try_acquire_owned()
            .map_err(|_| Full::InAll)?;
        let seat = match counted {
            Some(ip) => Some(self.seat(ip).ok_or(Full::PerIp)?),
            None => None,
        };
        Ok(Slot {
            _room: room,
            _seat: seat,
        })
    }

    pub(super) fn seat(self: &Arc<Self>, ip: IpAddr) -> Option<Seat> {
        let network = network(ip);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(network).or_insert(0);
        if *count >= self.per_ip {
            return None;
        }
        *count += 1;
        Some(Seat {
            gate: Arc::clone(self),
            network,
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self
            .gate
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.network);
            }
        }
    }
}

/// What one customer of a provider holds: an IPv4 address, or an IPv6 /64.
pub(super) fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => {
            let prefix = u128::from(v6) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(prefix))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_and_given_back() {
        let gate = Gate::new(3, 2);
        let (a, b): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let first = gate.enter(Some(a)).unwrap();
        let _second = gate.enter(Some(a)).unwrap();
        assert_eq!(gate.enter(Some(a)).err(), Some(Full::PerIp));
        let _third = gate.enter(Some(b)).unwrap();
        assert_eq!(gate.enter(None).err(), Some(Full::InAll));
        drop(first);
        assert!(gate.enter(Some(a)).is_ok());
    }

    #[test]
    fn one_customer_is_one_network() {
        let same = |a: &str, b: &str| network(a.parse().unwrap()) == network(b.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::ffff:1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
    }
}
