//! Packs made by hand, for tests that need what git would never write.

/// What a pack holds.
#[derive(Debug, Clone)]
pub enum Object {
    Blob(Vec<u8>),
    /// A delta that copies the object before it so many times.
    Repeat {
        times: u32,
    },
}

const BLOB: u8 = 3;
const OFS_DELTA: u8 = 6;
/// One copy takes at most so much, and so the base must be at least as long.
const COPIED: usize = 0xffff;

/// A whole pack with its checksum.
pub fn pack(objects: &[Object]) -> Vec<u8> {
    let mut out = beginning(objects.len() as u32);
    let mut previous = (0, 0);
    for object in objects {
        let start = out.len();
        let length = match object {
            Object::Blob(content) => {
                out.extend(blob(content));
                content.len()
            }
            Object::Repeat { times } => {
                let (base, base_length) = previous;
                let delta = repeat(base_length, *times);
                put_header(&mut out, OFS_DELTA, delta.len());
                put_offset(&mut out, start - base);
                out.extend(deflated(&delta));
                COPIED * *times as usize
            }
        };
        previous = (start, length);
    }
    let sum = sha1(&out);
    out.extend(sum);
    out
}

/// The header of a pack that says it has so many objects.
pub fn beginning(objects: u32) -> Vec<u8> {
    let mut out = b"PACK\0\0\0\x02".to_vec();
    out.extend(objects.to_be_bytes());
    out
}

/// One blob as it is in a pack.
pub fn blob(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_header(&mut out, BLOB, content.len());
    out.extend(deflated(content));
    out
}

fn repeat(base: usize, times: u32) -> Vec<u8> {
    assert!(base >= COPIED, "the base is too short");
    let mut delta = Vec::new();
    put_varint(&mut delta, base);
    put_varint(&mut delta, COPIED * times as usize);
    for _ in 0..times {
        // Copy, from offset zero, with two bytes of size.
        delta.extend([0b1011_0000, 0xff, 0xff]);
    }
    delta
}

fn put_header(out: &mut Vec<u8>, kind: u8, size: usize) {
    let mut left = size >> 4;
    let first = kind << 4 | (size & 0xf) as u8;
    out.push(first | if left > 0 { 0x80 } else { 0 });
    while left > 0 {
        let byte = (left & 0x7f) as u8;
        left >>= 7;
        out.push(byte | if left > 0 { 0x80 } else { 0 });
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// How far back the base is; each byte but the last counts one more than it says.
fn put_offset(out: &mut Vec<u8>, mut distance: usize) {
    let mut bytes = vec![(distance & 0x7f) as u8];
    distance >>= 7;
    while distance > 0 {
        distance -= 1;
        bytes.push(0x80 | (distance & 0x7f) as u8);
        distance >>= 7;
    }
    bytes.reverse();
    out.extend(bytes);
}

/// A zlib stream of stored blocks.
fn deflated(content: &[u8]) -> Vec<u8> {
    let mut out = vec![0x78, 0x01];
    let mut blocks = content.chunks(0xffff).peekable();
    if blocks.peek().is_none() {
        out.extend([1, 0, 0, 0xff, 0xff]);
    }
    while let Some(block) = blocks.next() {
        let length = block.len() as u16;
        out.push(u8::from(blocks.peek().is_none()));
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend(block);
    }
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in content {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    out.extend((b << 16 | a).to_be_bytes());
    out
}

fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut state = [
        0x6745_2301_u32,
        0xefcd_ab89,
        0x98ba_dcfe,
        0x1032_5476,
        0xc3d2_e1f0,
    ];
    let mut message = bytes.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    message.extend((bytes.len() as u64 * 8).to_be_bytes());
    for block in message.chunks_exact(64) {
        let mut words = [0_u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        for n in 16..80 {
            let mixed = words[n - 3] ^ words[n - 8] ^ words[n - 14] ^ words[n - 16];
            words[n] = mixed.rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (n, word) in words.iter().enumerate() {
            let (f, k) = match n {
                0..20 => (b & c | !b & d, 0x5a82_7999),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => (b & c | b & d | c & d, 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6_u32),
            };
            let next = a
                .rotate_left(5)
                .wrapping_add(f)
                .wrapping_add(e)
                .wrapping_add(k)
                .wrapping_add(*word);
            (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
        }
        for (sum, value) in state.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(value);
        }
    }
    let mut out = [0; 20];
    for (bytes, word) in out.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;
    use crate::git::{WorkTree, command};

    /// What git says of a pack.
    fn taken(tree: &WorkTree, pack: &[u8]) -> bool {
        let args = ["index-pack", "--stdin"];
        let mut child = command(tree.path(), &args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, pack).unwrap();
        drop(stdin);
        child.wait().unwrap().success()
    }

    #[test]
    fn git_reads_what_is_made_here() {
        let tree = WorkTree::new();
        let base = vec![7; COPIED];
        let made = pack(&[Object::Blob(base.clone()), Object::Repeat { times: 3 }]);
        assert!(taken(&tree, &made));
        std::fs::write(tree.path().join("x"), base.repeat(3)).unwrap();
        let id = tree.git(&["hash-object", "x"]).stdout;
        assert!(tree.try_git(&["cat-file", "-e", id.trim()]).ok);
        assert!(taken(&tree, &pack(&[])));
    }
}
