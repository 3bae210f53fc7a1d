//! Tests of the whole library, through what it gives to others. They are a part of its own tests: Cargo would compile the
//! library once more for programs of their own, and link each with all of it.

mod architecture;
mod build_python;
mod plan;
mod plugin;
mod scaling;
mod toy;
mod verification;
