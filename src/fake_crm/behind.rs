//! What people do in a CRM behind everybody's back: they make contacts by hand, change, delete and merge them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Crm, FakeCrm, State};

/// One such act. As JSON: `{"crm":"pipedrive","act":"merge","id":"501","into":"502"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behind {
    /// In which CRM.
    pub crm: Crm,
    /// What is done.
    #[serde(flatten)]
    pub act: Act,
}

/// The acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Act {
    /// A contact is made.
    Create {
        /// Its address.
        email: String,
        /// Its properties, as text.
        #[serde(default)]
        properties: BTreeMap<String, String>,
    },
    /// A contact is changed; "" clears.
    Change {
        /// Which one.
        id: String,
        /// The properties, as text.
        properties: BTreeMap<String, String>,
    },
    /// A contact is deleted.
    Delete {
        /// Which one.
        id: String,
    },
    /// A contact is merged into another one and is gone.
    Merge {
        /// Which one.
        id: String,
        /// The one that stays.
        into: String,
    },
    /// Access tokens that were given are no longer valid.
    ExpireTokens,
}

/// Does it, and gives the id of the contact; `None`: no such contact, or this CRM has nothing of that kind.
pub(super) fn act(state: &mut State, behind: Behind) -> Option<String> {
    let (brevo, pipedrive) = (&mut state.brevo, &mut state.pipedrive);
    let done = |done: bool, id: String| done.then_some(id);
    match (behind.crm, behind.act) {
        (Crm::Brevo, Act::Create { email, properties }) => {
            Some(brevo.made_by_hand(&email, &properties).to_string())
        }
        (Crm::Brevo, Act::Change { id, properties }) => {
            done(brevo.changed_by_hand(&id, &properties), id)
        }
        (Crm::Brevo, Act::Delete { id }) => done(brevo.deleted_by_hand(&id), id),
        (Crm::Brevo, Act::Merge { id, into }) => done(brevo.merged_by_hand(&id, &into), into),
        (Crm::Pipedrive, Act::Create { email, properties }) => {
            Some(pipedrive.made_by_hand(&email, &properties).to_string())
        }
        (Crm::Pipedrive, Act::Change { id, properties }) => {
            done(pipedrive.changed_by_hand(&id, &properties), id)
        }
        (Crm::Pipedrive, Act::Delete { id }) => done(pipedrive.deleted_by_hand(&id), id),
        (Crm::Pipedrive, Act::Merge { id, into }) => {
            done(pipedrive.merged_by_hand(&id, &into), into)
        }
        (Crm::Pipedrive, Act::ExpireTokens) => {
            pipedrive.expire_tokens();
            Some(String::new())
        }
        _ => None,
    }
}

impl FakeCrm {
    /// Somebody does something in a CRM. Gives the id of the contact; `None`: there is no such contact.
    pub fn behind(&self, crm: Crm, act: Act) -> Option<String> {
        self::act(&mut self.shared.state(), Behind { crm, act })
    }
}
