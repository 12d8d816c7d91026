//! redis-rs on a cluster (feature `cluster`): one decision per line "KEY COST", or "TENANT USER COST".
//!
//!     printf 'tenant:42 1\n' | REDIS_URL=redis://127.0.0.1:6379 cargo run --example redis_rs_cluster

use std::env;
use std::error::Error;
use std::io;
use std::time::Duration;

use redis::cluster::{ClusterClient, ClusterConnection};
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{Cmd, FromRedisValue, RedisError, RedisResult, Value, cmd, from_redis_value};

const TIMEOUT: Duration = Duration::from_millis(250);

/// `allowed`, `limit`, `remaining`, `retry_after_ms`, `reset_after_ms`.
type Reply = (bool, i64, i64, i64, i64);
/// Of several limits: `allowed`, `retry_after_ms`, and the reply of each.
type Replies = (bool, i64, Vec<Reply>);

enum Answer {
    Ok,
    /// With the seconds of `Retry-After`; none if it costs more than the bucket holds.
    TooManyRequests(Option<u64>),
    /// Or let it pass, if that is your policy.
    ServiceUnavailable(String),
}

/// One connection. A web server has a pool of them, or an asynchronous one for all.
struct Limiter {
    client: ClusterClient,
    connection: Option<ClusterConnection>,
}

impl Limiter {
    fn new(url: String) -> RedisResult<Self> {
        let client = ClusterClient::builder([url]) // any node: it names the others
            .connection_timeout(TIMEOUT)
            .response_timeout(TIMEOUT)
            // A call that timed out may have been charged: sent again, it would be charged twice.
            // Redirects count as retries too, so `call` follows them by itself.
            .retries(0)
            .build()?;
        Ok(Self {
            client,
            connection: None,
        })
    }

    fn one(&mut self, key: &str, cost: u64) -> Answer {
        let mut command = cmd("RL.TOKEN");
        command.arg(key).arg((100, 10, 1000)).arg(("COST", cost));
        let reply = self.call::<Reply>(key, &command);
        answer(reply.map(|(allowed, _, _, retry_after_ms, _)| (allowed, retry_after_ms)))
    }

    /// The user's limit and the tenant's, all or none. The braces keep both keys in one slot.
    fn both(&mut self, tenant: &str, user: &str, cost: u64) -> Answer {
        let keys = [
            format!("rl:{{{tenant}}}:{user}"),
            format!("rl:{{{tenant}}}"),
        ];
        let mut command = cmd("RL.ALL");
        command.arg(2).arg(&keys);
        command.arg(("TOKEN", 10, 1, 1000)).arg(("COST", cost));
        command.arg(("TOKEN", 100, 10, 1000)).arg(("COST", cost));
        let reply = self.call::<Replies>(&keys[0], &command);
        answer(reply.map(|(allowed, retry_after_ms, _limits)| (allowed, retry_after_ms)))
    }

    /// The library would take the first argument for the key, which in `RL.ALL` is a number. So the
    /// call says which node it is for.
    fn call<T: FromRedisValue>(&mut self, key: &str, command: &Cmd) -> RedisResult<T> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.client.get_connection()?,
        };
        let route = Route::with_key(key, SlotAddr::Master);
        let node = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
        let mut reply = connection.route_command(command, node);
        let redirected = reply.as_ref().err().and_then(node_named_in);
        if let Some(node) = &redirected {
            reply = follow(&mut connection, command, node);
        }
        // A connection without an answer is dropped, and so is one that doesn't know where the
        // slots are now: the next call opens another.
        if redirected.is_none() && !reply.as_ref().is_err_and(RedisError::is_io_error) {
            self.connection = Some(connection);
        }
        Ok(from_redis_value(reply?)?)
    }
}

fn answer(reply: RedisResult<(bool, i64)>) -> Answer {
    match reply {
        Ok((true, _)) => Answer::Ok,
        Ok((false, retry_after_ms)) => {
            let retry_after_ms = u64::try_from(retry_after_ms).ok(); // −1: never
            Answer::TooManyRequests(retry_after_ms.map(|ms| ms.div_ceil(1000)))
        }
        Err(error) => Answer::ServiceUnavailable(error.to_string()),
    }
}

/// Where an error sends the call. Nothing was charged then.
fn node_named_in(error: &RedisError) -> Option<RoutingInfo> {
    let (address, _slot) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let (host, port) = (host.to_owned(), port.parse().ok()?);
    let node = SingleNodeRoutingInfo::ByAddress { host, port };
    Some(RoutingInfo::SingleNode(node))
}

fn follow(
    connection: &mut ClusterConnection,
    command: &Cmd,
    node: &RoutingInfo,
) -> RedisResult<Value> {
    // While a slot moves, its new node wants to be asked in this way; afterwards it does no harm.
    connection.route_command(&cmd("ASKING"), node.clone())?;
    connection.route_command(command, node.clone())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut limiter = Limiter::new(env::var("REDIS_URL")?)?;
    for line in io::stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            [key, cost] => limiter.one(key, cost.parse()?),
            [tenant, user, cost] => limiter.both(tenant, user, cost.parse()?),
            _ => return Err("KEY COST or TENANT USER COST expected".into()),
        };
        match answer {
            Answer::Ok => println!("200"),
            Answer::TooManyRequests(Some(seconds)) => println!("429 Retry-After: {seconds}"),
            Answer::TooManyRequests(None) => println!("429"),
            Answer::ServiceUnavailable(reason) => println!("503 {reason}"),
        }
    }
    Ok(())
}
