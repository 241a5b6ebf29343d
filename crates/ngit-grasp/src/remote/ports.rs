//! Ports where no web server is. Whoever names one wants us to talk to a machine that takes our
//! lines for something else: a mail server, a printer. The list is that of browsers (WHATWG Fetch,
//! "port blocking").

const OF_OTHERS: [u16; 82] = [
    1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102,
    103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465,
    512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993,
    995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668,
    6669, 6679, 6697, 10080,
];

pub fn is_of_others(port: u16) -> bool {
    OF_OTHERS.binary_search(&port).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_shells_and_chats_are_not_talked_to_and_the_web_is() {
        assert!(OF_OTHERS.is_sorted());
        for port in [22, 25, 110, 143, 465, 587, 993, 995, 6667] {
            assert!(is_of_others(port), "{port}");
        }
        for port in [80, 443, 3000, 7334, 8080, 8443, 10_081, u16::MAX] {
            assert!(!is_of_others(port), "{port}");
        }
    }
}
