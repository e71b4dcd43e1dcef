//! poll
