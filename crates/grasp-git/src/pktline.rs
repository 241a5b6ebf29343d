//! Pkt-lines: four hex digits of length, then that many bytes less four. Strict in what is read.

use bytes::{BufMut, Bytes, BytesMut};

/// The largest packet, its length included.
pub const MAX_PACKET: usize = 65_520;
const LEN: usize = 4;
const MAX_DATA: usize = MAX_PACKET - LEN;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    Flush,
    Delimiter,
    ResponseEnd,
    Data(&'a [u8]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    #[error("a packet's length is not four hex digits")]
    NotHex,
    #[error("a packet cannot be {0} bytes long")]
    Length(usize),
}

/// Who a side-band packet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Band {
    Data = 1,
    /// Shown to the person as `remote: ...`.
    Progress = 2,
    /// Shown, and the end of it all.
    Fatal = 3,
}

/// The first packet of a buffer and how many bytes it takes. None if more bytes are needed.
pub fn decode(buffer: &[u8]) -> Result<Option<(Packet<'_>, usize)>, PacketError> {
    let Some((digits, _)) = buffer.split_first_chunk::<LEN>() else {
        // Refused as early as it can be told.
        let hex = buffer.iter().all(u8::is_ascii_hexdigit);
        return if hex {
            Ok(None)
        } else {
            Err(PacketError::NotHex)
        };
    };
    let mut length = 0;
    for digit in digits {
        let value = char::from(*digit).to_digit(16).ok_or(PacketError::NotHex)?;
        length = length * 16 + value as usize;
    }
    match length {
        0 => Ok(Some((Packet::Flush, LEN))),
        1 => Ok(Some((Packet::Delimiter, LEN))),
        2 => Ok(Some((Packet::ResponseEnd, LEN))),
        3 | MAX_PACKET.. if length != MAX_PACKET => Err(PacketError::Length(length)),
        _ => Ok(buffer
            .get(LEN..length)
            .map(|data| (Packet::Data(data), length))),
    }
}

/// Writes one packet. What does not fit is cut off: lines made here are far shorter.
pub fn put(out: &mut BytesMut, data: &[u8]) {
    let data = data.get(..MAX_DATA).unwrap_or(data);
    put_length(out, data.len() + LEN);
    out.put_slice(data);
}

pub fn put_text(out: &mut BytesMut, text: &str) {
    put(out, text.as_bytes());
}

pub fn put_flush(out: &mut BytesMut) {
    out.put_slice(b"0000");
}

/// Writes any amount of bytes as side-band-64k packets.
pub fn put_band(out: &mut BytesMut, band: Band, data: &[u8]) {
    for part in data.chunks(MAX_DATA - 1) {
        put_length(out, part.len() + 1 + LEN);
        out.put_u8(band as u8);
        out.put_slice(part);
    }
}

/// An empty side-band packet: tells the client, and every proxy on the way, that we are alive.
pub fn keep_alive() -> Bytes {
    Bytes::from_static(b"0005\x01")
}

fn put_length(out: &mut BytesMut, length: usize) {
    for shift in [12, 8, 4, 0] {
        let digit = (length >> shift & 0xf) as u8;
        out.put_u8(if digit < 10 { b'0' } else { b'a' - 10 } + digit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn packets_are_read_strictly() {
        assert_eq!(decode(b"0000rest"), Ok(Some((Packet::Flush, 4))));
        assert_eq!(decode(b"0001"), Ok(Some((Packet::Delimiter, 4))));
        assert_eq!(decode(b"0002"), Ok(Some((Packet::ResponseEnd, 4))));
        assert_eq!(decode(b"0003"), Err(PacketError::Length(3)));
        assert_eq!(decode(b"0004x"), Ok(Some((Packet::Data(b""), 4))));
        assert_eq!(decode(b"0006ab"), Ok(Some((Packet::Data(b"ab"), 6))));
        assert_eq!(
            decode(b"000Aabcdefg"),
            Ok(Some((Packet::Data(b"abcdef"), 10)))
        );
        for part in [&b""[..], b"0", b"00", b"000", b"0006", b"0006a", b"fff0"] {
            assert_eq!(decode(part), Ok(None), "{part:?}");
        }
        assert_eq!(decode(b"fff1"), Err(PacketError::Length(0xfff1)));
        for bad in [
            &b"x"[..],
            b"00 6",
            b"+006",
            b"-001",
            b"PACK",
            b"\x00\x00\x00\x00",
        ] {
            assert_eq!(decode(bad), Err(PacketError::NotHex), "{bad:?}");
        }
    }

    #[test]
    fn the_largest_packet_goes_through() {
        let mut out = BytesMut::new();
        put(&mut out, &vec![b'x'; 70_000]);
        assert_eq!(out.len(), MAX_PACKET);
        let (packet, taken) = decode(&out).unwrap().unwrap();
        assert_eq!(taken, MAX_PACKET);
        assert_eq!(packet, Packet::Data(&vec![b'x'; MAX_DATA]));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(data in proptest::collection::vec(any::<u8>(), 0..2_000)) {
            let mut out = BytesMut::new();
            put(&mut out, &data);
            prop_assert_eq!(decode(&out), Ok(Some((Packet::Data(&data), data.len() + 4))));
        }

        #[test]
        fn no_bytes_make_it_panic(data in proptest::collection::vec(any::<u8>(), 0..20)) {
            let _ = decode(&data);
        }

        #[test]
        fn side_band_gives_back_what_went_in(data in proptest::collection::vec(any::<u8>(), 0..200_000)) {
            let mut out = BytesMut::new();
            put_band(&mut out, Band::Data, &data);
            let mut rest = &out[..];
            let mut back = Vec::new();
            while let Some((Packet::Data(part), taken)) = decode(rest).unwrap() {
                prop_assert_eq!(part[0], 1);
                back.extend_from_slice(&part[1..]);
                rest = &rest[taken..];
            }
            prop_assert_eq!(back, data);
        }
    }
}
