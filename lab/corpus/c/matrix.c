/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A small network of two layers as nested loops over matrices: in classifiers by machine learning.
 */
#include "weir.h"
#include "module.h"

enum { IN = 8, HIDDEN = 16, OUT = 4 };
static float first[HIDDEN][IN], second[OUT][HIDDEN];

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    for (int i = 0; i < HIDDEN; i++)
        for (int j = 0; j < IN; j++)
            first[i][j] = (float)((i * 7 + j * 13) % 11 - 5) / 8;
    for (int i = 0; i < OUT; i++)
        for (int j = 0; j < HIDDEN; j++)
            second[i][j] = (float)((i * 5 + j * 3) % 7 - 3) / 4;
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const float in[IN] = { p->wire_len / 1500.0f, p->ttl / 255.0f, p->tos / 255.0f, p->ip_proto / 255.0f,
                           p->src_port / 65535.0f, p->dst_port / 65535.0f, p->tcp_flags / 255.0f, 1 };
    float hidden[HIDDEN], out[OUT];
    for (int i = 0; i < HIDDEN; i++) {
        hidden[i] = 0;
        for (int j = 0; j < IN; j++)
            hidden[i] += first[i][j] * in[j];
        if (hidden[i] < 0)
            hidden[i] = 0;
    }
    int best = 0;
    for (int i = 0; i < OUT; i++) {
        out[i] = 0;
        for (int j = 0; j < HIDDEN; j++)
            out[i] += second[i][j] * hidden[j];
        if (out[i] > out[best])
            best = i;
    }
    return best == 3 ? WEIR_DROP : WEIR_PASS;
}
