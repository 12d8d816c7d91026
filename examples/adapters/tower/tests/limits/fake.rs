//! A connection to a server that answers as a test says.

use std::future::pending;

use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, Pipeline, RedisFuture, RedisResult, Value};

/// Answers a command, or never.
#[derive(Clone)]
pub struct Fake<F>(pub F);

impl<F: Fn(&str) -> Option<RedisResult<Value>>> ConnectionLike for Fake<F> {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let words = command.args_iter().map(|word| match word {
            Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
            _ => String::new(),
        });
        let answer = (self.0)(&words.collect::<Vec<_>>().join(" "));
        Box::pin(async move {
            match answer {
                Some(answer) => answer,
                None => pending().await,
            }
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        unimplemented!("no test needs it")
    }

    fn get_db(&self) -> i64 {
        0
    }
}

/// The five integers of a limit that admits.
pub fn admitted() -> Value {
    Value::Array([1, 9, 8, 0, 60_000].map(Value::Int).into())
}
