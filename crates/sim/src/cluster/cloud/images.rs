//! Images that instances start from. A node class names its image in `spec.image`.

use std::sync::Arc;

use mortise_apis::names::ProviderId;
use serde_json::Value;

use super::Cloud;

/// The image of a node class that names none.
pub(crate) const FIRST_IMAGE: &str = "image-1";

/// The image of a node class.
pub(crate) fn image_of(class: &Value) -> &str {
    let named = class.pointer("/spec/image").and_then(Value::as_str);
    named.unwrap_or(FIRST_IMAGE)
}

impl Cloud {
    /// The image that an instance started from; `None`: there is no such instance.
    pub(crate) fn image(&self, id: &ProviderId) -> Option<Arc<str>> {
        let instance = self.instances.get(id)?;
        Some(Arc::clone(&instance.image))
    }
}
