/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * limit FILE [populate [copy]]: the minimal cost of counting SYN packets in a pcap file. It maps the file, walks over the records, and tests the
 * flag. It checks only that records end inside the file, and counts neither packets with VLAN tags nor IPv6.
 * With `populate`, the kernel maps all pages at once (MAP_POPULATE), without a page fault for each few.
 * With `copy`, the program then copies the payload of each TCP segment once, as a program does that gathers streams, and prints the processor
 * time of the copies.
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

enum { FILE_HEADER = 24, RECORD_HEADER = 16, ETHERNET = 14, IPV4_MIN = 20, TCP_MIN = 20, SYN = 2, ROOM = 1 << 20 };

static uint8_t room[ROOM];

int main(int argc, char **argv)
{
    struct stat status;
    const int fd = argc >= 2 && argc <= 4 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &status) != 0 || status.st_size < FILE_HEADER) {
        fprintf(stderr, "usage: limit FILE.pcap [populate [copy]]\n");
        return 2;
    }
    const size_t len = (size_t)status.st_size;
    const uint8_t *file = mmap(NULL, len, PROT_READ, MAP_SHARED | (argc >= 3 ? MAP_POPULATE : 0), fd, 0);
    if (file == MAP_FAILED) {
        perror(argv[1]);
        return 1;
    }
    /* The payloads, if they are to be copied. */
    struct payload {
        const uint8_t *bytes;
        size_t len;
    } *payloads = argc == 4 ? calloc(len / (RECORD_HEADER + ETHERNET + IPV4_MIN + TCP_MIN) + 1, sizeof *payloads) : NULL;
    size_t payload_count = 0;
    uint64_t packets = 0, syn = 0;
    for (size_t at = FILE_HEADER; len - at >= RECORD_HEADER;) {
        uint32_t captured;
        memcpy(&captured, file + at + 8, sizeof captured);
        if (captured > len - at - RECORD_HEADER)
            break;
        const uint8_t *p = file + at + RECORD_HEADER;
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
    if (payloads != NULL) {
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
        return 0;
    }
    printf("%" PRIu64 " packets, %" PRIu64 " SYN\n", packets, syn);
    return 0;
}
