/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A binary heap of deadlines, sifted down and up: in timers.
 */
#include "weir.h"
#include "module.h"

enum { SIZE = 256 };
static uint64_t heap[SIZE];
static uint32_t count;

static void push(uint64_t value)
{
    uint32_t i = count++;
    while (i > 0 && heap[(i - 1) / 2] > value) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = value;
}

static void pop(void)
{
    const uint64_t value = heap[--count];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= count)
            break;
        if (child + 1 < count && heap[child + 1] < heap[child])
            child++;
        if (value <= heap[child])
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = value;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (count > 0 && heap[0] <= p->ts_ns)
        pop();
    if (count < SIZE)
        push(p->ts_ns + p->wire_len * 1000);
    return count == SIZE ? WEIR_DROP : WEIR_PASS;
}
