//! Properties and messages that recorded results do not cover.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::{
    Allowance, BudgetSet, CompiledBudget, CronSchedule, GoDuration, NillableDuration, PriceChange,
    Quantity,
};

#[track_caller]
fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[track_caller]
fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap()
}

#[test]
fn quantities_saturate_and_round_up() {
    #[track_caller]
    fn check(text: &str, value: i64, milli: i64) {
        assert_eq!(
            (quantity(text).value(), quantity(text).milli()),
            (value, milli),
            "{text}"
        );
    }
    check("100m", 1, 100);
    check("1n", 1, 1);
    check("-100m", -1, -100);
    check("1.5Gi", 1_610_612_736, 1_610_612_736_000);
    check("5E", 5_000_000_000_000_000_000, i64::MAX);
    check("1e40", i64::MAX, i64::MAX);
    check("-1e40", i64::MIN, i64::MIN);
    check(
        "123456789012345678901234567890123456789012345678901234567890",
        i64::MAX,
        i64::MAX,
    );
}

#[test]
fn quantities_of_integers_print_like_parsed_ones() {
    assert_eq!(Quantity::from_milli(1500).to_string(), "1500m");
    assert_eq!(Quantity::from_milli(2000).to_string(), "2");
    assert_eq!(Quantity::from_bytes(2 << 30).to_string(), "2Gi");
    assert_eq!(Quantity::from_bytes(1000).to_string(), "1k");
    assert_eq!(Quantity::from_units(0).to_string(), "0");
    assert_eq!((-quantity("1Gi")).to_string(), "-1Gi");
}

#[test]
fn quantity_too_large_for_arithmetic_keeps_its_text() {
    assert_eq!(quantity("1e40").to_string(), "1e40");
    assert!(Quantity::parse("1e2147483648").is_err());
}

#[test]
fn quantity_errors_say_what_was_meant() {
    #[track_caller]
    fn nearest(text: &str, want: Option<&str>) {
        let error = Quantity::parse(text).unwrap_err();
        assert_eq!(error.nearest.as_deref(), want, "{text}");
        assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
    }
    nearest("16GB", Some("16G"));
    nearest("16 GiB", Some("16Gi"));
    nearest("4K", Some("4k"));
    nearest("1 ", Some("1"));
    nearest("two", None);
    nearest("", None);
}

#[test]
fn duration_errors_say_what_was_meant() {
    #[track_caller]
    fn nearest(text: &str, want: Option<&str>) {
        assert_eq!(
            GoDuration::parse(text).unwrap_err().nearest.as_deref(),
            want,
            "{text}"
        );
    }
    nearest("30d", Some("720h"));
    nearest("1w", Some("168h"));
    nearest("10 min", Some("10m"));
    nearest("300", Some("300s"));
    nearest("soon", None);
    let error = serde_json::from_str::<NillableDuration>("\"never\"")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("\"Never\"") && error.contains("\"never\""),
        "{error}"
    );
}

#[test]
fn schedules_fire_next_and_before() {
    #[track_caller]
    fn check(schedule: &str, now: &str, prev: &str, next: &str) {
        let schedule = CronSchedule::parse(schedule).unwrap();
        assert_eq!(
            schedule.prev(at(now)),
            Some(at(prev)),
            "{schedule} before {now}"
        );
        assert_eq!(
            schedule.next(at(now)),
            Some(at(next)),
            "{schedule} after {now}"
        );
    }
    check(
        "0 9 * * 1-5",
        "2024-06-08T12:00:00Z",
        "2024-06-07T09:00:00Z",
        "2024-06-10T09:00:00Z",
    );
    check(
        "@hourly",
        "2024-06-03T09:00:00Z",
        "2024-06-03T09:00:00Z",
        "2024-06-03T10:00:00Z",
    );
    check(
        "0 0 29 2 *",
        "2025-01-01T00:00:00Z",
        "2024-02-29T00:00:00Z",
        "2028-02-29T00:00:00Z",
    );
    check(
        "59 23 31 12 *",
        "2024-12-31T23:59:00Z",
        "2024-12-31T23:59:00Z",
        "2025-12-31T23:59:00Z",
    );
    check(
        "0 0 13 * FRI",
        "2024-06-01T00:00:00Z",
        "2024-05-31T00:00:00Z",
        "2024-06-07T00:00:00Z",
    );
    let never = CronSchedule::parse("0 0 30 2 *").unwrap();
    assert_eq!(
        (
            never.prev(Timestamp::UNIX_EPOCH),
            never.next(Timestamp::UNIX_EPOCH)
        ),
        (None, None)
    );
    let last = CronSchedule::parse("* * * * *").unwrap();
    assert_eq!(last.next(Timestamp::MAX), None);
}

#[test]
fn schedule_errors_name_field_and_limits() {
    #[track_caller]
    fn check(schedule: &str, parts: &[&str]) {
        let error = CronSchedule::parse(schedule).unwrap_err().to_string();
        assert!(
            parts.iter().all(|part| error.contains(part)),
            "{schedule}: {error}"
        );
    }
    check("0 0 * * 7", &["day of week", "\"7\"", "0 to 6", "SUN"]);
    check("60 * * * *", &["minute", "\"60\"", "0 to 59"]);
    check("* * * *", &["five fields", "found 4"]);
    check("@Daily", &["@daily"]);
    check("@every 1d", &["\"1d\"", "\"24h\""]);
}

#[test]
fn budgets_fail_closed() {
    let none: Option<[&str; 0]> = None;
    let broken = CompiledBudget::new("5", None, Some(GoDuration::from_secs(60)), none);
    assert!(broken.error().unwrap().to_string().contains("1m0s"));
    let budgets: BudgetSet = [CompiledBudget::new("10%", None, None, none), broken]
        .into_iter()
        .collect();
    let verdict = budgets.evaluate(Timestamp::UNIX_EPOCH, 100, "Drifted");
    assert_eq!(
        (
            verdict.allowed,
            verdict.allowed_or_zero(),
            verdict.errors.len()
        ),
        (Some(0), Some(0), 1)
    );
    // A schedule that never fires is always active, the safe side.
    let never = CompiledBudget::new(
        "0",
        Some("0 0 30 2 *"),
        Some(GoDuration::from_secs(60)),
        none,
    );
    assert_eq!(never.allowed(Timestamp::UNIX_EPOCH, 5), Ok(Some(0)));
}

#[test]
fn shares_round_up() {
    let share = |percent: i64, nodes| Allowance::Percent(percent).allowed(nodes);
    assert_eq!(
        (
            share(10, 0),
            share(10, 1),
            share(10, 10),
            share(10, 11),
            share(150, 1)
        ),
        (0, 1, 1, 2, 2)
    );
    assert_eq!(share(i64::MAX, i64::MAX), i64::MAX);
    assert!(
        Allowance::parse("ten")
            .unwrap_err()
            .to_string()
            .contains("\"ten\"")
    );
}

#[test]
fn absurd_price_changes_saturate() {
    let huge = PriceChange::parse("+99999999999999999999%").unwrap();
    assert_eq!(huge.apply(1_000_000), i64::MAX);
    assert_eq!(PriceChange::parse("-200%").unwrap().apply(i64::MAX), 0);
    assert!(PriceChange::parse("10%").is_err());
    assert!(PriceChange::parse("+1e3").is_err());
}

/// Texts that look like quantities, most of them valid.
fn quantity_text() -> impl Strategy<Value = String> {
    "[+-]?[0-9]{0,6}([.][0-9]{0,4})?(|n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|e3|E-6|e12)"
}

proptest! {
    #[test]
    fn any_text_parses_or_fails(text in "\\PC{0,24}") {
        if let Ok(quantity) = Quantity::parse(&text) {
            prop_assert_eq!(&Quantity::parse(&quantity.to_string()).unwrap(), &quantity);
        }
        if let Ok(duration) = GoDuration::parse(&text) {
            prop_assert_eq!(GoDuration::parse(&duration.to_string()).unwrap(), duration);
        }
        if let Ok(schedule) = CronSchedule::parse(&text) {
            prop_assert!(schedule.next(Timestamp::UNIX_EPOCH).is_none_or(|next| next > Timestamp::UNIX_EPOCH));
        }
        if let Ok(change) = PriceChange::parse(&text) {
            prop_assert!(change.apply(1) >= 0);
        }
    }

    #[test]
    fn printed_quantity_is_the_same_amount(text in quantity_text()) {
        if let Ok(quantity) = Quantity::parse(&text) {
            let printed = (&quantity + &Quantity::ZERO).to_string();
            prop_assert_eq!(&Quantity::parse(&printed).unwrap(), &quantity, "{} printed as {}", text, printed);
        }
    }

    #[test]
    fn subtraction_undoes_addition(a in quantity_text(), b in quantity_text()) {
        if let (Ok(a), Ok(b)) = (Quantity::parse(&a), Quantity::parse(&b)) {
            prop_assert_eq!(&(&(&a + &b) - &b), &a);
            prop_assert_eq!(a.cmp(&b), (&a - &b).nanos().cmp(&0));
        }
    }

    #[test]
    fn printed_duration_is_the_same(nanos in any::<i64>()) {
        let duration = GoDuration::from_nanos(nanos);
        prop_assert_eq!(GoDuration::parse(&duration.to_string()), Ok(duration));
    }

    #[test]
    fn next_and_prev_agree(
        minute in 0..60_u8, hour in 0..24_u8, day in 1..32_u8, weekday in 0..7_u8,
        form in 0..4_usize, second in 1_600_000_000..1_900_000_000_i64,
    ) {
        let text = [
            format!("{minute} {hour} * * *"),
            format!("{minute} * {day} * *"),
            format!("*/7 {hour} {day} * {weekday}"),
            format!("{minute} {hour} * * {weekday}"),
        ].into_iter().nth(form).unwrap();
        let schedule = CronSchedule::parse(&text).unwrap();
        let now = Timestamp::from_second(second).unwrap();
        let next = schedule.next(now).unwrap();
        prop_assert!(next > now);
        prop_assert_eq!(schedule.prev(next), Some(next), "the next fire time is one");
        let just_before = next.checked_sub(SignedDuration::from_nanos(1)).unwrap();
        prop_assert!(schedule.prev(just_before).unwrap() <= now, "nothing fires in between");
    }
}
