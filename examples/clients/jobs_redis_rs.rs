//! redis-rs: at most 2 jobs of a key at the same time, and 10 a minute. Lines "start|renew|end KEY ID".
//!
//!     printf 'start export:42 a\nend export:42 a\n' | REDIS_URL=redis://127.0.0.1:6379 cargo run --example jobs_redis_rs

use std::env;
use std::error::Error;
use std::io;
use std::time::Duration;

use redis::{Client, Cmd, Connection, FromRedisValue, RedisResult, cmd};

const TIMEOUT: Duration = Duration::from_millis(250);

/// `allowed`, `limit`, `remaining`, `retry_after_ms`, `reset_after_ms`.
type Reply = (bool, i64, i64, i64, i64);
/// Of several limits: `allowed`, `retry_after_ms`, and the reply of each.
type Replies = (bool, i64, Vec<Reply>);

/// One connection. A web server has a pool of them, or an asynchronous one for all.
struct Limiter {
    client: Client,
    connection: Option<Connection>,
}

impl Limiter {
    /// Takes a lease and a token, or neither. The braces keep both keys in one slot of a cluster.
    fn start(&mut self, key: &str, job: &str) -> RedisResult<String> {
        let mut command = cmd("RL.ALL");
        command
            .arg(2)
            .arg(format!("rl:{{{key}}}:running"))
            .arg(format!("rl:{{{key}}}:rate"))
            .arg(("LEASE", 2, 30_000, job))
            .arg(("TOKEN", 10, 10, 60_000));
        let (allowed, retry_after_ms, _limits): Replies = self.call(&command)?;
        Ok(if allowed {
            "200".to_owned()
        } else {
            let seconds = u64::try_from(retry_after_ms).unwrap_or(0).div_ceil(1000);
            format!("429 Retry-After: {seconds}")
        })
    }

    /// `RENEW` every 10 seconds while the job runs; `RELEASE` at its end.
    fn hold(&mut self, key: &str, job: &str, word: &str) -> RedisResult<String> {
        let mut command = cmd("RL.LEASE");
        command
            .arg(format!("rl:{{{key}}}:running"))
            .arg((2, 30_000, job, word));
        let (held, ..): Reply = self.call(&command)?;
        // If not: the lease had ended, and another job may run in its place.
        Ok(if held { "200" } else { "410" }.to_owned())
    }

    fn call<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        let mut connection = self.connection()?;
        let reply = command.query(&mut connection);
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
        let reply = match words[..] {
            ["start", key, job] => limiter.start(key, job),
            ["renew", key, job] => limiter.hold(key, job, "RENEW"),
            ["end", key, job] => limiter.hold(key, job, "RELEASE"),
            _ => return Err("start|renew|end KEY ID expected".into()),
        };
        match reply {
            Ok(answer) => println!("{answer}"),
            Err(error) => println!("503 {error}"), // or go on, if your policy is to let pass
        }
    }
    Ok(())
}
