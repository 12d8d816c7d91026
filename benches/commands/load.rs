//! The load: one thread and a few connections, all of them always waiting for a reply.
//!
//! A thread per connection would be dearer than the server that it loads, and so would be asking
//! which connection is ready. The server answers connections in the order in which they have
//! asked, so one thread that waits for each in turn, and sends its next call at once, keeps all of
//! them busy with two system calls for each batch: the server is what it waits for. On two
//! processors there is one for each.

use std::time::{Duration, Instant};

use crate::server::Server;
use crate::wire::{Calls, Client};

/// What one run of calls came to.
pub struct Slice {
    pub calls: usize,
    pub wall: Duration,
    /// The server's processor time.
    pub cpu: Duration,
    /// From a batch's sending to its last reply, in ns.
    pub latencies_ns: Vec<u32>,
}

impl Slice {
    pub fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.calls as f64
    }

    pub fn thousands_per_second(&self) -> f64 {
        self.calls as f64 / self.wall.as_secs_f64() / 1_000.0
    }
}

/// Sends every call, in batches of `pipeline`, as fast as the server takes them.
pub fn closed(server: &Server, clients: &mut [Client], calls: &Calls, pipeline: usize) -> Slice {
    let batches = calls.len() / pipeline;
    let count = clients.len();
    assert!(batches >= count, "a batch for each connection");
    let mut sent_at = vec![Instant::now(); count];
    let mut latencies_ns = Vec::with_capacity(batches);
    let cpu = server.cpu_time();
    let start = Instant::now();
    for batch in 0..batches + count {
        let turn = batch % count;
        if batch >= count {
            clients[turn].receive(calls);
        }
        let now = Instant::now();
        if batch >= count {
            latencies_ns.push(nanos(now - sent_at[turn]));
        }
        if batch < batches {
            sent_at[turn] = now;
            clients[turn].send(calls, batch * pipeline, pipeline);
        }
    }
    Slice {
        calls: batches * pipeline,
        wall: start.elapsed(),
        cpu: server.cpu_time().saturating_sub(cpu),
        latencies_ns,
    }
}

/// Sends every call at its time, `per_second` of them, or, when all connections are busy, as soon
/// after it as one is free. Latencies count from when a call was due, so that waiting for a
/// connection is part of them.
pub fn at_rate(server: &Server, clients: &mut [Client], calls: &Calls, per_second: f64) -> Slice {
    let count = clients.len();
    for client in &*clients {
        client.set_nonblocking(true);
    }
    let mut due_at = vec![Instant::now(); count];
    let mut latencies_ns = Vec::with_capacity(calls.len());
    let (mut sent, mut received) = (0, 0);
    let cpu = server.cpu_time();
    let start = Instant::now();
    while received < calls.len() {
        if sent < calls.len() && sent - received < count {
            let due = start + Duration::from_secs_f64(sent as f64 / per_second);
            if Instant::now() >= due {
                due_at[sent % count] = due;
                clients[sent % count].send(calls, sent, 1);
                sent += 1;
                continue;
            }
        }
        // Nothing sleeps here: the load has a processor of its own.
        let turn = received % count;
        if received < sent && clients[turn].poll(calls) {
            latencies_ns.push(nanos(due_at[turn].elapsed()));
            received += 1;
        }
    }
    for client in &*clients {
        client.set_nonblocking(false);
    }
    Slice {
        calls: calls.len(),
        wall: start.elapsed(),
        cpu: server.cpu_time().saturating_sub(cpu),
        latencies_ns,
    }
}

fn nanos(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos()).unwrap_or(u32::MAX)
}
