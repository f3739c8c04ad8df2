use super::*;
use mortise_apis::values::after;

fn nomination(uid: &str, place: NominationTarget, until_ms: i64) -> Nomination {
    Nomination {
        pod: PodKey::new("default", uid),
        uid: uid.into(),
        place,
        requests: Resources::new(1_000, 0),
        priority: 0,
        from: Timestamp::UNIX_EPOCH,
        until: after(Timestamp::UNIX_EPOCH, until_ms),
    }
}

#[test]
fn nomination_outcomes_are_counted_once() {
    let mut ledger = Ledger::default();
    let node = NominationTarget::Node("n".into());
    let claim = NominationTarget::Claim("c".into());
    for (uid, place) in [("a", &node), ("b", &node), ("c", &node), ("d", &claim)] {
        assert!(ledger.apply(LedgerOp::Nominate(nomination(uid, place.clone(), 1_000))));
    }
    ledger.record_bound(&"a".into(), true);
    ledger.record_bound(&"a".into(), true);
    ledger.record_bound(&"b".into(), false);
    ledger.remove_claim(&"c".into());
    ledger.expire(&"c".into());
    ledger.expire(&"c".into());
    let expected = NominationOutcomes {
        bound: 1,
        bound_elsewhere: 1,
        expired: 1,
        node_lost: 1,
    };
    assert_eq!(ledger.nomination_outcomes(), expected);
    assert_eq!(ledger.nominations().count(), 0);
}

#[test]
fn nominations_are_shortened_and_never_prolonged() {
    let mut ledger = Ledger::default();
    let claim = NominationTarget::Claim("c".into());
    for (uid, until) in [("long", 9_000), ("short", 1_000)] {
        ledger.apply(LedgerOp::Nominate(nomination(uid, claim.clone(), until)));
    }
    let at = |ms| after(Timestamp::UNIX_EPOCH, ms);
    let changed =
        ["long", "long", "short", "unknown"].map(|uid| ledger.shorten(&Uid::from(uid), at(5_000)));
    assert_eq!(
        changed,
        [true, false, false, false],
        "an earlier expiry is kept"
    );
    let until = |uid: &str| ledger.nomination(uid).map(|each| each.until);
    assert_eq!(
        (until("long"), until("short")),
        (Some(at(5_000)), Some(at(1_000)))
    );
    assert_eq!(
        ledger.nominations_to(&claim).count(),
        2,
        "they stay nominated"
    );
}
