/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A linked list of flows. */
#include "weir.h"

struct flow { uint64_t hash; struct flow *next; };
struct flow *flows;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    bool found = false;
    // refused
    for (const struct flow *f = flows; f != NULL; f = f->next)
        if (f->hash == p->flow_hash)
            found = true;
    // end
    return found ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    WEIR_FOR(256, const struct flow *f = flows; f != NULL; f = f->next)
        if (f->hash == p->flow_hash)
            found = true;
*/
