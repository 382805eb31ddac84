//! A simulated kernel with a virtual clock: no descriptors, no processes, the same contract.
