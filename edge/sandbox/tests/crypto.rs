//! The host functions `hmac`, `hkdf`, `aead_open` and `aes_block`: the examples of the standards, and hostile requests.

use crate::support::*;
use weir_abi::crypto::{CryptoRequest, aead, aes, hkdf, hmac};
use weir_abi::host::HostFunction;
use weir_abi::{ARENA_BASE, DESCRIPTORS_BASE, code};
use weir_admission::{Admitted, Tier};
use weir_sandbox::{BatchInput, CheckMode, During, Engine, EngineOptions, FaultKind, Instance};
use weir_session::Records;

const REQUEST: u32 = 1024;
const KEY: u32 = 2048;
const NONCE: u32 = 2560;
const AAD: u32 = 3072;
const INPUT: u32 = 8192;
const OUTPUT: u32 = 16_384;
const MEMORY: u32 = 65_536;

fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// A call, with the bytes that are in the module's memory before it.
#[derive(Clone)]
struct CipherCall {
    function: HostFunction,
    request: CryptoRequest,
    memory: Vec<(u32, Vec<u8>)>,
    /// The bytes that the call is charged for.
    len: u32,
}

impl CipherCall {
    fn new(function: HostFunction, algorithm: u32, key: &[u8], input: &[u8], output_len: u32) -> Self {
        let [key_len, input_len] = [key, input].map(|bytes| u32::try_from(bytes.len()).unwrap());
        let request = CryptoRequest {
            algorithm,
            key: KEY,
            key_len,
            input: INPUT,
            input_len,
            output: OUTPUT,
            output_len,
            ..CryptoRequest::default()
        };
        let memory = vec![(KEY, key.to_vec()), (INPUT, input.to_vec())];
        let len = match (function, algorithm) {
            (HostFunction::Hkdf, hkdf::EXPAND_SHA256) => hkdf::expanded(input_len, output_len),
            _ => key_len + input_len,
        };
        Self { function, request, memory, len }
    }

    fn open(key: &[u8], nonce: &[u8], aad: &[u8], input: &[u8]) -> Self {
        let output_len = u32::try_from(input.len().saturating_sub(16)).unwrap();
        let mut call = Self::new(HostFunction::AeadOpen, aead::AES128_GCM, key, input, output_len);
        let [nonce_len, aad_len] = [nonce, aad].map(|bytes| u32::try_from(bytes.len()).unwrap());
        call.request = CryptoRequest { nonce: NONCE, nonce_len, aad: AAD, aad_len, ..call.request };
        call.memory.extend([(NONCE, nonce.to_vec()), (AAD, aad.to_vec())]);
        call.len = aad_len + call.request.input_len;
        call
    }

    fn changed(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut call = self.clone();
        change(&mut call);
        call
    }

    /// A packet function that makes the call, emits its answer, and then the bytes of the output and one more.
    fn module(&self) -> String {
        let r = self.request;
        let words = [
            r.algorithm,
            r.key_kind,
            r.key,
            r.key_len,
            r.nonce,
            r.nonce_len,
            r.aad,
            r.aad_len,
            r.input,
            r.input_len,
            r.output,
            r.output_len,
        ];
        let words = (REQUEST, words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>());
        let data: String = std::iter::once(&words)
            .chain(&self.memory)
            .map(|(at, bytes)| {
                let text: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
                format!("(data (i32.const {at}) \"{text}\")\n")
            })
            .collect();
        let (name, (shown, len)) = (self.function.name(), (self.request.output.min(MEMORY), self.shown()));
        let arguments = match self.function {
            HostFunction::AesBlock => format!("(i32.const {REQUEST})"),
            _ => format!("(i32.const {REQUEST}) (i32.const {})", self.len.cast_signed()),
        };
        format!(
            r#"{data}(func (export "weir_packet") (param $d i32) (result i32)
                (i64.store (i32.const 64) (i64.extend_i32_s (call ${name} {arguments})))
                (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
                (i32.store (i32.const 80) (i32.const {shown})) (i32.store (i32.const 84) (i32.const {len}))
                (drop (call $emit (i32.const 1) (i32.const 80) (i32.const 8)))
                (i32.const 0))"#
        )
    }

    /// The number of bytes from the output on that the module shows.
    fn shown(&self) -> u32 {
        (self.request.output_len.saturating_add(1)).min(2048).min(MEMORY.saturating_sub(self.request.output))
    }

    fn ran(&self, engine: &Engine) -> Instance {
        let mut instance = started(engine, &self.module());
        instance.run(BatchInput { mask: 1, ..all() });
        instance
    }

    /// The answer, and the bytes at the output after the call.
    fn answer(&self, engine: &Engine) -> (i64, Vec<u8>) {
        let mut instance = self.ran(engine);
        assert!(instance.incidents().is_empty(), "{:?}: {:?}", self.request, instance.incidents());
        let records = instance.take_records(Records::default());
        let mut records = records.iter();
        let code = i64::from_le_bytes(records.next().unwrap().row.try_into().unwrap());
        (code, records.next().unwrap().tail.to_vec())
    }

    /// The call gives `wanted`, and writes nothing behind it.
    fn gives(&self, engine: &Engine, wanted: &[u8]) {
        let (code, shown) = self.answer(engine);
        assert_eq!((code, &shown[..wanted.len()]), (i64::try_from(wanted.len()).unwrap(), wanted));
        if self.request.output == OUTPUT {
            assert_eq!(shown.get(wanted.len()), Some(&0));
        }
    }

    /// The call is refused with this code, and writes nothing.
    fn is_refused(&self, engine: &Engine, wanted: i32) {
        let (code, shown) = self.answer(engine);
        assert_eq!(code, i64::from(wanted), "{:?}, {}", self.request, self.len);
        if self.request.output == OUTPUT {
            assert!(shown.iter().all(|byte| *byte == 0), "{:?}: {shown:02x?}", self.request);
        }
    }

    /// The call is a fault of its packet.
    fn is_fault(&self, engine: &Engine) {
        let mut instance = self.ran(engine);
        let incident = instance.incidents().first().unwrap_or_else(|| panic!("{:?}", self.request));
        let kind = FaultKind::WildPointer { function: self.function.name() };
        assert_eq!((incident.fault.kind, incident.during), (kind, During::Packet(0)), "{:?}", self.request);
        assert_eq!(instance.take_records(Records::default()).len(), 0);
    }
}

fn hmac_of(key: &[u8], bytes: &[u8]) -> CipherCall {
    CipherCall::new(HostFunction::Hmac, hmac::SHA256, key, bytes, 32)
}

fn extracted(salt: &[u8], material: &[u8]) -> CipherCall {
    CipherCall::new(HostFunction::Hkdf, hkdf::EXTRACT_SHA256, material, salt, 32)
}

fn expanded(key: &[u8], information: &[u8], len: u32) -> CipherCall {
    CipherCall::new(HostFunction::Hkdf, hkdf::EXPAND_SHA256, key, information, len)
}

fn encrypted(key: &[u8], block: &[u8]) -> CipherCall {
    CipherCall::new(HostFunction::AesBlock, aes::AES128, key, block, 16)
}

#[test]
fn hmac_gives_the_values_of_rfc_4231() {
    let engine = engine();
    let long = b"This is a test using a larger than block-size key and a larger than block-size data. \
        The key needs to be hashed before being used by the HMAC algorithm.";
    let counted: Vec<u8> = (1..=25).collect();
    let cases: [(&[u8], &[u8], &str); 6] = [
        (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
        (
            b"Jefe",
            b"what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
        (&[0xaa; 20], &[0xdd; 50], "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
        (&counted, &[0xcd; 50], "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"),
        (
            &[0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        ),
        (&[0xaa; 131], long, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"),
    ];
    for (key, bytes, wanted) in cases {
        hmac_of(key, bytes).gives(&engine, &unhex(wanted));
    }
}

#[test]
fn hkdf_gives_the_values_of_rfc_5869() {
    let engine = engine();
    let from = |first: u8, count: u8| -> Vec<u8> { (0..count).map(|i| first + i).collect() };
    for (salt, material, information, key, wanted) in [
        (
            from(0, 13),
            vec![0x0b; 22],
            from(0xf0, 10),
            "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        ),
        (
            from(0x60, 80),
            from(0, 80),
            from(0xb0, 80),
            "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244",
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09\
             da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
        ),
        (
            Vec::new(),
            vec![0x0b; 22],
            Vec::new(),
            "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04",
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
        ),
    ] {
        let (key, wanted) = (unhex(key), unhex(wanted));
        extracted(&salt, &material).gives(&engine, &key);
        expanded(&key, &information, u32::try_from(wanted.len()).unwrap()).gives(&engine, &wanted);
    }
}

/// The cases 1 to 4 of the GCM specification that NIST SP 800-38D refers to: key, nonce, associated data, ciphertext with
/// its tag, plaintext.
fn gcm_examples() -> [[Vec<u8>; 5]; 4] {
    let (key, nonce) = ("feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888");
    let cipher = "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
        21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091";
    let plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
        1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39";
    let (cipher_end, plain_end) =
        (format!("{cipher}473f59854d5c2af327cd64a62cf35abd2ba6fab4"), format!("{plain}1aafd255"));
    let cipher_aad = format!("{cipher}5bc94fbc3221a5db94fae95ae7121a47");
    [
        [&"0".repeat(32), &"0".repeat(24), "", "58e2fccefa7e3061367f1d57a4e7455a", ""].map(unhex),
        [
            &"0".repeat(32),
            &"0".repeat(24),
            "",
            "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf",
            &"0".repeat(32),
        ]
        .map(unhex),
        [key, nonce, "", &cipher_end, &plain_end].map(unhex),
        [key, nonce, "feedfacedeadbeeffeedfacedeadbeefabaddad2", &cipher_aad, plain].map(unhex),
    ]
}

#[test]
fn aead_open_gives_the_plaintext_of_the_gcm_examples() {
    let engine = engine();
    for [key, nonce, aad, cipher, plain] in gcm_examples() {
        let call = CipherCall::open(&key, &nonce, &aad, &cipher);
        call.gives(&engine, &plain);
        // Over the ciphertext itself, and overlapping it at both sides.
        for output in [INPUT, INPUT - 7, INPUT + 7] {
            call.changed(|call| call.request.output = output).gives(&engine, &plain);
        }
    }
}

#[test]
fn a_changed_bit_anywhere_is_forged_and_writes_nothing() {
    let engine = engine();
    let [key, nonce, aad, cipher, plain] = gcm_examples().into_iter().last().unwrap();
    let whole = CipherCall::open(&key, &nonce, &aad, &cipher);
    let lens = [key.len(), cipher.len(), nonce.len(), aad.len()];
    for (part, len) in lens.into_iter().enumerate() {
        // Each bit of the tag, and one of each byte of the rest.
        for bit in 0..len * 8 {
            if bit % 8 != 3 && !(part == 1 && bit / 8 >= plain.len()) {
                continue;
            }
            whole
                .changed(|call| call.memory[part].1[bit / 8] ^= 1 << (bit % 8))
                .is_refused(&engine, code::FORGED);
        }
    }
    // A tag that is cut, one with a byte more, and no associated data.
    for shorter in [1, 15, 16] {
        let cut = CipherCall::open(&key, &nonce, &aad, &cipher[..cipher.len() - shorter]);
        cut.is_refused(&engine, code::FORGED);
    }
    CipherCall::open(&key, &nonce, &aad, &[&cipher[..], &[0]].concat()).is_refused(&engine, code::FORGED);
    CipherCall::open(&key, &nonce, &[], &cipher).is_refused(&engine, code::FORGED);
    // The bytes at the output stay those of before, also where they are the ciphertext.
    let over = whole.changed(|call| {
        call.request.output = INPUT;
        call.memory[3].1[0] ^= 1;
    });
    let (code, shown) = over.answer(&engine);
    assert_eq!((code, &shown[..]), (i64::from(code::FORGED), &cipher[..=plain.len()]));
}

/// The client's Initial packet of RFC 9001, A.2, without its padding: a CRYPTO frame with a ClientHello.
const CLIENT_HELLO: &str = "060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c\
    00000413011302010000c000000010000e00000b6578616d706c652e636f6dff01000100000a00080006001d0017001800100007000504616c\
    706e000500050100000000003300260024001d00209370b2c9caa47fbabaf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b0003\
    020304000d0010000e0403050306030203080408050806002d00020101001c00024001003900320408ffffffffffffffff05048000ffff0704\
    8000ffff0801100104800075300901100f088394c8f03e51570806048000ffff";

#[test]
fn the_functions_together_open_the_packets_of_rfc_9001_in_every_tier() {
    for tier in Tier::ALL {
        let options = EngineOptions { check_mode: CheckMode::As(*tier), ..options() };
        opens_the_packets_of_rfc_9001(&Engine::new(options, None).unwrap());
    }
}

fn opens_the_packets_of_rfc_9001(engine: &Engine) {
    let label = |label: &str, len: u16| -> Vec<u8> {
        let label = format!("tls13 {label}");
        let head = [len.to_be_bytes().as_slice(), &[u8::try_from(label.len()).unwrap()]].concat();
        [head.as_slice(), label.as_bytes(), &[0]].concat()
    };
    let initial = unhex("7db5df06e7a69e432496adedb00851923595221596ae2ae9fb8115c1e9ed0a44");
    let salt = unhex("38762cf7f55934b34d179ae6a4c80cadccbb7f0a");
    extracted(&salt, &unhex("8394c8f03e515708")).gives(engine, &initial);
    let mut sides = Vec::new();
    for (side, secret, key, iv, hp) in [
        (
            "client in",
            "c00cf151ca5be075ed0ebfb5c80323c42d6b7db67881289af4008f1f6c357aea",
            "1f369613dd76d5467730efcbe3b1a22d",
            "fa044b2f42a3fd3b46fb255c",
            "9f50449e04a0e810283a1e9933adedd2",
        ),
        (
            "server in",
            "3c199828fd139efd216c155ad844cc81fb82fa8d7446fa7d78be803acdda951b",
            "cf3a5331653c364c88f0f379b6067e37",
            "0ac1493ca1905853b0bba03e",
            "c206b8d9b9f0f37644430b490eeaa314",
        ),
    ] {
        let [secret, key, iv, hp] = [secret, key, iv, hp].map(unhex);
        expanded(&initial, &label(side, 32), 32).gives(engine, &secret);
        expanded(&secret, &label("quic key", 16), 16).gives(engine, &key);
        expanded(&secret, &label("quic iv", 12), 12).gives(engine, &iv);
        expanded(&secret, &label("quic hp", 16), 16).gives(engine, &hp);
        sides.push((key, iv, hp));
    }
    let nonce = |iv: &[u8], number: u8| {
        let mut nonce = iv.to_vec();
        *nonce.last_mut().unwrap() ^= number;
        nonce
    };
    // A.2: the sealed packet begins and ends as printed there.
    let (key, iv, hp) = &sides[0];
    let header = unhex("c300000001088394c8f03e5157080000449e00000002");
    let mut plain = unhex(CLIENT_HELLO);
    plain.resize(1162, 0);
    let mut sealed = plain.clone();
    let sealing = ring::aead::UnboundKey::new(&ring::aead::AES_128_GCM, key).unwrap();
    ring::aead::LessSafeKey::new(sealing)
        .seal_in_place_append_tag(
            ring::aead::Nonce::try_assume_unique_for_key(&nonce(iv, 2)).unwrap(),
            ring::aead::Aad::from(&header),
            &mut sealed,
        )
        .unwrap();
    assert_eq!(sealed[..16], unhex("d1b1c98dd7689fb8ec11d242b123dc9b"));
    assert_eq!(sealed[1162..], unhex("e221af44860018ab0856972e194cd934"));
    let mask = unhex("437b9aec36be423400cdd115d9db3241");
    encrypted(hp, &sealed[..16]).gives(engine, &mask);
    assert_eq!([header[0] ^ mask[0] & 0x0f, mask[4] ^ header[21]], [0xc0, 0x34]);
    CipherCall::open(key, &nonce(iv, 2), &header, &sealed).gives(engine, &plain);
    // A.3: the server's packet, whole.
    let (key, iv, hp) = &sides[1];
    let packet = unhex(
        "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a5816b6394100f37a1c69797554780bb38cc5a99f5ede4c\
         f73c3ec2493a1839b3dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84022f8ef4cdd93795d77d06edbb7a\
         af2f58891850abbdca3d20398c276456cbc42158407dd074ee",
    );
    encrypted(hp, &packet[22..38]).gives(engine, &unhex("2ec0d8356af53be647a841efa6c1ee97"));
    let plain = unhex(
        "02000000000600405a020000560303eefce7f7b37ba1d1632e96677825ddf73988cfc79825df566dc5430b9a045a120013010000\
         2e00330024001d00209d3c940d89690b84d08a60993c144eca684d1081287c834d5311bcf32bb9da1a002b00020304",
    );
    let header = unhex("c1000000010008f067a5502a4262b50040750001");
    CipherCall::open(key, &nonce(iv, 1), &header, &packet[20..]).gives(engine, &plain);
}

/// One call of each function, all of which succeed.
fn valid_calls() -> [CipherCall; 5] {
    let [key, nonce, aad, cipher, _] = gcm_examples().into_iter().last().unwrap();
    [
        hmac_of(&key, b"bytes"),
        extracted(b"salt", b"material"),
        expanded(&[1; 32], b"information", 42),
        CipherCall::open(&key, &nonce, &aad, &cipher),
        encrypted(&key, &[7; 16]),
    ]
}

#[test]
fn requests_with_other_numbers_are_refused() {
    let engine = engine();
    for call in valid_calls() {
        assert!(call.answer(&engine).0 > 0);
        for algorithm in [0, 3, u32::MAX] {
            call.changed(|call| call.request.algorithm = algorithm).is_refused(&engine, code::UNKNOWN);
        }
        // A key that the module cannot read: no such kind exists yet. No address is looked at.
        for kind in [1, u32::MAX] {
            let unknown = call.changed(|call| {
                (call.request.key_kind, call.request.key, call.request.input) = (kind, u32::MAX, u32::MAX);
            });
            unknown.is_refused(&engine, code::UNKNOWN);
        }
    }
}

#[test]
fn requests_with_other_lengths_are_refused_before_addresses_are_checked() {
    let engine = engine();
    let [mac, extract, expand, open, block] = valid_calls();
    let refused = |call: &CipherCall, change: &dyn Fn(&mut CryptoRequest)| {
        let changed = call.changed(|call| {
            change(&mut call.request);
            call.request.key = u32::MAX;
            call.len = 65_536;
        });
        changed.is_refused(&engine, code::RANGE);
    };
    // Too little space for the output.
    for call in [&mac, &extract, &open, &block] {
        refused(call, &|request| request.output_len -= 1);
        refused(call, &|request| request.output_len = 0);
    }
    // Fields that the function does not use.
    for call in [&mac, &extract, &expand, &block] {
        refused(call, &|request| request.nonce_len = 12);
        refused(call, &|request| request.aad_len = 1);
    }
    for len in [0, 15, 17, 32, u32::MAX] {
        refused(&open, &|request| request.key_len = len);
        refused(&block, &|request| request.key_len = len);
        refused(&block, &|request| request.input_len = len);
        refused(&open, &|request| request.nonce_len = len);
    }
    refused(&open, &|request| request.input_len = 15);
    refused(&expand, &|request| request.key_len = 65);
    refused(&expand, &|request| request.output_len = hkdf::OUTPUT_BYTES + 1);
    refused(&expand, &|request| request.output_len = u32::MAX);
    // Lengths whose sum wraps around.
    for call in [&mac, &extract] {
        refused(call, &|request| (request.key_len, request.input_len) = (u32::MAX, 9));
    }
    refused(&open, &|request| request.aad_len = u32::MAX);
    refused(&expand, &|request| request.input_len = u32::MAX);
}

#[test]
fn a_call_is_charged_for_all_bytes_that_it_processes() {
    let engine = engine();
    let [mac, extract, expand, open, _] = valid_calls();
    for call in [mac, extract, expand, open] {
        call.changed(|call| call.len -= 1).is_refused(&engine, code::RANGE);
        call.changed(|call| call.len = 0).is_refused(&engine, code::RANGE);
        assert!(call.changed(|call| call.len = 65_536).answer(&engine).0 > 0);
        for len in [65_537, u32::MAX] {
            // Not even the request is read.
            let over = call.changed(|call| call.len = len);
            over.is_refused(&engine, code::RANGE);
        }
    }
    // The charge comes before the call: with one unit less than the price, the packet is lost.
    let body = at_packet(20, "(drop (call $hmac (i32.const -1) (i32.const 60000)))");
    let cost = weir_bounds::CostTable::standard().host(HostFunction::Hmac);
    let price = u64::from(cost.call) + 60_000 * u64::from(cost.per_byte);
    for (most, kind) in
        [(price - 1, FaultKind::Limit), (price + 1_000, FaultKind::WildPointer { function: "hmac" })]
    {
        let options = EngineOptions { check_mode: CheckMode::Exact(most), ..options() };
        let mut instance = started(&Engine::new(options, None).unwrap(), &body);
        instance.run(all());
        assert_eq!((instance.counters().lost, instance.incidents()[0].fault.kind), (1, kind));
    }
}

#[test]
fn the_longest_requests_work_and_longer_ones_do_not() {
    let engine = engine();
    // All of the memory as associated data, over which the request itself lies.
    let [key, nonce, _, cipher, _] = gcm_examples().into_iter().last().unwrap();
    let open = CipherCall::open(&key, &nonce, &[], &cipher);
    let len = u32::try_from(cipher.len()).unwrap();
    let most = open.changed(|call| {
        (call.request.aad, call.request.aad_len, call.len) = (0, MEMORY - len, MEMORY);
    });
    most.is_refused(&engine, code::FORGED);
    most.changed(|call| call.request.aad_len += 1).is_refused(&engine, code::RANGE);
    let whole = hmac_of(&[], &[]).changed(|call| {
        (call.request.input, call.request.input_len, call.len) = (0, MEMORY, MEMORY);
    });
    assert_eq!(whole.answer(&engine).0, 32);
    whole.changed(|call| call.request.key_len = 1).is_refused(&engine, code::RANGE);
    // Each step of 32 bytes processes the information again.
    assert_eq!(expanded(&[1; 32], &[], hkdf::OUTPUT_BYTES).answer(&engine).0, 8160);
    expanded(&[1; 32], &[0; 66], hkdf::OUTPUT_BYTES).is_refused(&engine, code::RANGE);
    assert_eq!(expanded(&[1; 32], b"x", 0).answer(&engine).0, 0);
}

#[test]
fn bytes_outside_the_module_are_a_fault() {
    let engine = engine();
    let packet = ARENA_BASE;
    for call in valid_calls() {
        // Outputs where a module cannot write: behind the memory, across its end, in the gap, a packet, a descriptor.
        for output in [MEMORY, MEMORY - 1, 0x2000_0000, packet, DESCRIPTORS_BASE, u32::MAX] {
            call.changed(|call| call.request.output = output).is_fault(&engine);
        }
        // Inputs across the end of the memory, between the areas, and behind the packets.
        for at in [MEMORY - 1, 0x2000_0000, packet + 8191, DESCRIPTORS_BASE - 1, u32::MAX] {
            call.changed(|call| call.request.input = at).is_fault(&engine);
            call.changed(|call| call.request.key = at).is_fault(&engine);
            if call.function == HostFunction::AeadOpen {
                call.changed(|call| call.request.nonce = at).is_fault(&engine);
                call.changed(|call| call.request.aad = at).is_fault(&engine);
            }
        }
        // The request itself.
        for at in [MEMORY - 47, 0x2000_0000, packet + 8145, u32::MAX] {
            let body = call.module().replace(
                &format!("(call ${} (i32.const {REQUEST})", call.function.name()),
                &format!("(call ${} (i32.const {})", call.function.name(), at.cast_signed()),
            );
            let mut instance = started(&engine, &body);
            instance.run(BatchInput { mask: 1, ..all() });
            let kind = FaultKind::WildPointer { function: call.function.name() };
            assert_eq!(instance.incidents()[0].fault.kind, kind);
        }
    }
    // The output is checked before the tag: a forged packet with a bad output is a fault, too.
    let [.., open, _] = valid_calls();
    let forged = open.changed(|call| {
        call.memory[0].1[0] ^= 1;
        call.request.output = packet;
    });
    forged.is_fault(&engine);
}

#[test]
fn bytes_are_read_in_packets_and_descriptors() {
    let engine = engine();
    // The key, the nonce and the associated data are in packets 5, 6 and 7, the ciphertext is in packet 8.
    let [key, nonce, aad, cipher, plain] = gcm_examples().into_iter().last().unwrap();
    let mut call = CipherCall::open(&key, &nonce, &aad, &cipher);
    call.memory.clear();
    let at = |packet: u32| ARENA_BASE + packet * 100;
    (call.request.key, call.request.nonce) = (at(5), at(6));
    (call.request.aad, call.request.input) = (at(7), at(8));
    let packets = Packets::of(
        |i| {
            let mut bytes = match i {
                5 => key.clone(),
                6 => nonce.clone(),
                7 => aad.clone(),
                8 => cipher.clone(),
                _ => Vec::new(),
            };
            bytes.resize(PACKET_BYTES, 0);
            bytes
        },
        |_, _| (),
    );
    for is_fixed in [false, true] {
        let admitted = Admitted::admit(bytes(&wat(&call.module()), MANIFEST), &[]).unwrap();
        let mut instance = Instance::start(&engine, &engine.load(admitted).unwrap()).unwrap();
        packets.map_as(&mut instance, is_fixed);
        instance.run(BatchInput { mask: 1 << 8, ..all() });
        let records = instance.take_records(Records::default());
        let shown = records.iter().nth(1).unwrap().tail.to_vec();
        assert_eq!(shown[..plain.len()], plain, "{:?}", instance.incidents());
    }
    let descriptor = hmac_of(&[], &[]).changed(|call| {
        (call.request.input, call.request.input_len, call.len) = (DESCRIPTORS_BASE, 128, 128);
    });
    assert_eq!(descriptor.answer(&engine).0, 32);
}
