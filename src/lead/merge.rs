//! The merge: how events become the state of a lead.
//!
//! A lead's state is a product of small join-semilattices, so it is a function of the *set* of its
//! events: order, repetition and batching cannot matter. The same join is written twice, here (to fold
//! the events of one group) and in `sql/leads/upsert.sql` (to join the fold with the row); a property
//! test holds the two and a set-based oracle together.
//!
//! | rule | join | used for |
//! |---|---|---|
//! | `newest` | greatest (stamp, value bytewise, source) | text fields, attributes |
//! | `furthest` | the same, with the stage's rank in the place of trust | `lifecycle_stage` |
//! | `first` | least (reliable first, time, the touch itself), one tuple | first touch, `utm_*` |
//! | `last` | greatest (reliable, time, source) | last touch |
//! | `union` | set union | `tags` |
//! | `consent` | three greatest stamps: opt-out, opt-in, proven opt-in | `marketing_consent` |

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Change, Consent, Email, Field, LeadPatch, Micros, Touch};

/// How a field is joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The newest word of the most trusted source.
    Newest,
    /// The furthest stage; never back.
    Furthest,
}

impl Field {
    /// The rule of the field. Rules that are not about text fields (`first`, `last`, `union`, `consent`)
    /// have their own types below.
    pub const fn rule(self) -> Rule {
        match self {
            Field::LifecycleStage => Rule::Furthest,
            _ => Rule::Newest,
        }
    }
}

/// The stages of `lifecycle_stage`, from first to last. Other words are a field error.
pub const LIFECYCLE_STAGES: [&str; 7] = [
    "subscriber",
    "lead",
    "marketing_qualified_lead",
    "sales_qualified_lead",
    "opportunity",
    "customer",
    "evangelist",
];

/// 2000-01-01T00:00:00Z in Unix microseconds: no lead event is older, and stamps count from here.
pub const EPOCH: Micros = 946_684_800_000_000;

/// Microseconds a stamp can hold: 54 bits, to the year 2570.
const MICROS_MAX: i64 = (1 << 54) - 1;

/// When an event happened, as far as the merge believes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTime {
    /// A believable time. An unreliable one sorts below every reliable one: it fills, never overwrites.
    pub reliable: bool,
    /// The stated time, held within what a stamp can express; `None` where there is none.
    pub at: Option<Micros>,
}

impl EventTime {
    /// No time at all: fills blanks only.
    pub const UNKNOWN: EventTime = EventTime { reliable: false, at: None };

    /// A stated time, judged by when the first copy of the delivery was received: reliable from 2000-01-01 to `tolerance`
    /// ahead of the receipt. It is never clamped to the receipt, which would not be idempotent
    /// (8.5 % of event sets diverged when measured).
    pub fn stated(at: Micros, received: Micros, tolerance: Duration) -> EventTime {
        let tolerance = i64::try_from(tolerance.as_micros()).unwrap_or(i64::MAX);
        let reliable = at >= EPOCH && at <= received.saturating_add(tolerance);
        EventTime { reliable, at: Some(at.clamp(EPOCH, EPOCH + MICROS_MAX)) }
    }

    /// A time we measured ourselves (a receipt).
    pub fn measured(at: Micros) -> EventTime {
        EventTime { reliable: true, at: Some(at.clamp(EPOCH, EPOCH + MICROS_MAX)) }
    }

    /// The time as PostgreSQL's client takes it.
    pub fn system_time(self) -> Option<SystemTime> {
        // `at` is at or after 2000, so it is not negative.
        self.at.map(|at| UNIX_EPOCH + Duration::from_micros(at.unsigned_abs()))
    }
}

/// The order part of a register, always positive:
/// bits 56-62 trust (or stage rank), bit 55 reliable time, bits 1-54 microseconds since 2000, bit 0 set
/// (so that an untimed, untrusted word still differs from silence).
pub fn stamp(priority: u8, time: EventTime) -> i64 {
    let micros = time.at.map_or(0, |at| (at - EPOCH).clamp(0, MICROS_MAX));
    (i64::from(priority.min(127)) << 56) | (i64::from(time.reliable) << 55) | (micros << 1) | 1
}

/// What a stamp says, for people: trust (or stage rank), and the time if the stamp has one.
pub fn read_stamp(stamp: i64) -> (u8, Option<Micros>) {
    // Seven bits after the shift: fits.
    let priority = ((stamp >> 56) & 0x7f) as u8;
    let micros = (stamp >> 1) & MICROS_MAX;
    let timed = micros != 0 || (stamp >> 55) & 1 == 1;
    (priority, timed.then_some(EPOCH + micros))
}

/// One value with what decides whether another replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// See [`stamp`].
    pub stamp: i64,
    /// `None`: cleared.
    pub value: Option<String>,
    /// Number of the source in `leadsync.sources`.
    pub source: i16,
}

impl Register {
    fn order(&self, other: &Register) -> Ordering {
        // A value is never empty, so a clear sorts below every value. Rust compares text bytewise,
        // as COLLATE "C" does.
        let key = |r: &Register| (r.stamp, r.value.clone().unwrap_or_default(), r.source);
        self.stamp.cmp(&other.stamp).then_with(|| key(self).cmp(&key(other)))
    }
}

/// A max register: absent is the least element.
fn join_register(mine: &mut Option<Register>, theirs: Option<Register>) {
    if let Some(theirs) = theirs
        && mine.as_ref().is_none_or(|mine| theirs.order(mine) == Ordering::Greater)
    {
        *mine = Some(theirs);
    }
}

/// The three consent registers; each is the greatest (stamp without trust, source) seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsentState {
    /// Latest opt-out.
    pub opt_out: Option<(i64, i16)>,
    /// Latest opt-in without proof.
    pub opt_in: Option<(i64, i16)>,
    /// Latest opt-in with proof.
    pub proven: Option<(i64, i16)>,
}

impl ConsentState {
    /// What the registers say: an opt-out wins over everything except a later proven opt-in; at equal
    /// time the opt-out wins. Trust plays no part: nobody outranks a person's "no".
    pub fn granted(&self) -> Option<bool> {
        let out = self.opt_out.map_or(0, |r| r.0);
        match (self.proven, self.opt_out, self.opt_in) {
            (Some((proven, _)), _, _) if proven > out => Some(true),
            (_, Some(_), _) => Some(false),
            (_, None, Some(_)) => Some(true),
            _ => None,
        }
    }
}

/// Where and when: the candidate for first and for last touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TouchState {
    /// When.
    pub time: EventTime,
    /// Where.
    pub touch: Touch,
}

impl TouchState {
    fn first_key(&self) -> (bool, Option<Micros>, Touch) {
        (!self.time.reliable, self.time.at, self.touch.clone())
    }

    fn last_key(&self) -> (bool, Option<Micros>, Option<&str>) {
        (self.time.reliable, self.time.at, self.touch.source.as_deref())
    }
}

/// The merged state of one lead: what one event amounts to, or the join of many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadState {
    /// The key.
    pub email: Email,
    /// The address as typed. Not a change in the sense of `version`.
    pub email_as_typed: Option<Register>,
    /// By [`Field::ALL`]'s order.
    pub fields: [Option<Register>; Field::ALL.len()],
    /// Consent.
    pub consent: ConsentState,
    /// Tags.
    pub tags: BTreeSet<String>,
    /// Custom attributes.
    pub attributes: BTreeMap<String, Register>,
    /// First touch.
    pub first: TouchState,
    /// Last touch; only its source and time are kept.
    pub last: TouchState,
}

/// What turns a patch into a state: who says it and when.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The configured source's name.
    pub source_name: &'a str,
    /// Its number in `leadsync.sources`.
    pub source: i16,
    /// Its trust, 0 to 100.
    pub trust: u8,
    /// The event's time.
    pub time: EventTime,
}

impl LeadState {
    /// The state that one event alone amounts to.
    pub fn of_event(patch: LeadPatch, origin: Origin<'_>) -> LeadState {
        let newest = stamp(origin.trust, origin.time);
        let register = |change: &Change, stamp: i64| Register {
            stamp,
            value: change.value().map(str::to_owned),
            source: origin.source,
        };
        let mut fields = [const { None }; Field::ALL.len()];
        for (slot, field) in fields.iter_mut().zip(Field::ALL) {
            let Some(change) = patch.fields.get(&field) else { continue };
            let stamp = match (field.rule(), change.value()) {
                (Rule::Newest, _) => Some(newest),
                (Rule::Furthest, Some(stage)) => stage_rank(stage).map(|r| stamp(r, origin.time)),
                // A stage is never taken back, so a clear of it says nothing.
                (Rule::Furthest, None) => None,
            };
            *slot = stamp.map(|stamp| register(change, stamp));
        }
        let untrusted = (stamp(0, origin.time), origin.source);
        let mut consent = ConsentState::default();
        match patch.consent {
            Some(Consent { granted: false, .. }) => consent.opt_out = Some(untrusted),
            Some(Consent { granted: true, proven: false }) => consent.opt_in = Some(untrusted),
            Some(Consent { granted: true, proven: true }) => consent.proven = Some(untrusted),
            None => {}
        }
        let mut touch = patch.touch;
        touch.source.get_or_insert_with(|| origin.source_name.to_owned());
        let first = TouchState { time: origin.time, touch };
        // Nothing but what is kept and compared, or equal last touches could differ.
        let last = Touch { source: first.touch.source.clone(), ..Touch::default() };
        LeadState {
            email: patch.email,
            email_as_typed: Some(Register {
                stamp: newest,
                value: Some(patch.email_as_typed),
                source: 0,
            }),
            fields,
            consent,
            tags: patch.tags,
            attributes: patch
                .attributes
                .iter()
                .map(|(name, change)| (name.clone(), register(change, newest)))
                .collect(),
            last: TouchState { time: origin.time, touch: last },
            first,
        }
    }

    /// Joins another state of the same lead into this one: commutative, associative, idempotent.
    pub fn join(&mut self, other: LeadState) {
        join_register(&mut self.email_as_typed, other.email_as_typed);
        for (mine, theirs) in self.fields.iter_mut().zip(other.fields) {
            join_register(mine, theirs);
        }
        let consent = &mut self.consent;
        consent.opt_out = consent.opt_out.max(other.consent.opt_out);
        consent.opt_in = consent.opt_in.max(other.consent.opt_in);
        consent.proven = consent.proven.max(other.consent.proven);
        self.tags.extend(other.tags);
        for (name, theirs) in other.attributes {
            match self.attributes.get_mut(&name) {
                Some(mine) if theirs.order(mine) == Ordering::Greater => *mine = theirs,
                Some(_) => {}
                None => {
                    self.attributes.insert(name, theirs);
                }
            }
        }
        if other.first.first_key() < self.first.first_key() {
            self.first = other.first;
        }
        if other.last.last_key() > self.last.last_key() {
            self.last = other.last;
        }
    }

    /// Whether `event` gave this fold something that still stands in it and that `before` (the fold
    /// of the events ahead of it) did not have: what tells an update from a repeat within one group.
    pub fn owes_to(&self, event: &LeadState, before: Option<&LeadState>) -> bool {
        let stands =
            |event: &Option<Register>, fold: &Option<Register>, before: Option<&Register>| {
                event.is_some()
                    && event == fold
                    && before.map(|b| &b.value) != event.as_ref().map(|e| &e.value)
            };
        let fields = (0..Field::ALL.len()).any(|i| {
            let before = before.and_then(|b| b.fields[i].as_ref());
            stands(&event.fields[i], &self.fields[i], before)
        });
        let attributes = event.attributes.iter().any(|(name, register)| {
            let before = before.and_then(|b| b.attributes.get(name));
            self.attributes.get(name) == Some(register)
                && before.map(|b| &b.value) != Some(&register.value)
        });
        let tags = event.tags.iter().any(|tag| before.is_none_or(|b| !b.tags.contains(tag)));
        let consent = event.consent.granted().is_some()
            && before.is_none_or(|b| b.consent.granted() != self.consent.granted());
        let first = event.first == self.first && before.is_none_or(|b| b.first != event.first);
        fields || attributes || tags || consent || first
    }
}

/// Rank of a stage, from 1; `None` for a word that is no stage.
pub fn stage_rank(stage: &str) -> Option<u8> {
    let at = LIFECYCLE_STAGES.iter().position(|s| *s == stage)?;
    u8::try_from(at + 1).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::email::Folding;
    use super::*;

    fn email() -> Email {
        Email::parse("ana@example.com", Folding::None).expect("an address")
    }

    prop_compose! {
        /// An event from pools so small that everything ties.
        fn event()(
            source in 0..3_i16,
            trust in prop::sample::select(vec![0_u8, 50, 100]),
            time in prop::sample::select(vec![
                EventTime::UNKNOWN,
                EventTime::measured(EPOCH),
                EventTime::measured(EPOCH + 1),
                EventTime { reliable: false, at: Some(EPOCH + 1) },
            ]),
            name in prop::option::of(prop::option::of("[aé\u{10400}]{1,2}")),
            stage in prop::option::of(prop::sample::select(&LIFECYCLE_STAGES[..])),
            budget in prop::option::of(prop::option::of("[1-3]")),
            consent in prop::option::of((any::<bool>(), any::<bool>())),
            tags in prop::collection::btree_set("[ab]", 0..3),
            utm in prop::option::of("[ab]"),
            typed in "[aA]na",
        ) -> LeadState {
            let change = |value: Option<String>| value.map_or(Change::Clear, Change::Set);
            let mut patch = LeadPatch::new(email(), typed);
            patch.fields.extend(name.map(|n| (Field::FirstName, change(n))));
            patch.fields.extend(stage.map(|s| (Field::LifecycleStage, change(Some(s.to_owned())))));
            patch.attributes.extend(budget.map(|b| ("budget".to_owned(), change(b))));
            patch.consent = consent.map(|(granted, proven)| Consent { granted, proven });
            patch.tags = tags;
            patch.touch.utm_source = utm;
            let source_name = ["a", "b", "é"][usize::try_from(source).expect("0 to 2")];
            LeadState::of_event(patch, Origin { source_name, source, trust, time })
        }
    }

    fn join(mut a: LeadState, b: &LeadState) -> LeadState {
        a.join(b.clone());
        a
    }

    prop_compose! {
        fn state()(first in event(), more in prop::collection::vec(event(), 0..3)) -> LeadState {
            more.iter().fold(first, join)
        }
    }

    proptest! {
        #[test]
        fn the_join_is_a_semilattice(a in state(), b in state(), c in state()) {
            let ab = join(a.clone(), &b);
            prop_assert_eq!(&ab, &join(b.clone(), &a), "commutative");
            prop_assert_eq!(join(ab.clone(), &c), join(a.clone(), &join(b.clone(), &c)), "associative");
            prop_assert_eq!(&a, &join(a.clone(), &a), "idempotent");
            prop_assert_eq!(&ab, &join(ab.clone(), &a), "what is in stays in");
        }

        #[test]
        fn a_repeat_is_owed_nothing(a in state(), e in event()) {
            let fold = join(a, &e);
            prop_assert!(!fold.owes_to(&e, Some(&fold)));
        }

        #[test]
        fn whoever_comes_first_is_owed_what_stands(e in event()) {
            prop_assert!(e.owes_to(&e, None));
        }

        #[test]
        fn any_time_is_judged_without_overflow(at: i64, received: i64, tolerance: u64) {
            let time = EventTime::stated(at, received, Duration::from_micros(tolerance));
            let kept = time.at.expect("stated");
            prop_assert!((EPOCH..=EPOCH + MICROS_MAX).contains(&kept));
            prop_assert!(!time.reliable || (at >= EPOCH && at >= kept));
            prop_assert!(time.system_time().is_some());
            prop_assert_eq!(EventTime::measured(at).at.map(|m| m.clamp(EPOCH, EPOCH + MICROS_MAX)), Some(kept));
        }

        #[test]
        fn stamps_are_positive_and_order_by_trust_then_belief_then_time(
            a in (0..128_u8, any::<bool>(), EPOCH..=EPOCH + MICROS_MAX),
            b in (0..128_u8, any::<bool>(), EPOCH..=EPOCH + MICROS_MAX),
        ) {
            let of = |(p, reliable, at)| stamp(p, EventTime { reliable, at: Some(at) });
            prop_assert_eq!(of(a).cmp(&of(b)), a.cmp(&b));
            prop_assert!(of(a) > 0);
            prop_assert_eq!(read_stamp(of(a)).0, a.0);
            if a.1 || a.2 > EPOCH {
                prop_assert_eq!(read_stamp(of(a)).1, Some(a.2));
            }
        }
    }

    #[test]
    fn belief_ends_with_the_tolerance() {
        let tolerance = Duration::from_secs(300);
        let received = EPOCH + 1_000_000_000_000;
        let believed = |at| EventTime::stated(at, received, tolerance).reliable;
        assert!(believed(received + 300_000_000) && !believed(received + 300_000_001));
        assert!(believed(EPOCH) && !believed(EPOCH - 1));
    }

    #[test]
    fn without_time_and_trust_a_word_still_differs_from_silence() {
        assert_eq!(stamp(0, EventTime::UNKNOWN), 1);
        assert_eq!(read_stamp(1), (0, None));
        assert_eq!(read_stamp(i64::MAX), (127, Some(EPOCH + MICROS_MAX)));
    }

    #[test]
    fn only_a_later_proven_opt_in_lifts_an_opt_out() {
        let at = |out, opt_in, proven| {
            let register = |t: i64| (t > 0).then_some((t, 1));
            let state = ConsentState {
                opt_out: register(out),
                opt_in: register(opt_in),
                proven: register(proven),
            };
            state.granted()
        };
        assert_eq!(at(0, 0, 0), None);
        assert_eq!(at(0, 5, 0), Some(true));
        assert_eq!(at(0, 0, 5), Some(true));
        assert_eq!(at(3, 5, 0), Some(false), "a later opt-in without proof");
        assert_eq!(at(3, 0, 4), Some(true));
        assert_eq!(at(3, 9, 3), Some(false), "at one time the opt-out wins");
        assert_eq!(at(4, 9, 3), Some(false));
    }

    #[test]
    fn stages_have_ranks_from_one() {
        for (at, stage) in LIFECYCLE_STAGES.iter().enumerate() {
            assert_eq!(stage_rank(stage).map(usize::from), Some(at + 1));
        }
        assert_eq!(stage_rank("Lead"), None);
    }
}
