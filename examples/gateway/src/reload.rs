//! Reads the rules again: at SIGHUP, and when the file has changed. A mounted `ConfigMap` sends no
//! signal, and swaps a symbolic link, so what counts is the content that the path leads to.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::fs;
use tokio::signal::unix::Signal;
use tokio::time::{self, MissedTickBehavior};

use crate::gateway::Gateway;
use crate::rules::Rules;

/// Where the rules come from.
pub(crate) struct Source {
    path: PathBuf,
    secret: String,
    /// What the file held when it was last read, valid or not, or why it could not be read: the
    /// same is not reported again.
    seen: Result<Vec<u8>, String>,
}

impl Source {
    /// The rules to start with.
    pub(crate) async fn open(path: PathBuf, secret: String) -> Result<(Self, Rules), String> {
        let seen = read(&path).await;
        let source = Self { path, secret, seen };
        let rules = source.rules()?;
        Ok((source, rules))
    }

    /// Whether the file differs from when it was last read.
    async fn has_changed(&mut self) -> bool {
        let now = read(&self.path).await;
        let changed = now != self.seen;
        self.seen = now;
        changed
    }

    fn rules(&self) -> Result<Rules, String> {
        let text = self.seen.as_ref().map_err(Clone::clone)?;
        Rules::parse(text, &self.secret)
            .map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, String> {
    let text = fs::read(path).await;
    text.map_err(|error| format!("{}: {error}", path.display()))
}

/// Puts new rules in force, for as long as the process runs. Invalid ones change nothing.
pub(crate) async fn keep_up(
    gateway: Arc<Gateway>,
    mut source: Source,
    mut hangups: Signal,
    poll: Duration,
) {
    let mut polls = time::interval(poll);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let wanted = tokio::select! {
            _ = hangups.recv() => true,
            _ = polls.tick() => false,
        };
        if !source.has_changed().await && !wanted {
            continue;
        }
        match source.rules() {
            Ok(rules) => {
                gateway.replace_rules(rules);
                eprintln!("gateway: rules reloaded");
            }
            Err(error) => eprintln!("gateway: the old rules stay in force: {error}"),
        }
    }
}
