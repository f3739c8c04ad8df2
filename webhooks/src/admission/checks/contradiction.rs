//! Requirements of a pool that no node of its class can meet, whatever the cloud offers: known before the class is resolved, and
//! so in files too.

use super::super::text::without_domain;
use super::catalog::field_path;
use super::{AdmissionContext, AdmissionResult, Check, PoolRequest};

/// Asks the class of the pool.
pub(super) fn run(
    context: &AdmissionContext<'_>,
    request: &PoolRequest<'_>,
    answer: &mut AdmissionResult,
) {
    let pool = request.pool;
    let key = pool.node_class_key();
    let mut served = context.rules.crds.served().iter();
    let Some(api) = served.find(|class| {
        let kind = class.kind();
        kind.group == &*key.group && kind.kind == &*key.kind
    }) else {
        return;
    };
    let Some(class) = context.snapshot.node_classes.get(&key) else {
        return;
    };
    for each in api.contradictions(&class.object, &pool.requirements()) {
        answer.warn(
            Check::NodeClass,
            field_path(pool, each.key),
            format!(
                "{}: {} \"{}\" {}",
                without_domain(each.key),
                key.kind,
                key.name,
                each.problem
            ),
            each.fix,
        );
    }
}
