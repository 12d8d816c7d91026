//! What a call comes to: the decision, and what is to be stored because of it.

use crate::decision::{Decision, Usage};
use crate::policy::Units;
use crate::state::Write;

/// The decision on one call and the change that it makes to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<S> {
    /// The answer.
    pub decision: Decision,
    /// What is to be stored. A refusal stores nothing, unless the clock was set back.
    pub write: Option<Write<S>>,
    /// The clock was set back, so the stored time moves back with this write.
    pub stepped_back: bool,
}

impl<S> Outcome<S> {
    pub(crate) fn refused(usage: &impl Usage, cost: Units) -> Self {
        Self {
            decision: usage.decision(false, cost),
            write: None,
            stepped_back: false,
        }
    }

    /// After a step back a refusal stores this, in which the time alone has moved.
    pub(crate) fn move_back(&mut self, state: S) {
        self.write = Some(Write {
            state,
            expire_at_ms: None,
            added: None,
        });
        self.stepped_back = true;
    }

    /// `stepped_back`: whether the write moves the stored time back.
    pub(crate) fn admitted(
        usage: &impl Usage,
        cost: Units,
        write: Write<S>,
        stepped_back: bool,
    ) -> Self {
        Self {
            decision: usage.decision(true, cost),
            write: Some(write),
            stepped_back,
        }
    }
}
