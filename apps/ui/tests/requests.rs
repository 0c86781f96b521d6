//! The server of a node's page under damaged and foreign requests, with fixed seeds.

#![forbid(unsafe_code)]

mod exercise;

/// A generator with a fixed seed (xorshift).
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end.max(1) as u64).unwrap()
    }
}

const REQUESTS: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: 127.0.0.1:7380\r\n\r\n",
    "GET /app.js?x=1 HTTP/1.0\r\nHost: 127.0.0.1:7380\r\nOrigin: http://127.0.0.1:7380\r\n\r\n",
    "POST /api/open HTTP/1.1\r\nHost: 127.0.0.1:7380\r\nContent-Length: 15\r\n\r\n{\"token\":\"0123\"}",
    "POST /api/open HTTP/1.1\r\nHost: 127.0.0.1:7380\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"tok\r\n0\r\n\r\n",
    "GET /api/watch HTTP/1.1\r\nHost: 127.0.0.1:7380\r\nAuthorization: Bearer 00\r\n\r\n",
    "PUT /api/runs/1/capture HTTP/1.1\r\nHost: 127.0.0.1:7380\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    "GET /report/../../etc/passwd HTTP/1.1\r\nHost: rebound.example\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1:7380\r\n\r\n",
    "CONNECT 127.0.0.1:7380 HTTP/1.1\r\nHost: 127.0.0.1:7380\r\n\r\n",
];

#[test]
fn damaged_requests_are_refused_without_a_failure_of_the_server() {
    let mut random = Seeded(0x9e37_79b9_7f4a_7c15);
    for round in 0..4_000 {
        let mut bytes = REQUESTS[round % REQUESTS.len()].as_bytes().to_vec();
        for _ in 0..random.below(6) {
            if bytes.is_empty() {
                break;
            }
            let at = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[at] = u8::try_from(random.below(256)).unwrap(),
                1 => drop(bytes.drain(at..(at + random.below(20)).min(bytes.len()))),
                2 => {
                    let other = REQUESTS[random.below(REQUESTS.len())].as_bytes();
                    let from = random.below(other.len());
                    bytes.splice(at..at, other[from..].iter().copied().take(40));
                }
                _ => bytes.truncate(at.max(1)),
            }
        }
        exercise::exercise(&bytes);
    }
}
