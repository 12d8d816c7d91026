//! The four words of a call, as raw numbers.

use redis_rl::policy::Charge;

use crate::store::units;

/// What a call takes or gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    Cost(u64),
    Force(u64),
    UpTo(u64),
    Refund(u64),
}

/// A plain cost.
impl From<u64> for Word {
    fn from(cost: u64) -> Self {
        Self::Cost(cost)
    }
}

impl Word {
    /// As the core takes it.
    pub fn charge(self) -> Charge {
        match self {
            Self::Cost(n) => Charge::Cost(units(n)),
            Self::Force(n) => Charge::Force(units(n)),
            Self::UpTo(n) => Charge::UpTo(units(n)),
            Self::Refund(n) => Charge::Refund(units(n)),
        }
    }

    /// Whether this call can never be admitted under a limit, however long it waits.
    pub fn is_never(self, limit: u64) -> bool {
        match self {
            Self::Cost(n) | Self::Force(n) => n > limit,
            Self::UpTo(_) | Self::Refund(_) => false,
        }
    }
}
