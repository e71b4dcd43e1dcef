//! End to end, through the running sync.
