//! Independent simulations on all processors.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What `play` makes of each of the jobs, in their order: one after the other on as many threads as there are processors.
///
/// # Panics
/// `play` panics.
pub fn on_all_processors<J: Sync, R: Send>(jobs: &[J], play: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(at) else {
                return done;
            };
            done.push((at, play(job)));
        }
    };
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(jobs.len()))
            .map(|_| scope.spawn(work))
            .collect();
        let results = threads.into_iter().flat_map(|thread| {
            let result = thread.join();
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        results.collect()
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::on_all_processors;

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..100).collect();
        let squares = on_all_processors(&jobs, |job| {
            std::thread::sleep(std::time::Duration::from_micros(job % 7 * 100));
            job * job
        });
        let expected: Vec<u64> = jobs.iter().map(|job| job * job).collect();
        assert_eq!(squares, expected);
        assert_eq!(on_all_processors(&[], |job: &u64| *job), Vec::<u64>::new());
    }

    #[test]
    fn a_panic_of_a_job_is_that_of_the_caller() {
        let panicked = std::panic::catch_unwind(|| {
            on_all_processors(&[1, 2, 3], |job| assert!(*job != 2, "job {job}"));
        });
        let text = panicked.unwrap_err();
        assert_eq!(text.downcast_ref::<String>().unwrap(), "job 2");
    }
}
