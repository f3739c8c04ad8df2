//! mortise: the AWS provider.
