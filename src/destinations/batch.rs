//! The records of a call to a CRM that answers item by item in the order of what was sent: which are sent, and which are
//! settled without being sent.

use serde_json::{Map, Value};

use super::{Outcome, Record};

/// Outcomes in the order of the records, and what is sent of them.
pub(super) struct Batch {
    outcomes: Vec<Option<Outcome>>,
    /// Places of the records that are sent.
    sent: Vec<usize>,
    bodies: Vec<Map<String, Value>>,
}

impl Batch {
    pub fn new(records: usize) -> Batch {
        Batch { outcomes: vec![None; records], sent: Vec::new(), bodies: Vec::new() }
    }

    /// Sends a record, or settles it.
    pub fn add(&mut self, at: usize, body: Result<Map<String, Value>, Outcome>) {
        match body {
            Ok(body) => {
                self.sent.push(at);
                self.bodies.push(body);
            }
            Err(outcome) => self.settle(at, outcome),
        }
    }

    pub fn settle(&mut self, at: usize, outcome: Outcome) {
        if let Some(slot) = self.outcomes.get_mut(at) {
            *slot = Some(outcome);
        }
    }

    /// How many are sent.
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// What is sent, once.
    pub fn take_bodies(&mut self) -> Vec<Map<String, Value>> {
        std::mem::take(&mut self.bodies)
    }

    /// The records that are sent, each with its place.
    pub fn sent<'a>(&self, records: &[&'a Record]) -> Vec<(usize, &'a Record)> {
        self.sent.iter().filter_map(|at| Some((*at, *records.get(*at)?))).collect()
    }

    /// One outcome per record.
    pub fn outcomes(self) -> Vec<Outcome> {
        let unknown = || Outcome::Unknown { message: "nothing was said about it".to_owned() };
        self.outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(unknown)).collect()
    }
}
