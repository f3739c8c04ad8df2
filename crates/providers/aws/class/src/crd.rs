//! The definition of EC2NodeClass, and what its provider's release has otherwise in the definitions of other kinds.

use mortise_apis::schema::crd_manifest::{
    CLUSTER, CREATED, CrdLayout, CrdManifest, READY, column, definition, set_field, wide,
};
use mortise_apis::schema::structural::{root, schema_of};
use serde_json::{Value, json};

use crate::spec::{Ec2NodeClass, Ec2NodeClassSpec};
use crate::status::Ec2NodeClassStatus;

/// The definition.
pub(crate) fn ec2_node_class() -> CrdManifest {
    let schema = root(
        "Launch settings of EC2 instances: AMIs, networks, disks, identity and user data.",
        schema_of::<Ec2NodeClassSpec>(),
        schema_of::<Ec2NodeClassStatus>(),
        false,
    );
    let columns = json!([
        column("Ready", "string", READY),
        column("Age", "date", CREATED),
        wide("Role", "string", ".spec.role"),
    ]);
    definition::<Ec2NodeClass>(
        CrdLayout {
            columns,
            short_names: &["ec2nc", "ec2ncs"],
            ..CLUSTER
        },
        &schema,
    )
}

/// The provider's release is built on an earlier one of the core, in which the field had no default.
pub(crate) fn edit_pool_spec(spec: &mut Value) {
    set_field(
        spec,
        "/properties/disruption",
        "required",
        json!(["consolidateAfter"]),
    );
    if let Some(field) = spec
        .pointer_mut("/properties/disruption/properties/consolidateAfter")
        .and_then(Value::as_object_mut)
    {
        field.remove("default");
    }
}
