//! What a destination knows of an account's fields: read when first needed, read again when old.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::CallError;

/// A value with an age. Reading it is single-flight: callers that come meanwhile wait for the same answer.
pub(super) struct Cached<T>(Mutex<Option<(Instant, Arc<T>)>>);

impl<T> Default for Cached<T> {
    fn default() -> Cached<T> {
        Cached(Mutex::new(None))
    }
}

impl<T> Cached<T> {
    /// The value, read anew where it is older than `most`.
    ///
    /// # Errors
    ///
    /// Those of `read`, as [`before_writing`] has them: nothing was written yet.
    pub async fn get(
        &self,
        most: Duration,
        read: impl AsyncFnOnce() -> Result<T, CallError>,
    ) -> Result<Arc<T>, CallError> {
        let mut kept = self.0.lock().await;
        if let Some((_, value)) = kept.as_ref().filter(|(at, _)| at.elapsed() < most) {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(read().await.map_err(before_writing)?);
        *kept = Some((Instant::now(), Arc::clone(&value)));
        Ok(value)
    }
}

/// An error of a call that only reads, made before anything was written: an unknown outcome is none.
pub(super) fn before_writing(error: CallError) -> CallError {
    match error {
        CallError::Unknown { after: Some(after), message } => {
            CallError::SlowDown { after: Some(after), message }
        }
        CallError::Unknown { after: None, message } => CallError::Unreachable { message },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_read_once_until_it_is_old() {
        let cached = Cached::default();
        let hour = Duration::from_secs(3600);
        let failing = async || Err(CallError::Unknown { after: None, message: "cut".to_owned() });
        let refused = cached.get(hour, failing).await;
        assert_eq!(refused, Err(CallError::Unreachable { message: "cut".to_owned() }));
        assert_eq!(*cached.get(hour, async || Ok(1)).await.unwrap(), 1);
        assert_eq!(*cached.get(hour, async || Ok(2)).await.unwrap(), 1);
        assert_eq!(*cached.get(Duration::ZERO, async || Ok(3)).await.unwrap(), 3);
        assert_eq!(*cached.get(hour, async || Ok(4)).await.unwrap(), 3);
    }
}
