/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * limit FILE [populate|read|copy]: the minimal cost of counting SYN packets in a pcap file. It maps the file, walks over the records, and tests
 * the flag. It checks only that records end inside the file, and counts neither packets with VLAN tags nor IPv6.
 * With `populate`, the kernel maps all pages at once (MAP_POPULATE), without a page fault for each few.
 * With `read`, the program reads the file in pieces with read(2) instead of mapping it.
 * With `copy`, the program populates, then copies the payload of each TCP segment once, as a program does that gathers streams, and prints the
 * processor time of the copies.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_HEADER = 24, RECORD_HEADER = 16, ETHERNET = 14, IPV4_MIN = 20, TCP_MIN = 20, SYN = 2, ROOM = 1 << 20, PIECE = 1 << 18 };

static uint8_t room[ROOM];

/* The payloads, if they are to be copied. */
struct payload {
    const uint8_t *bytes;
    size_t len;
};
static struct payload *payloads;
static size_t payload_count;
static uint64_t packets, syn;

/* Walks over the records that are whole, and returns the number of their bytes. */
static size_t walk(const uint8_t *records, size_t len)
{
    size_t at = 0;
    while (len - at >= RECORD_HEADER) {
        uint32_t captured;
        memcpy(&captured, records + at + 8, sizeof captured);
        if (captured > len - at - RECORD_HEADER)
            break;
        const uint8_t *p = records + at + RECORD_HEADER;
        if (captured >= ETHERNET + IPV4_MIN + TCP_MIN && p[12] == 8 && p[13] == 0 && p[ETHERNET + 9] == 6) {
            const uint32_t header = (uint32_t)(p[ETHERNET] & 15) * 4;
            const bool is_whole = ETHERNET + header + TCP_MIN <= captured;
            syn += is_whole && (p[ETHERNET + header + 13] & SYN) != 0;
            const uint32_t data = is_whole ? ETHERNET + header + (uint32_t)(p[ETHERNET + header + 12] >> 4) * 4 : captured;
            if (payloads != NULL && data < captured && captured - data <= ROOM)
                payloads[payload_count++] = (struct payload){ p + data, captured - data };
        }
        packets++;
        at += RECORD_HEADER + captured;
    }
    return at;
}

/* Reads the file in pieces, which are in the processor's cache when the records are walked over. */
static bool read_in_pieces(int fd)
{
    size_t filled = 0, skip = FILE_HEADER;
    for (;;) {
        const ssize_t count = read(fd, room + filled, ROOM - filled < PIECE ? ROOM - filled : PIECE);
        if (count <= 0)
            return count == 0;
        filled += (size_t)count;
        if (filled < skip)
            continue;
        const size_t end = skip + walk(room + skip, filled - skip);
        memmove(room, room + end, filled - end);
        filled -= end;
        skip = 0;
    }
}

static void copy_payloads(void)
{
    struct timespec begin, end;
    uint64_t bytes = 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    for (size_t i = 0, filled = 0; i < payload_count; i++) {
        filled = filled + payloads[i].len <= ROOM ? filled : 0;
        memcpy(room + filled, payloads[i].bytes, payloads[i].len);
        filled += payloads[i].len;
        bytes += payloads[i].len;
        /* The copy counts as used. */
        __asm__ volatile("" : : "r"(room) : "memory");
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    const int64_t nanos = (end.tv_sec - begin.tv_sec) * INT64_C(1000000000) + (end.tv_nsec - begin.tv_nsec);
    printf("%" PRIi64 " ns for the copy of %" PRIu64 " bytes\n", nanos, bytes);
}

int main(int argc, char **argv)
{
    struct stat status;
    const char *mode = argc == 3 ? argv[2] : "";
    const bool copies = strcmp(mode, "copy") == 0, reads = strcmp(mode, "read") == 0;
    const bool populates = copies || strcmp(mode, "populate") == 0;
    const int fd = argc == 2 || copies || reads || populates ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &status) != 0 || status.st_size < FILE_HEADER) {
        fprintf(stderr, "usage: limit FILE.pcap [populate|read|copy]\n");
        return 2;
    }
    const size_t len = (size_t)status.st_size;
    if (reads) {
        if (!read_in_pieces(fd)) {
            perror(argv[1]);
            return 1;
        }
    } else {
        const uint8_t *file = mmap(NULL, len, PROT_READ, MAP_SHARED | (populates ? MAP_POPULATE : 0), fd, 0);
        if (file == MAP_FAILED) {
            perror(argv[1]);
            return 1;
        }
        if (copies)
            payloads = calloc(len / (RECORD_HEADER + ETHERNET + IPV4_MIN + TCP_MIN) + 1, sizeof *payloads);
        walk(file + FILE_HEADER, len - FILE_HEADER);
    }
    if (payloads != NULL)
        copy_payloads();
    else
        printf("%" PRIu64 " packets, %" PRIu64 " SYN\n", packets, syn);
    return 0;
}
