/* See beat.h. One socket serves both kinds of addresses; on a machine without IPv6, those of IPv4. */
#define _DEFAULT_SOURCE /* IFF_UP */
#include "beat.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

static_assert(sizeof(struct beat_packet) == BEAT_PACKET_SIZE, "packets have one size");

/* ---- addresses ---- */

static const uint8_t ipv4_prefix[12] = {[10] = 0xff, [11] = 0xff};

static bool is_ipv4(const struct beat_address *address)
{
    return memcmp(address->bytes, ipv4_prefix, sizeof ipv4_prefix) == 0;
}

/* False for what no other host reaches: loopback, and addresses that hold on one link only. */
static bool take_address(const struct sockaddr *name, struct beat_address *address)
{
    if (name->sa_family == AF_INET) {
        struct sockaddr_in place;
        memcpy(&place, name, sizeof place);
        memcpy(address->bytes, ipv4_prefix, sizeof ipv4_prefix);
        memcpy(address->bytes + sizeof ipv4_prefix, &place.sin_addr, sizeof place.sin_addr);
        address->port = place.sin_port;
        return ntohl(place.sin_addr.s_addr) >> 16 != 0xa9fe;
    }
    if (name->sa_family != AF_INET6)
        return false;
    struct sockaddr_in6 place;
    memcpy(&place, name, sizeof place);
    memcpy(address->bytes, &place.sin6_addr, sizeof address->bytes);
    address->port = place.sin6_port;
    return !IN6_IS_ADDR_LINKLOCAL(&place.sin6_addr);
}

static void list_addresses(struct beat_place *own, uint16_t port)
{
    struct ifaddrs *all;
    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *one = all; one && own->count < BEAT_MOST_ADDRESSES; one = one->ifa_next) {
        struct beat_address *address = &own->addresses[own->count];
        const bool is_up = (one->ifa_flags & IFF_UP) && !(one->ifa_flags & IFF_LOOPBACK);
        if (!is_up || !one->ifa_addr || !take_address(one->ifa_addr, address))
            continue;
        address->port = port;
        own->count++;
    }
    freeifaddrs(all);
}

/* ---- the socket ---- */

static bool bind_any(struct beat *beat, uint16_t *port)
{
    const int no = 0;
    struct sockaddr_in6 name = {.sin6_family = AF_INET6};
    struct sockaddr_in old_name = {.sin_family = AF_INET};
    struct beat_address address = {0};
    union {
        struct sockaddr any;
        struct sockaddr_in6 ipv6;
    } bound;
    socklen_t size = sizeof bound;
    beat->socket = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    beat->is_ipv4 = beat->socket < 0 || setsockopt(beat->socket, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) != 0 ||
                    bind(beat->socket, (const struct sockaddr *)&name, sizeof name) != 0;
    if (beat->is_ipv4) {
        if (beat->socket >= 0)
            close(beat->socket);
        beat->socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (beat->socket < 0 || bind(beat->socket, (const struct sockaddr *)&old_name, sizeof old_name) != 0)
            return false;
    }
    if (getsockname(beat->socket, &bound.any, &size) != 0 || !take_address(&bound.any, &address))
        return false;
    *port = address.port;
    return true;
}

void beat_open(struct beat *beat, struct beat_place *own)
{
    uint16_t port;
    *beat = (struct beat){.socket = -1};
    memset(own, 0, sizeof *own); /* to the last byte: it travels */
    if (!bind_any(beat, &port)) {
        if (beat->socket >= 0)
            close(beat->socket);
        beat->socket = -1;
        return;
    }
    if (getrandom(own->secret, sizeof own->secret, GRND_NONBLOCK) != (ssize_t)sizeof own->secret)
        memset(own->secret, 0, sizeof own->secret);
    list_addresses(own, port);
}

void beat_join(struct beat *beat, struct beat_peer *peers, uint32_t count, uint32_t self, uint64_t now)
{
    beat->peers = peers;
    beat->count = count;
    beat->self = self;
    memcpy(beat->secret, peers[0].place.secret, sizeof beat->secret);
    beat->next = beat->turned = beat->woke = beat->progressed = beat->steps[0] = beat->steps[1] = now;
    if (beat->secret[0] == 0 && beat->secret[1] == 0 && beat->socket >= 0) { /* no secret, no packets */
        close(beat->socket);
        beat->socket = -1;
    }
}

/* ---- sending ---- */

/* What cannot be sent is lost like any packet. */
static void send_to(const struct beat *beat, const struct beat_address *address, const struct beat_packet *packet)
{
    if (beat->is_ipv4) {
        struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = address->port};
        memcpy(&name.sin_addr, address->bytes + sizeof ipv4_prefix, sizeof name.sin_addr);
        if (is_ipv4(address))
            (void)sendto(beat->socket, packet, sizeof *packet, 0, (const struct sockaddr *)&name, sizeof name);
        return;
    }
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_port = address->port};
    memcpy(&name.sin6_addr, address->bytes, sizeof address->bytes);
    (void)sendto(beat->socket, packet, sizeof *packet, 0, (const struct sockaddr *)&name, sizeof name);
}

/* Where it was heard from; until then, wherever it may be. */
static void send_to_peer(const struct beat *beat, uint32_t host, enum beat_kind kind, uint32_t about)
{
    const struct beat_peer *peer = &beat->peers[host];
    const struct beat_packet packet = {{beat->secret[0], beat->secret[1]}, kind, beat->self, about, 0};
    const uint32_t count = peer->place.count <= BEAT_MOST_ADDRESSES ? peer->place.count : BEAT_MOST_ADDRESSES;
    if (beat->socket < 0)
        return;
    if (peer->was_heard)
        send_to(beat, &peer->from, &packet);
    for (uint32_t i = 0; !peer->was_heard && i < count; i++)
        send_to(beat, &peer->place.addresses[i], &packet);
}

void beat_send(const struct beat *beat, enum beat_kind kind, uint32_t about)
{
    for (uint32_t i = 0; i < beat->count; i++)
        if (i != beat->self && !beat->peers[i].has_left)
            send_to_peer(beat, i, kind, about);
}

/* ---- hearing ---- */

enum beat_kind beat_take(struct beat *beat, const void *bytes, size_t size, const struct beat_address *from,
                         uint64_t now, struct beat_packet *packet)
{
    if (size != sizeof *packet)
        return BEAT_NONE;
    memcpy(packet, bytes, sizeof *packet);
    if (memcmp(packet->secret, beat->secret, sizeof packet->secret) != 0 || packet->from >= beat->count ||
        packet->from == beat->self || packet->kind <= BEAT_NONE || packet->kind > BEAT_LOST ||
        packet->about >= beat->count)
        return BEAT_NONE;
    struct beat_peer *peer = &beat->peers[packet->from];
    peer->was_heard = true;
    peer->heard = now;
    peer->from = *from;
    peer->has_left = peer->has_left || packet->kind == BEAT_LEFT;
    return (enum beat_kind)packet->kind;
}

enum beat_kind beat_receive(struct beat *beat, uint64_t now, uint32_t *about, bool *more)
{
    uint8_t bytes[BEAT_PACKET_SIZE + 1]; /* what is longer is seen to be */
    union {
        struct sockaddr any;
        struct sockaddr_in6 ipv6;
    } name;
    socklen_t name_size = sizeof name;
    struct beat_address from;
    struct beat_packet packet;
    const ssize_t got = beat->socket < 0 ? -1 : recvfrom(beat->socket, bytes, sizeof bytes, 0, &name.any, &name_size);
    *more = got >= 0;
    if (got < 0 || !take_address(&name.any, &from))
        return BEAT_NONE;
    const enum beat_kind kind = beat_take(beat, bytes, (size_t)got, &from, now, &packet);
    if (kind == BEAT_ASK)
        send_to_peer(beat, packet.from, BEAT_HERE, 0);
    if (kind != BEAT_NONE)
        *about = packet.about;
    return kind;
}

/* ---- time ---- */

void beat_turn(struct beat *beat, uint64_t now)
{
    if (now - beat->turned > BEAT_HICCUP)
        beat->woke = now;
    beat->turned = now;
    if (now < beat->next)
        return;
    beat_send(beat, BEAT_HERE, 0);
    beat->next = now + BEAT_PERIOD;
}

void beat_progress(struct beat *beat, uint64_t now)
{
    beat->progressed = beat->steps[0];
    beat->steps[0] = beat->steps[1];
    beat->steps[1] = now;
}

int beat_wait(const struct beat *beat, uint64_t now)
{
    const uint64_t millisecond = BEAT_SECOND / 1000;
    return now >= beat->next ? 0 : (int)((beat->next - now + millisecond - 1) / millisecond);
}

bool beat_is_known(const struct beat *beat, uint32_t host)
{
    const struct beat_peer *peer = &beat->peers[host];
    return host != beat->self && peer->was_heard && !peer->has_left && peer->heard + BEAT_HICCUP > beat->progressed;
}

bool beat_is_silent(const struct beat *beat, uint32_t host, uint64_t now, uint64_t for_so_long)
{
    uint64_t last = beat->peers[host].heard;
    last = last > beat->progressed ? last : beat->progressed;
    last = last > beat->woke ? last : beat->woke;
    return beat_is_known(beat, host) && now > last && now - last > for_so_long;
}
