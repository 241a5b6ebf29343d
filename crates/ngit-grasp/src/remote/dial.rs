//! From a checked address to an open websocket: TCP, TLS where the URL asks for it, the upgrade.
//! Nothing is compressed, no redirect is followed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use grasp_core::sync::io::End;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
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

/// An event of 256 KiB in whatever spelling, or a NEG-MSG of half a megabyte in hex.
pub const MAX_MESSAGE: usize = 1024 * 1024;
/// The default is 128 KiB for each idle connection.
const BUFFER: usize = 8 * 1024;

/// Bytes to and from another machine, encrypted or not.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

pub type Socket = WebSocketStream<Box<dyn Wire>>;

/// Opens connections to addresses that the guard let through.
#[derive(Clone)]
pub struct Dialer {
    tls: Arc<ClientConfig>,
}

impl Dialer {
    /// Trusts the authorities that browsers trust.
    pub fn new() -> Result<Self, rustls::Error> {
        Self::trusting(RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        })
    }

    pub fn trusting(roots: RootCertStore) -> Result<Self, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls: Arc::new(tls) })
    }

    /// One address after the other, until one answers.
    pub async fn connect(
        &self,
        target: &Target,
        addresses: &[SocketAddr],
    ) -> Result<(Box<dyn Wire>, SocketAddr), End> {
        let mut end = End::NoSuchHost;
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok((self.wire(target, stream).await?, *address)),
                Err(error) => end = of_io(&error),
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

    /// A websocket at one of these addresses, and at which.
    pub async fn websocket(
        &self,
        url: &str,
        target: &Target,
        addresses: &[SocketAddr],
    ) -> Result<(Socket, SocketAddr), End> {
        let mut request = url.into_client_request().map_err(|_| End::Failed)?;
        let agent = HeaderValue::from_static(super::USER_AGENT);
        request.headers_mut().insert(header::USER_AGENT, agent);
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER)
            .write_buffer_size(BUFFER)
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let (wire, address) = self.connect(target, addresses).await?;
        let opened = tokio_tungstenite::client_async_with_config(request, wire, Some(config)).await;
        match opened {
            Ok((socket, _)) => Ok((socket, address)),
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
    use std::time::Duration;

    use rustls::ServerConfig;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio::net::TcpListener;
    use tokio::time::timeout;
    use tokio_rustls::TlsAcceptor;

    use super::*;

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
        let opened = timeout(Duration::from_secs(20), opened).await.unwrap();
        opened.map(|(_, address)| address)
    }

    #[tokio::test]
    async fn a_certificate_must_be_of_that_host_and_of_somebody_whom_we_trust() {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(AUTHORITY.as_bytes()).unwrap();
        roots.add(authority).unwrap();
        let trusting = Dialer::trusting(roots).unwrap();
        assert!(dialled(&trusting, "localhost").await.is_ok());
        assert_eq!(dialled(&trusting, "relay.example").await, Err(End::Tls));
        let usual = Dialer::new().unwrap();
        assert_eq!(dialled(&usual, "localhost").await, Err(End::Tls));
    }
}
