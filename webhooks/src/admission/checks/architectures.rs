//! Nodes of several architectures, which the NodePool does not say.

use mortise_apis::labels;

use super::super::text::count;
use super::catalog::catalog_of;
use super::{AdmissionContext, AdmissionResult, Check, PoolRequest};

/// A NodePool that names no architecture launches whatever is cheapest: an image that exists for one of them fails on the others.
pub(super) fn run(
    context: &AdmissionContext<'_>,
    request: &PoolRequest<'_>,
    answer: &mut AdmissionResult,
) {
    let requirements = request.pool.requirements();
    if requirements.has_key(labels::ARCH) {
        return;
    }
    let Some(catalog) = catalog_of(context.snapshot, request.pool) else {
        return;
    };
    let left = catalog.values_left(labels::ARCH, &requirements);
    let Some(left @ 2..) = left else { return };
    answer.warn(
        Check::Architectures,
        "spec.template.spec.requirements".to_owned(),
        format!(
            "arch: nodes may be of {}, and pods that name none run on any",
            count(left, "architecture")
        ),
        "require one, or name all that images have".to_owned(),
    );
}
