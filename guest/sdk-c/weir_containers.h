/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * weir_containers.h: data structures for weir modules in C. Header only, without a C library, like weir.h.
 *
 *     #include "weir.h"
 *     #include "module.h"
 *     #include "weir_containers.h"
 *
 *     struct traffic { uint64_t packets, bytes; };
 *     WEIR_MAP(hosts, struct weir_ip, struct traffic, 4096)
 *
 *     struct traffic *t = hosts_add(weir_src(p));
 *     t->packets++;
 *
 * Every operation has a constant bound of its time. So weir finds a bound of each call, and a module that uses nothing else
 * is proved (docs/MODULES.md, "Being proved"). No operation allocates memory: storage is static, and its size is constant.
 * No input makes an operation read or write outside of its storage.
 *
 *     WEIR_MAP         hash map; evicts the least recently used entry of a full set
 *     WEIR_TOP         the keys with the highest counts
 *     WEIR_COUNT_MIN   estimated counts of any number of keys
 *     WEIR_BLOOM       set of keys, with a small share of false positives
 *     WEIR_HLL         number of distinct keys
 *     WEIR_LPM         longest matching prefix of an IPv4 or IPv6 address
 *     WEIR_RING        the last values
 *     WEIR_WHEEL       timers
 *     weir_histogram   distribution of values, with quantiles
 *     weir_bucket      token bucket
 *
 * The macros define functions whose names begin with the given name: WEIR_MAP(hosts, ...) defines hosts_add(). Use each macro
 * once for a name, at file scope, without a semicolon.
 */
#ifndef WEIR_CONTAINERS_H
#define WEIR_CONTAINERS_H

#include "weir.h"

#define WEIR_FUNCTION static inline __attribute__((unused))

/* Returns a number that is at most `most` already. The compiler may not see that the comparison has no effect, so that weir finds a
 * bound of loops up to the result. */
WEIR_INLINE uint32_t weir_cut(uint32_t number, uint32_t most)
{
    __asm__("" : "+r"(number));
    return number < most ? number : most;
}

/* ---- Keys ------------------------------------------------------------------------------------------------------------ */

/* A key is an integer, a struct weir_ip, or a struct that has WEIR_KEY behind its closing brace:
 *
 *     struct pair { struct weir_ip source, destination; uint16_t port; } WEIR_KEY;
 *
 * Keys are compared and hashed as bytes, so they must not have padding, whose content is undefined. WEIR_KEY packs the struct.
 * A struct of uint8_t alone has no padding either. Other types do not compile. Fields that are structs themselves are not
 * checked: they must be packed as well, or have no padding, like struct weir_ip. For texts there is WEIR_TEXT_KEY. */
#define WEIR_KEY __attribute__((packed))

/* Types of keys without padding: integers, struct weir_ip, and packed structs, which have the alignment 1. */
#define WEIR_KEY_CHECK(key_type)                                                                                                 \
    _Static_assert(_Alignof(key_type) == 1 || _Generic((key_type){ 0 },                                                          \
        short: 1, unsigned short: 1, int: 1, unsigned: 1, long: 1, unsigned long: 1, long long: 1, unsigned long long: 1,        \
        struct weir_ip: 1, default: 0), "a key is an integer, a struct weir_ip, or a struct with WEIR_KEY behind its brace");

/* WEIR_TEXT_KEY(type, size): a text of up to `size` bytes, at most 255, as a key. Behind the text are zeros.
 *
 *     struct type { uint8_t len; uint8_t bytes[size]; }
 *     struct type type_of(const uint8_t *bytes, uint32_t len)                    a longer text is cut
 *     struct type type_until(const uint8_t *bytes, uint32_t len, uint8_t end)    the bytes before the first `end`
 *     bool type_put(struct type *text, uint8_t byte)                             adds a byte; false if the text is full
 *     void type_lower(struct type *text)                                         changes ASCII letters to lower case
 *     struct weir_str type_string(const struct type *text)                       for a field of a row
 *
 * The functions read at most `len` bytes and at most `size`, so `len` needs no limit of its own for weir to find a bound. */
#define WEIR_TEXT_KEY(type, size)                                                                                                \
    _Static_assert((size) > 0 && (size) <= 255, "1 to 255 bytes");                                                               \
    struct type {                                                                                                                \
        uint8_t len;                                                                                                             \
        uint8_t bytes[size];                                                                                                     \
    };                                                                                                                           \
    WEIR_FUNCTION struct type type##_of(const uint8_t *bytes, uint32_t len)                                                      \
    {                                                                                                                            \
        struct type text = { 0 };                                                                                                \
        text.len = (uint8_t)(len < (size) ? len : (size));                                                                       \
        weir_copy(text.bytes, bytes, text.len);                                                                                  \
        return text;                                                                                                             \
    }                                                                                                                            \
    WEIR_FUNCTION struct type type##_until(const uint8_t *bytes, uint32_t len, uint8_t end)                                      \
    {                                                                                                                            \
        uint32_t count = 0; /* the compiler must not count by another variable, whose limit would be lost */                     \
        WEIR_WHILE((size), count < (size) && count < len && bytes[count] != end)                                                 \
            count++;                                                                                                             \
        return type##_of(bytes, count);                                                                                          \
    }                                                                                                                            \
    WEIR_FUNCTION bool type##_put(struct type *text, uint8_t byte)                                                               \
    {                                                                                                                            \
        if (text->len >= (size))                                                                                                 \
            return false;                                                                                                        \
        text->bytes[text->len++] = byte;                                                                                         \
        return true;                                                                                                             \
    }                                                                                                                            \
    WEIR_FUNCTION void type##_lower(struct type *text)                                                                           \
    {                                                                                                                            \
        for (uint32_t i = 0; i < (size); i++)                                                                                    \
            if (text->bytes[i] >= 'A' && text->bytes[i] <= 'Z')                                                                  \
                text->bytes[i] += 'a' - 'A';                                                                                     \
    }                                                                                                                            \
    WEIR_FUNCTION struct weir_str type##_string(const struct type *text) { return weir_string(text->bytes, text->len); }

/* The seed of all hashes of keys. Weak: one variable for all .c files of a module. */
extern uint64_t weir_key_seed;
__attribute__((weak, visibility("hidden"))) uint64_t weir_key_seed;

/* Sets the seed of all hashes of keys. Call it in weir_start, before the first key.
 *
 * A sender who knows the seed can choose keys that collide: they evict each other from a map, and raise estimates. The bounds of
 * time hold even then. weir has no random numbers, so that a capture gives the same rows on every machine: the default seed is 0,
 * and known. A module that must withstand such senders takes a seed from its operator, as a parameter. */
WEIR_INLINE void weir_seed(uint64_t seed) { weir_key_seed = weir_hash64(seed, 1); }

/* Hash of a key's bytes. `len` is a constant. */
WEIR_INLINE uint64_t weir_hash_key(const void *key, uint32_t len)
{
    const uint8_t *at = (const uint8_t *)key;
    uint64_t hash = weir_hash_add(weir_key_seed, len);
    uint32_t i = 0;
    for (; i + 8 <= len; i += 8)
        hash = weir_hash_add(hash, weir_le64(at + i));
    uint64_t rest = 0;
    if (len & 4) {
        rest = weir_le32(at + i);
        i += 4;
    }
    if (len & 2) {
        rest = rest << 16 | weir_le16(at + i);
        i += 2;
    }
    if (len & 1)
        rest = rest << 8 | at[i];
    if (len & 7)
        hash = weir_hash_add(hash, rest);
    return weir_hash_end(hash);
}

/* Scales the upper half of a hash to a number below `count`. */
WEIR_INLINE uint32_t weir_hash_scale(uint64_t hash, uint32_t count) { return (uint32_t)((hash >> 32) * count >> 32); }

/* Scales the hash number i that follows from a hash (A. Kirsch, M. Mitzenmacher, "Less hashing, same performance", ESA 2006). */
WEIR_INLINE uint32_t weir_hash_nth(uint64_t hash, uint32_t i, uint32_t count)
{
    const uint32_t nth = (uint32_t)(hash >> 32) + i * ((uint32_t)hash | 1);
    return (uint32_t)((uint64_t)nth * count >> 32);
}

/* Number of entries in a set of WEIR_MAP and WEIR_TOP. A key's hash chooses its set; the key is in one of the set's ways. */
enum { WEIR_WAYS = 8 };

/* Part of a hash that marks an entry; never 0, which marks a free one. */
WEIR_INLINE uint32_t weir_hash_tag(uint64_t hash) { return (uint32_t)hash | 1; }

/* Returns the way of a key, or WEIR_WAYS. `first` is the set's first entry, which begins with its key. */
WEIR_INLINE uint32_t weir_way_of(const uint32_t tags[WEIR_WAYS], const void *first, size_t entry_len, uint32_t tag, const void *key,
                                 size_t key_len)
{
    for (uint32_t way = 0; way < WEIR_WAYS; way++)
        if (tags[way] == tag && weir_equal((const uint8_t *)first + way * entry_len, key, key_len))
            return way;
    return WEIR_WAYS;
}

/* ---- Hash map ----------------------------------------------------------------------------------------------------------- */

/* WEIR_MAP(name, key_type, value_type, capacity): hash map of `capacity` entries, rounded up to a multiple of 8.
 *
 *     value_type *name_find(key_type key)   the value, or NULL; it counts as a use
 *     value_type *name_add(key_type key)    the value; a new one is all zeros
 *     bool name_remove(key_type key)        false if there is no such key
 *     void name_clear(void)
 *     uint32_t name_len(void)               number of entries
 *     uint64_t name_evictions(void)         number of entries that lost their place since the start
 *     const struct name_entry *name_evicted(void)
 *                                           copy of the entry that the last name_add evicted, or NULL if it evicted none
 *     void name_drop(struct name_entry *e)  removes an entry, also within a loop over entries
 *
 * `struct name_entry` has the fields `key` and `value`. Pointers to entries and values are valid until the next name_add.
 *
 * The map is divided into sets of 8 entries, one cache line of tags for each. If a key's set is full, name_add evicts the set's
 * least recently used entry, before the whole map is full: of capacity/4 keys, about 1 of 6,800 has no place, of capacity/2 keys
 * 1 of 120, of `capacity` keys 1 of 7. So choose twice to four times the expected number of keys, and report name_evicted() or
 * name_evictions(). Maps are not indexed by the top bits of `flow_hash`, so modules that use them need `parallel = "none"`.
 *
 * Loops over entries, in no particular order. `break` and `continue` work as usual.
 *
 *     WEIR_MAP_EACH(hosts, e) { ... e->key, e->value ... }     all entries; goes through the whole capacity
 *
 * A map with more rows than a call may emit goes through a part of itself in each call, and keeps its position in a variable:
 *
 *     static uint32_t position;
 *
 *     WEIR_EXPORT(weir_rest) int32_t weir_rest(uint64_t now)
 *     {
 *         WEIR_MAP_PART(hosts, position, 4096, e) { ... }      at most 4096 entries, free ones included
 *         return position < hosts_SLOTS;
 *     }
 *
 * In weir_tick, set the position to 0 when it has reached name_SLOTS. */
#define WEIR_MAP(name, key_type, value_type, capacity)                                                                           \
    WEIR_KEY_CHECK(key_type)                                                                                                     \
    enum { name##_SETS = ((capacity) + WEIR_WAYS - 1) / WEIR_WAYS, name##_SLOTS = name##_SETS * WEIR_WAYS };                     \
    _Static_assert(name##_SETS > 0, "a map has at least one set");                                                               \
    struct name##_entry {                                                                                                        \
        key_type key;                                                                                                            \
        value_type value;                                                                                                        \
    };                                                                                                                           \
    static struct {                                                                                                              \
        struct weir_map_set sets[name##_SETS];                                                                                   \
        struct name##_entry entries[name##_SLOTS], evicted;                                                                      \
        struct weir_map_counts counts;                                                                                           \
    } name##_map;                                                                                                                \
    WEIR_FUNCTION struct name##_entry *name##_find_entry(const key_type *key, uint64_t hash)                                     \
    {                                                                                                                            \
        const uint32_t set = weir_hash_scale(hash, name##_SETS);                                                                 \
        const uint32_t way = weir_way_of(name##_map.sets[set].tag, &name##_map.entries[set * WEIR_WAYS],                         \
                                         sizeof(struct name##_entry), weir_hash_tag(hash), key, sizeof *key);                    \
        if (way == WEIR_WAYS)                                                                                                    \
            return NULL;                                                                                                         \
        name##_map.sets[set].used[way] = ++name##_map.counts.clock;                                                              \
        return &name##_map.entries[set * WEIR_WAYS + way];                                                                       \
    }                                                                                                                            \
    WEIR_FUNCTION value_type *name##_find(key_type key)                                                                          \
    {                                                                                                                            \
        struct name##_entry *e = name##_find_entry(&key, weir_hash_key(&key, sizeof key));                                       \
        return e != NULL ? &e->value : NULL;                                                                                     \
    }                                                                                                                            \
    WEIR_FUNCTION value_type *name##_add(key_type key)                                                                           \
    {                                                                                                                            \
        const uint64_t hash = weir_hash_key(&key, sizeof key);                                                                   \
        name##_map.counts.has_evicted = false;                                                                                   \
        struct name##_entry *e = name##_find_entry(&key, hash);                                                                  \
        if (e != NULL)                                                                                                           \
            return &e->value;                                                                                                    \
        const uint32_t set = weir_hash_scale(hash, name##_SETS);                                                                 \
        const uint32_t way = weir_map_place(&name##_map.sets[set], &name##_map.counts, weir_hash_tag(hash));                     \
        e = &name##_map.entries[set * WEIR_WAYS + way];                                                                          \
        if (name##_map.counts.has_evicted)                                                                                       \
            name##_map.evicted = *e;                                                                                             \
        weir_fill(e, 0, sizeof *e);                                                                                              \
        weir_copy(&e->key, &key, sizeof key);                                                                                    \
        return &e->value;                                                                                                        \
    }                                                                                                                            \
    WEIR_FUNCTION void name##_drop(struct name##_entry *e)                                                                       \
    {                                                                                                                            \
        const uint32_t slot = (uint32_t)(e - name##_map.entries);                                                                \
        if (slot < name##_SLOTS && name##_map.sets[slot / WEIR_WAYS].tag[slot % WEIR_WAYS] != 0) {                               \
            name##_map.sets[slot / WEIR_WAYS].tag[slot % WEIR_WAYS] = 0;                                                         \
            name##_map.counts.len--;                                                                                             \
        }                                                                                                                        \
    }                                                                                                                            \
    WEIR_FUNCTION bool name##_remove(key_type key)                                                                               \
    {                                                                                                                            \
        struct name##_entry *e = name##_find_entry(&key, weir_hash_key(&key, sizeof key));                                       \
        if (e == NULL)                                                                                                           \
            return false;                                                                                                        \
        name##_drop(e);                                                                                                          \
        return true;                                                                                                             \
    }                                                                                                                            \
    WEIR_FUNCTION void name##_clear(void)                                                                                        \
    {                                                                                                                            \
        weir_fill(name##_map.sets, 0, sizeof name##_map.sets);                                                                   \
        name##_map.counts.len = 0;                                                                                               \
    }                                                                                                                            \
    WEIR_FUNCTION uint32_t name##_len(void) { return name##_map.counts.len; }                                                    \
    WEIR_FUNCTION uint64_t name##_evictions(void) { return name##_map.counts.evictions; }                                        \
    WEIR_FUNCTION const struct name##_entry *name##_evicted(void)                                                                \
    {                                                                                                                            \
        return name##_map.counts.has_evicted ? &name##_map.evicted : NULL;                                                       \
    }                                                                                                                            \
    WEIR_FUNCTION struct name##_entry *name##_at(uint32_t slot)                                                                  \
    {                                                                                                                            \
        return slot < name##_SLOTS && name##_map.sets[slot / WEIR_WAYS].tag[slot % WEIR_WAYS] != 0 ? &name##_map.entries[slot]   \
                                                                                                   : NULL;                       \
    }

/* The outer loop runs once: it declares the counter. */
#define WEIR_MAP_EACH(name, e)                                                                                                   \
    for (uint32_t e##_slot = 0, e##_once = 1; e##_once != 0; e##_once = 0)                                                       \
        for (struct name##_entry *e; e##_slot < name##_SLOTS; e##_slot++)                                                        \
            if (((e) = name##_at(e##_slot)) == NULL) continue; else

#define WEIR_MAP_PART(name, position, count, e)                                                                                  \
    for (uint32_t e##_left = (count), e##_once = 1; e##_once != 0; e##_once = 0)                                                 \
        for (struct name##_entry *e; e##_left > 0 && (position) < name##_SLOTS; e##_left--)                                      \
            if (((e) = name##_at((position)++)) == NULL) continue; else

struct weir_map_set {
    uint32_t tag[WEIR_WAYS];
    uint32_t used[WEIR_WAYS]; /* the map's clock at the last use */
} __attribute__((aligned(64)));

struct weir_map_counts {
    uint64_t evictions;
    uint32_t len, clock;
    bool has_evicted;
};

/* Returns a way for a new key: a free one, else that of the least recently used entry. Ages are differences that may wrap around:
 * an entry that was not used for 2^32 uses of the map can look young, which is harmless. */
WEIR_INLINE uint32_t weir_map_place(struct weir_map_set *set, struct weir_map_counts *counts, uint32_t tag)
{
    uint32_t place = 0;
    uint64_t oldest = 0;
    for (uint32_t way = 0; way < WEIR_WAYS; way++) {
        const uint64_t age = set->tag[way] == 0 ? UINT64_MAX : (uint32_t)(counts->clock - set->used[way]);
        if (age > oldest) {
            oldest = age;
            place = way;
        }
    }
    if (set->tag[place] != 0) {
        counts->evictions++;
        counts->has_evicted = true;
    } else {
        counts->len++;
    }
    set->tag[place] = tag;
    set->used[place] = ++counts->clock;
    return place;
}

/* ---- Top keys ----------------------------------------------------------------------------------------------------------- */

/* WEIR_TOP(name, key_type, capacity): the keys with the highest counts, by Space-Saving (A. Metwally, D. Agrawal, A. El Abbadi,
 * "Efficient computation of frequent and top-k elements in data streams", ICDT 2005), within sets of 8 entries. `capacity` is
 * rounded up to a multiple of 8.
 *
 *     void name_add(key_type key, uint64_t amount)
 *     uint32_t name_list(const struct name_entry *list[], uint32_t count)
 *                                           up to `count` keys, at most WEIR_TOP_LIST, the highest count first; returns their number
 *     const struct name_entry *name_find(key_type key)    the entry, or NULL
 *     uint64_t name_total(void)             sum of all amounts since name_clear
 *     void name_clear(void)
 *
 * `struct name_entry` has `key`, `count` and `error`; count - error <= true count <= count. A new key in a full set takes the place
 * of the set's lowest count, and inherits this count as its error. A key whose true count is more than an eighth of all amounts of
 * its set has an entry. Choose a capacity of ten times the number of keys that are listed, or more.
 *
 *     WEIR_TOP_EACH(hosts, 10, e) { ... e->key, e->count, e_rank ... }     the same keys; e_rank is 1 for the first one */
enum { WEIR_TOP_LIST = 100 };

#define WEIR_TOP(name, key_type, capacity)                                                                                       \
    WEIR_KEY_CHECK(key_type)                                                                                                     \
    enum { name##_SETS = ((capacity) + WEIR_WAYS - 1) / WEIR_WAYS, name##_SLOTS = name##_SETS * WEIR_WAYS };                     \
    _Static_assert(name##_SETS > 0, "a table has at least one set");                                                             \
    struct name##_entry {                                                                                                        \
        key_type key;                                                                                                            \
        uint64_t count, error;                                                                                                   \
    };                                                                                                                           \
    static struct {                                                                                                              \
        uint32_t tag[name##_SLOTS];                                                                                              \
        struct name##_entry entries[name##_SLOTS];                                                                               \
        uint64_t total;                                                                                                          \
        const struct name##_entry *list[WEIR_TOP_LIST]; /* of WEIR_TOP_EACH */                                                   \
    } name##_top;                                                                                                                \
    WEIR_FUNCTION const struct name##_entry *name##_find(key_type key)                                                           \
    {                                                                                                                            \
        const uint64_t hash = weir_hash_key(&key, sizeof key);                                                                   \
        const uint32_t first = weir_hash_scale(hash, name##_SETS) * WEIR_WAYS;                                                   \
        const uint32_t way = weir_way_of(&name##_top.tag[first], &name##_top.entries[first], sizeof(struct name##_entry),        \
                                         weir_hash_tag(hash), &key, sizeof key);                                                 \
        return way < WEIR_WAYS ? &name##_top.entries[first + way] : NULL;                                                        \
    }                                                                                                                            \
    WEIR_FUNCTION void name##_add(key_type key, uint64_t amount)                                                                 \
    {                                                                                                                            \
        const uint64_t hash = weir_hash_key(&key, sizeof key);                                                                   \
        const uint32_t first = weir_hash_scale(hash, name##_SETS) * WEIR_WAYS;                                                   \
        struct name##_entry *entries = &name##_top.entries[first];                                                               \
        uint32_t *tag = &name##_top.tag[first];                                                                                  \
        uint32_t way = weir_way_of(tag, entries, sizeof *entries, weir_hash_tag(hash), &key, sizeof key);                        \
        name##_top.total += amount;                                                                                              \
        if (way == WEIR_WAYS) {                                                                                                  \
            uint64_t lowest = UINT64_MAX;                                                                                        \
            way = 0;                                                                                                             \
            for (uint32_t i = 0; i < WEIR_WAYS; i++) {                                                                           \
                const uint64_t count = tag[i] == 0 ? 0 : entries[i].count;                                                       \
                if (count < lowest) {                                                                                            \
                    lowest = count;                                                                                              \
                    way = i;                                                                                                     \
                }                                                                                                                \
            }                                                                                                                    \
            tag[way] = weir_hash_tag(hash);                                                                                      \
            weir_copy(&entries[way].key, &key, sizeof key);                                                                      \
            entries[way].count = entries[way].error = lowest;                                                                    \
        }                                                                                                                        \
        entries[way].count += amount;                                                                                            \
    }                                                                                                                            \
    WEIR_FUNCTION uint32_t name##_fill(const struct name##_entry *list[], uint32_t count)                                        \
    {                                                                                                                            \
        const uint32_t most = count < WEIR_TOP_LIST ? count : WEIR_TOP_LIST;                                                     \
        uint32_t len = 0;                                                                                                        \
        for (uint32_t slot = 0; slot < name##_SLOTS; slot++) {                                                                   \
            const struct name##_entry *e = &name##_top.entries[slot];                                                            \
            if (most == 0 || name##_top.tag[slot] == 0 || (len == most && e->count <= list[most - 1]->count))                    \
                continue;                                                                                                        \
            uint32_t at = len < most ? len++ : most - 1;                                                                         \
            for (uint32_t i = 0; i < WEIR_TOP_LIST && at > 0 && list[at - 1]->count < e->count; i++, at--)                       \
                list[at] = list[at - 1];                                                                                         \
            list[at] = e;                                                                                                        \
        }                                                                                                                        \
        return len;                                                                                                              \
    }                                                                                                                            \
    WEIR_INLINE uint32_t name##_list(const struct name##_entry *list[], uint32_t count)                                          \
    {                                                                                                                            \
        return weir_cut(name##_fill(list, count), WEIR_TOP_LIST);                                                                \
    }                                                                                                                            \
    WEIR_FUNCTION uint64_t name##_total(void) { return name##_top.total; }                                                       \
    WEIR_FUNCTION void name##_clear(void)                                                                                        \
    {                                                                                                                            \
        weir_fill(name##_top.tag, 0, sizeof name##_top.tag);                                                                     \
        name##_top.total = 0;                                                                                                    \
    }

#define WEIR_TOP_EACH(name, count, e)                                                                                            \
    for (uint32_t e##_rank = 1, e##_len = name##_list(name##_top.list, (count)), e##_once = 1; e##_once != 0; e##_once = 0)      \
        for (const struct name##_entry *e; e##_rank <= e##_len && e##_rank <= WEIR_TOP_LIST; e##_rank++)                         \
            if (((e) = name##_top.list[e##_rank - 1]) == NULL) break; else

/* ---- Count-min sketch --------------------------------------------------------------------------------------------------- */

/* WEIR_COUNT_MIN(name, key_type, width): estimated counts of any number of keys, in 32 * width bytes (G. Cormode, S. Muthukrishnan,
 * "An improved data stream summary: the count-min sketch and its applications", J. Algorithms 55, 2005), with conservative update
 * (C. Estan, G. Varghese, "New directions in traffic measurement and accounting", SIGCOMM 2002).
 *
 *     uint64_t name_add(key_type key, uint64_t amount)    the estimate with this amount
 *     uint64_t name_estimate(key_type key)
 *     uint64_t name_total(void)                           sum of all amounts since name_clear
 *     void name_clear(void)
 *
 * An estimate is never too low. With a probability of 98 % it is too high by at most 2.72 * name_total() / width. */
enum { WEIR_COUNT_MIN_ROWS = 4 };

#define WEIR_COUNT_MIN(name, key_type, width)                                                                                    \
    WEIR_KEY_CHECK(key_type)                                                                                                     \
    _Static_assert((width) > 0, "a sketch has at least one column");                                                             \
    static struct {                                                                                                              \
        uint64_t row[WEIR_COUNT_MIN_ROWS][width];                                                                                \
        uint64_t total;                                                                                                          \
    } name##_sketch;                                                                                                             \
    WEIR_FUNCTION uint64_t name##_estimate_of(uint64_t hash)                                                                     \
    {                                                                                                                            \
        uint64_t lowest = UINT64_MAX;                                                                                            \
        for (uint32_t i = 0; i < WEIR_COUNT_MIN_ROWS; i++) {                                                                     \
            const uint64_t count = name##_sketch.row[i][weir_hash_nth(hash, i, (width))];                                        \
            lowest = count < lowest ? count : lowest;                                                                            \
        }                                                                                                                        \
        return lowest;                                                                                                           \
    }                                                                                                                            \
    WEIR_FUNCTION uint64_t name##_estimate(key_type key) { return name##_estimate_of(weir_hash_key(&key, sizeof key)); }         \
    WEIR_FUNCTION uint64_t name##_add(key_type key, uint64_t amount)                                                             \
    {                                                                                                                            \
        const uint64_t hash = weir_hash_key(&key, sizeof key), count = name##_estimate_of(hash) + amount;                        \
        for (uint32_t i = 0; i < WEIR_COUNT_MIN_ROWS; i++) {                                                                     \
            uint64_t *cell = &name##_sketch.row[i][weir_hash_nth(hash, i, (width))];                                             \
            *cell = count > *cell ? count : *cell;                                                                               \
        }                                                                                                                        \
        name##_sketch.total += amount;                                                                                           \
        return count;                                                                                                            \
    }                                                                                                                            \
    WEIR_FUNCTION uint64_t name##_total(void) { return name##_sketch.total; }                                                    \
    WEIR_FUNCTION void name##_clear(void) { weir_fill(&name##_sketch, 0, sizeof name##_sketch); }

/* ---- Bloom filter ------------------------------------------------------------------------------------------------------- */

/* WEIR_BLOOM(name, key_type, keys): set of keys in 2 bytes for each of the `keys` that it is meant for (B. Bloom, "Space/time
 * trade-offs in hash coding with allowable errors", CACM 13, 1970), with four hashes.
 *
 *     bool name_add(key_type key)     true if the key is new
 *     bool name_has(key_type key)
 *     uint64_t name_len(void)         number of keys that were new
 *     void name_clear(void)
 *
 * A key that was added is never new again. With `keys` keys in the set, 1 of 400 other keys does not look new either; with twice as
 * many, 1 of 40. */
enum { WEIR_BLOOM_HASHES = 4 };

#define WEIR_BLOOM(name, key_type, keys)                                                                                         \
    WEIR_KEY_CHECK(key_type)                                                                                                     \
    enum { name##_WORDS = ((keys) + 3) / 4 };                                                                                    \
    _Static_assert(name##_WORDS > 0 && name##_WORDS <= 1 << 25, "a filter is for 1 to 2^27 keys");                               \
    static struct {                                                                                                              \
        uint64_t words[name##_WORDS];                                                                                            \
        uint64_t len;                                                                                                            \
    } name##_bloom;                                                                                                              \
    WEIR_FUNCTION bool name##_has(key_type key)                                                                                  \
    {                                                                                                                            \
        const uint64_t hash = weir_hash_key(&key, sizeof key);                                                                   \
        uint64_t all = 1;                                                                                                        \
        for (uint32_t i = 0; i < WEIR_BLOOM_HASHES; i++) {                                                                       \
            const uint32_t bit = weir_hash_nth(hash, i, name##_WORDS * 64u);                                                     \
            all &= name##_bloom.words[bit / 64] >> (bit % 64);                                                                   \
        }                                                                                                                        \
        return all != 0;                                                                                                         \
    }                                                                                                                            \
    WEIR_FUNCTION bool name##_add(key_type key)                                                                                  \
    {                                                                                                                            \
        const uint64_t hash = weir_hash_key(&key, sizeof key);                                                                   \
        uint64_t all = 1;                                                                                                        \
        for (uint32_t i = 0; i < WEIR_BLOOM_HASHES; i++) {                                                                       \
            const uint32_t bit = weir_hash_nth(hash, i, name##_WORDS * 64u);                                                     \
            all &= name##_bloom.words[bit / 64] >> (bit % 64);                                                                   \
            name##_bloom.words[bit / 64] |= UINT64_C(1) << (bit % 64);                                                           \
        }                                                                                                                        \
        name##_bloom.len += all == 0;                                                                                            \
        return all == 0;                                                                                                         \
    }                                                                                                                            \
    WEIR_FUNCTION uint64_t name##_len(void) { return name##_bloom.len; }                                                         \
    WEIR_FUNCTION void name##_clear(void) { weir_fill(&name##_bloom, 0, sizeof name##_bloom); }

/* ---- HyperLogLog -------------------------------------------------------------------------------------------------------- */

/* WEIR_HLL(name, key_type, bits): number of distinct keys, in 2^bits bytes, with 4 to 16 bits (P. Flajolet, E. Fusy, O. Gandouet,
 * F. Meunier, "HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm", AofA 2007), of 64-bit hashes.
 *
 *     struct name                                       all zeros at first; it can be the value of a map
 *     bool name_add(struct name *h, key_type key)       true if it changes `h`; false for a key that was added before
 *     double name_count(const struct name *h)           the estimate; takes some ns for each of the 2^bits bytes
 *     void name_merge(struct name *to, const struct name *from)    makes `to` the union of both
 *     void name_clear(struct name *h)
 *
 * The standard error is 104 % / sqrt(2^bits): 13 % with 6 bits, 3 % with 10, 0.8 % with 14. It is less for small numbers. */
#define WEIR_HLL(name, key_type, bits)                                                                                           \
    WEIR_KEY_CHECK(key_type)                                                                                                     \
    _Static_assert((bits) >= 4 && (bits) <= 16, "4 to 16 bits");                                                                 \
    struct name {                                                                                                                \
        uint8_t registers[1u << (bits)];                                                                                         \
    };                                                                                                                           \
    WEIR_FUNCTION bool name##_add(struct name *h, key_type key)                                                                  \
    {                                                                                                                            \
        return weir_hll_add(h->registers, (bits), weir_hash_key(&key, sizeof key));                                              \
    }                                                                                                                            \
    WEIR_FUNCTION double name##_count(const struct name *h) { return weir_hll_count(h->registers, (bits)); }                     \
    WEIR_FUNCTION void name##_merge(struct name *to, const struct name *from)                                                    \
    {                                                                                                                            \
        for (uint32_t i = 0; i < 1u << (bits); i++)                                                                              \
            to->registers[i] = from->registers[i] > to->registers[i] ? from->registers[i] : to->registers[i];                    \
    }                                                                                                                            \
    WEIR_FUNCTION void name##_clear(struct name *h) { weir_fill(h, 0, sizeof *h); }

WEIR_INLINE bool weir_hll_add(uint8_t *registers, uint32_t bits, uint64_t hash)
{
    /* The bit that is added ends the run of zeros. */
    const uint64_t rest = hash << bits | UINT64_C(1) << (bits - 1);
    const uint8_t rank = (uint8_t)(1 + __builtin_clzll(rest));
    uint8_t *at = &registers[hash >> (64 - bits)];
    if (rank <= *at)
        return false;
    *at = rank;
    return true;
}

WEIR_INLINE double weir_hll_count(const uint8_t *registers, uint32_t bits)
{
    const double m = (double)(1u << bits);
    const double alpha = bits == 4 ? 0.673 : bits == 5 ? 0.697 : bits == 6 ? 0.709 : 0.7213 / (1 + 1.079 / m);
    double sum = 0;
    uint32_t zeros = 0;
    for (uint32_t i = 0; i < 1u << bits; i++) {
        const union { uint64_t bits; double value; } power = { (uint64_t)(1023 - registers[i]) << 52 }; /* 2^-register */
        sum += power.value;
        zeros += registers[i] == 0;
    }
    const double estimate = alpha * m * m / sum;
    return estimate <= 2.5 * m && zeros != 0 ? m * weir_ln(m / zeros) : estimate;
}

/* ---- Longest matching prefix -------------------------------------------------------------------------------------------- */

/* WEIR_LPM(name, nodes): longest matching prefix of IPv4 and IPv6 addresses, with a number for each prefix. A trie with strides of
 * 8 bits, in which a prefix fills all slots that it covers (V. Srinivasan, G. Varghese, "Fast address lookups using controlled
 * prefix expansion", ACM TOCS 17, 1999).
 *
 *     bool name_add(const uint8_t prefix[17], uint32_t value)  the prefix as a parameter of type `prefix` has it; false if nodes lack
 *     bool name_load(const uint8_t *list, uint32_t len)        the prefixes of a parameter of type `prefix-list`, each with its number
 *                                                              in the list as value, from 0; false if nodes lack
 *     bool name_find(struct weir_ip ip, uint32_t *value)       the longest prefix's value, in at most 16 steps (IPv4: 4)
 *     void name_clear(void)
 *
 * A node has 2 KiB. An IPv4 prefix /8 needs no node, /16 at most one, /24 two, /32 three; an IPv6 prefix /32 three, /48 five, /64
 * seven; prefixes share the nodes of their common beginning. A prefix that is added again gets the new value. Prefixes cannot be
 * removed: clear the trie, and add those that stay. As in weir_prefix_has, an IPv6 prefix contains no IPv4 address. */
struct weir_lpm_slot {
    uint32_t value;
    uint16_t child; /* number of a node; 0: none */
    uint8_t len;    /* of the prefix that filled the slot, and 1 more; 0: none */
    uint8_t spare;
};

/* Numbers of the two nodes where IPv4 and IPv6 begin; and of the first node behind them. */
enum { WEIR_LPM_V4 = 0, WEIR_LPM_V6 = 1, WEIR_LPM_FIRST = 2 };

/* Bytes of a prefix, and the most prefixes of a parameter. */
enum { WEIR_PREFIX_BYTES = 17, WEIR_PREFIXES = 64 * 1024 / WEIR_PREFIX_BYTES };

#define WEIR_LPM(name, nodes)                                                                                                    \
    _Static_assert((nodes) >= 0 && (nodes) <= 65533, "0 to 65533 nodes");                                                        \
    static struct {                                                                                                              \
        struct weir_lpm_slot node[WEIR_LPM_FIRST + (nodes)][256];                                                                \
        uint32_t len;                                                                                                            \
    } name##_lpm;                                                                                                                \
    WEIR_FUNCTION bool name##_add(const uint8_t prefix[17], uint32_t value)                                                      \
    {                                                                                                                            \
        return weir_lpm_add(name##_lpm.node, &name##_lpm.len, (nodes), prefix, value);                                           \
    }                                                                                                                            \
    WEIR_FUNCTION bool name##_load(const uint8_t *list, uint32_t len)                                                            \
    {                                                                                                                            \
        for (uint32_t i = 0; i < WEIR_PREFIXES && (i + 1) * WEIR_PREFIX_BYTES <= len; i++)                                       \
            if (!name##_add(list + i * WEIR_PREFIX_BYTES, i))                                                                    \
                return false;                                                                                                    \
        return true;                                                                                                             \
    }                                                                                                                            \
    WEIR_FUNCTION bool name##_find(struct weir_ip ip, uint32_t *value) { return weir_lpm_find(name##_lpm.node, ip, value); }     \
    WEIR_FUNCTION void name##_clear(void) { weir_fill(&name##_lpm, 0, sizeof name##_lpm); }

WEIR_FUNCTION bool weir_lpm_add(struct weir_lpm_slot node[][256], uint32_t *len, uint32_t nodes, const uint8_t prefix[17], uint32_t value)
{
    uint32_t bits = prefix[16] <= 128 ? prefix[16] : 128, at = 0, n = WEIR_LPM_V6;
    if (bits >= 96 && weir_ip_is_v4(weir_ip_v6(prefix))) {
        n = WEIR_LPM_V4;
        at = 12;
    }
    for (uint32_t step = 0; step < 16 && at < 15 && bits > 8 * (at + 1); step++, at++) {
        struct weir_lpm_slot *slot = &node[n][prefix[at]];
        if (slot->child == 0) {
            if (*len >= nodes)
                return false;
            slot->child = (uint16_t)(WEIR_LPM_FIRST + (*len)++);
        }
        n = slot->child;
    }
    const uint32_t free_bits = 8 * (at + 1) - bits, count = free_bits >= 8 ? 256 : 1u << free_bits;
    const uint32_t first = prefix[at] & (256 - count);
    for (uint32_t i = 0; i < 256 && i < count; i++) {
        struct weir_lpm_slot *slot = &node[n][(first + i) & 255];
        if (slot->len <= bits + 1) {
            slot->value = value;
            slot->len = (uint8_t)(bits + 1);
        }
    }
    return true;
}

WEIR_FUNCTION bool weir_lpm_find(const struct weir_lpm_slot node[][256], struct weir_ip ip, uint32_t *value)
{
    uint8_t address[16];
    weir_ip_store(address, ip);
    const bool is_v4 = weir_ip_is_v4(ip);
    uint32_t n = is_v4 ? WEIR_LPM_V4 : WEIR_LPM_V6;
    bool found = false;
    for (uint32_t at = is_v4 ? 12 : 0; at < 16; at++) {
        const struct weir_lpm_slot *slot = &node[n][address[at]];
        if (slot->len != 0) {
            *value = slot->value;
            found = true;
        }
        if (slot->child == 0)
            break;
        n = slot->child;
    }
    return found;
}

/* ---- Histogram ---------------------------------------------------------------------------------------------------------- */

/* Distribution of 64-bit values, such as times in ns, with a relative error of at most 1/32: 16 buckets of the same width between
 * a power of two and the next (log-linear, as in G. Tene's HdrHistogram). It has 7.6 KiB, and is all zeros at first.
 *
 *     weir_histogram_add(&h, rtt);
 *     row.median = weir_histogram_quantile(&h, 0.5);
 */
enum { WEIR_HISTOGRAM_BUCKETS = 16 * 61 };
struct weir_histogram {
    uint64_t count, min, max; /* min and max are exact; valid if count is not 0 */
    uint64_t buckets[WEIR_HISTOGRAM_BUCKETS];
};

/* Number of a value's bucket: values below 16 have one each. */
WEIR_INLINE uint32_t weir_histogram_bucket(uint64_t value)
{
    if (value < 16)
        return (uint32_t)value;
    const uint32_t shift = 59 - (uint32_t)__builtin_clzll(value); /* leaves five bits, of which the first is 1 */
    return 16 * shift + (uint32_t)(value >> shift);
}

/* The middle of a bucket. */
WEIR_INLINE uint64_t weir_histogram_value(uint32_t bucket)
{
    if (bucket < 16)
        return bucket;
    const uint32_t shift = bucket / 16 - 1;
    const uint64_t first = (uint64_t)(16 + bucket % 16) << shift;
    return first + ((UINT64_C(1) << shift) >> 1);
}

WEIR_FUNCTION void weir_histogram_add(struct weir_histogram *h, uint64_t value)
{
    if (h->count == 0 || value < h->min)
        h->min = value;
    if (h->count == 0 || value > h->max)
        h->max = value;
    h->count++;
    h->buckets[weir_histogram_bucket(value)]++;
}

/* Returns the value that a share q of all values does not exceed, 0 <= q <= 1; 0 for an empty histogram. */
WEIR_FUNCTION uint64_t weir_histogram_quantile(const struct weir_histogram *h, double q)
{
    if (h->count == 0 || !(q > 0))
        return h->count == 0 ? 0 : h->min;
    if (q >= 1)
        return h->max;
    const double rank = q * (double)h->count;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < WEIR_HISTOGRAM_BUCKETS; i++) {
        seen += h->buckets[i];
        if ((double)seen >= rank && seen != 0) {
            const uint64_t value = weir_histogram_value(i);
            return value < h->min ? h->min : value > h->max ? h->max : value;
        }
    }
    return h->max;
}

/* Adds the values of `from` to `to`. */
WEIR_FUNCTION void weir_histogram_merge(struct weir_histogram *to, const struct weir_histogram *from)
{
    if (from->count == 0)
        return;
    to->min = to->count == 0 || from->min < to->min ? from->min : to->min;
    to->max = to->count == 0 || from->max > to->max ? from->max : to->max;
    to->count += from->count;
    for (uint32_t i = 0; i < WEIR_HISTOGRAM_BUCKETS; i++)
        to->buckets[i] += from->buckets[i];
}

WEIR_FUNCTION void weir_histogram_clear(struct weir_histogram *h) { weir_fill(h, 0, sizeof *h); }

/* ---- Ring buffer -------------------------------------------------------------------------------------------------------- */

/* WEIR_RING(name, type, capacity): the last `capacity` values.
 *
 *     bool name_push(type value)          adds a value; false if the oldest one was overwritten
 *     bool name_pop(type *value)          takes the oldest value out; false if there is none
 *     type *name_at(uint32_t i)           the value number i, the oldest is 0; NULL for i >= name_len()
 *     uint32_t name_len(void)
 *     uint64_t name_overwritten(void)     number of values that were overwritten since the start
 *     void name_clear(void)
 *
 *     WEIR_RING_EACH(last, value) { ... *value ... }      from the oldest to the newest; no push or pop within the loop
 *
 * A loop that takes values out needs a limit: WEIR_WHILE(last_SLOTS, last_pop(&value)) { ... }. */
#define WEIR_RING(name, type, capacity)                                                                                          \
    enum { name##_SLOTS = (capacity) };                                                                                          \
    _Static_assert(name##_SLOTS > 0, "a ring has at least one slot");                                                            \
    static struct {                                                                                                              \
        type values[name##_SLOTS];                                                                                               \
        uint32_t first, len;                                                                                                     \
        uint64_t overwritten;                                                                                                    \
    } name##_ring;                                                                                                               \
    WEIR_FUNCTION bool name##_push(type value)                                                                                   \
    {                                                                                                                            \
        const uint32_t end = name##_ring.first + name##_ring.len;                                                                \
        name##_ring.values[end % name##_SLOTS] = value;                                                                          \
        if (name##_ring.len < name##_SLOTS) {                                                                                    \
            name##_ring.len++;                                                                                                   \
            return true;                                                                                                         \
        }                                                                                                                        \
        name##_ring.first = (name##_ring.first + 1) % name##_SLOTS;                                                              \
        name##_ring.overwritten++;                                                                                               \
        return false;                                                                                                            \
    }                                                                                                                            \
    WEIR_FUNCTION bool name##_pop(type *value)                                                                                   \
    {                                                                                                                            \
        if (name##_ring.len == 0)                                                                                                \
            return false;                                                                                                        \
        *value = name##_ring.values[name##_ring.first % name##_SLOTS];                                                           \
        name##_ring.first = (name##_ring.first + 1) % name##_SLOTS;                                                              \
        name##_ring.len--;                                                                                                       \
        return true;                                                                                                             \
    }                                                                                                                            \
    WEIR_FUNCTION type *name##_at(uint32_t i)                                                                                    \
    {                                                                                                                            \
        return i < name##_ring.len ? &name##_ring.values[(name##_ring.first + i) % name##_SLOTS] : NULL;                         \
    }                                                                                                                            \
    WEIR_FUNCTION uint32_t name##_len(void) { return name##_ring.len; }                                                          \
    WEIR_FUNCTION uint64_t name##_overwritten(void) { return name##_ring.overwritten; }                                          \
    WEIR_FUNCTION void name##_clear(void) { name##_ring.first = name##_ring.len = 0; }

#define WEIR_RING_EACH(name, value)                                                                                              \
    for (uint32_t value##_i = 0, value##_once = 1; value##_once != 0; value##_once = 0)                                          \
        for (__typeof__(name##_ring.values[0]) *value; value##_i < name##_SLOTS; value##_i++)                                    \
            if (((value) = name##_at(value##_i)) == NULL) break; else

/* ---- Token bucket ------------------------------------------------------------------------------------------------------- */

/* Limits a rate: `rate` tokens a second are added, up to `burst` tokens. A bucket of zeros is a full one. Time is packet time; where
 * it goes back, no tokens are added.
 *
 *     static struct weir_bucket rows;
 *     if (weir_bucket_take(&rows, p->ts_ns, 100, 1000, 1)) emit_...     100 rows a second, up to 1000 at once
 *
 * Rates and bursts above WEIR_BUCKET_MAX, 17 GB a second in bytes, count as WEIR_BUCKET_MAX. */
#define WEIR_BUCKET_MAX (UINT64_C(1) << 34)
#define WEIR_SECOND UINT64_C(1000000000)

struct weir_bucket {
    uint64_t missing; /* to the full bucket, in tokens / 10^9 */
    uint64_t last_ns;
};

/* Takes `amount` tokens. Returns false, and takes none, if there are fewer. */
WEIR_FUNCTION bool weir_bucket_take(struct weir_bucket *b, uint64_t now, uint64_t rate, uint64_t burst, uint64_t amount)
{
    if (rate > WEIR_BUCKET_MAX)
        rate = WEIR_BUCKET_MAX;
    if (burst > WEIR_BUCKET_MAX)
        burst = WEIR_BUCKET_MAX;
    if (now > b->last_ns) {
        /* No product is above 2^34 * 10^9, which is below 2^64. After 2^34 seconds, 544 years, any bucket is full. */
        const uint64_t elapsed = now - b->last_ns, seconds = elapsed / WEIR_SECOND, part = elapsed % WEIR_SECOND * rate;
        const uint64_t full = b->missing / WEIR_SECOND; /* whole tokens */
        b->last_ns = now;
        b->missing = b->missing > part ? b->missing - part : 0;
        if (rate != 0 && seconds > full / rate)
            b->missing = 0;
        else
            b->missing = b->missing > seconds * rate * WEIR_SECOND ? b->missing - seconds * rate * WEIR_SECOND : 0;
    }
    if (b->missing > burst * WEIR_SECOND)
        b->missing = burst * WEIR_SECOND; /* the burst was lowered */
    if (amount > burst || amount * WEIR_SECOND > burst * WEIR_SECOND - b->missing)
        return false;
    b->missing += amount * WEIR_SECOND;
    return true;
}

/* ---- Timer wheel -------------------------------------------------------------------------------------------------------- */

/* WEIR_WHEEL(name, value_type, timers, slots, step_ns): up to `timers` timers, each with a value, in a wheel of `slots` slots of
 * `step_ns` ns (G. Varghese, A. Lauck, "Hashed and hierarchical timing wheels", SOSP 1987, scheme 4). `slots` is a multiple of 64.
 *
 *     uint64_t name_start(uint64_t now, uint64_t delay_ns, value_type value)
 *                                             a handle; 0 if all timers run, or the delay is longer than the wheel
 *     bool name_cancel(uint64_t handle)       false if the timer does not run any more
 *     uint32_t name_len(void)                 number of timers that run
 *     uint32_t name_left(uint64_t now)        number of timers that are due, and have not expired yet
 *
 *     WEIR_WHEEL_EACH(name, now, 64, value) { ... *value ... }     at most 64 steps
 *
 * expires timers that are due. A step expires a timer, or passes up to 64 slots without one. Timers that are left expire in a later
 * loop. A timer expires up to one `step_ns` late, never early. The longest delay is (slots - 2) * step_ns, and less while timers
 * are left. Where time goes back, the wheel stands still. Timers can be started and cancelled within the loop. */
struct weir_timer {
    uint32_t next, previous; /* numbers of timers, and 1 more; 0: none */
    uint32_t generation;     /* counts the uses of the timer, so that a handle of an earlier use is not valid */
    uint32_t slot;           /* and 1 more; 0: the timer does not run */
};

struct weir_wheel {
    uint64_t step;       /* number of the step whose slot is next */
    uint32_t free, fresh; /* the first of the list of used timers; number of timers that were never used */
    uint32_t len;
};

#define WEIR_WHEEL(name, value_type, timers, slots, step_ns)                                                                     \
    _Static_assert((slots) >= 64 && (slots) % 64 == 0, "the number of slots is a multiple of 64");                               \
    _Static_assert((timers) > 0 && (step_ns) > 0, "a wheel has timers, and steps");                                              \
    static struct {                                                                                                              \
        struct weir_wheel wheel;                                                                                                 \
        uint64_t busy[(slots) / 64]; /* a bit for each slot with timers */                                                       \
        uint32_t first[slots], count[slots];                                                                                     \
        struct weir_timer timer[timers];                                                                                         \
        value_type values[timers];                                                                                               \
        value_type expired;                                                                                                      \
    } name##_wheel;                                                                                                              \
    WEIR_FUNCTION uint64_t name##_start(uint64_t now, uint64_t delay_ns, value_type value)                                       \
    {                                                                                                                            \
        struct weir_wheel *w = &name##_wheel.wheel;                                                                              \
        const uint64_t step = now / (step_ns);                                                                                   \
        if (w->len == 0)                                                                                                         \
            w->step = step;                                                                                                      \
        if (delay_ns > (uint64_t)((slots) - 1) * (step_ns))                                                                      \
            return 0;                                                                                                            \
        const uint64_t end = now + delay_ns, rounded = end / (step_ns) + (end % (step_ns) != 0);                                 \
        const uint64_t due = rounded > w->step ? rounded : w->step;                                                              \
        if (due - w->step >= (slots) || end < now)                                                                               \
            return 0;                                                                                                            \
        uint32_t i = w->free;                                                                                                    \
        if (i != 0 && i <= (timers))                                                                                             \
            w->free = name##_wheel.timer[i - 1].next;                                                                            \
        else if (w->fresh < (timers))                                                                                            \
            i = ++w->fresh;                                                                                                      \
        else                                                                                                                     \
            return 0;                                                                                                            \
        const uint32_t slot = (uint32_t)(due % (slots));                                                                         \
        struct weir_timer *t = &name##_wheel.timer[i - 1];                                                                       \
        t->generation++;                                                                                                         \
        t->slot = slot + 1;                                                                                                      \
        t->previous = 0;                                                                                                         \
        t->next = name##_wheel.first[slot];                                                                                      \
        if (t->next != 0 && t->next <= (timers))                                                                                 \
            name##_wheel.timer[t->next - 1].previous = i;                                                                        \
        name##_wheel.first[slot] = i;                                                                                            \
        name##_wheel.count[slot]++;                                                                                              \
        name##_wheel.busy[slot / 64] |= UINT64_C(1) << (slot % 64);                                                              \
        name##_wheel.values[i - 1] = value;                                                                                      \
        w->len++;                                                                                                                \
        return (uint64_t)t->generation << 32 | i;                                                                                \
    }                                                                                                                            \
    WEIR_FUNCTION bool name##_cancel(uint64_t handle)                                                                            \
    {                                                                                                                            \
        const uint32_t i = (uint32_t)handle;                                                                                     \
        if (i == 0 || i > (timers))                                                                                              \
            return false;                                                                                                        \
        struct weir_timer *t = &name##_wheel.timer[i - 1];                                                                       \
        const uint32_t slot = t->slot - 1;                                                                                       \
        if (t->generation != handle >> 32 || slot >= (slots))                                                                    \
            return false;                                                                                                        \
        if (t->next != 0 && t->next <= (timers))                                                                                 \
            name##_wheel.timer[t->next - 1].previous = t->previous;                                                              \
        if (t->previous != 0 && t->previous <= (timers))                                                                         \
            name##_wheel.timer[t->previous - 1].next = t->next;                                                                  \
        else                                                                                                                     \
            name##_wheel.first[slot] = t->next;                                                                                  \
        if (--name##_wheel.count[slot] == 0)                                                                                     \
            name##_wheel.busy[slot / 64] &= ~(UINT64_C(1) << (slot % 64));                                                       \
        t->slot = 0;                                                                                                             \
        t->next = name##_wheel.wheel.free;                                                                                       \
        name##_wheel.wheel.free = i;                                                                                             \
        name##_wheel.wheel.len--;                                                                                                \
        return true;                                                                                                             \
    }                                                                                                                            \
    /* Makes a step: returns the value of a timer that expired, or NULL. */                                                      \
    WEIR_FUNCTION value_type *name##_step(uint64_t now)                                                                          \
    {                                                                                                                            \
        struct weir_wheel *w = &name##_wheel.wheel;                                                                              \
        const uint32_t slot = (uint32_t)(w->step % (slots));                                                                     \
        const uint64_t busy = name##_wheel.busy[slot / 64] >> (slot % 64);                                                       \
        const uint64_t passed = busy != 0 ? (uint64_t)__builtin_ctzll(busy) : 64 - slot % 64, last = now / (step_ns);            \
        if (passed != 0 || busy == 0) {                                                                                          \
            /* The step that is next is never later than that behind `now`. */                                                   \
            w->step = w->step + passed <= last + 1 ? w->step + passed : last + 1;                                                \
            return NULL;                                                                                                         \
        }                                                                                                                        \
        const uint32_t i = name##_wheel.first[slot];                                                                             \
        if (i == 0 || i > (timers))                                                                                              \
            return NULL;                                                                                                         \
        name##_wheel.expired = name##_wheel.values[i - 1];                                                                       \
        name##_cancel((uint64_t)name##_wheel.timer[i - 1].generation << 32 | i);                                                 \
        return &name##_wheel.expired;                                                                                            \
    }                                                                                                                            \
    WEIR_FUNCTION bool name##_is_due(uint64_t now)                                                                               \
    {                                                                                                                            \
        return name##_wheel.wheel.len != 0 && name##_wheel.wheel.step <= now / (step_ns);                                        \
    }                                                                                                                            \
    WEIR_FUNCTION uint32_t name##_len(void) { return name##_wheel.wheel.len; }                                                   \
    WEIR_FUNCTION uint32_t name##_left(uint64_t now)                                                                             \
    {                                                                                                                            \
        const uint64_t step = name##_wheel.wheel.step, last = now / (step_ns);                                                   \
        uint32_t left = 0;                                                                                                       \
        for (uint32_t i = 0; i < (slots) && step + i <= last; i++)                                                               \
            left += name##_wheel.count[(step + i) % (slots)];                                                                    \
        return left;                                                                                                             \
    }

#define WEIR_WHEEL_EACH(name, now, count, value)                                                                                 \
    for (uint32_t value##_left = (count), value##_once = 1; value##_once != 0; value##_once = 0)                                 \
        for (__typeof__(name##_wheel.expired) *value; value##_left > 0 && name##_is_due(now); value##_left--)                    \
            if (((value) = name##_step(now)) == NULL) continue; else

/* ---- Stack -------------------------------------------------------------------------------------------------------------- */

/* WEIR_STACK(name, type, capacity): values of which the last one comes out first.
 *
 *     bool name_push(type value)          adds a value; false if there is no room
 *     bool name_pop(type *value)          takes the last value out; false if there is none
 *     uint32_t name_len(void)
 *     void name_clear(void)
 *
 * A loop over a stack does the work of a function that calls itself, which has no bound. Each call becomes a push of its arguments:
 *
 *     WEIR_STACK(count_calls, const struct node *, 64)
 *
 *     count_calls_clear();                                 since a fault can leave values
 *     count_calls_push(root);
 *     WEIR_WHILE(1024, count_calls_pop(&node)) {
 *         if (node == NULL)
 *             continue;
 *         nodes++;
 *         count_calls_push(node->right);                   what is to be done last goes first
 *         count_calls_push(node->left);
 *     } */
#define WEIR_STACK(name, type, capacity)                                                                                         \
    enum { name##_SLOTS = (capacity) };                                                                                          \
    _Static_assert(name##_SLOTS > 0, "a stack has at least one slot");                                                           \
    static struct {                                                                                                              \
        type values[name##_SLOTS];                                                                                               \
        uint32_t len;                                                                                                            \
    } name##_stack;                                                                                                              \
    WEIR_FUNCTION bool name##_push(type value)                                                                                   \
    {                                                                                                                            \
        if (name##_stack.len >= name##_SLOTS)                                                                                    \
            return false;                                                                                                        \
        name##_stack.values[name##_stack.len++] = value;                                                                         \
        return true;                                                                                                             \
    }                                                                                                                            \
    WEIR_FUNCTION bool name##_pop(type *value)                                                                                   \
    {                                                                                                                            \
        const uint32_t len = name##_stack.len;                                                                                   \
        if (len == 0 || len > name##_SLOTS)                                                                                      \
            return false;                                                                                                        \
        *value = name##_stack.values[len - 1];                                                                                   \
        name##_stack.len = len - 1;                                                                                              \
        return true;                                                                                                             \
    }                                                                                                                            \
    WEIR_FUNCTION uint32_t name##_len(void) { return name##_stack.len; }                                                         \
    WEIR_FUNCTION void name##_clear(void) { name##_stack.len = 0; }

#endif
