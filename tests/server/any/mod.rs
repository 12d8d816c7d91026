//! Promises that hold on any server with the module, whatever its clock: also on one that is running
//! already, which `REDIS_URL` names.

mod calls;
mod errors;
mod hostile;
mod state;
