//! The model of leases: a plain list of who holds one until when, with no formula of the code under
//! test. An answer can only change where a lease ends, so waits are found by asking at those instants.

use redis_rl::policy::Hold;

use crate::call::Reply;
use crate::limit::Lease;

#[derive(Clone, Debug, Default)]
pub struct Holders {
    /// Each id at most once. What is over stays until an admitted call finds it.
    leases: Vec<Held>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    id: [u8; 2],
    /// It is live before this instant.
    end_ms: u64,
}

impl Holders {
    fn live(&self, at_ms: u64) -> impl Iterator<Item = &Held> {
        self.leases.iter().filter(move |held| at_ms < held.end_ms)
    }

    pub fn holds(&self, id: [u8; 2], at_ms: u64) -> bool {
        self.live(at_ms).any(|held| held.id == id)
    }

    pub fn unused(&self, at_ms: u64) -> bool {
        self.live(at_ms).next().is_none()
    }

    fn count(&self, at_ms: u64) -> u64 {
        u64::try_from(self.live(at_ms).count()).unwrap()
    }

    /// Whether a call would be admitted at an instant.
    pub fn admits(&self, lease: Lease, at_ms: u64) -> bool {
        let holds = self.holds(lease.id, at_ms);
        match lease.hold {
            Hold::Take => holds || self.count(at_ms) < lease.limit,
            Hold::Renew | Hold::Release => holds,
        }
    }

    /// The first instant, from one on, of which something holds.
    fn first(&self, from_ms: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
        let mut instants: Vec<u64> = self.live(from_ms).map(|held| held.end_ms).collect();
        instants.push(from_ms);
        instants.sort_unstable();
        instants.into_iter().find(|at_ms| holds(*at_ms))
    }

    /// What is told of the leases as they are, of a call that is told `allowed`.
    fn told(&self, lease: Lease, now_ms: u64, allowed: bool) -> Reply {
        let held = self.count(now_ms);
        let free = (1..=lease.limit).filter(|place| *place > held).count();
        let first = match lease.hold {
            Hold::Release if allowed => Some(now_ms),
            _ => self.first(now_ms, |at_ms| self.admits(lease, at_ms)),
        };
        let unused_ms = self.first(now_ms, |at_ms| self.unused(at_ms)).unwrap();
        [
            i64::from(allowed),
            i64::try_from(lease.limit).unwrap(),
            i64::try_from(free).unwrap(),
            first.map_or(-1, |at_ms| i64::try_from(at_ms - now_ms).unwrap()),
            i64::try_from(unused_ms - now_ms).unwrap(),
        ]
    }

    /// What a look tells.
    pub fn look(&self, lease: Lease, now_us: u64) -> Reply {
        let now_ms = now_us / 1_000;
        self.told(lease, now_ms, self.admits(lease, now_ms))
    }

    /// The reply to a call, which does what it says.
    pub fn judge(&mut self, lease: Lease, now_us: u64) -> Reply {
        let now_ms = now_us / 1_000;
        let allowed = self.admits(lease, now_ms);
        if allowed {
            let stays = |held: &Held| now_ms < held.end_ms && held.id != lease.id;
            self.leases.retain(stays);
            if lease.hold != Hold::Release {
                let end_ms = now_ms + lease.ttl_ms;
                let id = lease.id;
                self.leases.push(Held { id, end_ms });
            }
        }
        self.told(lease, now_ms, allowed)
    }

    /// Who holds a lease until when, those included that are over.
    pub fn members(&self) -> Vec<(u16, u64)> {
        let member = |held: &Held| (u16::from_be_bytes(held.id), held.end_ms);
        let mut members: Vec<_> = self.leases.iter().map(member).collect();
        members.sort_unstable();
        members
    }
}
