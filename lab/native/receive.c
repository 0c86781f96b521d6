/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * receive INTERFACE SECONDS FRAMES: the minimal cost of receiving by AF_XDP in copy mode. Takes packets from queue 0 of an interface, reads the
 * first byte of each, and returns its frame. FRAMES, a power of two, is the number of frames and the size of each ring. Looks for packets at the
 * same times as weir: while at least two arrive in each interval, at intervals; otherwise one interval after the first. Prints the number of
 * packets, and the thread's processor time in nanoseconds.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef AF_XDP
#define AF_XDP 44
#endif
#ifndef SOL_XDP
#define SOL_XDP 283
#endif

enum { FRAME = 2048, GATHER_NS = 200000, GATHERED_MIN = 2, CORE = 1 };

static uint32_t frame_count;

static void check(const char *what, int is_good)
{
    if (!is_good) {
        perror(what);
        exit(1);
    }
}

static int bpf(enum bpf_cmd command, union bpf_attr *attr)
{
    return (int)syscall(SYS_bpf, command, attr, sizeof *attr);
}

static uint64_t time_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Attaches a program to the interface that redirects packets of queue N to socket N. */
static void attach(int socket, unsigned interface)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.map_type = BPF_MAP_TYPE_XSKMAP;
    attr.key_size = attr.value_size = sizeof(uint32_t);
    attr.max_entries = 1;
    const int map = bpf(BPF_MAP_CREATE, &attr);
    check("XSKMAP", map >= 0);
    const struct bpf_insn program[] = {
        { .code = BPF_LDX | BPF_MEM | BPF_W, .dst_reg = 2, .src_reg = 1, .off = 16 }, /* rx_queue_index */
        { .code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = map },
        { 0 },
        { .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3, .imm = XDP_PASS },
        { .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map },
        { .code = BPF_JMP | BPF_EXIT },
    };
    memset(&attr, 0, sizeof attr);
    attr.prog_type = BPF_PROG_TYPE_XDP;
    attr.expected_attach_type = BPF_XDP;
    attr.insns = (uint64_t)(uintptr_t)program;
    attr.insn_cnt = sizeof program / sizeof *program;
    attr.license = (uint64_t)(uintptr_t)"Dual MIT/GPL";
    const int loaded = bpf(BPF_PROG_LOAD, &attr);
    check("the program", loaded >= 0);
    memset(&attr, 0, sizeof attr);
    const uint32_t key = 0, value = (uint32_t)socket;
    attr.map_fd = (uint32_t)map;
    attr.key = (uint64_t)(uintptr_t)&key;
    attr.value = (uint64_t)(uintptr_t)&value;
    check("the map's entry", bpf(BPF_MAP_UPDATE_ELEM, &attr) == 0);
    memset(&attr, 0, sizeof attr);
    attr.link_create.prog_fd = (uint32_t)loaded;
    attr.link_create.target_ifindex = interface;
    attr.link_create.attach_type = BPF_XDP;
    check("attaching the program", bpf(BPF_LINK_CREATE, &attr) >= 0);
}

struct ring {
    uint32_t *producer, *consumer;
    void *entries;
};

static struct ring map_ring(int socket, const struct xdp_ring_offset *offset, size_t entry, off_t page)
{
    uint8_t *base = mmap(NULL, offset->desc + frame_count * entry, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, socket, page);
    check("a ring", base != MAP_FAILED);
    return (struct ring){ (uint32_t *)(base + offset->producer), (uint32_t *)(base + offset->consumer), base + offset->desc };
}

int main(int argc, char **argv)
{
    const unsigned interface = argc == 4 ? if_nametoindex(argv[1]) : 0;
    const double seconds = argc == 4 ? atof(argv[2]) : 0;
    frame_count = argc == 4 ? (uint32_t)atoi(argv[3]) : 0;
    if (interface == 0 || seconds <= 0 || frame_count == 0 || (frame_count & (frame_count - 1)) != 0) {
        fprintf(stderr, "usage: receive INTERFACE SECONDS FRAMES\n");
        return 2;
    }
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(CORE, &cores);
    check("the core", sched_setaffinity(0, sizeof cores, &cores) == 0);
    const int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
    check("an AF_XDP socket", fd >= 0);
    uint8_t *frames = mmap(NULL, (size_t)frame_count * FRAME, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    check("memory", frames != MAP_FAILED);
    const struct xdp_umem_reg umem = { .addr = (uint64_t)(uintptr_t)frames, .len = (uint64_t)frame_count * FRAME, .chunk_size = FRAME };
    const uint32_t size = frame_count;
    check("UMEM", setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &umem, sizeof umem) == 0);
    check("the rings of the UMEM", setsockopt(fd, SOL_XDP, XDP_UMEM_FILL_RING, &size, sizeof size) == 0
          && setsockopt(fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, &size, sizeof size) == 0
          && setsockopt(fd, SOL_XDP, XDP_RX_RING, &size, sizeof size) == 0);
    struct xdp_mmap_offsets offsets;
    socklen_t len = sizeof offsets;
    check("offsets", getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &len) == 0);
    struct ring fill = map_ring(fd, &offsets.fr, sizeof(uint64_t), XDP_UMEM_PGOFF_FILL_RING);
    struct ring rx = map_ring(fd, &offsets.rx, sizeof(struct xdp_desc), XDP_PGOFF_RX_RING);
    for (uint32_t i = 0; i < frame_count; i++)
        ((uint64_t *)fill.entries)[i] = (uint64_t)i * FRAME;
    __atomic_store_n(fill.producer, frame_count, __ATOMIC_RELEASE);
    const struct sockaddr_xdp address = { .sxdp_family = AF_XDP, .sxdp_ifindex = interface, .sxdp_flags = XDP_COPY };
    check("binding", bind(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    attach(fd, interface);
    puts("ready");
    fflush(stdout);

    const uint64_t begin = time_ns(CLOCK_MONOTONIC), used = time_ns(CLOCK_THREAD_CPUTIME_ID);
    uint64_t packets = 0, last = 0;
    uint32_t received = 0, returned = frame_count, gathered = 0;
    const uint32_t mask = frame_count - 1;
    volatile uint8_t sink;
    while ((double)(time_ns(CLOCK_MONOTONIC) - begin) < seconds * 1e9) {
        if (gathered >= GATHERED_MIN) {
            const uint64_t since = time_ns(CLOCK_MONOTONIC) - last;
            if (since < GATHER_NS - GATHER_NS / 8)
                nanosleep(&(struct timespec){ .tv_nsec = (long)(GATHER_NS - since) }, NULL);
        }
        const uint32_t ready = __atomic_load_n(rx.producer, __ATOMIC_ACQUIRE);
        gathered = ready - received;
        if (gathered == 0) {
            struct pollfd wait = { .fd = fd, .events = POLLIN };
            if (poll(&wait, 1, 20) > 0)
                nanosleep(&(struct timespec){ .tv_nsec = GATHER_NS }, NULL);
            continue;
        }
        last = time_ns(CLOCK_MONOTONIC);
        for (; received != ready; received++, returned++, packets++) {
            const struct xdp_desc *packet = &((struct xdp_desc *)rx.entries)[received & mask];
            sink = frames[packet->addr];
            ((uint64_t *)fill.entries)[returned & mask] = packet->addr - packet->addr % FRAME;
        }
        __atomic_store_n(rx.consumer, received, __ATOMIC_RELEASE);
        __atomic_store_n(fill.producer, returned, __ATOMIC_RELEASE);
    }
    (void)sink;
    printf("%" PRIu64 " %" PRIu64 "\n", packets, time_ns(CLOCK_THREAD_CPUTIME_ID) - used);
    return 0;
}
