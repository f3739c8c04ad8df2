//! One call about many instances, of which a few may be missing or spoil the call for the others.
//!
//! What an answer leaves out is asked for once more. EC2 refuses a call for the sake of one id; it names missing ids, which are then left
//! out; for what it does not name, the ids are halved until the bad one is alone. A failure that is no single id's fault (a limit, the
//! network) is tried once more as it is.

use std::collections::BTreeMap;
use std::future::Future;

use crate::failure::Failure;

/// The most calls that one batch makes. What is still open then fails; its callers ask again later.
const MAX_CALLS: usize = 100;

/// What became of each id: found, left out by every answer (`None`), or a failure.
pub(super) type Answers<T> = BTreeMap<String, Result<Option<T>, Failure>>;

/// What is done about what a call leaves open.
#[derive(Clone, Copy)]
pub(super) struct Persistence {
    /// Whether a failure may be the fault of one of the ids.
    pub(super) blames: fn(&Failure) -> bool,
    /// What is left open by the first call is asked for once more.
    pub(super) again: bool,
}

/// Ids that are still to be asked for.
struct Open {
    ids: Vec<String>,
    /// They were asked for before.
    again: bool,
}

/// Asks for `ids`, which are all different.
pub(super) async fn ask_by_id<T, F>(
    ids: Vec<String>,
    persistence: Persistence,
    ask: impl Fn(Vec<String>) -> F,
) -> Answers<T>
where
    F: Future<Output = Result<BTreeMap<String, T>, Failure>>,
{
    let mut answers = Answers::new();
    let again = !persistence.again;
    let mut open = vec![Open { ids, again }];
    let (mut calls, mut last) = (0, None);
    while let Some(Open { mut ids, again }) = open.pop() {
        if let Some(failure) = last.as_ref().filter(|_| calls >= MAX_CALLS) {
            let fail = |id| (id, Err(Failure::clone(failure)));
            answers.extend(ids.into_iter().map(fail));
            continue;
        }
        calls += 1;
        match ask(ids.clone()).await {
            Ok(found) => {
                ids.retain(|id| !found.contains_key(id));
                answers.extend(found.into_iter().map(|(id, each)| (id, Ok(Some(each)))));
                if again {
                    answers.extend(ids.into_iter().map(|id| (id, Ok(None))));
                } else if !ids.is_empty() {
                    open.push(Open { ids, again: true });
                }
            }
            Err(failure) => {
                let (named, rest): (Vec<_>, Vec<_>) =
                    ids.into_iter().partition(|id| failure.names_missing(id));
                let is_smaller = !named.is_empty();
                let fail = |id| (id, Err(failure.clone()));
                answers.extend(named.into_iter().map(fail));
                match rest.len() {
                    0 => {}
                    _ if is_smaller => open.push(Open { ids: rest, again }),
                    2.. if (persistence.blames)(&failure) => open.extend(halves(rest)),
                    _ if again => answers.extend(rest.into_iter().map(fail)),
                    _ => open.push(Open {
                        ids: rest,
                        again: true,
                    }),
                }
                last = Some(failure);
            }
        }
    }
    answers
}

fn halves(mut ids: Vec<String>) -> [Open; 2] {
    let second = ids.split_off(ids.len() / 2);
    [ids, second].map(|ids| Open { ids, again: true })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::failure::FailureKind;

    fn failure(code: &str, message: &str) -> Failure {
        Failure {
            action: "ec2:DescribeInstances",
            place: "region r".to_owned(),
            kind: FailureKind::Service,
            code: code.to_owned(),
            message: message.to_owned(),
        }
    }

    fn ids(count: usize) -> Vec<String> {
        (0..count).map(|each| format!("i-{each:04}")).collect()
    }

    fn all(ids: &[String]) -> BTreeMap<String, ()> {
        ids.iter().map(|id| (id.clone(), ())).collect()
    }

    /// The answers, and how many calls they took.
    async fn run(
        count: usize,
        blames: fn(&Failure) -> bool,
        answer: impl Fn(&[String], usize) -> Result<BTreeMap<String, ()>, Failure>,
    ) -> (Answers<()>, usize) {
        let calls = Cell::new(0);
        let persistence = Persistence {
            blames,
            again: true,
        };
        let answers = ask_by_id(ids(count), persistence, |ids| {
            calls.set(calls.get() + 1);
            std::future::ready(answer(&ids, calls.get()))
        })
        .await;
        assert_eq!(answers.len(), count, "each id has its answer");
        (answers, calls.get())
    }

    #[tokio::test]
    async fn what_an_answer_leaves_out_is_asked_for_once_more() {
        let (answers, calls) = run(
            10,
            |_| true,
            |ids, call| {
                let mut found = all(ids);
                found.remove("i-0003");
                if call == 1 {
                    found.remove("i-0004");
                }
                Ok(found)
            },
        )
        .await;
        assert_eq!(calls, 2);
        assert_eq!(answers["i-0003"], Ok(None));
        assert!(
            answers
                .iter()
                .all(|(id, each)| id == "i-0003" || *each == Ok(Some(())))
        );
    }

    #[tokio::test]
    async fn missing_ids_that_ec2_names_cost_one_call() {
        let missing = failure(
            "InvalidInstanceID.NotFound",
            "The instance IDs 'i-0003, i-0007' do not exist",
        );
        let (answers, calls) = run(
            10,
            |_| true,
            |ids, _| {
                let spoiled = ids.iter().any(|id| id == "i-0003");
                if spoiled {
                    Err(missing.clone())
                } else {
                    Ok(all(ids))
                }
            },
        )
        .await;
        assert_eq!(calls, 2);
        assert_eq!(answers.values().filter(|each| each.is_err()).count(), 2);
        assert!(answers["i-0007"].as_ref().is_err_and(Failure::is_not_found));
    }

    #[tokio::test]
    async fn one_bad_id_does_not_fail_the_others() {
        let (answers, calls) = run(
            500,
            |_| true,
            |ids, _| {
                if ids.iter().any(|id| id == "i-0123") {
                    Err(failure("OperationNotPermitted", "protected"))
                } else {
                    Ok(all(ids))
                }
            },
        )
        .await;
        assert!(calls <= 20, "{calls}");
        assert_eq!(answers.values().filter(|each| each.is_err()).count(), 1);
    }

    #[tokio::test]
    async fn a_failure_of_all_is_tried_once_more_and_never_for_each() {
        let throttled = || failure("RequestLimitExceeded", "slow down");
        let (answers, calls) = run(500, |each| !each.passes(), |_, _| Err(throttled())).await;
        assert_eq!(calls, 2);
        assert!(answers.values().all(|each| *each == Err(throttled())));
        let (answers, calls) = run(500, |_| true, |_, _| Err(throttled())).await;
        assert_eq!(calls, MAX_CALLS);
        assert!(answers.values().all(Result::is_err));
    }
}
