//! A real browser without a window, driven by its DevTools protocol: pages are loaded, looked at
//! and photographed, and what they complain about is kept.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, interval, timeout};
use tokio_tungstenite::connect_async_with_config;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

/// Browsers start slowly on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
const GREETING: &str = "DevTools listening on ";
const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "about:blank",
];

/// Ends, with all its pages, when it is dropped.
pub struct Browser {
    _process: Child,
    _profile: TempDir,
    line: Line,
}

/// One tab.
pub struct Page {
    line: Line,
    session: String,
}

#[derive(Clone)]
struct Line {
    orders: mpsc::UnboundedSender<(Value, oneshot::Sender<Value>)>,
    said: Arc<Mutex<Vec<Value>>>,
}

impl Browser {
    /// Where it is installed, if it is.
    pub fn find() -> Option<PathBuf> {
        let path = std::env::var_os("PATH")?;
        let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let places = NAMES
            .iter()
            .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        places.into_iter().find(|place| place.is_file())
    }

    pub async fn start(bin: &Path) -> Self {
        let profile = tempfile::tempdir().expect("a directory for the profile");
        let mut process = Command::new(bin)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("HOME", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", bin.display()));
        let stderr = process.stderr.take().expect("stderr is piped");
        let url = timeout(DEADLINE, address(BufReader::new(stderr)));
        let url = url.await.expect("the browser listens in time");
        Self {
            _process: process,
            _profile: profile,
            line: Line::connect(&url).await,
        }
    }

    pub async fn page(&self) -> Page {
        let line = &self.line;
        let target = json!({"url": "about:blank"});
        let target = line.order("Target.createTarget", target, None).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = line.order("Target.attachToTarget", attach, None).await;
        let page = Page {
            line: line.clone(),
            session: attached["sessionId"]
                .as_str()
                .expect("a session")
                .to_owned(),
        };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.order(&format!("{domain}.enable"), json!({})).await;
        }
        page
    }
}

/// Reads on for as long as the browser speaks, so that it never waits for us.
async fn address(stderr: BufReader<tokio::process::ChildStderr>) -> String {
    let mut lines = stderr.lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(url) = line.strip_prefix(GREETING) {
            let url = url.trim().to_owned();
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return url;
        }
    }
    panic!("the browser ended before it listened");
}

impl Line {
    async fn connect(url: &str) -> Self {
        // Photographs are large.
        let config = WebSocketConfig::default()
            .max_message_size(None)
            .max_frame_size(None);
        let connected = timeout(
            DEADLINE,
            connect_async_with_config(url, Some(config), false),
        );
        let connected = connected.await.expect("the browser answers in time");
        let (mut socket, _) = connected.expect("a line to the browser");
        let (orders, mut given) = mpsc::unbounded_channel::<(Value, oneshot::Sender<Value>)>();
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        tokio::spawn(async move {
            let mut waiting = HashMap::new();
            let mut next = 0_u64;
            loop {
                tokio::select! {
                    order = given.recv() => {
                        let Some((mut order, answer)) = order else { return };
                        next += 1;
                        order["id"] = json!(next);
                        waiting.insert(next, answer);
                        if socket.send(Message::text(order.to_string())).await.is_err() {
                            return;
                        }
                    }
                    frame = socket.next() => {
                        let Some(Ok(frame)) = frame else { return };
                        let Message::Text(text) = frame else { continue };
                        let message: Value = serde_json::from_str(&text).unwrap_or_default();
                        let answered = message["id"].as_u64().and_then(|id| waiting.remove(&id));
                        match answered {
                            Some(answer) => {
                                let _ = answer.send(message);
                            }
                            None => locked(&heard).push(message),
                        }
                    }
                }
            }
        });
        Self { orders, said }
    }

    async fn order(&self, method: &str, params: Value, session: Option<&str>) -> Value {
        let mut order = json!({"method": method, "params": params});
        if let Some(session) = session {
            order["sessionId"] = json!(session);
        }
        let (sender, answer) = oneshot::channel();
        self.orders.send((order, sender)).expect("the browser runs");
        let answer = timeout(DEADLINE, answer).await;
        let mut answer = answer
            .unwrap_or_else(|_| panic!("no answer to {method}"))
            .expect("the browser runs");
        assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
        answer["result"].take()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Page {
    async fn order(&self, method: &str, params: Value) -> Value {
        let session = Some(self.session.as_str());
        self.line.order(method, params, session).await
    }

    /// Loads a page to its end.
    pub async fn open(&self, url: &str) {
        let loads = self.count("Page.loadEventFired");
        let went = self.order("Page.navigate", json!({"url": url})).await;
        assert!(went["errorText"].is_null(), "{url}: {went}");
        self.wait(&format!("{url} is loaded"), || async {
            self.count("Page.loadEventFired") > loads
        })
        .await;
    }

    /// The value of an expression on the page.
    pub async fn eval(&self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.order("Runtime.evaluate", params).await;
        let failed = &answer["exceptionDetails"];
        assert!(failed.is_null(), "{expression}: {failed}");
        answer["result"]["value"].take()
    }

    /// Looks until the expression is true.
    pub async fn until(&self, expression: &str) {
        self.wait(expression, || async { self.eval(expression).await == true })
            .await;
    }

    async fn wait<F: Future<Output = bool>>(&self, what: &str, mut holds: impl FnMut() -> F) {
        let deadline = Instant::now() + DEADLINE;
        let mut looks = interval(LOOK_AGAIN);
        while !holds().await {
            assert!(Instant::now() < deadline, "not in time: {what}");
            looks.tick().await;
        }
    }

    /// In pixels, as a phone or a screen has them.
    pub async fn resize(&self, width: u32, height: u32) {
        let phone = width < 700;
        let params = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone,
        });
        self.order("Emulation.setDeviceMetricsOverride", params)
            .await;
    }

    pub async fn prefer_dark(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let params = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.order("Emulation.setEmulatedMedia", params).await;
    }

    /// Without it pages are as they were sent.
    pub async fn scripts(&self, run: bool) {
        let params = json!({"value": !run});
        self.order("Emulation.setScriptExecutionDisabled", params)
            .await;
    }

    /// Sent with every request from now on, as a proxy would add them.
    pub async fn send_headers(&self, headers: &[(&str, &str)]) {
        let headers: serde_json::Map<String, Value> = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        self.order("Network.setExtraHTTPHeaders", json!({"headers": headers}))
            .await;
    }

    /// As if a user pressed the key so often.
    pub async fn press_tab(&self, times: usize) {
        for _ in 0..times {
            for kind in ["keyDown", "keyUp"] {
                let params =
                    json!({"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9});
                self.order("Input.dispatchKeyEvent", params).await;
            }
        }
    }

    /// The whole page, as a PNG file.
    pub async fn photograph(&self, file: &Path) {
        let params = json!({"format": "png", "captureBeyondViewport": true});
        let shot = self.order("Page.captureScreenshot", params).await;
        let png = decode(shot["data"].as_str().expect("a picture"));
        std::fs::write(file, png).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }

    /// Errors on the console, exceptions, violations of the policy, requests that failed.
    pub fn complaints(&self) -> Vec<String> {
        let said = locked(&self.line.said);
        let own = said.iter().filter(|one| one["sessionId"] == self.session);
        own.filter_map(complaint).collect()
    }

    /// What was complained about so far is settled.
    pub fn forgive(&self) {
        locked(&self.line.said).retain(|one| complaint(one).is_none());
    }

    fn count(&self, method: &str) -> usize {
        let said = locked(&self.line.said);
        let own = said.iter().filter(|one| one["sessionId"] == self.session);
        own.filter(|one| one["method"] == method).count()
    }
}

fn complaint(message: &Value) -> Option<String> {
    let params = &message["params"];
    match message["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
        "Runtime.consoleAPICalled" if params["type"] == "error" => Some(params["args"].to_string()),
        "Log.entryAdded" => {
            let entry = &params["entry"];
            let bad = entry["level"] == "error" || entry["level"] == "warning";
            bad.then(|| entry.to_string())
        }
        _ => None,
    }
}

/// Base64 as the protocol writes it.
fn decode(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().filter_map(value) {
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_decoded() {
        assert_eq!(decode("SGVsbG8="), b"Hello");
        assert_eq!(decode("iVBORw0KGgo="), b"\x89PNG\r\n\x1a\n");
    }
}
