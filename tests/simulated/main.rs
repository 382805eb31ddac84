//! The loop and its machines without a real kernel: every order of small worlds, random worlds, and
//! the seeds of the fuzz targets.

mod fuzz_seeds;
mod model;
mod orders;
mod simulation;
