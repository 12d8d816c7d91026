//! A circuit breaker: where nothing answers, waiting for it only piles up requests.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Closed, it lets every call through. After `threshold` calls in a row that nobody answered it is
/// open, and lets one call through per `pause`, until one of them is answered.
pub(crate) struct Breaker {
    threshold: u32,
    pause: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    unanswered: u32,
    /// When it opened, or last let a call through since.
    open_since: Option<Instant>,
}

impl Breaker {
    pub(crate) fn new(threshold: u32, pause: Duration) -> Self {
        Self {
            threshold,
            pause,
            state: Mutex::default(),
        }
    }

    /// Whether a call may go out. Each trial call restarts the pause, so an abandoned trial costs one
    /// pause.
    pub(crate) fn lets_through(&self, now: Instant) -> bool {
        let mut state = self.state();
        match state.open_since {
            None => true,
            Some(since) if now.duration_since(since) < self.pause => false,
            Some(_) => {
                state.open_since = Some(now);
                true
            }
        }
    }

    /// Counts a call that was answered. True if it closed the breaker.
    pub(crate) fn answered(&self) -> bool {
        mem::take(&mut *self.state()).open_since.is_some()
    }

    /// Counts a call that was not answered. True if it opened the breaker. It doesn't restart the pause
    /// of an open one, so calls that the breaker isn't asked about can't keep trial calls from going out.
    pub(crate) fn unanswered(&self, now: Instant) -> bool {
        let mut state = self.state();
        state.unanswered = state.unanswered.saturating_add(1);
        let opens = state.unanswered >= self.threshold && state.open_since.is_none();
        if opens {
            state.open_since = Some(now);
        }
        opens
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
