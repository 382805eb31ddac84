//! What the project's own tests, benches and fuzz targets share. Nothing here is part of the
//! library as it is built for its users.
//!
//! * [`isolation`] runs one test in a process of its own.
//! * [`oracle`] checks what a host is told, event by event.
//! * [`fuzz`] holds the bodies of the fuzz targets.

pub mod fuzz;
pub mod isolation;
pub mod oracle;
