/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A module that calls every helper of weir_parse.h. apps/author/tests/parse.rs checks that it is proved. */
#include "weir.h"
#include "module.h"
#include "weir_parse.h"

static uint64_t sum;

static void read_numbers(struct weir_cursor c)
{
    sum += weir_read_u8(&c) + weir_read_be16(&c) + weir_read_be24(&c) + weir_read_be32(&c) + weir_read_be64(&c);
    sum += weir_read_le16(&c) + weir_read_le32(&c) + weir_read_le64(&c) + weir_read_quic_varint(&c);
    sum += weir_read_varint(&c) + (uint64_t)weir_zigzag(weir_read_varint(&c)) + (uint64_t)weir_read_signed_varint(&c);
    weir_skip(&c, 3);
    sum += weir_read_most(&c, 9).left;
}

static void read_der(struct weir_cursor c)
{
    struct weir_der outer, inner;
    if (weir_read_der(&c, &outer))
        for (uint32_t i = 0; i < 16 && weir_read_der(&outer.value, &inner); i++)
            sum += inner.tag;
}

static bool read_lists(struct weir_cursor c)
{
    struct weir_cursor options = c;
    WEIR_TLV_EACH(32, &c, 1, 2, tlv) {
        sum += tlv.type + tlv.value.left;
    }
    WEIR_OPTION_EACH(&options, option) {
        sum += option.type;
        WEIR_TLV_EACH(8, &option.value, 1, 1, inner) {
            if (inner.type == 3)
                continue;
            if (inner.type == 4)
                break;
            sum++;
        }
    }
    return !c.failed && !options.failed;
}

static void read_dns(const struct weir_cursor message)
{
    struct weir_cursor c = message;
    struct weir_dns_header header;
    struct weir_dns_record record;
    if (weir_read_dns_header(&c, &header) && weir_read_dns_question(&c, message, WEIR_DNS_LOWER, &record))
        sum += record.type;
    for (uint32_t i = 0; i < 4 && weir_read_dns_record(&c, message, WEIR_DNS_AS_IS, &record); i++)
        sum += record.ttl + record.data.left;
}

/* Not inlined: with all helpers in one function, its code has more paths than are analysed. */
static __attribute__((noinline)) void read_dhcp(struct weir_cursor c)
{
    struct weir_dhcp_header header;
    if (!weir_read_dhcp_header(&c, &header))
        return;
    sum += header.id + weir_mac_of(header.hardware).bytes[0];
    WEIR_DHCP_EACH(64, &c, option) {
        if (option.type == WEIR_DHCP_MESSAGE_TYPE)
            sum += weir_read_u8(&option.value);
    }
}

static void read_tls(struct weir_cursor c)
{
    struct weir_tls_part record, message;
    struct weir_tls_hello hello;
    for (uint32_t i = 0; i < 4 && weir_read_tls_record(&c, &record); i++)
        for (uint32_t j = 0; j < 4 && weir_read_tls_message(&record.body, &message); j++)
            if (weir_read_tls_hello(&message.body, message.type == WEIR_TLS_CLIENT_HELLO, &hello))
                WEIR_TLS_EXTENSION_EACH(&hello, extension) {
                    sum += extension.type == WEIR_TLS_SERVER_NAME ? weir_tls_server_name(extension.value).left : 1;
                }
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const struct weir_cursor c = weir_cursor_payload(p);
    read_numbers(c);
    read_der(c);
    read_dns(c);
    read_dhcp(c);
    read_tls(c);
    return read_lists(c) ? WEIR_PASS : WEIR_DROP;
}

WEIR_EXPORT(weir_stream) int32_t weir_stream(const struct weir_stream *event)
{
    read_tls(weir_cursor_stream(event));
    return WEIR_STREAM_CONTINUE;
}
