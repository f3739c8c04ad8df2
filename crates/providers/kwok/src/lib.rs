//! mortise: the kwok provider.
