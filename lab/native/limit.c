/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * limit FILE: the minimal cost of counting SYN packets in a pcap file. Maps the file, walks its records, and tests the flag. Checks only the
 * end of the file; no VLAN tags, no IPv6.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_HEADER = 24, RECORD_HEADER = 16, ETHERNET = 14, IPV4_LEAST = 20, TCP_LEAST = 20, SYN = 2 };

int main(int argc, char **argv)
{
    struct stat about;
    const int fd = argc == 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &about) != 0 || about.st_size < FILE_HEADER) {
        fprintf(stderr, "usage: limit FILE.pcap\n");
        return 2;
    }
    const size_t len = (size_t)about.st_size;
    const uint8_t *file = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED) {
        perror(argv[1]);
        return 1;
    }
    uint64_t packets = 0, syn = 0;
    for (size_t at = FILE_HEADER; len - at >= RECORD_HEADER;) {
        uint32_t captured;
        memcpy(&captured, file + at + 8, sizeof captured);
        if (captured > len - at - RECORD_HEADER)
            break;
        const uint8_t *p = file + at + RECORD_HEADER;
        if (captured >= ETHERNET + IPV4_LEAST + TCP_LEAST && p[12] == 8 && p[13] == 0 && p[ETHERNET + 9] == 6) {
            const uint32_t header = (uint32_t)(p[ETHERNET] & 15) * 4;
            syn += ETHERNET + header + TCP_LEAST <= captured && (p[ETHERNET + header + 13] & SYN) != 0;
        }
        packets++;
        at += RECORD_HEADER + captured;
    }
    printf("%" PRIu64 " packets, %" PRIu64 " SYN\n", packets, syn);
    return 0;
}
