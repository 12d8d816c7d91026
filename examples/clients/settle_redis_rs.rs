//! redis-rs: take an estimate, do the work, settle. One request per line "KEY ESTIMATE USAGE".
//!
//!     printf 'tenant:42 50 30\n' | REDIS_URL=redis://127.0.0.1:6379 cargo run --example settle_redis_rs

use std::cmp::Ordering;
use std::env;
use std::error::Error;
use std::io;
use std::time::Duration;

use redis::{Client, Connection, RedisResult, ToRedisArgs, cmd};

const TIMEOUT: Duration = Duration::from_millis(250);

/// `allowed`, `limit`, `remaining`, `retry_after_ms`, `reset_after_ms`.
type Reply = (bool, i64, i64, i64, i64);

/// One connection. A web server has a pool of them, or an asynchronous one for all.
struct Limiter {
    client: Client,
    connection: Option<Connection>,
}

impl Limiter {
    fn request(&mut self, key: &str, estimate: u64, work: impl FnOnce() -> u64) -> String {
        match self.call(key, ("COST", estimate)) {
            Ok((true, ..)) => format!("200 {}", self.settle(key, estimate, work())),
            // Not charged: nothing to settle.
            Ok((false, _, _, retry_after_ms, _)) => match u64::try_from(retry_after_ms) {
                Ok(ms) => format!("429 Retry-After: {}", ms.div_ceil(1000)),
                Err(_) => "429".to_owned(), // −1: never
            },
            // Or go on, if your policy is to let pass. Then there is nothing to settle.
            Err(error) => format!("503 {error}"),
        }
    }

    /// After an admitted `COST estimate`, and only then. Says what was done.
    fn settle(&mut self, key: &str, estimate: u64, usage: u64) -> String {
        let rest = usage.abs_diff(estimate);
        let (done, reply) = match usage.cmp(&estimate) {
            Ordering::Less => ("refund", self.call(key, ("REFUND", rest))),
            Ordering::Greater => ("force", self.call(key, ("COST", rest, "FORCE"))),
            Ordering::Equal => return "even".to_owned(),
        };
        match reply {
            Ok(_) => format!("{done} {rest}"),
            // The work is done: log it, and answer the caller all the same.
            Err(error) => format!("unsettled: {error}"),
        }
    }

    fn call(&mut self, key: &str, charge: impl ToRedisArgs) -> RedisResult<Reply> {
        let mut connection = self.connection()?;
        let reply = cmd("RL.TOKEN")
            .arg(key)
            .arg((100, 10, 1000))
            .arg(charge)
            .query(&mut connection);
        // A connection without an answer is dropped, and the next call opens another.
        if !reply.as_ref().is_err_and(redis::RedisError::is_io_error) {
            self.connection = Some(connection);
        }
        reply
    }

    fn connection(&mut self) -> RedisResult<Connection> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let connection = self.client.get_connection_with_timeout(TIMEOUT)?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        connection.set_write_timeout(Some(TIMEOUT))?;
        Ok(connection)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut limiter = Limiter {
        client: Client::open(env::var("REDIS_URL")?)?,
        connection: None,
    };
    for line in io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let [key, estimate, usage] = words[..] else {
            return Err("KEY ESTIMATE USAGE expected".into());
        };
        let usage = usage.parse()?;
        println!("{}", limiter.request(key, estimate.parse()?, || usage));
    }
    Ok(())
}
