//! A receiver of webhooks: one call per lead, upsert by lead id at the receiver, nothing to read.

use leadsync::fake_crm::Crm;

use super::Kind;
use crate::sync::HOOKS_SECRET;

pub const KIND: Kind = Kind {
    name: "webhook",
    crm: Crm::Webhook,
    config: |url| {
        format!(
            "[[destination]]\nkind = \"webhook\"\nsecret = \"{HOOKS_SECRET}\"\nrate = \"10000/1s\"\n\
             base_url = \"{url}/webhook\"\n"
        )
    },
    instead: None,
    options: |options| options.webhook.secret = Some(HOOKS_SECRET.to_owned()),
    search_lag: None,
    city: "city",
    cleared: None,
    writes: "/webhook",
    poison: None,
    auth: ("x-unused", ""),
    make: None,
    delete: None,
    merge: None,
    lacks: &[
        ("the_bad_one_alone", "the receiver takes every value"),
        ("results_in_another_order", "one lead per call"),
        ("an_answer_that_forgets_one", "one lead per call, and only the status counts"),
        ("made_by_somebody_else", "only we make records there"),
        ("search_lag", "there is no search"),
        ("deleted_and_made_anew", "nothing can be deleted there"),
        ("deleted_and_left", "nothing can be deleted there"),
        ("merged", "nothing can be merged there"),
        ("several_match", "the receiver keeps lead ids unique"),
        ("somebody_was_faster", "only we make records there"),
    ],
};
