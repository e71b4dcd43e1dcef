//! What every destination does on a good day.

use leadsync::stop::Stop;

use super::{Bed, Kind, cleared, spoilt};
use crate::sync::{email, lead, leads, soon};

pub async fn create_update_and_repeat(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    bed.rig.deliver(&leads(3, 1)).await;
    bed.rig.drain().await;
    bed.exactly(0..3, 1).await;
    let ids: Vec<String> = bed.there().into_iter().map(|c| c.id).collect();

    // Redelivered, or merely marked: the CRM has exactly this already.
    bed.rig.deliver(&leads(3, 1)).await;
    assert_eq!(bed.rig.drain().await.calls, 0, "{}", kind.name);
    let sql = "update leadsync.lead_sync set state = 'due' where destination = 'crm'";
    bed.rig.sql.execute(sql, &[]).await.expect("mark them due");
    let done = bed.rig.drain().await;
    assert_eq!((done.calls, done.skipped), (0, 3), "{}", kind.name);

    bed.rig.deliver(&leads(3, 2)).await;
    let done = bed.rig.drain().await;
    assert_eq!((done.pushed, done.failed), (3, 0), "{}", kind.name);
    bed.exactly(0..3, 2).await;
    let same: Vec<String> = bed.there().into_iter().map(|c| c.id).collect();
    assert_eq!(ids, same, "{}: the same contacts", kind.name);
}

pub async fn clear(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    bed.rig.deliver(&leads(2, 1)).await;
    bed.rig.drain().await;
    bed.rig.deliver(&[cleared(0)]).await;
    bed.rig.drain().await;
    assert_eq!(bed.city(0).as_deref(), kind.cleared, "{}", kind.name);
    assert_eq!(bed.city(1).as_deref(), Some("City1"), "{}", kind.name);
}

pub async fn many_at_once(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    bed.rig.deliver(&leads(110, 1)).await;
    bed.rig.drain().await;
    bed.exactly(0..110, 1).await;
    // Known ones and new ones mixed.
    let mixed: Vec<_> = (0..150).map(|n| lead(n, 2)).collect();
    bed.rig.deliver(&mixed).await;
    bed.rig.drain().await;
    bed.exactly(0..150, 2).await;
}

pub async fn two_instances(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    bed.rig.deliver(&leads(60, 1)).await;
    let (one, two, stop) = (bed.rig.another(), bed.rig.another(), Stop::new());
    let (a, b) = soon("both", async {
        let to = &bed.rig.destination;
        tokio::join!(one.pass(to, &stop), two.pass(to, &stop))
    })
    .await;
    assert_eq!(a.unwrap().pushed + b.unwrap().pushed, 60, "{}: each lead once", kind.name);
    bed.rig.drain().await;
    bed.exactly(0..60, 1).await;
}

pub async fn the_bad_one_alone(kind: &'static Kind) {
    let bed = Bed::of(kind).await;
    let (bad, good) = kind.poison.expect("a poison, or a reason in `lacks`");
    let mut all = leads(7, 1);
    all[3] = spoilt(3, 1, bad());
    bed.rig.deliver(&all).await;
    let done = bed.rig.drain().await;
    assert_eq!((done.pushed, done.parked), (6, 1), "{}", kind.name);
    let row = bed.rig.column("s.state || ' ' || coalesce(s.last_error_kind, '')").await;
    assert_eq!(row[&email(3)], "parked record", "{}", kind.name);
    let code = bed.rig.column("s.last_error_code").await;
    assert_ne!(code[&email(3)], "", "{}: the CRM's code", kind.name);
    bed.exactly((0..7).filter(|n| *n != 3), 1).await;
    // It is mended at the source.
    let mut all = leads(7, 2);
    all[3] = spoilt(3, 2, good());
    bed.rig.deliver(&all).await;
    bed.rig.drain().await;
    bed.exactly(0..7, 2).await;
}
