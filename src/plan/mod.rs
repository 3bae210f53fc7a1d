//! From a Network to a program: who runs what, in which layout, at which offset. It decides, and runs nothing but to time it.
//!
//! `provider` and `kernel` hold the traits that a provider implements; the planner names no provider.

pub mod arena;
pub mod build_jobs;
pub mod choose;
pub mod cover;
mod effort;
mod emit;
pub mod io_signature;
pub mod kernel;
pub mod layout;
pub mod placement;
pub mod program;
pub mod provider;
mod region_benchmark;
pub mod regions;
pub mod reselect;
mod slices;
pub mod tactic;
pub mod timing;
mod tuning;
mod windows;

pub use build_jobs::BuildJob;
pub use kernel::{Alias, Call, Form, Instance, Kernel, Launcher, Pdl, Prepared, Request, Tier};
pub use provider::{Candidate, ExcludedForm, Job, Offer, Provider, Refusal, Settings};
pub use tactic::Tactic;
