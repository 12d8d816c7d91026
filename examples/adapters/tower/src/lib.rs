#![doc = include_str!("../README.md")]

mod breaker;
mod decision;
mod headers;
mod layer;
mod lease;
mod limit;
mod limiter;
mod policy;
mod rejection;

pub use decision::{Decision, Standing};
pub use headers::describe;
pub use layer::{BoxError, RateLimit, RateLimitLayer, ResponseBody};
pub use lease::Held;
pub use limit::{Charge, Limit, MAX_CHARGES};
pub use limiter::{Failure, Limiter};
pub use policy::{InvalidLimit, MAX_UNITS, Policy};
pub use rejection::Rejection;
