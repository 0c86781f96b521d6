/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A hash table with chains, as used in connection tracking.
 */
#include "weir.h"
#include "module.h"

enum { BUCKETS = 1024, ENTRIES = 4096 };
struct entry {
    struct entry *next;
    uint64_t key;
    uint64_t last_seen;
};
static struct entry *buckets[BUCKETS];
static struct entry entries[ENTRIES];
static uint32_t used;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    struct entry **bucket = &buckets[p->flow_hash % BUCKETS];
    for (struct entry *e = *bucket; e != NULL; e = e->next) {
        if (e->key == p->flow_hash) {
            e->last_seen = p->ts_ns;
            return WEIR_PASS;
        }
    }
    if (used == ENTRIES)
        return WEIR_DROP;
    struct entry *fresh = &entries[used++];
    fresh->key = p->flow_hash;
    fresh->last_seen = p->ts_ns;
    fresh->next = *bucket;
    *bucket = fresh;
    return WEIR_PASS;
}
