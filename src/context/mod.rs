//! Running an engine: contexts, which hold the state of one call, and the pool that lends them to any thread.

mod execution;
mod pool;
mod ready;
mod recent;
mod staged;
mod timing;

pub use execution::{ExecutionContext, LayerTime, TensorSpec};
pub use pool::ContextPool;
