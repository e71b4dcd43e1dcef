//! The real program as processes: started in a folder of its own, listened to, signalled, killed.
//!
//! Nothing is left behind: a process dies with its handle, and a PostgreSQL that one of them left dies with the folder.

use std::fmt::Display;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Longest wait for a process to say something or to end: generous, because many builds share a machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder that goes at the end together with a PostgreSQL that was left running in it.
pub struct Folder(tempfile::TempDir);

impl Folder {
    /// An empty folder that every user may enter: as root PostgreSQL runs as another one.
    pub fn new() -> Folder {
        let mode = std::fs::Permissions::from_mode(0o711);
        Folder(tempfile::Builder::new().permissions(mode).tempdir().expect("a temporary folder"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The PostgreSQL of `data_dir` in here ("" for the folder itself), if its file says that one runs.
    pub fn postgres(&self, data_dir: &str) -> Option<Pid> {
        let text = std::fs::read_to_string(self.pid_file(data_dir)).ok()?;
        Some(Pid::from_raw(text.lines().next()?.parse().ok()?))
    }

    fn pid_file(&self, data_dir: &str) -> PathBuf {
        self.path().join(data_dir).join("postgres/postmaster.pid")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let entries = std::fs::read_dir(self.path()).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        for pid in names.chain([String::new()]).filter_map(|name| self.postgres(&name)) {
            let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if comm.trim() == "postgres" {
                let _ = kill(pid, Signal::SIGQUIT);
            }
        }
    }
}

/// The program in a folder with a `leadsync.toml`, and an environment without anybody else's settings.
pub struct Program {
    /// Working directory of every process.
    pub folder: Folder,
    environment: Vec<(String, String)>,
}

impl Program {
    /// With that configuration; with no text there is no file.
    pub fn new(config: &str) -> Program {
        let program = Program { folder: Folder::new(), environment: Vec::new() };
        if !config.is_empty() {
            program.configure(config);
        }
        program
    }

    /// Another configuration for the next process.
    pub fn configure(&self, config: &str) {
        std::fs::write(self.folder.path().join("leadsync.toml"), config).expect("write the file");
    }

    /// With a variable more.
    pub fn env(mut self, name: &str, value: impl Display) -> Program {
        self.environment.push((name.to_owned(), value.to_string()));
        self
    }

    /// Starts `leadsync` with these arguments.
    pub fn start(&self, arguments: &[&str]) -> Process {
        self.start_into(arguments, Stdio::piped())
    }

    /// The same with a standard output of the test's choice.
    pub fn start_into(&self, arguments: &[&str], stdout: Stdio) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_leadsync"))
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("start leadsync");
        let stdout = child.stdout.take().map(listen);
        let stderr = child.stderr.take().map(listen).expect("its errors");
        Process { child, stdout, stderr, command: format!("leadsync {}", arguments.join(" ")) }
    }

    /// Runs it to its end.
    pub async fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).end().await
    }

    /// Starts `serve` on a free port, with these arguments more, and waits until it is ready.
    pub async fn serve(&self, arguments: &[&str]) -> Serving {
        let mut all = vec!["serve", "--listen", "127.0.0.1:0"];
        all.extend(arguments);
        Serving::ready(self.start(&all)).await
    }
}

/// Reads all of a pipe; the text so far can be waited for.
fn listen(mut pipe: impl AsyncRead + Unpin + Send + 'static) -> Heard {
    let (sender, text) = watch::channel(String::new());
    let reader = tokio::spawn(async move {
        let mut bytes = Vec::new();
        while pipe.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
            // Only whole lines, so that no letter is cut in two.
            if let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') {
                let rest = bytes.split_off(end + 1);
                let lines = std::mem::replace(&mut bytes, rest);
                sender.send_modify(|text| text.push_str(&String::from_utf8_lossy(&lines)));
            }
        }
        sender.send_modify(|text| text.push_str(&String::from_utf8_lossy(&bytes)));
    });
    Heard { text, reader }
}

struct Heard {
    text: watch::Receiver<String>,
    reader: JoinHandle<()>,
}

impl Heard {
    fn so_far(&self) -> String {
        self.text.borrow().clone()
    }

    async fn whole(self) -> String {
        // A reader that was stopped has finished, and must not be waited for again.
        if !self.reader.is_finished() {
            self.reader.await.expect("reads to the end");
        }
        self.text.borrow().clone()
    }
}

/// A running process. Dropped, it is killed.
pub struct Process {
    child: Child,
    stdout: Option<Heard>,
    stderr: Heard,
    command: String,
}

/// How a process ended, and everything it said.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; none if a signal killed it.
    pub code: Option<i32>,
    /// Results.
    pub stdout: String,
    /// Everything else.
    pub stderr: String,
}

impl Ended {
    /// Panics with everything it said unless it ended with that code.
    #[track_caller]
    pub fn with(self, code: i32) -> Ended {
        assert_eq!(
            self.code,
            Some(code),
            "\n-- stdout\n{}\n-- stderr\n{}",
            self.stdout,
            self.stderr
        );
        self
    }
}

impl Process {
    /// Its number.
    pub fn pid(&self) -> Pid {
        let pid = self.child.id().expect("nobody has waited for it");
        Pid::from_raw(pid.try_into().expect("a process number"))
    }

    /// Waits for a line on stderr that contains this text; the whole line.
    pub async fn says(&self, wanted: &str) -> String {
        let line = |text: &str| text.lines().find(|line| line.contains(wanted)).map(str::to_owned);
        let mut text = self.stderr.text.clone();
        let said = text.wait_for(|text| line(text).is_some());
        match tokio::time::timeout(PATIENCE, said).await {
            Ok(Ok(text)) => line(&text).expect("just seen"),
            Ok(Err(_)) => {
                panic!("{} ended without {wanted:?}:\n{}", self.command, self.stderr.so_far())
            }
            Err(_) => panic!("{} never said {wanted:?}:\n{}", self.command, self.stderr.so_far()),
        }
    }

    /// What it has said on stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.so_far()
    }

    /// Closes its stderr: whatever it writes there from now on fails.
    pub async fn stop_listening(&mut self) {
        self.stderr.reader.abort();
        let _ = (&mut self.stderr.reader).await;
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it is running");
    }

    /// Whether it is still running.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    pub async fn end(mut self) -> Ended {
        let Ok(status) = tokio::time::timeout(PATIENCE, self.child.wait()).await else {
            panic!("{} does not end:\n{}", self.command, self.stderr.so_far());
        };
        let stdout = match self.stdout {
            Some(stdout) => stdout.whole().await,
            None => String::new(),
        };
        let code = status.expect("its status").code();
        Ended { code, stdout, stderr: self.stderr.whole().await }
    }

    /// SIGKILL, and it is gone when this returns.
    pub async fn kill_9(self) -> Ended {
        self.signal(Signal::SIGKILL);
        self.end().await
    }

    /// SIGTERM, and how it ended.
    pub async fn terminate(self) -> Ended {
        self.signal(Signal::SIGTERM);
        self.end().await
    }
}

/// A `serve` that is ready.
pub struct Serving {
    /// The process.
    pub process: Process,
    /// `http://127.0.0.1:PORT`
    pub url: String,
}

impl Serving {
    /// Waits until a `serve` that was started is ready.
    pub async fn ready(process: Process) -> Serving {
        let line = process.says("ready on http://").await;
        let at = line.find("http://").expect("just seen");
        let url = line[at..].split_whitespace().next().expect("an address").to_owned();
        Serving { process, url }
    }
}

/// Waits until `check` gives something, looking often; `what` is for the panic after `limit`.
pub async fn eventually<T>(
    what: &str,
    limit: Duration,
    mut check: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let until = Instant::now() + limit;
    loop {
        match check().await {
            Ok(found) => return found,
            Err(not_yet) => assert!(Instant::now() < until, "{what}: {not_yet}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
