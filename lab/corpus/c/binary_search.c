/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A binary search over a sorted table of ports: in classifiers.
 */
#include "weir.h"
#include "module.h"

static const uint16_t ports[] = {
    20, 21, 22, 23, 25, 37, 42, 43, 49, 53, 67, 68, 69, 79, 80, 88, 102, 110, 111, 113, 119, 123, 135, 137, 138, 139, 143,
    161, 162, 177, 179, 194, 389, 427, 443, 445, 464, 465, 500, 512, 513, 514, 515, 520, 521, 540, 546, 547, 554, 587, 593,
    631, 636, 646, 666, 873, 902, 989, 990, 993, 995, 1080, 1194, 1352, 1433, 1521, 1701, 1720, 1723, 1812, 1813, 2049,
};
enum { PORTS = sizeof ports / sizeof ports[0] };

static int find(uint16_t port)
{
    int low = 0, high = PORTS - 1;
    while (low <= high) {
        const int middle = (low + high) / 2;
        if (ports[middle] == port)
            return middle;
        if (ports[middle] < port)
            low = middle + 1;
        else
            high = middle - 1;
    }
    return -1;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    return find(p->dst_port) < 0 && find(p->src_port) < 0 ? WEIR_DROP : WEIR_PASS;
}
