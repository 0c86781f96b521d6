/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * chain WORK CAPTURE PASSES [FILE]: graphs of packets written by hand, beside which `bench graph` measures weir's. It reads a pcap file of
 * Ethernet frames into memory, and goes through its packets PASSES times. It prints the processor time of a packet in nanoseconds, the number
 * of packets of a pass, and a sum of the results.
 *
 *   router   the path of an IP router with four routes: one indirect call for each element and packet, as object-oriented routers do it
 *   source   the same source, whose packets are discarded
 *   rules    the rules of FILE, one after another
 *   routes   DIR-24-8 with the routes of FILE
 *   flows    a hash table of flows
 *   nat      a hash table of flows in both directions, by which addresses and ports are rewritten in a copy of each packet
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FILE_HEADER = 24, RECORD_HEADER = 16, ETHERNET = 14, IPV4 = 20, HEADROOM = 66, BUFFER = 2048 };

/* ---- The capture ---- */

struct frame {
    const uint8_t *bytes;
    uint32_t len;
};

static struct frame *frames;
static size_t frame_count;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* A file in memory. */
static uint8_t *read_file(const char *path, size_t *len)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        fail(path);
    const long end = ftell(file);
    rewind(file);
    uint8_t *bytes = malloc((size_t)end + 1);
    if (end < 0 || bytes == NULL || fread(bytes, 1, (size_t)end, file) != (size_t)end)
        fail(path);
    fclose(file);
    bytes[end] = 0;
    *len = (size_t)end;
    return bytes;
}

static void read_capture(const char *path)
{
    size_t len;
    const uint8_t *file = read_file(path, &len);
    frames = calloc(len / RECORD_HEADER + 1, sizeof *frames);
    if (frames == NULL)
        fail(path);
    for (size_t at = FILE_HEADER; at < len && len - at >= RECORD_HEADER;) {
        uint32_t captured;
        memcpy(&captured, file + at + 8, sizeof captured);
        if (captured > len - at - RECORD_HEADER)
            break;
        frames[frame_count++] = (struct frame){ file + at + RECORD_HEADER, captured };
        at += RECORD_HEADER + captured;
    }
}

static inline uint16_t half(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return __builtin_bswap16(value);
}

static inline uint32_t word(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return __builtin_bswap32(value);
}

static inline void put_half(uint8_t *at, uint16_t value)
{
    value = __builtin_bswap16(value);
    memcpy(at, &value, sizeof value);
}

/* ---- Packets ---- */

struct buffer {
    struct buffer *next;
    uint8_t bytes[BUFFER];
};

struct packet {
    struct packet *next;
    struct buffer *own; /* NULL while the bytes are those of the capture */
    uint8_t *data, *end, *link, *network, *transport;
    uint8_t annotations[48];
    uint64_t time;
    uint32_t type;
};

enum { DST_IP = 0, PAINT = 16, PARAMPROB = 17, FIX_IP_SRC = 19 };

static struct packet *free_packets;
static struct buffer *free_buffers;

static struct packet *make_packet(const struct frame *frame)
{
    struct packet *p = free_packets;
    if (p != NULL)
        free_packets = p->next;
    else if ((p = malloc(sizeof *p)) == NULL)
        fail("packet");
    p->own = NULL;
    p->data = (uint8_t *)frame->bytes;
    p->end = p->data + frame->len;
    p->link = p->network = p->transport = NULL;
    memset(p->annotations, 0, sizeof p->annotations);
    p->time = 0;
    p->type = 0;
    return p;
}

static void drop(struct packet *p)
{
    if (p->own != NULL) {
        p->own->next = free_buffers;
        free_buffers = p->own;
    }
    p->next = free_packets;
    free_packets = p;
}

/* Copies the bytes into a buffer of the packet, with room before them, unless they are there. */
static void make_own(struct packet *p)
{
    if (p->own != NULL)
        return;
    struct buffer *own = free_buffers;
    if (own != NULL)
        free_buffers = own->next;
    else if ((own = malloc(sizeof *own)) == NULL)
        fail("buffer");
    const size_t len = (size_t)(p->end - p->data);
    uint8_t *data = own->bytes + HEADROOM;
    memcpy(data, p->data, len);
    p->network = data + (p->network - p->data);
    p->transport = data + (p->transport - p->data);
    p->data = data;
    p->end = data + len;
    p->own = own;
}

/* ---- Elements ---- */

struct element {
    void (*push)(struct element *this, int port, struct packet *p);
    struct element *out[4];
    int to[4];
    uint64_t drops;
    uint8_t color;
    uint8_t address[4];
    uint32_t own_addresses[2], bad_sources[4];
    uint32_t mtu;
};

static inline void push(struct element *this, int port, struct packet *p)
{
    struct element *next = this->out[port];
    if (next == NULL) {
        this->drops++;
        drop(p);
    } else
        next->push(next, this->to[port], p);
}

/* Requests and replies of ARP, IPv4, and others. */
static void classify(struct element *this, int port, struct packet *p)
{
    (void)port;
    const size_t len = (size_t)(p->end - p->data);
    const uint16_t type = len >= ETHERNET ? half(p->data + 12) : 0;
    if (type == 0x0800)
        push(this, 2, p);
    else if (type == 0x0806 && len >= 22)
        push(this, half(p->data + 20) == 1 ? 0 : half(p->data + 20) == 2 ? 1 : 3, p);
    else
        push(this, 3, p);
}

static void paint(struct element *this, int port, struct packet *p)
{
    (void)port;
    p->annotations[PAINT] = this->color;
    push(this, 0, p);
}

static void strip(struct element *this, int port, struct packet *p)
{
    (void)port;
    p->data += ETHERNET;
    push(this, 0, p);
}

static uint16_t checksum(const uint8_t *bytes, size_t len)
{
    uint64_t sum = 0;
    for (size_t at = 0; at + 4 <= len; at += 4)
        sum += word(bytes + at);
    sum = (sum >> 32) + (sum & 0xffffffff);
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    return (uint16_t)~(sum + (sum >> 16));
}

static void check_header(struct element *this, int port, struct packet *p)
{
    (void)port;
    const uint8_t *ip = p->data;
    const size_t len = (size_t)(p->end - p->data);
    if (len < IPV4 || ip[0] >> 4 != 4)
        goto bad;
    const size_t header = (size_t)(ip[0] & 15) * 4, total = half(ip + 2);
    if (header < IPV4 || total > len || total < header || checksum(ip, header) != 0)
        goto bad;
    const uint32_t source = word(ip + 12), destination = word(ip + 16);
    for (int i = 0; i < 4; i++)
        if (source == this->bad_sources[i] && destination != this->own_addresses[0] && destination != this->own_addresses[1])
            goto bad;
    p->network = p->data;
    p->transport = p->data + header;
    p->end = p->data + total;
    memcpy(p->annotations + DST_IP, ip + 16, 4);
    push(this, 0, p);
    return;
bad:
    this->drops++;
    drop(p);
}

struct route {
    uint32_t prefix, mask, gateway;
    int output;
};

/* The addresses of the router, and its two networks. */
static const struct route ROUTER[4] = {
    { 0x0a000001, 0xffffffff, 0, 0 },
    { 0x0a000101, 0xffffffff, 0, 0 },
    { 0x0a000000, 0xffffff00, 0, 1 },
    { 0x0a000100, 0xffffff00, 0, 2 },
};

static void look_up(struct element *this, int port, struct packet *p)
{
    (void)port;
    const uint32_t address = word(p->annotations + DST_IP);
    int found = -1;
    uint32_t mask = 0;
    for (int i = 0; i < 4; i++)
        if ((address & ROUTER[i].mask) == ROUTER[i].prefix && (ROUTER[i].mask & mask) == mask) {
            found = i;
            mask = ROUTER[i].mask;
        }
    if (found < 0) {
        this->drops++;
        drop(p);
        return;
    }
    if (ROUTER[found].gateway != 0) {
        const uint32_t gateway = __builtin_bswap32(ROUTER[found].gateway);
        memcpy(p->annotations + DST_IP, &gateway, 4);
    }
    push(this, ROUTER[found].output, p);
}

static void drop_broadcasts(struct element *this, int port, struct packet *p)
{
    (void)port;
    push(this, p->type == 1 || p->type == 2, p);
}

static void paint_tee(struct element *this, int port, struct packet *p)
{
    (void)port;
    if (p->annotations[PAINT] == this->color) {
        /* The copy for an error message; no packet of the benchmark needs one. */
        const struct frame frame = { p->data, (uint32_t)(p->end - p->data) };
        push(this, 1, make_packet(&frame));
    }
    push(this, 0, p);
}

static void options(struct element *this, int port, struct packet *p)
{
    (void)port;
    /* No packet of the benchmark has options; one that had some would go to the error output. */
    push(this, p->transport - p->network != IPV4, p);
}

static void fix_source(struct element *this, int port, struct packet *p)
{
    (void)port;
    if (p->annotations[FIX_IP_SRC] != 0) {
        p->annotations[FIX_IP_SRC] = 0;
        make_own(p);
        memcpy(p->network + 12, this->address, 4);
        put_half(p->network + 10, 0);
        put_half(p->network + 10, checksum(p->network, (size_t)(p->transport - p->network)));
    }
    push(this, 0, p);
}

static void decrement(struct element *this, int port, struct packet *p)
{
    (void)port;
    if (p->network[8] <= 1) {
        push(this, 1, p);
        return;
    }
    make_own(p);
    uint8_t *ip = p->network;
    const uint32_t old = half(ip + 8);
    ip[8]--;
    uint32_t sum = (uint16_t)~half(ip + 10) + (uint16_t)~old + (uint32_t)half(ip + 8);
    sum = (sum & 0xffff) + (sum >> 16);
    put_half(ip + 10, (uint16_t)~(sum + (sum >> 16)));
    push(this, 0, p);
}

static void fragment(struct element *this, int port, struct packet *p)
{
    (void)port;
    /* No packet of the benchmark is longer; one that is would go to the error output. */
    push(this, (uint32_t)(p->end - p->network) > this->mtu, p);
}

/* The Ethernet addresses of neighbours. */
enum { NEIGHBOURS = 256 };
struct neighbour {
    struct neighbour *next;
    uint32_t address;
    uint8_t ethernet[6];
    bool is_known;
    uint64_t live_at, polled_at;
};
static struct neighbour *neighbours[NEIGHBOURS];
static uint64_t clock_now;

static void query(struct element *this, int port, struct packet *p)
{
    (void)port;
    const uint32_t next = word(p->annotations + DST_IP);
    struct neighbour *it = neighbours[(next ^ next >> 8) % NEIGHBOURS];
    while (it != NULL && it->address != next)
        it = it->next;
    if (it == NULL || !it->is_known || clock_now - it->live_at > UINT64_C(300000000000)) {
        this->drops++;
        drop(p);
        return;
    }
    make_own(p);
    p->data -= ETHERNET;
    memcpy(p->data, it->ethernet, 6);
    memcpy(p->data + 6, "\x02\x00\x00\x00\x00\x02", 6);
    put_half(p->data + 12, 0x0800);
    p->link = p->data;
    push(this, 0, p);
}

enum { QUEUE = 1024 };
static struct packet *queue[QUEUE];
static size_t queue_first, queue_count;

static void enqueue(struct element *this, int port, struct packet *p)
{
    (void)port;
    if (queue_count == QUEUE) {
        this->drops++;
        drop(p);
        return;
    }
    queue[(queue_first + queue_count++) % QUEUE] = p;
}

static struct packet *dequeue(void)
{
    if (queue_count == 0)
        return NULL;
    queue_count--;
    return queue[queue_first++ % QUEUE];
}

enum {
    CLASSIFY, PAINT_IT, STRIP, CHECK, LOOK_UP, DROP, TEE, OPTIONS, FIX, DECREMENT, FRAGMENT, QUERY, ENQUEUE, ELEMENTS
};

static struct element *make_router(void)
{
    static void (*const functions[ELEMENTS])(struct element *, int, struct packet *) = {
        classify, paint, strip, check_header, look_up, drop_broadcasts, paint_tee, options, fix_source, decrement, fragment, query, enqueue,
    };
    /* Elements are where their allocation puts them. */
    struct element *all[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++) {
        if ((all[i] = calloc(1, sizeof *all[i])) == NULL)
            fail("element");
        all[i]->push = functions[i];
        all[i]->color = i == TEE ? 2 : 1;
        all[i]->mtu = 1500;
    }
    for (int i = 0; i + 1 < ELEMENTS; i++)
        all[i]->out[i == CLASSIFY ? 2 : i == LOOK_UP ? 2 : 0] = all[i + 1];
    memcpy(all[CHECK]->own_addresses, (uint32_t[]){ 0x0a000001, 0x0a000101 }, 8);
    memcpy(all[CHECK]->bad_sources, (uint32_t[]){ 0, 0xffffffff, 0x0a0000ff, 0x0a0001ff }, 16);
    for (uint32_t host = 2; host < 255; host++) {
        struct neighbour *it = calloc(1, sizeof *it);
        if (it == NULL)
            fail("neighbour");
        it->address = 0x0a000100 + host;
        memcpy(it->ethernet, "\x02\x00\x00\x00\x01", 5);
        it->ethernet[5] = (uint8_t)host;
        it->is_known = true;
        it->next = neighbours[(it->address ^ it->address >> 8) % NEIGHBOURS];
        neighbours[(it->address ^ it->address >> 8) % NEIGHBOURS] = it;
    }
    return all[0];
}

static struct element *first;

static uint64_t run_router(void)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < frame_count; i++) {
        first->push(first, 0, make_packet(&frames[i]));
        /* The task behind the queue has its turn. */
        for (struct packet *p; (p = dequeue()) != NULL;) {
            bytes += (uint64_t)(p->end - p->data);
            drop(p);
        }
    }
    return bytes;
}

static void discard(struct element *this, int port, struct packet *p)
{
    (void)port;
    this->drops += (uint64_t)(p->end - p->data);
    drop(p);
}

static uint64_t run_source(void)
{
    first->drops = 0;
    for (size_t i = 0; i < frame_count; i++)
        first->push(first, 0, make_packet(&frames[i]));
    return first->drops;
}

/* ---- Rules, one after another ---- */

struct rule {
    uint32_t source, source_mask, destination, destination_mask;
    uint32_t protocol; /* 0 for any */
    uint32_t source_port[2], destination_port[2];
    uint32_t output;
};

static struct rule *rules;
static size_t rule_count;

static void read_rules(const char *path)
{
    size_t len;
    char *text = (char *)read_file(path, &len);
    rules = calloc(len / 8 + 1, sizeof *rules);
    if (rules == NULL)
        fail(path);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        struct rule *r = &rules[rule_count++];
        if (sscanf(line, "%" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu32,
                   &r->source, &r->source_mask, &r->destination, &r->destination_mask, &r->protocol, &r->source_port[0], &r->source_port[1],
                   &r->destination_port[0], &r->destination_port[1], &r->output) != 10)
            fail(line);
    }
}

static uint32_t decide(const struct frame *frame)
{
    const uint8_t *ip = frame->bytes + ETHERNET;
    if (frame->len < ETHERNET + IPV4 || half(frame->bytes + 12) != 0x0800)
        return 0;
    const uint32_t source = word(ip + 12), destination = word(ip + 16), protocol = ip[9];
    const size_t header = (size_t)(ip[0] & 15) * 4;
    const bool has_ports =
        (protocol == 6 || protocol == 17) && (half(ip + 6) & 0x1fff) == 0 && ETHERNET + header + 4 <= frame->len;
    const uint32_t source_port = has_ports ? half(ip + header) : 0x10000, destination_port = has_ports ? half(ip + header + 2) : 0x10000;
    for (size_t i = 0; i < rule_count; i++) {
        const struct rule *r = &rules[i];
        if ((source & r->source_mask) == r->source && (destination & r->destination_mask) == r->destination &&
            (r->protocol == 0 || r->protocol == protocol) && source_port >= r->source_port[0] && source_port <= r->source_port[1] &&
            destination_port >= r->destination_port[0] && destination_port <= r->destination_port[1])
            return r->output;
    }
    return 0;
}

static uint64_t run_rules(void)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < frame_count; i++)
        sum += decide(&frames[i]);
    return sum;
}

/* ---- DIR-24-8 (P. Gupta, S. Lin, N. McKeown, INFOCOM 1998) ---- */

enum { FIRST = 1 << 24, SEGMENT = 256, IS_SEGMENT = 0x8000 };
static uint16_t *first_table, (*second_table)[SEGMENT];
static uint32_t segments;

/* The destination of a packet, and its next hop. */
struct lookup {
    uint32_t address, hop;
};
static struct lookup *lookups;
static size_t lookup_count;

static void make_lookups(void)
{
    lookups = calloc(frame_count + 1, sizeof *lookups);
    if (lookups == NULL)
        fail("lookups");
    for (size_t i = 0; i < frame_count; i++)
        if (frames[i].len >= ETHERNET + IPV4 && half(frames[i].bytes + 12) == 0x0800)
            lookups[lookup_count++].address = word(frames[i].bytes + ETHERNET + 16);
}

static int by_length(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return x[1] < y[1] ? -1 : x[1] > y[1];
}

static void read_routes(const char *path)
{
    size_t len, count = 0;
    char *text = (char *)read_file(path, &len);
    uint32_t (*all)[3] = calloc(len / 4 + 1, sizeof *all);
    first_table = calloc(FIRST, sizeof *first_table);
    second_table = calloc(IS_SEGMENT, sizeof *second_table);
    if (all == NULL || first_table == NULL || second_table == NULL)
        fail(path);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
        if (sscanf(line, "%" SCNu32 " %" SCNu32 " %" SCNu32, &all[count][0], &all[count][1], &all[count][2]) == 3)
            count++;
    make_lookups();
    /* Longer prefixes replace shorter ones. */
    qsort(all, count, sizeof *all, by_length);
    for (size_t i = 0; i < count; i++) {
        const uint32_t prefix = all[i][0], length = all[i][1];
        const uint16_t hop = (uint16_t)(all[i][2] + 1);
        if (length <= 24) {
            for (uint32_t at = 0; at < UINT32_C(1) << (24 - length); at++)
                first_table[(prefix >> 8) + at] = hop;
            continue;
        }
        uint16_t *entry = &first_table[prefix >> 8];
        if (!(*entry & IS_SEGMENT)) {
            for (int at = 0; at < SEGMENT; at++)
                second_table[segments][at] = *entry;
            *entry = (uint16_t)(segments++ | IS_SEGMENT);
        }
        for (uint32_t at = 0; at < UINT32_C(1) << (32 - length); at++)
            second_table[*entry & ~IS_SEGMENT][(prefix & 0xff) + at] = hop;
    }
}

static uint64_t run_routes(void)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < lookup_count; i++) {
        const uint32_t address = lookups[i].address;
        uint16_t hop = first_table[address >> 8];
        if (hop & IS_SEGMENT)
            hop = second_table[hop & ~IS_SEGMENT][address & 0xff];
        lookups[i].hop = hop;
        sum += hop;
    }
    return sum;
}

/* ---- Flows ---- */

enum { FLOW_SLOTS = 1 << 17 };
struct flow {
    uint32_t low, high, ports, protocol;
    uint64_t packets, bytes;
};
static struct flow *flows;
static uint64_t flow_count;

static uint64_t run_flows(void)
{
    memset(flows, 0, FLOW_SLOTS * sizeof *flows);
    flow_count = 0;
    for (size_t i = 0; i < frame_count; i++) {
        const uint8_t *ip = frames[i].bytes + ETHERNET;
        if (frames[i].len < ETHERNET + IPV4 || half(frames[i].bytes + 12) != 0x0800)
            continue;
        const uint32_t source = word(ip + 12), destination = word(ip + 16), protocol = ip[9];
        const size_t header = (size_t)(ip[0] & 15) * 4;
        if ((protocol != 6 && protocol != 17) || (half(ip + 6) & 0x3fff) != 0 || ETHERNET + header + 4 > frames[i].len)
            continue;
        uint32_t a = half(ip + header), b = half(ip + header + 2), low = source, high = destination;
        if (low > high || (low == high && a > b)) {
            const uint32_t address = low, port = a;
            low = high, high = address, a = b, b = port;
        }
        const uint32_t ports = a << 16 | b;
        uint64_t hash = ((uint64_t)low << 32 | high) * UINT64_C(0x9e3779b97f4a7c15) ^ ((uint64_t)ports << 8 | protocol);
        hash *= UINT64_C(0xbf58476d1ce4e5b9);
        struct flow *it;
        for (size_t at = hash >> 47;; at = (at + 1) % FLOW_SLOTS) {
            it = &flows[at % FLOW_SLOTS];
            if (it->packets == 0 && flow_count + 1 < FLOW_SLOTS) {
                *it = (struct flow){ low, high, ports, protocol, 0, 0 };
                flow_count++;
                break;
            }
            if (it->low == low && it->high == high && it->ports == ports && it->protocol == protocol)
                break;
        }
        it->packets++;
        it->bytes += half(ip + 2);
    }
    return flow_count;
}

/* ---- Address translation ---- */

enum { NAT_ADDRESS = 0xc6336401, NAT_PORT = 1024 };

struct mapping {
    uint32_t source, destination, ports, protocol;
    uint32_t new_source, new_destination, new_ports;
    uint16_t header_change, transport_change;
    uint64_t last;
};
static struct mapping *mappings;
static uint64_t mapping_count;

/* The place of a flow, free or not. */
static struct mapping *find_mapping(uint32_t source, uint32_t destination, uint32_t ports, uint32_t protocol)
{
    uint64_t hash = ((uint64_t)source << 32 | destination) * UINT64_C(0x9e3779b97f4a7c15) ^ ((uint64_t)ports << 8 | protocol);
    hash *= UINT64_C(0xbf58476d1ce4e5b9);
    for (size_t at = hash >> 47;; at = (at + 1) % FLOW_SLOTS) {
        struct mapping *it = &mappings[at % FLOW_SLOTS];
        if (it->last == 0 ||
            (it->source == source && it->destination == destination && it->ports == ports && it->protocol == protocol))
            return it;
    }
}

static uint16_t folded(uint64_t sum)
{
    sum = (sum >> 32) + (sum & 0xffffffff);
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    return (uint16_t)((sum >> 16) + (sum & 0xffff));
}

/* The changes of both checksums (RFC 1624). */
static void set_changes(struct mapping *it)
{
    const uint64_t addresses =
        (uint64_t)(uint32_t)~it->source + it->new_source + (uint32_t)~it->destination + it->new_destination;
    it->header_change = folded(addresses);
    it->transport_change = folded(addresses + (uint32_t)~it->ports + it->new_ports);
}

static void put_word(uint8_t *at, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(at, &value, sizeof value);
}

static void change_sum(uint8_t *at, uint16_t change)
{
    put_half(at, (uint16_t)~folded((uint64_t)(uint16_t)~half(at) + change));
}

static uint64_t run_nat(void)
{
    static uint64_t now;
    memset(mappings, 0, FLOW_SLOTS * sizeof *mappings);
    mapping_count = 0;
    for (size_t i = 0; i < frame_count; i++) {
        struct packet *p = make_packet(&frames[i]);
        const uint8_t *ip = p->data + ETHERNET;
        const uint32_t protocol = ip[9];
        const size_t header = (size_t)(ip[0] & 15) * 4;
        if ((protocol != 6 && protocol != 17) || (half(ip + 6) & 0x1fff) != 0 || ip + header + 8 > p->end) {
            drop(p);
            continue;
        }
        const uint32_t source = word(ip + 12), destination = word(ip + 16), ports = word(ip + header);
        struct mapping *it = find_mapping(source, destination, ports, protocol);
        if (it->last == 0) {
            if (2 * mapping_count + 2 >= FLOW_SLOTS / 2) {
                drop(p);
                continue;
            }
            const uint32_t new_ports = (uint32_t)(NAT_PORT + mapping_count) << 16 | (ports & 0xffff);
            *it = (struct mapping){ source, destination, ports, protocol, NAT_ADDRESS, destination, new_ports, 0, 0, ++now };
            set_changes(it);
            const uint32_t reply_ports = new_ports << 16 | new_ports >> 16;
            struct mapping *reply = find_mapping(destination, NAT_ADDRESS, reply_ports, protocol);
            *reply = (struct mapping){ destination, NAT_ADDRESS,         reply_ports, protocol, destination, source,
                                       ports << 16 | ports >> 16, 0, 0, now };
            set_changes(reply);
            mapping_count++;
        }
        it->last = ++now;
        make_own(p);
        uint8_t *own = p->data + ETHERNET;
        put_word(own + 12, it->new_source);
        put_word(own + 16, it->new_destination);
        put_word(own + header, it->new_ports);
        change_sum(own + 10, it->header_change);
        if (protocol == 17 && half(own + header + 6) != 0)
            change_sum(own + header + 6, it->transport_change);
        else if (protocol == 6 && own + header + 18 <= p->end)
            change_sum(own + header + 16, it->transport_change);
        drop(p);
    }
    return mapping_count;
}

static void prepare_nat(const char *file)
{
    (void)file;
    if ((mappings = malloc(FLOW_SLOTS * sizeof *mappings)) == NULL)
        fail("mappings");
}

/* ---- The works ---- */

static void prepare_router(const char *file)
{
    (void)file;
    first = make_router();
}

static void prepare_source(const char *file)
{
    (void)file;
    if ((first = calloc(1, sizeof *first)) == NULL)
        fail("element");
    first->push = discard;
}

static void prepare_flows(const char *file)
{
    (void)file;
    if ((flows = malloc(FLOW_SLOTS * sizeof *flows)) == NULL)
        fail("flows");
}

static const struct work {
    const char *name;
    void (*prepare)(const char *file);
    uint64_t (*run)(void);
} WORKS[] = {
    { "router", prepare_router, run_router }, { "source", prepare_source, run_source }, { "rules", read_rules, run_rules },
    { "routes", read_routes, run_routes },    { "flows", prepare_flows, run_flows },
    { "nat", prepare_nat, run_nat },
};

int main(int argc, char **argv)
{
    const struct work *work = NULL;
    for (size_t i = 0; argc >= 4 && i < sizeof WORKS / sizeof *WORKS; i++)
        if (strcmp(WORKS[i].name, argv[1]) == 0)
            work = &WORKS[i];
    const long passes = argc >= 4 ? strtol(argv[3], NULL, 10) : 0;
    if (work == NULL || passes < 1) {
        fprintf(stderr, "usage: chain router|source|rules|routes|flows|nat CAPTURE PASSES [FILE]\n");
        return 2;
    }
    read_capture(argv[2]);
    work->prepare(argc > 4 ? argv[4] : "");
    /* The first pass fills caches. */
    uint64_t sum = work->run();
    struct timespec begin, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    for (long pass = 0; pass < passes; pass++)
        sum = work->run();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    const size_t packets = lookup_count > 0 ? lookup_count : frame_count;
    const int64_t nanos = (end.tv_sec - begin.tv_sec) * INT64_C(1000000000) + (end.tv_nsec - begin.tv_nsec);
    printf("%.3f %zu %" PRIu64 "\n", (double)nanos / (double)((size_t)passes * (packets > 0 ? packets : 1)), packets, sum);
    return 0;
}
