/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Replays the calls of a sandboxed module in a native build of its source, for `weir test`. The program consists of the
 * module's source, which sanitizers and clang's coverage watch, and of this file, which takes the place of weir:
 *
 *     player SCRIPT OUTPUT
 *
 * The script has, in order, the calls that weir made in the sandbox, with their packets, and the answers of the host
 * functions that the module called meanwhile. The module gets the same calls and the same answers here. The output has what the
 * module passes to host functions and returns, which weir compares with the sandbox. apps/author/src/native/script.rs
 * writes the script, and steps.rs reads the output; all numbers are little-endian.
 *
 * Memory has the same addresses as in the sandbox, counted from weir_native_base. Bytes that the module may not read in the
 * present call are poisoned: all around a packet but the up to seven bytes before it, and packets of earlier calls that it has not
 * kept.
 *
 * With WEIR_NATIVE_RUST the module is a library in Rust, without sanitizers: nothing is poisoned. */
#define _GNU_SOURCE
#include "weir.h"
#include "host_calls.h" /* ENTRY_... and the functions weir_host_*, made from weir's tables */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__has_feature) && __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

#define SPACE_BYTES (4ull << 30)
/* Strings that rows point to, in the place of the module's private memory. */
#define STRINGS_AT (1u << 20)
#define STRINGS_BYTES (256u << 20)
#define PAGE 4096ull
/* The first address that the system lets programs use. */
#define LOW 65536ull
/* Poisoned bytes behind each packet. */
#define GAP 256u

/* Exit statuses: a broken script or a failure of the system; the module goes another way than in the sandbox. */
enum { EXIT_PLAYER = 90, EXIT_OTHER_WAY = 91, EXIT_SANDBOX_FAULT = 92 };

uint8_t *weir_native_base;
struct weir_native_parameter weir_native_parameters[WEIR_PARAMETERS];

static FILE *script, *output;
static struct { uint8_t *bytes; uint32_t len; } parameters[WEIR_PARAMETERS];
static struct { uint32_t count; uint32_t *offsets; } streams[256];
static uint32_t strings_used, strings_of_start;
/* The descriptors of the present batch. */
static uint32_t descriptors, descriptors_len;

/* Packets that are readable now. */
static struct readable { uint32_t address, len, descriptor; int32_t handle; bool is_kept; } readable[1 << 17];
static uint32_t readable_count;

static void fail(const char *why)
{
    fprintf(stderr, "player: %s\n", why);
    fflush(output);
    exit(EXIT_PLAYER);
}

/* ---- Script and output -------------------------------------------------------------------------------------------------- */

static void read_bytes(void *to, size_t len)
{
    if (len > 0 && fread(to, 1, len, script) != len)
        fail("the script ends too early");
}

static uint8_t read_u8(void) { uint8_t n; read_bytes(&n, sizeof n); return n; }
static uint32_t read_u32(void) { uint32_t n; read_bytes(&n, sizeof n); return n; }
static uint64_t read_u64(void) { uint64_t n; read_bytes(&n, sizeof n); return n; }

static uint8_t peek(void)
{
    const int tag = getc(script);
    if (tag == EOF)
        fail("the script ends too early");
    ungetc(tag, script);
    return (uint8_t)tag;
}

static void write_bytes(const void *bytes, size_t len) { fwrite(bytes, 1, len, output); }
static void write_u8(uint8_t n) { write_bytes(&n, sizeof n); }
static void write_u32(uint32_t n) { write_bytes(&n, sizeof n); }
static void write_u64(uint64_t n) { write_bytes(&n, sizeof n); }

static void write_block(const void *bytes, uint32_t len)
{
    write_u32(len);
    write_bytes(bytes, len);
}

/* The next step of the script is not the one that the module takes. `function` is the host function that it calls; 0xff if it
 * returns or gets no further event. */
static void other_way(uint8_t function)
{
    write_u8('d');
    write_u8(function);
    fflush(output);
    exit(EXIT_OTHER_WAY);
}

/* ---- Memory ------------------------------------------------------------------------------------------------------------ */

/* Makes the pages of a range readable and writable, and poisons those that were not. The rest of the space faults. */
static uint8_t *open_range(uint32_t address, uint64_t len)
{
    static uint8_t is_open[SPACE_BYTES / PAGE / 8];
    const uint64_t from = address & ~(PAGE - 1), to = (address + len + PAGE - 1) & ~(PAGE - 1);
    if (to > SPACE_BYTES || mprotect(weir_native_base + from, to - from, PROT_READ | PROT_WRITE) != 0)
        fail("memory cannot be opened");
    for (uint64_t page = from / PAGE; page < to / PAGE; page++) {
        if (is_open[page / 8] >> page % 8 & 1)
            continue;
        is_open[page / 8] |= (uint8_t)(1 << page % 8);
        ASAN_POISON_MEMORY_REGION(weir_native_base + page * PAGE, PAGE);
    }
    return weir_native_base + address;
}

static void write_memory(uint32_t address, uint32_t len)
{
    uint8_t *to = open_range(address, (uint64_t)len + GAP);
    ASAN_UNPOISON_MEMORY_REGION(to, len);
    read_bytes(to, len);
    ASAN_POISON_MEMORY_REGION(to + len, GAP);
}

/* Ends the readability of packets that are not kept. */
static void forget_packets(void)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < readable_count; i++) {
        if (readable[i].is_kept)
            readable[left++] = readable[i];
        else
            ASAN_POISON_MEMORY_REGION(weir_native_base + readable[i].address, readable[i].len);
    }
    readable_count = left;
}

uint32_t weir_host_address(const void *bytes, uint32_t len)
{
    if (len > STRINGS_BYTES - strings_used)
        fail("a call has strings of more than 256 MiB");
    const uint32_t address = STRINGS_AT + strings_used;
    memcpy(weir_native_base + address, bytes, len);
    strings_used += len;
    return address;
}

/* ---- Host functions ---------------------------------------------------------------------------------------------------- */

static uint8_t current_function;

void player_begin(uint8_t function)
{
    current_function = function;
    write_u8('h');
    write_u8(function);
}

void player_number(uint64_t number) { write_u64(number); }
void player_bytes(const void *bytes, uint32_t len) { write_block(bytes, len); }

/* Reads bytes that are not compared, so that sanitizers see the access. */
void player_touch(const void *bytes, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        (void)((const volatile uint8_t *)bytes)[i];
}

void player_descriptor(const void *descriptor) { write_u64((uint64_t)((const uint8_t *)descriptor - weir_native_base)); }

/* The strings of a row: those fields of its stream that point to bytes. */
void player_strings(uint32_t stream, const void *row, uint32_t len)
{
    const uint32_t count = stream < 256 ? streams[stream].count : 0;
    write_u32(count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place[2] = { 0, 0 }; /* address and length */
        const uint32_t at = streams[stream].offsets[i];
        if (at + sizeof place <= len)
            memcpy(place, (const uint8_t *)row + at, sizeof place);
        /* A field without a value has any bytes. */
        const uint32_t end = STRINGS_AT + strings_used;
        const bool is_string = place[0] >= STRINGS_AT && place[0] <= end && place[1] <= end - place[0];
        write_block(is_string ? weir_native_base + place[0] : NULL, is_string ? place[1] : 0);
    }
}

/* Takes the answer from the script: writes its bytes to `to`, and returns its number. */
uint64_t player_end(void *to, uint64_t room)
{
    if (peek() != 'H')
        other_way(current_function);
    read_u8();
    const uint8_t function = read_u8(), has_result = read_u8();
    const uint64_t result = read_u64();
    const uint32_t len = read_u32();
    if (function != current_function)
        other_way(current_function);
    if (!has_result) { /* the call ended here in the sandbox, by a fault that sanitizers have not seen */
        fflush(output);
        exit(EXIT_SANDBOX_FAULT);
    }
    if (len > room || (len > 0 && to == NULL))
        fail("an answer has more bytes than the module has room for");
    read_bytes(to, len);
    return result;
}

void player_keep(const void *descriptor, int32_t handle)
{
    const uint32_t address = (uint32_t)((const uint8_t *)descriptor - weir_native_base);
    for (uint32_t i = 0; handle >= 0 && i < readable_count; i++) {
        if (readable[i].descriptor == address && !readable[i].is_kept) {
            readable[i].is_kept = true;
            readable[i].handle = handle;
            return;
        }
    }
}

void player_release(int32_t handle)
{
    for (uint32_t i = 0; i < readable_count; i++) {
        if (readable[i].is_kept && readable[i].handle == handle)
            readable[i].is_kept = false;
    }
}

int64_t weir_host_param_int(uint32_t index) { return index < WEIR_PARAMETERS ? weir_native_parameters[index].number : 0; }
double weir_host_param_float(uint32_t index) { return index < WEIR_PARAMETERS ? weir_native_parameters[index].real : 0; }

int32_t weir_host_param_bytes(uint32_t index, void *destination, uint32_t room)
{
    if (index >= WEIR_PARAMETERS)
        return WEIR_UNKNOWN;
    const uint32_t len = parameters[index].len;
    if (len > 0 && room > 0)
        memcpy(destination, parameters[index].bytes, len < room ? len : room);
    return (int32_t)len;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------------- */

/* A module has some of these functions. */
#define OPTIONAL extern __attribute__((weak))
OPTIONAL int32_t weir_start(void);
OPTIONAL int32_t weir_packet(const struct weir_packet *p);
OPTIONAL uint64_t weir_batch(const struct weir_packet *p, uint64_t mask);
OPTIONAL int32_t weir_stream(const struct weir_stream *event);
OPTIONAL void weir_tick(uint64_t now, uint64_t periods);
OPTIONAL void weir_lost(int32_t cause);
OPTIONAL void weir_low_memory(uint64_t left);
OPTIONAL void weir_serve(uint64_t call, uint32_t service, uint32_t len);
OPTIONAL void weir_answer(uint64_t ticket, int32_t status, uint32_t len);
OPTIONAL void weir_stop(uint64_t now);
OPTIONAL int32_t weir_rest(uint64_t now);

static struct { uint32_t descriptor, address, len; uint64_t number; } packets[64];

/* Lets the module read a packet of the batch, or forbids it, unless the module keeps the packet. */
static void allow_packet(int i, bool is_allowed)
{
    for (uint32_t k = 0; k < readable_count; k++) {
        if (readable[k].is_kept && readable[k].address == packets[i].address)
            return;
    }
    if (is_allowed)
        ASAN_UNPOISON_MEMORY_REGION(weir_native_base + packets[i].address, packets[i].len);
    else
        ASAN_POISON_MEMORY_REGION(weir_native_base + packets[i].address, packets[i].len);
}

/* Gives the module the events of TCP streams that it got in the sandbox for a packet. Returns all replies. */
static int32_t give_events(uint32_t packet)
{
    int32_t reply = 0, replies = 0;
    while (peek() == 'E') {
        const long begin = ftell(script);
        read_u8();
        const uint32_t of = read_u32(), replied = read_u32(), event_len = read_u32();
        if (of != packet) { /* an event of another packet */
            fseek(script, begin, SEEK_SET);
            return replies;
        }
        struct weir_stream *event = (struct weir_stream *)(weir_native_base + WEIR_STREAMS_BASE);
        if (event_len != 0 && event_len != sizeof *event)
            fail("an event has another size");
        write_u8('r');
        write_u32((uint32_t)reply);
        write_u32(replied);
        if (event_len != 0)
            write_memory(WEIR_STREAMS_BASE, event_len);
        const uint32_t bytes_len = read_u32();
        if (bytes_len > 0)
            write_memory(event->data, bytes_len);
        if (event_len == 0)
            return replies;
        if (weir_stream == NULL)
            fail("the module has no weir_stream");
        reply = weir_stream(event);
        replies |= reply;
        ASAN_POISON_MEMORY_REGION(event, event_len);
        if (bytes_len > 0)
            ASAN_POISON_MEMORY_REGION(weir_native_base + event->data, bytes_len);
    }
    return replies;
}

static uint64_t call_batch(const struct weir_packet *descriptors, uint64_t mask)
{
    if (weir_batch != NULL)
        return weir_batch(descriptors, mask);
    uint64_t drops = 0;
    for (uint64_t all = mask; all != 0; all &= all - 1)
        allow_packet(__builtin_ctzll(all), false);
    for (; mask != 0; mask &= mask - 1) {
        const int i = __builtin_ctzll(mask);
        allow_packet(i, true);
        write_u8('p');
        write_u64(packets[i].number);
        fflush(output);
        /* The order is that of the sandbox: the packet, then its events. */
        bool is_dropped = weir_packet != NULL && weir_packet(descriptors + i) != WEIR_PASS;
        is_dropped |= (give_events(packets[i].descriptor) & WEIR_STREAM_DROP) != 0;
        if (is_dropped)
            drops |= mask & -mask;
        allow_packet(i, false);
    }
    return drops;
}

static void run_call(void)
{
    const uint8_t entry = read_u8();
    uint64_t arguments[3];
    read_bytes(arguments, sizeof arguments);
    strings_used = strings_of_start;
    forget_packets();
    if (descriptors_len > 0)
        ASAN_POISON_MEMORY_REGION(weir_native_base + descriptors, descriptors_len);
    descriptors = (uint32_t)arguments[0];
    descriptors_len = read_u32();
    if (descriptors_len > 0)
        write_memory(descriptors, descriptors_len);
    for (uint32_t count = read_u32(); count > 0; count--) {
        const uint32_t index = read_u32();
        const uint64_t number = read_u64();
        const uint32_t address = read_u32(), len = read_u32();
        if (index >= 64 || readable_count == sizeof readable / sizeof *readable)
            fail("too many packets");
        packets[index].descriptor = descriptors + index * (uint32_t)sizeof(struct weir_packet);
        packets[index].number = number;
        packets[index].address = address;
        packets[index].len = len;
        readable[readable_count++] = (struct readable){ address, len, packets[index].descriptor, -1, false };
        write_memory(address, len);
    }
    /* A kept packet can be in the gap behind a new one. */
    for (uint32_t i = 0; i < readable_count; i++)
        ASAN_UNPOISON_MEMORY_REGION(weir_native_base + readable[i].address, readable[i].len);
    write_u8('c');
    write_u8(entry);
    fflush(output);
    int64_t result = 0;
    switch (entry) {
    case ENTRY_START:
        result = weir_start != NULL ? weir_start() : 0;
        strings_of_start = strings_used;
        break;
    case ENTRY_PACKET:
        result = (int64_t)call_batch((const struct weir_packet *)(weir_native_base + descriptors), arguments[1]);
        break;
    case ENTRY_STREAM:
        give_events(0);
        break;
    case ENTRY_TICK:
        weir_tick(arguments[0], arguments[1]);
        break;
    case ENTRY_LOST:
        weir_lost((int32_t)arguments[0]);
        break;
    case ENTRY_LOW_MEMORY:
        weir_low_memory(arguments[0]);
        break;
    case ENTRY_SERVE:
        weir_serve(arguments[0], (uint32_t)arguments[1], (uint32_t)arguments[2]);
        break;
    case ENTRY_ANSWER:
        weir_answer(arguments[0], (int32_t)arguments[1], (uint32_t)arguments[2]);
        break;
    case ENTRY_STOP:
        weir_stop(arguments[0]);
        break;
    case ENTRY_REST:
        result = weir_rest(arguments[0]);
        break;
    default:
        break; /* constructors, which have run before main */
    }
    if (peek() != 'X')
        other_way(0xff);
    read_u8();
    const uint8_t has_returned = read_u8();
    if (!has_returned) /* a fault that sanitizers have not seen, such as a trap of the sandbox */
        write_u8('f');
    write_u8('x');
    write_u64((uint64_t)result);
    fflush(output);
}

#if defined(__has_feature) && __has_feature(address_sanitizer)
int __llvm_profile_write_file(void);

/* The coverage up to a fault, and the output. */
static void write_at_death(void)
{
    fflush(output);
    __llvm_profile_write_file();
}
#endif

int main(int argc, char **argv)
{
#if defined(__has_feature) && __has_feature(address_sanitizer)
    __sanitizer_set_death_callback(write_at_death);
#endif
    if (argc != 3 || (script = fopen(argv[1], "rb")) == NULL || (output = fopen(argv[2], "wb")) == NULL) {
        fprintf(stderr, "usage: player SCRIPT OUTPUT\n");
        return EXIT_PLAYER;
    }
#ifdef WEIR_NATIVE_RUST
    /* A module in Rust takes the addresses of packets as they are, so they are those of the sandbox. The program is elsewhere. */
    void *space = mmap((void *)LOW, SPACE_BYTES - LOW, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (space != (void *)LOW)
        fail("the addresses below 4 GiB cannot be reserved");
    weir_native_base = NULL;
#else
    void *space = mmap(NULL, SPACE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        fail("4 GiB of addresses cannot be reserved");
    weir_native_base = space;
#endif
    open_range(STRINGS_AT, STRINGS_BYTES);
    ASAN_UNPOISON_MEMORY_REGION(weir_native_base + STRINGS_AT, STRINGS_BYTES);
    for (;;) {
        const uint8_t tag = read_u8();
        if (tag == 'P') {
            const uint32_t index = read_u32();
            if (index >= WEIR_PARAMETERS)
                fail("too many parameters");
            read_bytes(&weir_native_parameters[index].number, sizeof(int64_t));
            read_bytes(&weir_native_parameters[index].real, sizeof(double));
            const uint32_t len = read_u32();
            parameters[index].bytes = malloc(len > 0 ? len : 1);
            if (parameters[index].bytes == NULL)
                fail("no memory");
            parameters[index].len = len;
            weir_native_parameters[index].len = (int32_t)len;
            read_bytes(parameters[index].bytes, len);
        } else if (tag == 'S') {
            const uint8_t stream = read_u8();
            streams[stream].count = read_u32();
            streams[stream].offsets = calloc(streams[stream].count + 1, sizeof(uint32_t));
            if (streams[stream].offsets == NULL)
                fail("no memory");
            read_bytes(streams[stream].offsets, streams[stream].count * sizeof(uint32_t));
        } else if (tag == 'M') {
            const uint32_t address = read_u32(), len = read_u32();
            write_memory(address, len);
        } else if (tag == 'C') {
            run_call();
        } else if (tag == 'Q') {
            fclose(output);
            return 0;
        } else {
            fail("the script has an unknown step");
        }
    }
}
