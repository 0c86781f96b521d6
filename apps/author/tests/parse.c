/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Runs guest/sdk-c/weir_parse.h natively. Each line of the input is a kind, bytes in hexadecimal digits, and a number. The program
 * prints a line with the result. apps/author/tests/parse.rs compares the lines with those of the Rust SDK and of other tools.
 *
 *     clang -g -O1 -fsanitize=address,undefined -I guest/sdk-c -o parse apps/author/tests/parse.c
 */
#define WEIR_NATIVE 1
#include "weir.h"
#include "weir_parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* weir.h declares these for the program that loads a native module. Addresses of strings are not used here. */
uint8_t *weir_native_base;
uint32_t weir_host_address(const void *bytes, uint32_t len) { return bytes != NULL ? len : 0; }

static void print_hex(const uint8_t *bytes, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        printf("%02x", bytes[i]);
}

static const char *ending(bool failed) { return failed ? "failed" : "ok"; }

static void print_number(struct weir_cursor c, uint32_t len, int64_t number)
{
    if (c.failed)
        printf("failed");
    else
        printf("%" PRId64 " %u", number, len - c.left);
}

/* Prints offset, depth, header and value length of each element as `openssl asn1parse` does, and its class and tag. */
static bool print_elements(struct weir_cursor c, const uint8_t *first, uint32_t depth)
{
    struct weir_der e;
    while (c.left != 0) {
        const uint8_t *start = c.at;
        if (!weir_read_der(&c, &e))
            return false;
        printf("%u:%u:%u:%u:%s:%u:%u ", (uint32_t)(start - first), depth, (uint32_t)(e.value.at - start), e.value.left,
               e.is_constructed ? "cons" : "prim", e.class, e.tag);
        if (e.is_constructed && depth < 20 && !print_elements(e.value, first, depth + 1))
            return false;
    }
    return !c.failed;
}

static void print_tls(struct weir_cursor c)
{
    struct weir_tls_part record, message;
    struct weir_tls_hello hello;
    while (weir_read_tls_record(&c, &record)) {
        printf("record %u %u %u %u ", record.type, record.version, record.body.left, record.missing);
        while (record.type == WEIR_TLS_HANDSHAKE && weir_read_tls_message(&record.body, &message)) {
            printf("message %u %u %u ", message.type, message.body.left, message.missing);
            if (message.type != WEIR_TLS_CLIENT_HELLO && message.type != WEIR_TLS_SERVER_HELLO)
                continue;
            if (!weir_read_tls_hello(&message.body, message.type == WEIR_TLS_CLIENT_HELLO, &hello)) {
                printf("failed ");
                continue;
            }
            printf("hello %u %02x %u %u ", hello.version, hello.random[31], hello.session_id.left, hello.suites.left);
            WEIR_TLS_EXTENSION_EACH(&hello, extension) {
                printf("%u:%u ", extension.type, extension.value.left);
                if (extension.type != WEIR_TLS_SERVER_NAME)
                    continue;
                const struct weir_cursor name = weir_tls_server_name(extension.value);
                if (!name.failed)
                    print_hex(name.at, name.left);
                printf("%s ", ending(name.failed));
            }
            printf("%s ", ending(hello.extensions.failed));
        }
    }
    printf("%s", ending(c.failed));
}

static void print_name(struct weir_cursor c, struct weir_cursor message, uint32_t options)
{
    struct weir_dns_name name;
    const uint8_t *first = message.at;
    if (!weir_read_dns_name(&c, message, options, &name)) {
        printf("failed");
        return;
    }
    print_hex(name.bytes, name.len);
    printf(" %u", (uint32_t)(c.at - first));
}

static void print_message(struct weir_cursor message)
{
    struct weir_cursor c = message;
    struct weir_dns_header h;
    struct weir_dns_record r;
    if (weir_read_dns_header(&c, &h))
        printf("header %u %u %u %u %u %u ", h.id, h.flags, h.questions, h.answers, h.authorities, h.additionals);
    for (uint32_t i = 0; i < h.questions && weir_read_dns_question(&c, message, WEIR_DNS_AS_IS, &r); i++)
        printf("question %u %u %u ", r.name.len, r.type, r.class);
    for (uint32_t i = 0; i < h.answers && weir_read_dns_record(&c, message, WEIR_DNS_AS_IS, &r); i++)
        printf("record %u %u %u %u %u ", r.name.len, r.type, r.class, r.ttl, r.data.left);
    printf("%s", ending(c.failed));
}

static void print_dhcp(struct weir_cursor c)
{
    struct weir_dhcp_header h;
    if (weir_read_dhcp_header(&c, &h)) {
        const struct weir_ip addresses[] = { h.client, h.assigned, h.server, h.relay };
        printf("header %u %u ", h.op, h.id);
        for (uint32_t i = 0; i < 4; i++) {
            uint8_t bytes[16];
            weir_ip_store(bytes, addresses[i]);
            print_hex(bytes + 12, 4);
            printf(" ");
        }
        print_hex(h.hardware, h.hardware_len);
        printf(" ");
        WEIR_DHCP_EACH(8, &c, option) {
            printf("%u:", option.type);
            print_hex(option.value.at, option.value.left);
            printf(" ");
        }
    }
    printf("%s", ending(c.failed));
}

static void answer(const char *kind, const uint8_t *bytes, uint32_t len, uint32_t number)
{
    struct weir_cursor c = weir_cursor_of(bytes, len);
    if (strcmp(kind, "varint") == 0) {
        const uint64_t value = weir_read_varint(&c);
        print_number(c, len, weir_zigzag(value));
    } else if (strcmp(kind, "signed") == 0) {
        const int64_t value = weir_read_signed_varint(&c);
        print_number(c, len, value);
    } else if (strcmp(kind, "quic") == 0) {
        const uint64_t value = weir_read_quic_varint(&c);
        print_number(c, len, (int64_t)value);
    } else if (strcmp(kind, "numbers") == 0) {
        uint64_t sum = weir_read_u8(&c);
        sum += weir_read_be16(&c);
        sum += weir_read_be24(&c);
        sum += weir_read_be32(&c);
        sum += weir_read_be64(&c);
        sum += weir_read_le16(&c);
        sum += weir_read_le32(&c);
        sum += weir_read_le64(&c);
        print_number(c, len, (int64_t)sum);
    } else if (strcmp(kind, "tlv") == 0) {
        WEIR_TLV_EACH(8, &c, 1, 2, tlv) printf("%u:%u ", tlv.type, tlv.value.left);
        printf("%s", ending(c.failed));
    } else if (strcmp(kind, "wide") == 0) {
        WEIR_TLV_EACH(8, &c, 4, 1, tlv) {
            if (tlv.type % 2 == 1)
                continue;
            printf("%u:%u ", tlv.type, tlv.value.left);
        }
        printf("%s", ending(c.failed));
    } else if (strcmp(kind, "option") == 0) {
        WEIR_OPTION_EACH(&c, option) printf("%u:%u ", option.type, option.value.left);
        printf("%s", ending(c.failed));
    } else if (strcmp(kind, "dhcp") == 0) {
        print_dhcp(c);
    } else if (strcmp(kind, "der") == 0) {
        printf("%s", ending(!print_elements(c, bytes, 0)));
    } else if (strcmp(kind, "tls") == 0) {
        print_tls(c);
    } else if (strcmp(kind, "dns") == 0) {
        print_message(c);
    } else {
        const struct weir_cursor message = c;
        weir_skip(&c, number);
        print_name(c, message, strcmp(kind, "lower") == 0 ? WEIR_DNS_LOWER : WEIR_DNS_AS_IS);
    }
    printf("\n");
}

int main(void)
{
    static char line[200000];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *hex = strchr(line, ' ');
        if (hex == NULL)
            return 1;
        *hex++ = 0;
        char *number = strchr(hex, ' ');
        if (number == NULL)
            return 1;
        const uint32_t len = (uint32_t)(number - hex) / 2;
        /* Memory of this length, so that the sanitizer finds every access behind it. */
        uint8_t *bytes = malloc(len != 0 ? len : 1);
        for (uint32_t i = 0; i < len; i++) {
            unsigned byte;
            if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
                return 1;
            bytes[i] = (uint8_t)byte;
        }
        answer(line, bytes, len, (uint32_t)strtoul(number, NULL, 10));
        free(bytes);
    }
    return 0;
}
