//! What people do in Zoho by hand, behind the API's back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Account, Module, Options, Stored};

/// Something somebody does. As JSON: `{"act":"convert","lead":"5544…"}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// Enters a record, whatever the rules say.
    Create {
        /// Where.
        module: Module,
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
    Restore {
        /// The record.
        id: String,
    },
    /// Merges two records: the loser is gone for good.
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
    /// Makes every access token invalid.
    EndTokens,
}

impl Account {
    /// Does it. The id of the record that it is about, or that it made; what is not there is an error.
    pub(in super::super) fn act(&mut self, options: &Options, act: &Act) -> Result<String, String> {
        let known = |account: &Account, id: &str| {
            let id = id.parse::<u64>().ok().filter(|id| account.records.contains_key(id));
            id.ok_or_else(|| "there is no such record".to_owned())
        };
        let id = match act {
            Act::Create { module, fields } => self.make_with(*module, fields),
            Act::Edit { id, fields } => {
                let id = known(self, id)?;
                self.store(id, fields);
                id
            }
            Act::Delete { id } => {
                let id = known(self, id)?;
                self.delete(id);
                id
            }
            Act::Restore { id } => {
                let id = known(self, id)?;
                if let Some(stored) = self.records.get_mut(&id) {
                    stored.deleted = false;
                }
                self.link(id);
                id
            }
            Act::Merge { winner, loser } => {
                let (winner, loser) = (known(self, winner)?, known(self, loser)?);
                if winner == loser {
                    return Err("a record cannot be merged with itself".to_owned());
                }
                let of =
                    |id: &u64| self.records.get(id).map(|r| r.fields.clone()).unwrap_or_default();
                let (kept, mut gained) = (of(&winner), of(&loser));
                gained.retain(|name, _| !kept.contains_key(name));
                self.delete(loser);
                self.store(winner, &gained);
                winner
            }
            Act::Convert { lead, contact } => {
                let lead = known(self, lead)?;
                let contact = match contact {
                    Some(contact) => known(self, contact)?,
                    None => self.contact_of(options, lead),
                };
                self.unlink(lead);
                if let Some(stored) = self.records.get_mut(&lead) {
                    stored.converted = Some(contact);
                }
                contact
            }
            Act::EndTokens => {
                self.tokens.clear();
                return Ok(String::new());
            }
        };
        Ok(id.to_string())
    }

    /// A new contact with what the lead has and a contact can have.
    fn contact_of(&mut self, options: &Options, lead: u64) -> u64 {
        let renamed =
            [("City", "Mailing_City"), ("State", "Mailing_State"), ("Designation", "Title")];
        let name = |from: &str| {
            renamed.iter().find(|(f, _)| *f == from).map_or(from, |(_, to)| to).to_owned()
        };
        let of = self.records.get(&lead).map(|r: &Stored| r.fields.clone()).unwrap_or_default();
        let fields = of
            .iter()
            .map(|(from, value)| (name(from), value.clone()))
            .filter(|(to, _)| options.field(Module::Contacts, to).is_some())
            .collect();
        let id = self.make(Module::Contacts);
        self.store(id, &fields);
        id
    }

    /// Moves a record to the bin.
    pub(super) fn delete(&mut self, id: u64) {
        self.unlink(id);
        if let Some(stored) = self.records.get_mut(&id) {
            stored.deleted = true;
        }
    }
}
