//! What people do in Salesforce by hand, behind the API's back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Account, Object, Options};

/// Something somebody does. As JSON: `{"act":"convert","lead":"00Q…"}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// Enters a record, whatever the rules say.
    Create {
        /// Of what kind.
        object: Object,
        /// Its fields.
        fields: BTreeMap<String, Value>,
    },
    /// Changes fields; null clears.
    Edit {
        /// The record.
        id: String,
        /// The new values.
        fields: BTreeMap<String, Value>,
    },
    /// Moves a record to the bin.
    Delete {
        /// The record.
        id: String,
    },
    /// Takes it out of the bin.
    Undelete {
        /// The record.
        id: String,
    },
    /// Merges two records: the loser is deleted, its key is lost.
    Merge {
        /// Stays, and gets what it had no value for.
        winner: String,
        /// Goes.
        loser: String,
    },
    /// Converts a lead to a contact.
    Convert {
        /// The lead.
        lead: String,
        /// An existing contact; absent: a new one.
        #[serde(default)]
        contact: Option<String>,
    },
    /// Ends every session.
    EndSessions,
}

impl Account {
    /// Does it. The id of the record that it is about, or that it made; what is not there is an error.
    pub(in super::super) fn act(&mut self, options: &Options, act: &Act) -> Result<String, String> {
        let known = |account: &Account, id: &str| {
            account.full_id(id).ok_or_else(|| format!("there is no record {id}"))
        };
        match act {
            Act::Create { object, fields } => {
                let id = self.make(*object);
                self.store(options, &id, fields);
                *self.creates.entry(self.email_of(&id)).or_default() += 1;
                Ok(id)
            }
            Act::Edit { id, fields } => {
                let id = known(self, id)?;
                self.store(options, &id, fields);
                Ok(id)
            }
            Act::Delete { id } => {
                let id = known(self, id)?;
                self.delete(options, &id, None);
                Ok(id)
            }
            Act::Undelete { id } => {
                let id = known(self, id)?;
                if let Some(stored) = self.records.get_mut(&id) {
                    (stored.deleted, stored.master) = (false, None);
                }
                self.link(options, &id);
                Ok(id)
            }
            Act::Merge { winner, loser } => {
                let (winner, loser) = (known(self, winner)?, known(self, loser)?);
                if winner == loser {
                    return Err("a record cannot be merged with itself".to_owned());
                }
                let of =
                    |id: &str| self.records.get(id).map(|r| r.fields.clone()).unwrap_or_default();
                let (kept, mut gained) = (of(&winner), of(&loser));
                let unique = |name: &String| {
                    let object = self.records.get(&winner).map(|r| r.object);
                    object.and_then(|o| options.field(o, name)).is_some_and(|f| f.unique)
                };
                gained.retain(|name, _| !kept.contains_key(name) && !unique(name));
                self.delete(options, &loser, Some(winner.clone()));
                self.store(options, &winner, &gained);
                Ok(winner)
            }
            Act::Convert { lead, contact } => {
                let lead = known(self, lead)?;
                let contact = match contact {
                    Some(contact) => known(self, contact)?,
                    None => self.contact_of(options, &lead),
                };
                if let Some(stored) = self.records.get_mut(&lead) {
                    stored.converted = Some(contact.clone());
                }
                Ok(contact)
            }
            Act::EndSessions => {
                self.sessions.clear();
                Ok(String::new())
            }
        }
    }

    /// A new contact with what the lead has.
    fn contact_of(&mut self, options: &Options, lead: &str) -> String {
        let taken =
            ["FirstName", "LastName", "Email", "Phone", "MobilePhone", "Title", "Description"]
                .map(|name| (name, name));
        let moved = ["City", "State", "Country"].into_iter();
        let moved = moved.zip(["MailingCity", "MailingState", "MailingCountry"]);
        let of = self.records.get(lead).map(|r| r.fields.clone()).unwrap_or_default();
        let fields = taken
            .into_iter()
            .chain(moved)
            .filter_map(|(from, to)| Some((to.to_owned(), of.get(from)?.clone())))
            .collect();
        let id = self.make(Object::Contact);
        self.store(options, &id, &fields);
        id
    }

    /// Moves a record to the bin, as the loser of a merge where there is a `master`.
    pub(super) fn delete(&mut self, options: &Options, id: &str, master: Option<String>) {
        self.unlink(options, id);
        if let Some(stored) = self.records.get_mut(id) {
            (stored.deleted, stored.master) = (true, master);
        }
    }
}
