/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The environment of a natively built module in the benchmark: the functions weir_host_*, which forward to the program that loads the
 * shared object, and the loop over a batch that the sandbox's loader adds to a sandboxed module.
 *
 *   -DLAB_MODULE='"FILE"'  compiles the module together with this file, so that the compiler can inline it into the loop
 *   -DLAB_NAIVE_FIND       implements weir_find by a byte loop instead of the program's search library
 */
#ifdef LAB_MODULE
#include LAB_MODULE
#endif
#include "weir.h"

struct lab_host {
    void *context;
    uint8_t *base;
    int32_t (*emit)(void *, uint32_t stream, const void *row, uint32_t len);
    int32_t (*patch)(void *, const struct weir_packet *p, uint32_t offset, const void *bytes, uint32_t len);
    int32_t (*find_compile)(void *, const void *list, uint32_t len, uint32_t flags);
    int64_t (*find)(void *, int32_t handle, const void *bytes, uint32_t len);
    uint64_t (*hash)(void *, const void *bytes, uint32_t len, uint64_t seed);
    int32_t (*log)(void *, uint32_t level, const void *text, uint32_t len);
    int64_t (*param_int)(void *, uint32_t index);
    double (*param_float)(void *, uint32_t index);
    int32_t (*param_bytes)(void *, uint32_t index, void *destination, uint32_t room);
    uint32_t (*address)(void *, const void *bytes, uint32_t len);
    int32_t (*send)(void *, uint32_t output, const void *frame, uint32_t len);
    int32_t (*keep)(void *, const struct weir_packet *p);
    int32_t (*release)(void *, int32_t handle);
    int32_t (*publish)(void *, uint32_t table, const void *bytes, uint32_t len);
    int64_t (*reserve)(void *, int64_t bytes);
    int32_t (*digest)(void *, uint32_t algorithm, const void *bytes, uint32_t len, void *destination);
    int32_t (*hmac)(void *, const struct weir_crypto *request);
    int32_t (*hkdf)(void *, const struct weir_crypto *request);
    int32_t (*aead_open)(void *, const struct weir_crypto *request);
    int32_t (*aes_block)(void *, const struct weir_crypto *request);
};

static struct lab_host host;
uint8_t *weir_native_base;
struct weir_native_parameter weir_native_parameters[WEIR_PARAMETERS];

int32_t weir_host_emit(uint32_t stream, const void *row, uint32_t len) { return host.emit(host.context, stream, row, len); }
int32_t weir_host_patch(const struct weir_packet *p, uint32_t offset, const void *bytes, uint32_t len)
{
    return host.patch(host.context, p, offset, bytes, len);
}
uint64_t weir_host_hash(const void *bytes, uint32_t len, uint64_t seed) { return host.hash(host.context, bytes, len, seed); }
int32_t weir_host_digest(uint32_t algorithm, const void *bytes, uint32_t len, void *destination)
{
    return host.digest(host.context, algorithm, bytes, len, destination);
}
int32_t weir_host_hmac(const struct weir_crypto *request, uint32_t len) { (void)len; return host.hmac(host.context, request); }
int32_t weir_host_hkdf(const struct weir_crypto *request, uint32_t len) { (void)len; return host.hkdf(host.context, request); }
int32_t weir_host_aead_open(const struct weir_crypto *request, uint32_t len) { (void)len; return host.aead_open(host.context, request); }
int32_t weir_host_aes_block(const struct weir_crypto *request) { return host.aes_block(host.context, request); }
int32_t weir_host_log(uint32_t level, const void *text, uint32_t len) { return host.log(host.context, level, text, len); }
int64_t weir_host_param_int(uint32_t index) { return host.param_int(host.context, index); }
double weir_host_param_float(uint32_t index) { return host.param_float(host.context, index); }
int32_t weir_host_param_bytes(uint32_t index, void *destination, uint32_t room)
{
    return host.param_bytes(host.context, index, destination, room);
}
int32_t weir_host_send(uint32_t output, const void *frame, uint32_t len) { return host.send(host.context, output, frame, len); }
int32_t weir_host_keep(const struct weir_packet *p) { return host.keep(host.context, p); }
int32_t weir_host_release(int32_t handle) { return host.release(host.context, handle); }
int32_t weir_host_publish(uint32_t table, const void *bytes, uint32_t len) { return host.publish(host.context, table, bytes, len); }
int64_t weir_host_reserve(int64_t bytes) { return host.reserve(host.context, bytes); }
int64_t weir_host_call(uint32_t service, const void *bytes, uint32_t len, uint64_t deadline)
{
    (void)service, (void)bytes, (void)len, (void)deadline;
    return WEIR_DENIED;
}
int32_t weir_host_message(void *destination, uint32_t room) { (void)destination, (void)room; return 0; }
int32_t weir_host_reply(uint64_t call, const void *bytes, uint32_t len) { (void)call, (void)bytes, (void)len; return WEIR_UNKNOWN; }
uint32_t weir_host_address(const void *bytes, uint32_t len) { return host.address(host.context, bytes, len); }

#ifdef LAB_NAIVE_FIND
static uint8_t naive_list[WEIR_PATTERN_BYTES + 4 * WEIR_PATTERNS];
static uint32_t naive_len;

int32_t weir_host_find_compile(const void *list, uint32_t len, uint32_t flags)
{
    if (naive_len != 0 || len > sizeof naive_list || flags != 0)
        return WEIR_FULL;
    weir_copy(naive_list, list, len);
    naive_len = len;
    return 0;
}

/* A search without a library: tries each pattern at each byte. */
int64_t weir_host_find(int32_t handle, const void *bytes, uint32_t len)
{
    (void)handle;
    const uint8_t *text = (const uint8_t *)bytes;
    for (uint32_t at = 0; at < len; at++) {
        int64_t best = -1;
        uint32_t best_len = 0, pattern = 0;
        for (uint32_t i = 0; i + 4 <= naive_len; pattern++) {
            const uint32_t pattern_len = weir_le32(naive_list + i);
            const uint8_t *wanted = naive_list + i + 4;
            i += 4 + pattern_len;
            if (pattern_len > len - at || pattern_len <= best_len)
                continue;
            uint32_t same = 0;
            while (same < pattern_len && text[at + same] == wanted[same])
                same++;
            if (same == pattern_len) {
                best = (int64_t)pattern << 32 | at;
                best_len = pattern_len;
            }
        }
        if (best >= 0)
            return best;
    }
    return -1;
}
#else
int32_t weir_host_find_compile(const void *list, uint32_t len, uint32_t flags)
{
    return host.find_compile(host.context, list, len, flags);
}
int64_t weir_host_find(int32_t handle, const void *bytes, uint32_t len) { return host.find(host.context, handle, bytes, len); }
#endif

extern int32_t weir_packet(const struct weir_packet *p);
extern __attribute__((weak)) int32_t weir_start(void);
extern __attribute__((weak)) void weir_tick(uint64_t now, uint64_t periods);
extern __attribute__((weak)) void weir_stop(uint64_t now);
extern __attribute__((weak)) int32_t weir_rest(uint64_t now);

WEIR_EXPORT(lab_start) int32_t lab_start(const struct lab_host *with)
{
    host = *with;
    weir_native_base = host.base;
    for (uint32_t i = 0; i < WEIR_PARAMETERS; i++) {
        weir_native_parameters[i].number = weir_host_param_int(i);
        weir_native_parameters[i].real = weir_host_param_float(i);
        weir_native_parameters[i].len = weir_host_param_bytes(i, NULL, 0);
    }
    return weir_start != NULL ? weir_start() : 0;
}

/* The loop over a batch, as edge/sandbox/src/load/rewrite.rs adds it, without the global variable for the current packet. */
WEIR_EXPORT(lab_run) uint64_t lab_run(const struct weir_packet *descriptors, uint64_t mask)
{
    uint64_t drops = 0;
    while (mask != 0) {
        if (weir_packet(descriptors + __builtin_ctzll(mask)) != WEIR_PASS)
            drops |= mask & -mask;
        mask &= mask - 1;
    }
    return drops;
}

WEIR_EXPORT(lab_tick) void lab_tick(uint64_t now, uint64_t periods)
{
    if (weir_tick != NULL)
        weir_tick(now, periods);
}

WEIR_EXPORT(lab_stop) void lab_stop(uint64_t now)
{
    if (weir_stop != NULL)
        weir_stop(now);
    while (weir_rest != NULL && weir_rest(now) != 0)
        continue;
}
