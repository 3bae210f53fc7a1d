//! Tests of the whole library, through what it gives to others. They are a part of its own tests: beside them Cargo would
//! compile it a second time.

mod architecture;
mod build_python;
mod plan;
mod plugin;
mod scaling;
mod toy;
mod verification;
