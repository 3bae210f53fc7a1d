//! Runs programs: kernels at concrete shapes, captured graphs, the caller's arrays and streams, and the memory that the programs
//! of one context share. It decides nothing that the plan has decided.

mod addresses;
pub mod bindings;
mod captured_graph;
mod constants;
pub mod context_memory;
mod dependencies;
pub mod executable;
mod graph_cache;
mod hazards;
pub mod instance;
mod prepare;
mod reselect;
mod segment;
pub mod streams;
