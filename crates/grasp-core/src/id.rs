//! Names of things: event ids, public keys, signatures. Bytes inside, strict lower-case hex
//! outside, so that one thing has one spelling.

/// Why a text is not the name it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("must be {expected} hex characters, not {found}")]
    Length { expected: usize, found: usize },
    #[error("must be lower-case hex")]
    NotLowerHex,
    #[error("must be an npub")]
    NotNpub,
}

/// A fixed number of bytes with one spelling.
macro_rules! hex_bytes {
    ($(#[$doc:meta])* $name:ident, $len:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $len]);

        impl $name {
            pub const LEN: usize = $len;

            pub fn from_hex(text: &str) -> Result<Self, $crate::id::IdError> {
                let mut bytes = [0; $len];
                $crate::id::decode_hex(text, &mut bytes)?;
                Ok(Self(bytes))
            }

            pub fn as_bytes(&self) -> &[u8; $len] {
                &self.0
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let mut text = [0; $len * 2];
                f.write_str($crate::id::encode_hex(&self.0, &mut text))
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut text = [0; $len * 2];
                serializer.serialize_str($crate::id::encode_hex(&self.0, &mut text))
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct HexVisitor;
                impl ::serde::de::Visitor<'_> for HexVisitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        write!(f, "{} lower-case hex characters", $len * 2)
                    }

                    fn visit_str<E: ::serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::from_hex(text)
                            .map_err(|_| E::invalid_value(::serde::de::Unexpected::Str(text), &self))
                    }
                }
                deserializer.deserialize_str(HexVisitor)
            }
        }
    };
}

pub(crate) use hex_bytes;

hex_bytes!(
    /// SHA-256 of an event's canonical serialisation.
    EventId,
    32
);
hex_bytes!(
    /// An x-only secp256k1 public key, not checked to be on the curve.
    Pubkey,
    32
);
hex_bytes!(
    /// A BIP-340 signature.
    Signature,
    64
);

const NPUB: bech32::Hrp = bech32::Hrp::parse_unchecked("npub");

impl Pubkey {
    pub fn npub(&self) -> String {
        // 4 + 1 + 52 + 6 characters: far below the length limit, the only error there is.
        bech32::encode::<bech32::Bech32>(NPUB, &self.0).unwrap_or_default()
    }

    pub fn from_npub(text: &str) -> Result<Self, IdError> {
        let checked = bech32::primitives::decode::CheckedHrpstring::new::<bech32::Bech32>(text)
            .map_err(|_| IdError::NotNpub)?;
        if checked.hrp() != NPUB || text.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(IdError::NotNpub);
        }
        let mut bytes = [0; 32];
        let mut data = checked.byte_iter();
        for byte in &mut bytes {
            *byte = data.next().ok_or(IdError::NotNpub)?;
        }
        match data.next() {
            None => Ok(Self(bytes)),
            Some(_) => Err(IdError::NotNpub),
        }
    }
}

pub(crate) fn decode_hex(text: &str, out: &mut [u8]) -> Result<(), IdError> {
    let text = text.as_bytes();
    if text.len() != out.len() * 2 {
        return Err(IdError::Length {
            expected: out.len() * 2,
            found: text.len(),
        });
    }
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = pair else {
            return Err(IdError::NotLowerHex);
        };
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    Ok(())
}

fn nibble(digit: u8) -> Result<u8, IdError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(IdError::NotLowerHex),
    }
}

pub(crate) fn encode_hex<'a>(bytes: &[u8], out: &'a mut [u8]) -> &'a str {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| DIGITS.get(usize::from(n)).copied().unwrap_or(b'0');
    for (pair, byte) in out.chunks_exact_mut(2).zip(bytes) {
        if let [high, low] = pair {
            *high = digit(byte >> 4);
            *low = digit(byte & 0xf);
        }
    }
    std::str::from_utf8(out).unwrap_or_default()
}

/// Rejects everything but lower-case hex, for variable lengths (negentropy frames).
pub fn hex_to_vec(text: &str) -> Result<Vec<u8>, IdError> {
    let mut bytes = vec![0; text.len() / 2];
    decode_hex(text, &mut bytes)?;
    Ok(bytes)
}

pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = vec![0; bytes.len() * 2];
    encode_hex(bytes, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_only() {
        let id = EventId([0xab; 32]);
        let text = id.to_string();
        assert_eq!(EventId::from_hex(&text), Ok(id));
        assert_eq!(
            EventId::from_hex(&text.to_uppercase()),
            Err(IdError::NotLowerHex)
        );
        assert_eq!(
            EventId::from_hex(&text[1..]),
            Err(IdError::Length {
                expected: 64,
                found: 63
            })
        );
        assert!(hex_to_vec("abc").is_err());
        assert_eq!(hex_to_vec("61ff").unwrap(), [0x61, 0xff]);
        assert_eq!(to_hex(&[0x61, 0xff]), "61ff");
    }

    #[test]
    fn npub_round_trip() {
        let key =
            Pubkey::from_hex("3bf0c63fcb93463407af97a5e5ee64fa883d107ef9e558472c4eb9aaaefa459d")
                .unwrap();
        let npub = "npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6";
        assert_eq!(key.npub(), npub);
        assert_eq!(Pubkey::from_npub(npub), Ok(key));
        assert!(Pubkey::from_npub(&npub.to_uppercase()).is_err());
        assert!(Pubkey::from_npub(&npub[..62]).is_err());
        assert!(Pubkey::from_npub("nsec1x").is_err());
    }
}
