//! What a service logs while a test runs.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// The log of this thread from [`Log::record`] on; and a test's service runs on the test's own thread.
pub struct Log {
    lines: Lines,
    _until_dropped: DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Everything that leadsync says, and warnings of everybody else.
    pub fn record() -> Log {
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("warn,leadsync=trace")
            .with_ansi(false)
            .with_writer(lines.clone())
            .finish();
        Log { lines, _until_dropped: tracing::subscriber::set_default(subscriber) }
    }

    /// So far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.lines.0.lock().unwrap()).into_owned()
    }

    /// Fails on a line of level error: a fault of ours, a panic among them.
    #[track_caller]
    pub fn has_no_error(&self) {
        let text = self.text();
        let errors: Vec<&str> = text.lines().filter(|line| line.contains(" ERROR ")).collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Lines {
    type Writer = Lines;

    fn make_writer(&'w self) -> Lines {
        self.clone()
    }
}
