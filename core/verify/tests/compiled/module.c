// Code in the form that weir's lowering gives to clang: every access to the module's memory is relative to GS, with a
// 32-bit offset. `make.sh` beside this file compiles it. The suffix `_stackN` tells the bytes of stack arguments.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef int i32;
typedef long i64;
typedef u32 u32x4 __attribute__((vector_size(16)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef u8 u8x16 __attribute__((vector_size(16)));

#define UNALIGNED(type) typedef type type##_at __attribute__((aligned(1)))
UNALIGNED(u8);
UNALIGNED(u16);
UNALIGNED(u32);
UNALIGNED(u64);
UNALIGNED(i32);
UNALIGNED(double);
UNALIGNED(u32x4);
UNALIGNED(f32x4);

#define GS __attribute__((address_space(256)))
#define AT(type, offset) (*(GS type##_at *)(u64)(u32)(offset))
#define GLOBAL(type, offset) (*(GS volatile type *)(i64)(-(offset)))
#define CHARGE(n)                              \
  do {                                         \
    GLOBAL(i64, 8) -= (n);                     \
    if (GLOBAL(i64, 8) < 0) __builtin_trap();  \
  } while (0)

u64 thunk0(u32, u32);
u32 thunk1_stack16(u32, u32, u32, u32, u32, u32, u32, u64);

static u32 be32(u32 at) { return __builtin_bswap32(AT(u32, at)); }
static u16 be16(u32 at) { return __builtin_bswap16(AT(u16, at)); }

u32 classify(u32 packet, u32 length) {
  CHARGE(20);
  if (length < 34) return 0;
  u32 kind = be16(packet + 12);
  if (kind == 0x8100) { packet += 4; kind = be16(packet + 12); }
  if (kind != 0x0800) return 1;
  u32 header = (AT(u8, packet + 14) & 15) * 4;
  u32 protocol = AT(u8, packet + 23);
  switch (protocol) {
    case 1: return 10;
    case 6: return 20 + be16(packet + 14 + header);
    case 17: return 30 + be16(packet + 14 + header + 2);
    case 47: return 40;
    default: return 2;
  }
}

__attribute__((noinline)) u32 hash(u32 at, u32 bytes) {
  u32 sum = 0x811c9dc5;
  for (u32 i = 0; i < bytes; i++) { CHARGE(3); sum = (sum ^ AT(u8, at + i)) * 16777619; }
  return sum;
}

// A table of 16-byte entries in the module's memory, with linear probing.
u32 count(u32 table, u32 mask, u32 key) {
  u32 slot = hash(key, 8) & mask;
  for (u32 probes = 0; probes <= mask; probes++) {
    CHARGE(8);
    u32 entry = table + slot * 16;
    u64 known = AT(u64, entry);
    if (known == AT(u64, key)) { AT(u64, entry + 8) += 1; return 1; }
    if (known == 0) { AT(u64, entry) = AT(u64, key); AT(u64, entry + 8) = 1; return 2; }
    slot = (slot + 1) & mask;
  }
  return 0;
}

u32 checksum(u32 at, u32 bytes) {
  u64 sum = 0;
  for (u32 i = 0; i + 2 <= bytes; i += 2) sum += be16(at + i);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}

void add_vectors(u32 to, u32 left, u32 right, u32 count) {
  for (u32 i = 0; i < count; i++) AT(u32, to + i * 4) = AT(u32, left + i * 4) + AT(u32, right + i * 4);
}

u32 simd(u32 at, u32 rounds) {
  u32x4 sum = {0, 0, 0, 0};
  u8x16 bytes = {0};
  for (u32 i = 0; i < rounds; i++) {
    CHARGE(10);
    u32x4 x = AT(u32x4, at + i * 16);
    sum += x * 2654435761u ^ (x >> 15);
    bytes = bytes + __builtin_shufflevector((u8x16)x, bytes, 3, 2, 1, 0, 7, 6, 5, 4, 16, 17, 18, 19, 15, 14, 13, 12);
  }
  u32x4 both = sum ^ (u32x4)bytes;
  return both[0] + both[1] * both[2] - both[3];
}

double mean(u32 at, u32 count) {
  double sum = 0, squares = 0;
  for (u32 i = 0; i < count; i++) {
    CHARGE(6);
    double x = AT(double, at + i * 8);
    sum += x;
    squares += x * x;
  }
  double n = count;
  return __builtin_sqrt(squares / n - (sum / n) * (sum / n)) + __builtin_floor(sum);
}

float convert(u32 at, i64 signed64, u64 unsigned64, float x) {
  f32x4 v = AT(f32x4, at);
  float y = (float)signed64 + (float)unsigned64 + v[2];
  u64 z = x > 0 ? (u64)x : 0;
  AT(u64, at + 16) = z;
  AT(i32, at + 24) = (i32)y;
  return __builtin_fabsf(y) < 1e9f ? __builtin_ceilf(y) : x;
}

u64 divide(u64 a, u64 b, u32 c, i32 d) {
  if (!b || !c || !d) __builtin_trap();
  if (d == -1) return 0;
  return a / b + a % b + (u32)a / c + (u64)((i32)a % d);
}

u64 bits(u64 x, u32 y, u32 at) {
  u64 r = __builtin_popcountl(x) + (x ? __builtin_ctzl(x) : 64) + (y ? __builtin_clz(y) : 32);
  r ^= (x << (y & 63)) | (x >> (-y & 63));
  r += __builtin_bswap64(x);
  AT(u8, at) = x == r;
  return r + ((i64)x >> 7) + (u64)((unsigned __int128)x * r >> 64);
}

static const u32 TABLE[64] = {
    1, 7, 3, 9, 2, 8, 5, 4, 11, 17, 13, 19, 12, 18, 15, 14, 21, 27, 23, 29, 22, 28, 25, 24, 31, 37, 33, 39, 32, 38, 35, 34,
    41, 47, 43, 49, 42, 48, 45, 44, 51, 57, 53, 59, 52, 58, 55, 54, 61, 67, 63, 69, 62, 68, 65, 64, 71, 77, 73, 79, 72, 78,
    75, 74};

u32 look_up(u32 at, u32 count) {
  u32 sum = 0;
  for (u32 i = 0; i < count; i++) sum += TABLE[AT(u8, at + i) & 63];
  return sum;
}

// Many live values, so that some are spilled across calls.
u64 spills(u32 a, u32 b, u32 c, u32 d, u32 e, u32 f) {
  u64 sum = 0;
  for (u32 i = 0; i < a; i++) {
    CHARGE(40);
    u32 g = AT(u32, b + i), h = AT(u32, c + i), k = AT(u32, d + i), l = AT(u32, e + i), m = AT(u32, f + i);
    u64 r = thunk0(g, h);
    AT(u32, b + i) = k + l;
    AT(u32, c + i) = m + (u32)r;
    sum += thunk1_stack16(g, h, k, l, m, i, a, r);
    sum += AT(u32, g + 4) ^ AT(u32, h + 8) ^ AT(u32, k + 12) ^ AT(u32, l) ^ AT(u32, m);
  }
  return sum;
}

__attribute__((noinline)) u32 many_stack24(u32 a, u32 b, u32 c, u32 d, u32 e, u32 f, u32 g, u32 h, u64 i) {
  return AT(u32, a + g) + AT(u32, b + h) * c - d * e + f + (u32)i;
}

u32 calls(u32 a, u32 b) {
  return many_stack24(a, b, a + 1, b + 1, a + 2, b + 2, a + 3, b + 3, a * (u64)b) + count(a, 255, b);
}

u32 recursive(u32 at, u32 depth) {
  CHARGE(5);
  if (depth == 0) return AT(u32, at);
  return recursive(AT(u32, at), depth - 1) * 31 + recursive(AT(u32, at + 4), depth - 1);
}

// A small array in the frame.
u32 histogram(u32 at, u32 bytes) {
  u32 counts[16] = {0};
  for (u32 i = 0; i < bytes; i++) counts[AT(u8, at + i) >> 4]++;
  u32 best = 0;
  for (u32 i = 1; i < 16; i++) best = counts[i] > counts[best] ? i : best;
  return best;
}

void sort(u32 at, u32 count) {
  for (u32 i = 1; i < count; i++) {
    u32 x = AT(u32, at + 4 * i), j = i;
    while (j > 0 && AT(u32, at + 4 * (j - 1)) > x) { CHARGE(4); AT(u32, at + 4 * j) = AT(u32, at + 4 * (j - 1)); j--; }
    AT(u32, at + 4 * j) = x;
  }
}

u32 find(u32 text, u32 length, u32 pattern, u32 size) {
  for (u32 i = 0; i + size <= length; i++) {
    u32 j = 0;
    while (j < size && AT(u8, text + i + j) == AT(u8, pattern + j)) j++;
    if (j == size) return i;
  }
  return 0xffffffff;
}

i64 dispatch(u32 op, i64 a, i64 b) {
  switch (op) {
    case 0: return a + b;
    case 1: return a - b;
    case 2: return a * b;
    case 3: return a & b;
    case 4: return a | b;
    case 5: return a ^ b;
    case 6: return a << (b & 63);
    case 7: return a >> (b & 63);
    case 8: return a < b;
    case 9: return (u64)a < (u64)b;
    default: __builtin_trap();
  }
}
