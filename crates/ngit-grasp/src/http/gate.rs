//! Who may connect: a number in all and a number per network.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use grasp_core::Network;
use grasp_core::shares::{NetworkShares, ShareLimits};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) struct Gate {
    room: Arc<Semaphore>,
    limits: ShareLimits,
    taken: Mutex<NetworkShares>,
}

/// One connection's place, given back when dropped.
pub(crate) struct Slot {
    _room: OwnedSemaphorePermit,
    _seat: Option<Seat>,
}

/// One connection of one address.
pub(super) struct Seat {
    gate: Arc<Gate>,
    network: Network,
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
            // All are counted by `room`: some have no network.
            limits: ShareLimits {
                in_all: u64::MAX,
                per_network: per_ip as u64,
            },
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
        let network = Network::of(ip);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.take(Some(network), 1, self.limits).ok()?;
        Some(Seat {
            gate: Arc::clone(self),
            network,
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let taken = self.gate.taken.lock();
        let mut taken = taken.unwrap_or_else(PoisonError::into_inner);
        taken.give_back(Some(self.network), 1);
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
    fn one_customer_with_many_prefixes_does_not_fill_the_server() {
        let gate = Gate::new(1_000, 2);
        let of_one_customer = (0..100).map(|n| format!("2001:db8:0:{n:x}00::1"));
        let open: Vec<Slot> = of_one_customer
            .filter_map(|ip| gate.enter(Some(ip.parse().unwrap())).ok())
            .collect();
        assert_eq!(open.len(), 8, "four shares of two connections");
        assert!(gate.enter(Some("2001:db8:1::1".parse().unwrap())).is_ok());
    }
}
