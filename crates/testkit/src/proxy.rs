//! A TCP proxy on loopback in front of any server: it counts, delays, stalls and cuts what
//! passes through it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

/// What the line does with bytes. A new epoch ends the connections of those before it.
#[derive(Debug, Clone, Copy, Default)]
struct Weather {
    /// Where it leads; nowhere yet, perhaps.
    target: Option<SocketAddr>,
    epoch: u64,
    refuses: bool,
    stalled: bool,
    delay: Duration,
}

/// Ends, with all its connections, when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    weather: watch::Sender<Weather>,
    counts: Arc<Counts>,
    serving: AbortHandle,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    to_server: AtomicU64,
    from_server: AtomicU64,
}

impl Proxy {
    pub async fn start(target: SocketAddr) -> Self {
        let proxy = Self::to_nowhere().await;
        proxy.lead_to(target);
        proxy
    }

    /// An address for a server that is not there yet: nothing answers.
    pub async fn to_nowhere() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let (weather, watching) = watch::channel(Weather::default());
        let counts = Arc::new(Counts::default());
        let serving = tokio::spawn(serve(listener, watching, Arc::clone(&counts)));
        Self {
            addr,
            weather,
            counts,
            serving: serving.abort_handle(),
        }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn ws_url(&self) -> String {
        format!("ws://{}", self.addr)
    }

    /// From now on new connections go there.
    pub fn lead_to(&self, target: SocketAddr) {
        self.weather
            .send_modify(|weather| weather.target = Some(target));
    }

    /// Ends every connection; new ones are taken.
    pub fn cut(&self) {
        self.weather.send_modify(|weather| weather.epoch += 1);
    }

    /// Ends every connection and takes no new ones, until [`Proxy::mend`].
    pub fn part(&self) {
        self.weather.send_modify(|weather| {
            weather.epoch += 1;
            weather.refuses = true;
        });
    }

    pub fn mend(&self) {
        self.weather.send_modify(|weather| weather.refuses = false);
    }

    /// Nothing passes, and nobody is told.
    pub fn stall(&self) {
        self.weather.send_modify(|weather| weather.stalled = true);
    }

    pub fn resume(&self) {
        self.weather.send_modify(|weather| weather.stalled = false);
    }

    /// Every piece of data waits for so long before it goes on.
    pub fn delay(&self, delay: Duration) {
        self.weather.send_modify(|weather| weather.delay = delay);
    }

    /// Connections ever made to the server.
    pub fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::Relaxed)
    }

    pub fn bytes_to_server(&self) -> u64 {
        self.counts.to_server.load(Ordering::Relaxed)
    }

    pub fn bytes_from_server(&self) -> u64 {
        self.counts.from_server.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, weather: watch::Receiver<Weather>, counts: Arc<Counts>) {
    // Its tasks end with it.
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        let now = *weather.borrow();
        let Some(target) = now.target.filter(|_| !now.refuses) else {
            continue;
        };
        let (weather, counts) = (weather.clone(), Arc::clone(&counts));
        connections.spawn(async move {
            if let Ok(far) = TcpStream::connect(target).await {
                counts.connections.fetch_add(1, Ordering::Relaxed);
                carry(near, far, weather, &counts).await;
            }
        });
    }
}

async fn carry(
    near: TcpStream,
    far: TcpStream,
    mut weather: watch::Receiver<Weather>,
    counts: &Counts,
) {
    let epoch = weather.borrow().epoch;
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    let there = pump(near_in, far_out, weather.clone(), &counts.to_server);
    let back = pump(far_in, near_out, weather.clone(), &counts.from_server);
    tokio::select! {
        ((), ()) = async { tokio::join!(there, back) } => {}
        _ = weather.wait_for(|weather| weather.epoch != epoch) => {}
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut weather: watch::Receiver<Weather>,
    count: &AtomicU64,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let delay = match weather.wait_for(|weather| !weather.stalled).await {
            Ok(weather) => weather.delay,
            Err(_) => return,
        };
        if !delay.is_zero() {
            sleep(delay).await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
        count.fetch_add(read as u64, Ordering::Relaxed);
    }
    // Half of a connection may end before the other.
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(100);
    const DEADLINE: Duration = Duration::from_secs(10);

    /// Says everything again.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        addr
    }

    async fn ask(stream: &mut TcpStream, text: &[u8]) -> std::io::Result<Vec<u8>> {
        stream.write_all(text).await?;
        let mut answer = vec![0; text.len()];
        let read = timeout(DEADLINE, stream.read_exact(&mut answer));
        read.await.expect("an answer or an end")?;
        Ok(answer)
    }

    #[tokio::test]
    async fn bytes_are_counted_both_ways() {
        let proxy = Proxy::start(echo().await).await;
        let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
        assert_eq!(ask(&mut stream, b"hello").await.unwrap(), b"hello");
        assert_eq!(proxy.bytes_to_server(), 5);
        drop(stream);
        let mut again = TcpStream::connect(proxy.addr()).await.unwrap();
        ask(&mut again, b"you").await.unwrap();
        assert_eq!(proxy.bytes_to_server(), 8);
        assert_eq!(proxy.connections(), 2);
    }

    #[tokio::test]
    async fn a_cut_ends_what_is_open_and_a_parting_what_would_be() {
        let proxy = Proxy::start(echo().await).await;
        let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
        ask(&mut stream, b"a").await.unwrap();
        proxy.cut();
        assert_eq!(
            timeout(DEADLINE, stream.read_u8()).await.unwrap().ok(),
            None
        );
        let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
        ask(&mut stream, b"b").await.unwrap();
        proxy.part();
        let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
        assert!(ask(&mut stream, b"c").await.is_err());
        proxy.mend();
        let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
        ask(&mut stream, b"d").await.unwrap();
    }

    #[tokio::test]
    async fn a_stalled_line_gives_everything_when_it_goes_on() {
        let proxy = Proxy::start(echo().await).await;
        let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
        ask(&mut stream, b"a").await.unwrap();
        proxy.stall();
        assert!(timeout(SOON, ask(&mut stream, b"b")).await.is_err());
        proxy.resume();
        let byte = timeout(DEADLINE, stream.read_u8()).await.unwrap();
        assert_eq!(byte.unwrap(), b'b');
        proxy.delay(SOON);
        let asked = tokio::time::Instant::now();
        ask(&mut stream, b"c").await.unwrap();
        assert!(asked.elapsed() >= SOON * 2, "there and back");
    }
}
