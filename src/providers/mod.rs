//! Those who can run a network: each probes the machine and offers candidates to the planner.
pub mod cpu;
