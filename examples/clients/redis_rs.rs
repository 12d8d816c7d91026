//! redis-rs: one decision per line "KEY COST" of standard input.
//!
//!     printf 'tenant:42 1\n' | REDIS_URL=redis://127.0.0.1:6379 cargo run --example redis_rs

use std::env;
use std::error::Error;
use std::io;
use std::time::Duration;

use redis::{Client, Connection, RedisResult, cmd};

const TIMEOUT: Duration = Duration::from_millis(250);

/// `allowed`, `limit`, `remaining`, `retry_after_ms`, `reset_after_ms`.
type Reply = (bool, i64, i64, i64, i64);

enum Answer {
    Ok,
    /// With the seconds of `Retry-After`; none if it costs more than the bucket holds.
    TooManyRequests(Option<u64>),
    /// Or let it pass, if that is your policy.
    ServiceUnavailable(String),
}

/// One connection. A web server has a pool of them, or an asynchronous one for all.
struct Limiter {
    client: Client,
    connection: Option<Connection>,
}

impl Limiter {
    fn check(&mut self, key: &str, cost: u64) -> Answer {
        match self.call(key, cost) {
            Ok((true, ..)) => Answer::Ok,
            Ok((false, _, _, retry_after_ms, _)) => {
                let retry_after_ms = u64::try_from(retry_after_ms).ok(); // −1: never
                Answer::TooManyRequests(retry_after_ms.map(|ms| ms.div_ceil(1000)))
            }
            Err(error) => Answer::ServiceUnavailable(error.to_string()),
        }
    }

    fn call(&mut self, key: &str, cost: u64) -> RedisResult<Reply> {
        let mut connection = self.connection()?;
        let reply = cmd("RL.TOKEN")
            .arg(key)
            .arg((100, 10, 1000))
            .arg(("COST", cost))
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
        let (key, cost) = line.split_once(' ').ok_or("KEY COST expected")?;
        match limiter.check(key, cost.parse()?) {
            Answer::Ok => println!("200"),
            Answer::TooManyRequests(Some(seconds)) => println!("429 Retry-After: {seconds}"),
            Answer::TooManyRequests(None) => println!("429"),
            Answer::ServiceUnavailable(reason) => println!("503 {reason}"),
        }
    }
    Ok(())
}
