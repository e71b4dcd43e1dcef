//! What people do in Odoo's own screens while nobody looks: `POST /_fake/odoo/merge`, `archive`, `delete`, `edit`,
//! `create`. A model is `res.partner` unless `model` says otherwise.

use serde_json::{Map, Value, json};

use super::{Account, Model};

impl Account {
    /// Does one thing; the id that it was done to, or `None` where it cannot be done.
    pub(in super::super) fn act(&mut self, action: &str, body: &Value) -> Option<Value> {
        let model = body["model"].as_str().map_or(Some(Model::Partner), Model::parse);
        let id = |name: &str| {
            // A number, or as the list of contacts shows it: "7", "crm.lead,7".
            let text = |id: &str| id.rsplit(',').next()?.parse().ok();
            let id = body[name].as_i64().or_else(|| text(body[name].as_str()?))?;
            model.filter(|m| self.table(*m).rows.contains_key(&id)).map(|_| id)
        };
        let values = body["values"].as_object().cloned().unwrap_or_default();
        let (model, one, keep, lose) = (model?, id("id"), id("keep"), id("lose"));
        let done = match (action, one) {
            ("create", _) => self.create(model, values),
            ("edit", Some(id)) => {
                self.store(model, id, values);
                id
            }
            ("archive", Some(id)) => {
                self.store(model, id, Map::from_iter([("active".to_owned(), json!(false))]));
                id
            }
            ("delete", Some(id)) => {
                self.unlink(model, id);
                id
            }
            ("merge", _) => match (keep, lose) {
                (Some(keep), Some(lose)) if keep != lose => self.merge(model, keep, lose),
                _ => return None,
            },
            _ => return None,
        };
        Some(json!(done))
    }

    /// External ids of a partner that was merged away point at the survivor; those of a lead are gone with it.
    fn merge(&mut self, model: Model, keep: i64, lose: i64) -> i64 {
        if model == Model::Partner {
            for points_at in self.external.values_mut().filter(|to| **to == (model, lose)) {
                points_at.1 = keep;
            }
        }
        self.unlink(model, lose);
        keep
    }
}
