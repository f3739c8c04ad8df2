//! The type of futures that methods of ports return.

use std::future::Future;
use std::pin::Pin;

/// Future that methods of the port return, so that several providers can be used as `Arc<dyn CloudProvider>`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
