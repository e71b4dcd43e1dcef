//! Whose contact is whose.

use std::time::Duration;

use leadsync::fake_crm::Fault;

use super::{Bed, Kind};
use crate::sync::{email, lead, leads, settings};

pub async fn made_by_somebody_else(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    let make = kind.make.expect("how somebody makes one, or a reason in `lacks`");
    bed.somebody(make(&email(0), "Theirs")).await;
    bed.somebody(make(&email(7), "Untouched")).await;
    bed.rig.deliver(&leads(2, 1)).await;
    bed.rig.drain().await;
    assert_eq!(bed.city(7).as_deref(), Some("Untouched"), "{}: not ours", kind.name);
    assert_eq!(bed.there().len(), 3, "{}", kind.name);
    for n in [0, 1] {
        assert_eq!(bed.city(n).as_deref(), Some("City1"), "{}", kind.name);
    }
    let creates = bed.crm().creates_per_email(kind.crm);
    assert!(creates.values().all(|n| *n == 1), "{}: {creates:?}", kind.name);
}

pub async fn search_lag(kind: &'static Kind) {
    let lag = kind.search_lag.expect("a lag, or a reason in `lacks`");
    for fault in [Fault::ResetAfter, Fault::CutJson] {
        let bed = Bed::of(kind).await;
        let mut options = bed.crm().options();
        lag(&mut options, Duration::from_millis(400));
        bed.crm().set_options(options);
        bed.rig.deliver(&leads(2, 1)).await;
        // The look-up of the first one passes, its create is done and not told.
        bed.strikes(Fault::Pass);
        bed.strikes(fault);
        bed.rig.drain().await;
        bed.exactly(0..2, 1).await;
    }
}

pub async fn deleted_and_made_anew(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    bed.rig.deliver(&leads(2, 1)).await;
    bed.rig.drain().await;
    let delete = kind.delete.expect("how somebody deletes one, or a reason in `lacks`");
    bed.somebody(delete(&bed.contact(0).id)).await;
    assert_eq!(bed.there().len(), 1, "{}", kind.name);
    bed.rig.deliver(&leads(2, 2)).await;
    bed.rig.drain().await;
    assert_eq!(bed.there().len(), 2, "{}", kind.name);
    assert_eq!(bed.city(0).as_deref(), Some("City2"), "{}", kind.name);
    assert_eq!(bed.remote_id(0).await, bed.contact(0).id, "{}: the new one is known", kind.name);
    assert_eq!(bed.rig.states().await, [("synced".to_owned(), 2)].into(), "{}", kind.name);
}

pub async fn deleted_and_left(kind: &'static Kind) {
    let bed = Bed::with(kind, settings(), "deleted = \"leave\"").await;
    bed.rig.deliver(&leads(2, 1)).await;
    bed.rig.drain().await;
    let delete = kind.delete.expect("how somebody deletes one, or a reason in `lacks`");
    bed.somebody(delete(&bed.contact(0).id)).await;
    for version in [2, 3] {
        bed.rig.deliver(&leads(2, version)).await;
        bed.rig.drain().await;
        assert_eq!(bed.there().len(), 1, "{}", kind.name);
        assert_eq!(bed.city(1), Some(format!("City{version}")), "{}", kind.name);
        let code = bed.rig.column("s.state || ' ' || s.last_error_code").await;
        assert_eq!(code[&email(0)], "parked deleted", "{}", kind.name);
    }
}

pub async fn merged(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    bed.rig.deliver(&leads(3, 1)).await;
    bed.rig.drain().await;
    let merge = kind.merge.expect("how somebody merges, or a reason in `lacks`");
    bed.somebody(merge(&bed.contact(0).id, &bed.contact(1).id)).await;
    assert_eq!(bed.there().len(), 2, "{}", kind.name);
    for version in [2, 3] {
        bed.rig.deliver(&leads(3, version)).await;
        bed.rig.drain().await;
        let there = bed.there();
        assert_eq!(there.len(), 2, "{}: {there:?}", kind.name);
        let city = Some(format!("City{version}"));
        assert!(there.iter().all(|c| c.properties.get(kind.city) == city.as_ref()), "{there:?}");
        assert_eq!(bed.rig.states().await, [("synced".to_owned(), 3)].into(), "{}", kind.name);
        assert_eq!(bed.remote_id(0).await, bed.remote_id(1).await, "{}: one contact", kind.name);
    }
}

pub async fn several_match(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    let make = kind.make.expect("how somebody makes one, or a reason in `lacks`");
    for _ in 0..2 {
        bed.somebody(make(&email(0), "Theirs")).await;
    }
    let ids: Vec<String> = bed.there().into_iter().map(|c| c.id).collect();
    bed.rig.deliver(&leads(2, 1)).await;
    bed.rig.drain().await;
    let row =
        bed.rig.column("s.state || ' ' || s.last_error_code || ' ' || s.last_error_message").await;
    let row = &row[&email(0)];
    assert!(row.starts_with("parked ambiguous"), "{}: {row}", kind.name);
    assert!(ids.iter().all(|id| row.contains(id.as_str())), "{}: {row}", kind.name);
    let theirs = bed.there().into_iter().filter(|c| c.email == email(0));
    let untouched = theirs.filter(|c| c.properties.get(kind.city).is_some_and(|c| c == "Theirs"));
    assert_eq!(untouched.count(), 2, "{}: nothing is guessed", kind.name);
    assert_eq!(bed.city(1).as_deref(), Some("City1"), "{}", kind.name);
}

pub async fn somebody_was_faster(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    bed.rig.deliver(&[lead(0, 1)]).await;
    bed.strikes(Fault::Conflict);
    bed.rig.drain().await;
    bed.exactly([0], 1).await;
}
