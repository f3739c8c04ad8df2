//! The pods of a StatefulSet: one after the other in the order of their numbers, and the last one first when they go.

use std::collections::BTreeMap;

/// A pod of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrdinalPod {
    /// It does not run yet. `is_old`: it is of an earlier template.
    Waits { is_old: bool },
    /// It runs.
    Runs { is_old: bool },
    /// It is being deleted; its name is not free yet.
    Stops,
}

/// What the controller does with the pod of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrdinalStep {
    Create(u32),
    Delete(u32),
}

/// What a set of `want` pods needs now. With `is_parallel` it does not wait for one pod before the next is created or
/// deleted; a rolling update always replaces one at a time.
pub(super) fn steps(
    want: u32,
    is_parallel: bool,
    pods: &BTreeMap<u32, OrdinalPod>,
) -> Vec<OrdinalStep> {
    let mut steps = Vec::new();
    for number in 0..want {
        match pods.get(&number) {
            None => steps.push(OrdinalStep::Create(number)),
            Some(OrdinalPod::Runs { .. }) => continue,
            // A pod that cannot start with its template is replaced by one of the new template.
            Some(OrdinalPod::Waits { is_old: true }) => steps.push(OrdinalStep::Delete(number)),
            Some(OrdinalPod::Waits { is_old: false } | OrdinalPod::Stops) => {}
        }
        if !is_parallel {
            return steps;
        }
    }
    for (number, pod) in pods.range(want..).rev() {
        if *pod != OrdinalPod::Stops {
            steps.push(OrdinalStep::Delete(*number));
        }
        if !is_parallel {
            return steps;
        }
    }
    let all_run =
        (0..want).all(|number| matches!(pods.get(&number), Some(OrdinalPod::Runs { .. })));
    let is_old = |pod: &OrdinalPod| *pod == OrdinalPod::Runs { is_old: true };
    let mut old = pods.range(..want).rev().filter(|(_, pod)| is_old(pod));
    if all_run && let Some((number, _)) = old.next() {
        steps.push(OrdinalStep::Delete(*number));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::OrdinalStep::{Create, Delete};
    use super::*;

    const RUNS: OrdinalPod = OrdinalPod::Runs { is_old: false };
    const WAITS: OrdinalPod = OrdinalPod::Waits { is_old: false };
    const OLD: OrdinalPod = OrdinalPod::Runs { is_old: true };
    const STUCK: OrdinalPod = OrdinalPod::Waits { is_old: true };
    const STOPS: OrdinalPod = OrdinalPod::Stops;

    #[test]
    fn one_after_the_other() {
        for (want, pods, one, all) in [
            (
                3,
                &[][..],
                &[Create(0)][..],
                &[Create(0), Create(1), Create(2)][..],
            ),
            (3, &[(0, WAITS)], &[], &[Create(1), Create(2)]),
            (3, &[(0, RUNS)], &[Create(1)], &[Create(1), Create(2)]),
            (2, &[(0, STOPS), (1, RUNS)], &[], &[]),
            (2, &[(1, RUNS)], &[Create(0)], &[Create(0)]),
            (2, &[(0, RUNS), (1, RUNS)], &[], &[]),
            (
                1,
                &[(0, RUNS), (1, RUNS), (2, RUNS)],
                &[Delete(2)],
                &[Delete(2), Delete(1)],
            ),
            (1, &[(0, RUNS), (1, RUNS), (2, STOPS)], &[], &[Delete(1)]),
            (0, &[(0, WAITS)], &[Delete(0)], &[Delete(0)]),
            // The update begins at the end, and goes on when all run.
            (2, &[(0, OLD), (1, OLD)], &[Delete(1)], &[Delete(1)]),
            (2, &[(0, OLD), (1, STOPS)], &[], &[]),
            (2, &[(0, OLD), (1, WAITS)], &[], &[]),
            (2, &[(0, OLD), (1, RUNS)], &[Delete(0)], &[Delete(0)]),
            (2, &[(0, OLD), (1, STUCK)], &[Delete(1)], &[Delete(1)]),
        ] {
            let pods = BTreeMap::from_iter(pods.iter().copied());
            assert_eq!(steps(want, false, &pods), one, "{want} of {pods:?}");
            assert_eq!(steps(want, true, &pods), all, "{want} of {pods:?} at once");
        }
    }
}
