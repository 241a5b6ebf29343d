//! From a checked address to an open websocket: TCP, TLS where the URL asks for it, the upgrade.
//! Nothing is compressed, no redirect is followed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use grasp_core::sync::io::End;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::{HeaderValue, header};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, error::CapacityError};

use super::guard::Target;
use super::oversize::{Skipped, WithoutOversize};

/// An event of 256 KiB in whatever spelling, or a NEG-MSG of half a megabyte in hex.
pub const MAX_MESSAGE: usize = 1024 * 1024;
/// The default is 128 KiB for each idle connection.
const BUFFER: usize = 8 * 1024;

/// Bytes to and from another machine, encrypted or not.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

pub type Socket = WebSocketStream<WithoutOversize<Box<dyn Wire>>>;

/// Opens connections to addresses that the guard let through.
#[derive(Clone)]
pub struct Dialer {
    tls: Arc<ClientConfig>,
    patience: Duration,
}

impl Dialer {
    /// Trusts the authorities that browsers trust. `patience` is for all addresses of a name
    /// together.
    pub fn new(patience: Duration) -> Result<Self, rustls::Error> {
        let roots = webpki_roots::TLS_SERVER_ROOTS.to_vec();
        Self::trusting(RootCertStore { roots }, patience)
    }

    pub fn trusting(roots: RootCertStore, patience: Duration) -> Result<Self, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tls = Arc::new(tls);
        Ok(Self { tls, patience })
    }

    /// One address after the other, until one answers. Each has its share of the time, and one is
    /// left for what comes after: a name may have addresses that cannot be reached from here.
    pub async fn connect(
        &self,
        target: &Target,
        addresses: &[SocketAddr],
    ) -> Result<(Box<dyn Wire>, SocketAddr), End> {
        let mut end = End::NoSuchHost;
        let shares = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let share = self.patience / shares.saturating_add(1);
        for address in addresses {
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok((self.wire(target, stream).await?, *address)),
                Ok(Err(error)) => end = of_io(&error),
                Err(_) => end = End::TimedOut,
            }
        }
        Err(end)
    }

    async fn wire(&self, target: &Target, stream: TcpStream) -> Result<Box<dyn Wire>, End> {
        // Requests are small and somebody waits for them.
        let _ = stream.set_nodelay(true);
        if !target.tls {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(target.host.clone()).map_err(|_| End::Tls)?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(name, stream).await;
        Ok(Box::new(stream.map_err(|_| End::Tls)?))
    }

    /// A websocket at one of these addresses, and at which. Messages above [`MAX_MESSAGE`] are left
    /// out.
    pub async fn websocket(
        &self,
        url: &str,
        target: &Target,
        addresses: &[SocketAddr],
    ) -> Result<(Socket, Skipped, SocketAddr), End> {
        let mut request = url.into_client_request().map_err(|_| End::Failed)?;
        let agent = HeaderValue::from_static(super::USER_AGENT);
        request.headers_mut().insert(header::USER_AGENT, agent);
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER)
            .write_buffer_size(BUFFER)
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let (wire, address) = self.connect(target, addresses).await?;
        let (wire, skipped) = WithoutOversize::new(wire, MAX_MESSAGE);
        let opened = tokio_tungstenite::client_async_with_config(request, wire, Some(config)).await;
        match opened {
            Ok((socket, _)) => Ok((socket, skipped, address)),
            Err(error) => Err(of_websocket(&error)),
        }
    }
}

fn of_io(error: &io::Error) -> End {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::ConnectionRefused => End::Refused,
        Kind::TimedOut => End::TimedOut,
        Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::BrokenPipe
        | Kind::UnexpectedEof
        | Kind::NotConnected => End::Closed,
        _ => End::Failed,
    }
}

pub fn of_websocket(error: &tungstenite::Error) -> End {
    use tungstenite::Error;
    match error {
        Error::Http(response) => End::Http(response.status().as_u16()),
        Error::Io(error) => of_io(error),
        Error::Capacity(CapacityError::MessageTooLong { .. }) => End::TooLarge,
        Error::ConnectionClosed | Error::AlreadyClosed => End::Closed,
        Error::Protocol(
            tungstenite::error::ProtocolError::ResetWithoutClosingHandshake
            | tungstenite::error::ProtocolError::HandshakeIncomplete,
        ) => End::Closed,
        _ => End::Failed,
    }
}

#[cfg(test)]
mod tests {
    use rustls::ServerConfig;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio::net::{TcpListener, TcpSocket};
    use tokio_rustls::TlsAcceptor;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);
    /// Everybody knows this key: it is worth nothing outside of this test.
    const KEY: &str = include_str!("testdata/localhost.key.pem");
    const CERTIFICATE: &str = include_str!("testdata/localhost.pem");
    const AUTHORITY: &str = include_str!("testdata/authority.pem");

    /// A websocket server of that certificate; it answers one connection.
    async fn server() -> SocketAddr {
        let chain = vec![CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = TlsAcceptor::from(Arc::new(config));
            if let Ok(stream) = acceptor.accept(stream).await {
                let _socket = tokio_tungstenite::accept_async(stream).await;
            }
        });
        address
    }

    async fn dialled(dialer: &Dialer, host: &str) -> Result<SocketAddr, End> {
        let address = server().await;
        let url = format!("wss://{host}:{}", address.port());
        let target = Target::parse(&url).unwrap();
        let addresses = [address];
        let opened = dialer.websocket(&url, &target, &addresses);
        let opened = timeout(PATIENCE, opened).await.unwrap();
        opened.map(|(_, _, address)| address)
    }

    #[tokio::test]
    async fn a_certificate_must_be_of_that_host_and_of_somebody_whom_we_trust() {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(AUTHORITY.as_bytes()).unwrap();
        roots.add(authority).unwrap();
        let trusting = Dialer::trusting(roots, PATIENCE).unwrap();
        assert!(dialled(&trusting, "localhost").await.is_ok());
        assert_eq!(dialled(&trusting, "relay.example").await, Err(End::Tls));
        let usual = Dialer::new(PATIENCE).unwrap();
        assert_eq!(dialled(&usual, "localhost").await, Err(End::Tls));
    }

    /// Nobody takes connections here, and there is room for no more that wait.
    async fn black_hole() -> (SocketAddr, TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        let briefly = Duration::from_millis(300);
        while let Ok(stream) = timeout(briefly, TcpStream::connect(address)).await {
            waiting.push(stream.unwrap());
        }
        (address, listener, waiting)
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        let (hole, _listener, _waiting) = black_hole().await;
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let good = (good.local_addr().unwrap(), good);
        let target = Target::parse("ws://relay.example").unwrap();
        let dialer = Dialer::new(Duration::from_secs(2)).unwrap();
        let connected = dialer.connect(&target, &[hole, good.0]).await;
        assert_eq!(connected.map(|(_, address)| address), Ok(good.0));
        let connected = dialer.connect(&target, &[hole]).await;
        assert_eq!(connected.map(|(_, address)| address), Err(End::TimedOut));
    }
}
