//! What the loop does with real children, one module per subject.
//!
//! They are one program because linking each of them costs more time than running it. Tests that
//! replace the allocator are programs of their own.

#[path = "../kernels/support/cgroups.rs"]
mod cgroups;
mod common;

mod background;
mod birth;
mod contain;
mod drain;
mod embedding;
mod ending;
mod exit;
mod generations;
mod last_words;
mod late;
mod output;
mod settle;
mod sockets;
mod spawn_errors;
mod stdin;
mod stop;
