/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Tests of guest/sdk-c/weir_containers.h in a native build. Most tests do random operations on a container and on a
 * simple model of it, and compare the results. The random numbers are the same in every run.
 *
 *     clang -g -O1 -fsanitize=address,undefined -I guest/sdk-c -o containers apps/author/tests/containers.c
 *
 * The program prints nothing and returns 0 if all tests pass. */
#define WEIR_NATIVE 1
#include "weir.h"
#include "weir_containers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);     \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

enum { COUNTED_KEYS = 5000, BLOOM_KEYS = 10000, OTHER_KEYS = 100000 };
enum { STEP_NS = 10, WHEEL_SLOTS = 128, WHEEL_TIMERS = 300, WHEEL_OPERATIONS = 200000 };
enum { LONGEST_DELAY = (WHEEL_SLOTS - 2) * STEP_NS };

/* The containers under test. */
WEIR_TEXT_KEY(host_name, 20)
WEIR_MAP(requests, struct host_name, uint64_t, 100)
WEIR_MAP(hosts, uint32_t, uint64_t, 64)
WEIR_TOP(talkers, uint32_t, 256)
WEIR_COUNT_MIN(sketch, uint32_t, 1024)
WEIR_BLOOM(sources, uint64_t, BLOOM_KEYS)
WEIR_HLL(distinct, uint64_t, 14)
WEIR_LPM(networks, 4000)
WEIR_LPM(without_nodes, 0)
WEIR_RING(last, uint32_t, 3)
WEIR_STACK(calls, uint32_t, 5)
WEIR_WHEEL(wheel, uint32_t, WHEEL_TIMERS, WHEEL_SLOTS, STEP_NS)
WEIR_WHEEL(timeouts, uint32_t, 3, 64, 100)

/* weir.h declares these for the program that loads a native module. Addresses of strings are not used here. */
uint8_t *weir_native_base;
uint32_t weir_host_address(const void *bytes, uint32_t len) { return bytes != NULL ? len : 0; }

/* George Marsaglia's xorshift64. */
static uint64_t random_number(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint32_t random_below(uint32_t limit) { return (uint32_t)(random_number() % limit); }

static void hash_depends_on_length_seed_and_every_bit_of_a_key(void)
{
    uint8_t key[24] = { 0 };
    for (uint32_t len = 1; len <= sizeof key; len++) {
        const uint64_t hash = weir_hash_key(key, len);
        CHECK(hash != weir_hash_key(key, len - 1));
        for (uint32_t bit = 0; bit < 8 * len; bit++) {
            key[bit / 8] ^= 1 << bit % 8;
            CHECK(weir_hash_key(key, len) != hash);
            key[bit / 8] ^= 1 << bit % 8;
        }
        weir_seed(1);
        CHECK(weir_hash_key(key, len) != hash);
        weir_key_seed = 0;
    }
}

static void text_keys_are_cut_and_followed_by_zeros(void)
{
    /* The second length is a lie: the functions read no more bytes than the key has room for. */
    const uint8_t *long_text = (const uint8_t *)"A text of more than twenty bytes";
    struct host_name name = host_name_of(long_text, 32);
    CHECK(name.len == 20 && memcmp(name.bytes, long_text, 20) == 0);
    CHECK(host_name_until(long_text, UINT32_MAX, '\r').len == 20 && host_name_until(long_text, 0, '\r').len == 0);

    /* A key that grew byte by byte equals the one that was cut from a text. */
    name = host_name_until((const uint8_t *)"@AZ[az\r\n", 8, '\r');
    host_name_lower(&name);
    *requests_add(name) = 7;
    struct host_name same = { 0 };
    for (const char *c = "@az[az"; *c != 0; c++)
        CHECK(host_name_put(&same, (uint8_t)*c));
    CHECK(requests_find(same) != NULL && *requests_find(same) == 7);
    CHECK(host_name_put(&same, 0) && requests_find(same) == NULL);
    CHECK(host_name_string(&same).len == 7);
    while (same.len < 20)
        CHECK(host_name_put(&same, 'x'));
    CHECK(!host_name_put(&same, 'x'));
}

/* Has as many sets as the map. All zeros: a free entry. */
static struct model_entry {
    uint32_t key;
    uint64_t packets, last_use;
} model[hosts_SLOTS];

/* Returns the key's entry, else the place for it: that of the key's set whose last use is the longest ago. */
static struct model_entry *model_place(uint32_t key)
{
    struct model_entry *set = &model[weir_hash_scale(weir_hash_key(&key, sizeof key), hosts_SETS) * WEIR_WAYS];
    struct model_entry *place = set;
    for (uint32_t way = 0; way < WEIR_WAYS; way++) {
        if (set[way].key == key)
            return &set[way];
        if (set[way].last_use < place->last_use)
            place = &set[way];
    }
    return place;
}

static void check_that_map_equals_model(void)
{
    uint32_t len = 0;
    WEIR_MAP_EACH(hosts, e) {
        CHECK(model_place(e->key)->key == e->key && model_place(e->key)->packets == e->value);
        len++;
    }
    CHECK(len == hosts_len());
    for (uint32_t i = 0; i < hosts_SLOTS; i++)
        len -= model[i].key != 0;
    CHECK(len == 0);
}

static void map_keeps_what_an_exact_model_keeps(void)
{
    uint64_t evictions = 0;
    hosts_map.counts.clock = UINT32_MAX - 1000; /* the clock wraps around early in the test */
    for (uint64_t time = 1; time <= 200000; time++) {
        const uint32_t key = 1 + random_below(120);
        struct model_entry *entry = model_place(key);
        const bool is_known = entry->key == key;
        const uint32_t operation = random_below(10);
        if (operation == 0) {
            CHECK(hosts_remove(key) == is_known);
            if (is_known)
                *entry = (struct model_entry){ 0 };
        } else if (operation < 4) {
            const uint64_t *packets = hosts_find(key);
            CHECK(is_known ? packets != NULL && *packets == entry->packets : packets == NULL);
            if (is_known)
                entry->last_use = time;
        } else {
            const struct model_entry before = *entry;
            const bool evicts = !is_known && before.key != 0;
            uint64_t *packets = hosts_add(key);
            CHECK((hosts_evicted() != NULL) == evicts);
            CHECK(!evicts || (hosts_evicted()->key == before.key && hosts_evicted()->value == before.packets));
            CHECK(*packets == (is_known ? before.packets : 0));
            *packets += time;
            *entry = (struct model_entry){ key, *packets, time };
            evictions += evicts;
        }
        if (time % 500 == 0)
            check_that_map_equals_model();
    }
    CHECK(evictions > 10000 && evictions == hosts_evictions());
}

/* Goes on with the entries of the test before. */
static void map_loops_visit_every_entry_once(void)
{
    const uint32_t len = hosts_len();
    uint32_t position = 0, visits = 0;
    bool seen[121] = { false };
    while (position < hosts_SLOTS) {
        WEIR_MAP_PART(hosts, position, 7, e) {
            CHECK(!seen[e->key]);
            seen[e->key] = true;
            visits++;
        }
    }
    CHECK(visits == len);

    WEIR_MAP_EACH(hosts, e) {
        if (e->key % 2 == 1)
            continue;
        *model_place(e->key) = (struct model_entry){ 0 };
        hosts_drop(e);
        hosts_drop(e); /* has no effect */
    }
    check_that_map_equals_model();
    CHECK(hosts_len() < len);
    hosts_clear();
    CHECK(hosts_len() == 0 && hosts_find(1) == NULL && *hosts_add(1) == 0);
}

/* Small keys are much more frequent than large ones. */
static uint32_t skewed_key(void)
{
    const double share = (double)random_below(1u << 30) / (1u << 30);
    return (uint32_t)(COUNTED_KEYS * share * share * share * share * share * share);
}

static uint32_t talkers_set(uint32_t key) { return weir_hash_scale(weir_hash_key(&key, sizeof key), talkers_SETS); }

static void top_keeps_the_bounds_of_space_saving(void)
{
    static uint64_t exact[COUNTED_KEYS];
    uint64_t set_totals[talkers_SETS] = { 0 };
    uint64_t total = 0;
    for (uint32_t i = 0; i < 200000; i++) {
        const uint32_t key = skewed_key();
        const uint64_t amount = 1 + random_below(10);
        exact[key] += amount;
        set_totals[talkers_set(key)] += amount;
        total += amount;
        talkers_add(key, amount);
    }
    CHECK(talkers_total() == total);
    for (uint32_t key = 0; key < COUNTED_KEYS; key++) {
        const uint64_t most_error = set_totals[talkers_set(key)] / WEIR_WAYS;
        const struct talkers_entry *e = talkers_find(key);
        CHECK(e != NULL || exact[key] <= most_error);
        if (e != NULL) {
            CHECK(e->count >= exact[key] && e->count - e->error <= exact[key]);
            CHECK(e->error <= most_error);
            total -= e->count;
        }
    }
    CHECK(total == 0); /* each amount is in one count */

    const struct talkers_entry *list[WEIR_TOP_LIST];
    CHECK(talkers_list(list, 0) == 0 && talkers_list(list, 1000) == WEIR_TOP_LIST);
    for (uint32_t i = 1; i < WEIR_TOP_LIST; i++)
        CHECK(list[i - 1]->count >= list[i]->count);
    uint32_t rank = 0;
    WEIR_TOP_EACH(talkers, 10, e) {
        CHECK(e->key == rank && e == list[rank]); /* the counts of these keys differ by more than the errors */
        CHECK(e_rank == ++rank);
    }
    talkers_clear();
    CHECK(talkers_total() == 0 && talkers_find(0) == NULL && talkers_list(list, 10) == 0);
}

static void count_min_is_never_too_low_and_seldom_too_high(void)
{
    static uint64_t exact[COUNTED_KEYS];
    uint64_t total = 0;
    for (uint32_t i = 0; i < 200000; i++) {
        const uint32_t key = skewed_key();
        exact[key] += 3;
        total += 3;
        const uint64_t estimate = sketch_add(key, 3);
        CHECK(estimate >= exact[key] && estimate == sketch_estimate(key));
    }
    CHECK(sketch_total() == total);
    uint64_t excess = 0, over_the_bound = 0;
    for (uint32_t key = 0; key < COUNTED_KEYS; key++) {
        const uint64_t error = sketch_estimate(key) - exact[key];
        excess += error;
        over_the_bound += error > 2.72 * (double)total / 1024;
    }
    CHECK(over_the_bound <= COUNTED_KEYS * 2 / 100);
    CHECK(excess / COUNTED_KEYS < 60); /* it is higher with fewer rows, and without the conservative update */
    sketch_clear();
    CHECK(sketch_total() == 0 && sketch_estimate(0) == 0);
}

/* Number of keys that were not added, but do not look new. */
static uint32_t false_positives(void)
{
    uint32_t count = 0;
    for (uint64_t i = 0; i < OTHER_KEYS; i++)
        count += sources_has((UINT64_C(1) << 40) + i);
    return count;
}

static void bloom_forgets_no_key_and_has_few_false_positives(void)
{
    uint32_t added = 0;
    for (uint64_t key = 0; key < BLOOM_KEYS; key++) {
        const bool was_known = sources_has(key);
        CHECK(sources_add(key) == !was_known && sources_has(key));
        added += !was_known;
    }
    CHECK(added == sources_len() && added > BLOOM_KEYS - BLOOM_KEYS / 400);
    for (uint64_t key = 0; key < BLOOM_KEYS; key++)
        CHECK(!sources_add(key));

    /* The header says 1 of 400, and 1 of 40 with twice as many keys. Three hashes would give 1 of 200, and 1 of 33. */
    CHECK(false_positives() < OTHER_KEYS / 330);
    for (uint64_t key = BLOOM_KEYS; key < 2 * BLOOM_KEYS; key++)
        sources_add(key);
    CHECK(false_positives() < OTHER_KEYS / 36);
    sources_clear();
    CHECK(sources_len() == 0 && false_positives() == 0);
}

static void hll_has_the_error_that_the_header_says(void)
{
    static uint8_t registers[1 << 14];
    for (uint32_t bits = 4; bits <= 14; bits += 2) {
        const uint32_t len = 1u << bits, keys = 8 * len, runs = (1u << 18) / len;
        double squares = 0;
        for (uint32_t run = 0; run < runs; run++) {
            memset(registers, 0, len);
            for (uint32_t i = 0; i < keys; i++)
                weir_hll_add(registers, bits, weir_hash64(random_number(), 0));
            const double error = weir_hll_count(registers, bits) / keys - 1;
            squares += error * error;
        }
        /* For the fewest runs, 16, the mean square is below twice its expectation with three standard deviations. */
        CHECK(squares / runs < 2 * 1.04 * 1.04 / len);
    }
}

static void hll_counts_small_numbers_well_and_merges(void)
{
    static struct distinct left, right, both;
    for (uint64_t i = 0; i < 900; i++) {
        distinct_add(i % 2 == 0 ? &left : &right, i);
        distinct_add(&both, i);
        CHECK(!distinct_add(&both, i / 2)); /* a known key changes nothing */
    }
    CHECK(distinct_count(&both) > 885 && distinct_count(&both) < 915);
    distinct_merge(&left, &right);
    CHECK(memcmp(&left, &both, sizeof both) == 0);
    distinct_clear(&both);
    CHECK(distinct_count(&both) == 0);
}

/* Writes an address of which many share their first bytes. */
static void random_address(uint8_t address[16])
{
    const bool is_v4 = random_below(2) == 0;
    memset(address, 0, 16);
    for (uint32_t i = is_v4 ? 12 : 0; i < 16; i++)
        address[i] = (uint8_t)(random_below(4) * 85);
    if (is_v4)
        address[10] = address[11] = 0xFF;
}

static void lpm_finds_what_a_linear_search_finds(void)
{
    enum { PREFIXES = 400 };
    static uint8_t prefixes[PREFIXES][17];
    for (uint32_t i = 0; i < PREFIXES; i++) {
        random_address(prefixes[i]);
        const bool is_v4 = weir_ip_is_v4(weir_ip_v6(prefixes[i]));
        prefixes[i][16] = (uint8_t)(is_v4 ? 112 + random_below(17) : 20 + random_below(109));
        CHECK(networks_add(prefixes[i], i)); /* bits behind the prefix's length are not zero */
    }
    uint32_t found_count = 0;
    for (uint32_t i = 0; i < 30000; i++) {
        uint8_t address[16];
        random_address(address);
        if (i % 2 == 0)
            memcpy(address, prefixes[random_below(PREFIXES)], 16);
        if (i % 4 == 0) {
            const uint32_t bit = (weir_ip_is_v4(weir_ip_v6(address)) ? 96 : 0) + random_below(32);
            address[bit / 8] ^= 128 >> bit % 8;
        }
        const struct weir_ip ip = weir_ip_v6(address);
        int32_t longest = -1;
        uint32_t expected = UINT32_MAX; /* lpm_find leaves the value as it is if it finds nothing */
        for (uint32_t n = 0; n < PREFIXES; n++) {
            const struct weir_prefix prefix = weir_prefix_of(prefixes[n]);
            if (weir_prefix_has(&prefix, ip) && prefixes[n][16] >= longest) {
                longest = prefixes[n][16];
                expected = n; /* a prefix that is added again has the last value */
            }
        }
        uint32_t value = UINT32_MAX;
        CHECK(networks_find(ip, &value) == (longest >= 0) && value == expected);
        found_count += longest >= 0;
    }
    CHECK(found_count > 5000 && found_count < 25000);

    networks_clear();
    CHECK(!networks_find(weir_ip_v6(prefixes[0]), &(uint32_t){ 0 }));
}

static void lpm_without_nodes_has_the_shortest_prefixes_only(void)
{
    const struct weir_ip v4 = weir_ip_v4((const uint8_t[]){ 10, 2, 3, 4 }), v6 = { 1, 2 };
    uint8_t network[17] = { [10] = 0xFF, [11] = 0xFF, [12] = 10, [16] = 104 };
    uint32_t value = 0;
    CHECK(without_nodes_add((const uint8_t[17]){ 0 }, 1)); /* ::/0 */
    CHECK(without_nodes_find(v6, &value) && value == 1 && !without_nodes_find(v4, &value));
    CHECK(without_nodes_add(network, 2)); /* 10.0.0.0/8 */
    network[16] = 105;
    CHECK(!without_nodes_add(network, 3)); /* 10.0.0.0/9 */
    CHECK(without_nodes_find(v4, &value) && value == 2);
}

static void histogram_quantiles_are_within_a_thirty_second(void)
{
    static uint64_t values[20000]; /* from the lowest to the highest */
    static struct weir_histogram h, merged;
    uint32_t len = 0;
    CHECK(weir_histogram_quantile(&h, 0.5) == 0);
    for (uint64_t value = 3; value < UINT64_MAX / 2; value += random_number() % (value / 100 + 2)) {
        values[len++] = value;
        weir_histogram_add(&h, value);
    }
    weir_histogram_add(&h, UINT64_MAX);
    values[len++] = UINT64_MAX;
    CHECK(h.count == len);
    for (uint32_t i = 0; i < len; i++) {
        /* The share lies between two ranks, so rounding does not choose another one. */
        const uint64_t quantile = weir_histogram_quantile(&h, (i + 0.5) / len);
        CHECK((quantile > values[i] ? quantile - values[i] : values[i] - quantile) <= values[i] / 32);
    }
    CHECK(weir_histogram_quantile(&h, 0) == 3 && weir_histogram_quantile(&h, 1) == UINT64_MAX);
    for (uint32_t bucket = 0; bucket < WEIR_HISTOGRAM_BUCKETS; bucket++)
        CHECK(weir_histogram_bucket(weir_histogram_value(bucket)) == bucket);

    weir_histogram_merge(&merged, &h);
    CHECK(memcmp(&merged, &h, sizeof h) == 0);
    weir_histogram_clear(&h);
    weir_histogram_add(&h, 1);
    weir_histogram_merge(&merged, &h);
    CHECK(merged.count == len + 1 && merged.min == 1 && merged.max == UINT64_MAX && merged.buckets[1] == 1);
}

static void ring_equals_a_queue_that_drops_its_first_value(void)
{
    static uint32_t pushed[100000];
    uint32_t first = 0, end = 0; /* the queue is the part of `pushed` between them */
    uint64_t overwritten = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        if (random_below(2) == 0) {
            const bool is_full = end - first == 3;
            CHECK(last_push(i) == !is_full);
            pushed[end++] = i;
            first += is_full;
            overwritten += is_full;
        } else {
            uint32_t popped = UINT32_MAX;
            const bool is_empty = first == end;
            CHECK(last_pop(&popped) == !is_empty && popped == (is_empty ? UINT32_MAX : pushed[first]));
            first += !is_empty;
        }
        uint32_t at = first;
        WEIR_RING_EACH(last, value) {
            CHECK(*value == pushed[at] && value == last_at(at - first));
            at++;
        }
        CHECK(at == end);
        CHECK(last_len() == end - first && last_at(end - first) == NULL);
        CHECK(last_overwritten() == overwritten);
    }
    last_clear();
    CHECK(last_len() == 0);
}

static void stack_gives_the_last_value_first(void)
{
    uint32_t expected[5], len = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        if (random_below(2) == 0) {
            CHECK(calls_push(i) == (len < 5));
            if (len < 5)
                expected[len++] = i;
        } else {
            uint32_t popped = UINT32_MAX;
            CHECK(calls_pop(&popped) == (len > 0) && popped == (len > 0 ? expected[len - 1] : UINT32_MAX));
            len -= len > 0;
        }
        CHECK(calls_len() == len);
    }
    calls_clear();
    CHECK(calls_len() == 0);
}

static void bucket_counts_exactly(void)
{
    enum { RATE = 100000, BURST = 1000 };
    const unsigned __int128 full = BURST * (unsigned __int128)WEIR_SECOND;
    unsigned __int128 tokens = full; /* in units of 10^-9 tokens */
    struct weir_bucket bucket = { 0 };
    uint64_t now = 5, latest = 0;
    for (uint32_t i = 0; i < 200000; i++) {
        now += random_below(i % 1000 == 0 ? 3000000000 : 3000000);
        now -= i % 100 == 0 && now > 1000000 ? 1000000 : 0;
        const uint64_t amount = random_below(700);
        if (now > latest) {
            tokens += (unsigned __int128)(now - latest) * RATE;
            tokens = tokens < full ? tokens : full;
            latest = now;
        }
        const bool expected = tokens >= amount * (unsigned __int128)WEIR_SECOND;
        CHECK(weir_bucket_take(&bucket, now, RATE, BURST, amount) == expected);
        if (expected)
            tokens -= amount * (unsigned __int128)WEIR_SECOND;
    }
}

static void bucket_has_limits_without_overflow(void)
{
    const uint64_t most = WEIR_BUCKET_MAX, start = 1700000000 * WEIR_SECOND;
    struct weir_bucket bucket = { 0 };
    CHECK(weir_bucket_take(&bucket, start, 10, 20, 20));
    CHECK(!weir_bucket_take(&bucket, start, 10, 8, 1)); /* the burst was lowered */
    CHECK(weir_bucket_take(&bucket, start + WEIR_SECOND, 10, 8, 8));

    bucket = (struct weir_bucket){ 0 };
    CHECK(weir_bucket_take(&bucket, start, most - 1, most, most));
    CHECK(weir_bucket_take(&bucket, start + 2 * WEIR_SECOND, most - 1, most, most));
    CHECK(weir_bucket_take(&bucket, UINT64_MAX, UINT64_MAX, UINT64_MAX, most));
    CHECK(!weir_bucket_take(&bucket, UINT64_MAX, UINT64_MAX, UINT64_MAX, 1));
    CHECK(!weir_bucket_take(&bucket, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX));
}

static struct model_timer {
    bool runs;
    uint64_t handle, due;
    uint64_t latest; /* a timer that is due in a step that has passed expires with the next step */
} model_timers[WHEEL_OPERATIONS];

static void wheel_expires_each_timer_once_never_early_and_at_most_a_step_late(void)
{
    uint64_t now = 12345;
    uint64_t latest_expiry = now; /* the highest time of a loop over expired timers */
    uint64_t emptied = now;       /* that of a loop that left no timer that was due */
    uint32_t started = 0, refused = 0, running = 0;
    for (uint32_t i = 0; i < WHEEL_OPERATIONS; i++) {
        const uint32_t operation = random_below(8);
        if (operation < 4) {
            const uint64_t delay = random_below(1400);
            const uint64_t handle = wheel_start(now, delay, started);
            if (handle == 0) {
                refused++;
                CHECK(running == WHEEL_TIMERS || delay > LONGEST_DELAY || now + delay > emptied + LONGEST_DELAY);
            } else {
                const uint64_t due = now + delay;
                const uint64_t next_step = (latest_expiry / STEP_NS + 1) * STEP_NS;
                const uint64_t latest = (due > next_step ? due : next_step) + STEP_NS - 1;
                model_timers[started++] = (struct model_timer){ true, handle, due, latest };
                running++;
            }
        } else if (operation == 4 && started > 0) {
            /* The handle may be that of a timer that expired, and whose place is in use again. */
            struct model_timer *timer = &model_timers[started - 1 - random_below(started < 500 ? started : 500)];
            CHECK(wheel_cancel(timer->handle) == timer->runs);
            running -= timer->runs;
            timer->runs = false;
        } else if (operation < 7) {
            now += random_below(20);
            if (random_below(2000) == 0)
                now += random_below(100000);
            if (random_below(1000) == 0)
                now -= random_below(300); /* packets are not always in order */
        } else {
            const uint32_t most = random_below(2) == 0 ? 16 : 5000;
            uint32_t expired = 0;
            latest_expiry = now > latest_expiry ? now : latest_expiry;
            WEIR_WHEEL_EACH(wheel, now, most, number) {
                CHECK(model_timers[*number].runs && model_timers[*number].due <= now);
                model_timers[*number].runs = false;
                running--;
                expired++;
            }
            CHECK(expired <= most);
            if (most == 5000) {
                emptied = latest_expiry;
                CHECK(wheel_left(now) == 0);
                for (uint32_t number = started > 1000 ? started - 1000 : 0; number < started; number++)
                    CHECK(!model_timers[number].runs || model_timers[number].latest > now);
            }
        }
        CHECK(wheel_len() == running);
    }
    CHECK(started > 50000 && refused > 1000);
}

static void wheel_has_the_limits_that_the_header_says(void)
{
    for (uint64_t now = 1000; now < 1100; now++) {
        const uint64_t handle = timeouts_start(now, 62 * 100, 1);
        CHECK(timeouts_cancel(handle) && !timeouts_cancel(handle));
    }
    CHECK(timeouts_start(1000, 63 * 100 + 1, 1) == 0 && timeouts_start(1000, UINT64_MAX, 1) == 0);
    CHECK(timeouts_start(UINT64_MAX - 5, 100, 1) == 0);
    CHECK(!timeouts_cancel(0) && !timeouts_cancel(UINT64_MAX));

    /* The loop's body cancels a timer that is due as well, and starts another one. */
    uint64_t handles[3];
    for (uint32_t i = 0; i < 3; i++)
        handles[i] = timeouts_start(1000, 200, i);
    CHECK(timeouts_start(1000, 200, 3) == 0); /* all timers run */
    CHECK(timeouts_left(1199) == 0 && timeouts_left(1200) == 3);
    WEIR_WHEEL_EACH(timeouts, 1200, 64, number) {
        CHECK(timeouts_cancel(handles[(*number + 1) % 3]));
        CHECK(timeouts_start(1200, 500, 9) != 0);
        break;
    }
    CHECK(timeouts_left(1200) == 1 && timeouts_len() == 2);
}

int main(void)
{
    hash_depends_on_length_seed_and_every_bit_of_a_key();
    text_keys_are_cut_and_followed_by_zeros();
    map_keeps_what_an_exact_model_keeps();
    map_loops_visit_every_entry_once();
    top_keeps_the_bounds_of_space_saving();
    count_min_is_never_too_low_and_seldom_too_high();
    bloom_forgets_no_key_and_has_few_false_positives();
    hll_has_the_error_that_the_header_says();
    hll_counts_small_numbers_well_and_merges();
    lpm_finds_what_a_linear_search_finds();
    lpm_without_nodes_has_the_shortest_prefixes_only();
    histogram_quantiles_are_within_a_thirty_second();
    ring_equals_a_queue_that_drops_its_first_value();
    stack_gives_the_last_value_first();
    bucket_counts_exactly();
    bucket_has_limits_without_overflow();
    wheel_expires_each_timer_once_never_early_and_at_most_a_step_late();
    wheel_has_the_limits_that_the_header_says();
    return 0;
}
