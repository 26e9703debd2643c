/* Sealing and opening messages. */
#include "reduce/message.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/status.h"
#include "device/device.h"

static const uint8_t magic[4] = {'T', 'G', 'M', 'S'};
enum { VERSION = 3, FLAG_ABSTAIN = 1, CHECKSUM_AT = 44, FRAME_HEADER = 64, FRAME_PAYLOAD_AT = 32 };

static const char *const kind_texts[TG_MESSAGE_KINDS] = {"greeting", "gradients", "parts",
                                                         "results",  "verdict",   "sentence"};

/* Of the header up to its checksum, and of the extra part behind it by way of its digest. */
static uint32_t checksum(const tg_kernels *kernels, const uint8_t *bytes, uint32_t extra)
{
    uint8_t both[CHECKSUM_AT + 8];
    memcpy(both, bytes, CHECKSUM_AT);
    tg_store64(both + CHECKSUM_AT, kernels->digest(bytes + TG_MESSAGE_HEADER, extra));
    return (uint32_t)kernels->digest(both, sizeof both);
}

void tg_message_seal(const tg_kernels *kernels, const tg_message *m, uint8_t *bytes)
{
    memcpy(bytes, magic, sizeof magic);
    bytes[4] = VERSION;
    bytes[5] = (uint8_t)m->kind;
    bytes[6] = m->abstain ? FLAG_ABSTAIN : 0;
    bytes[7] = 0;
    tg_store64(bytes + 8, m->step);
    tg_store32(bytes + 16, m->rank);
    tg_store32(bytes + 20, m->world);
    tg_store32(bytes + 24, m->number);
    tg_store32(bytes + 28, m->frames);
    tg_store64(bytes + 32, m->layout);
    tg_store32(bytes + 40, m->extra);
    tg_store32(bytes + CHECKSUM_AT, checksum(kernels, bytes, m->extra));
}

tg_message tg_message_fields(const uint8_t *bytes)
{
    return (tg_message){.kind = (tg_message_kind)bytes[5],
                        .abstain = bytes[6] & FLAG_ABSTAIN,
                        .step = tg_load64(bytes + 8),
                        .rank = tg_load32(bytes + 16),
                        .world = tg_load32(bytes + 20),
                        .number = tg_load32(bytes + 24),
                        .frames = tg_load32(bytes + 28),
                        .layout = tg_load64(bytes + 32),
                        .extra = tg_load32(bytes + 40)};
}

static tg_status compare(const tg_message *expected, const tg_message *m, tg_error *error)
{
    if (m->kind != expected->kind)
        return tg_fail(error, TG_CORRUPT, "it is a message of %s, but %s were expected", kind_texts[m->kind],
                       kind_texts[expected->kind]);
    if (m->rank != expected->rank)
        return tg_fail(error, TG_CORRUPT, "its header names rank %u as the sender", m->rank);
    if (m->world != expected->world)
        return tg_fail(error, TG_LAYOUT_MISMATCH, "its world has %u ranks, but this rank's has %u", m->world,
                       expected->world);
    const bool verdict = m->kind == TG_MESSAGE_VERDICT || m->kind == TG_MESSAGE_SENTENCE;
    if (!verdict && m->step != expected->step) /* a verdict may be on just that */
        return tg_fail(error, TG_LAYOUT_MISMATCH, "it is at step %" PRIu64 " and this rank at step %" PRIu64, m->step,
                       expected->step);
    if (m->number != expected->number)
        return tg_fail(error, TG_CORRUPT, "it is message %u of its step, but %u was expected", m->number,
                       expected->number);
    const bool introduction = m->kind == TG_MESSAGE_GREETING ||
                              (verdict && m->number % TG_VERDICT_NUMBERS == TG_VERDICT_ON_GREETING);
    if (!introduction && m->layout != expected->layout)
        return tg_fail(error, TG_LAYOUT_MISMATCH, "the sender's reducer has another layout");
    return TG_OK;
}

tg_status tg_message_open(const tg_kernels *kernels, const void *data, size_t size, const tg_message *expected,
                          tg_message *message, tg_cursor *extra, tg_cursor *frames, tg_error *error)
{
    const uint8_t *bytes = data;
    if (size < TG_MESSAGE_HEADER)
        return tg_fail(error, TG_TRUNCATED, "%zu bytes are too few for a message", size);
    if (memcmp(bytes, magic, sizeof magic) != 0)
        return tg_fail(error, TG_CORRUPT, "it is not a message: it starts with %02x %02x %02x %02x", bytes[0], bytes[1],
                       bytes[2], bytes[3]);
    if (bytes[4] != VERSION)
        return tg_fail(error, TG_UNKNOWN_VERSION, "it has version %u, but tersegrad %s reads version %d", bytes[4],
                       TG_VERSION_TEXT, VERSION);
    const tg_message m = tg_message_fields(bytes);
    if (m.extra > size - TG_MESSAGE_HEADER)
        return tg_fail(error, TG_TRUNCATED, "it is truncated");
    if (checksum(kernels, bytes, m.extra) != tg_load32(bytes + CHECKSUM_AT))
        return tg_fail(error, TG_CHECKSUM_MISMATCH, "it is damaged: checksum mismatch");
    if (bytes[5] >= TG_MESSAGE_KINDS || bytes[6] & ~FLAG_ABSTAIN || bytes[7] != 0 || (m.abstain && m.frames > 0))
        return tg_fail(error, TG_CORRUPT, "it breaks a rule of the message format");
    tg_status status = compare(expected, &m, error);
    if (status != TG_OK)
        return status;
    *message = m;
    *extra = tg_cursor_over(bytes + TG_MESSAGE_HEADER, m.extra);
    *frames = tg_cursor_over(bytes + TG_MESSAGE_HEADER + m.extra, size - TG_MESSAGE_HEADER - m.extra);
    return tg_succeed(error);
}

bool tg_message_frame(tg_cursor *frames, tg_frame *frame)
{
    if (frames->left < FRAME_HEADER)
        return false;
    const uint64_t payload = tg_load64(frames->at + FRAME_PAYLOAD_AT);
    if (payload > frames->left - FRAME_HEADER)
        return false;
    const size_t size = FRAME_HEADER + (size_t)payload;
    const uint8_t *bytes = tg_cursor_take(frames, size);
    *frame = (tg_frame){bytes, size};
    return bytes != NULL;
}

size_t tg_message_size(const void *data, size_t size)
{
    const uint8_t *bytes = data;
    if (size < TG_MESSAGE_HEADER)
        return size;
    const tg_message message = tg_message_fields(bytes);
    if (message.extra > size - TG_MESSAGE_HEADER)
        return size;
    const size_t before = TG_MESSAGE_HEADER + message.extra;
    tg_cursor frames = tg_cursor_over(bytes + before, size - before);
    tg_frame frame;
    for (uint32_t i = 0; i < message.frames; i++)
        if (!tg_message_frame(&frames, &frame))
            return size;
    return size - frames.left;
}

size_t tg_head_size(const void *data, size_t size)
{
    const uint32_t extra = size < TG_MESSAGE_HEADER ? 0 : tg_message_fields(data).extra;
    return size < TG_MESSAGE_HEADER || extra > size - TG_MESSAGE_HEADER ? size : TG_MESSAGE_HEADER + extra;
}

void tg_entry_write(const tg_entry *entry, uint8_t *bytes)
{
    tg_store64(bytes, entry->place);
    tg_store64(bytes + 8, entry->size);
}

bool tg_entry_read(tg_cursor *entries, tg_entry *entry)
{
    const uint8_t *bytes = tg_cursor_take(entries, TG_ENTRY_BYTES);
    if (bytes)
        *entry = (tg_entry){tg_load64(bytes), tg_load64(bytes + 8)};
    return bytes != NULL;
}

bool tg_message_body(const tg_kernels *kernels, const void *data, size_t size, uint64_t *body)
{
    const uint8_t *bytes = data;
    if (size < TG_MESSAGE_HEADER || memcmp(bytes, magic, sizeof magic) != 0 || bytes[4] != VERSION)
        return false;
    const tg_message m = tg_message_fields(bytes);
    if (m.extra > size - TG_MESSAGE_HEADER || checksum(kernels, bytes, m.extra) != tg_load32(bytes + CHECKSUM_AT) ||
        m.frames > m.extra / TG_ENTRY_BYTES)
        return false;
    const uint8_t *last = bytes + TG_MESSAGE_HEADER + m.extra - TG_ENTRY_BYTES;
    const tg_entry entry = {m.frames ? tg_load64(last) : 0, m.frames ? tg_load64(last + 8) : 0};
    if (entry.place > SIZE_MAX / 4 || entry.size > SIZE_MAX / 4 || (m.frames > 0 && entry.size == 0))
        return false; /* frames without bytes: nothing would be received for them */
    *body = tg_frame_place((size_t)(entry.place + entry.size));
    return true;
}

void tg_bitmap_write(const bool *bits, uint32_t n, uint8_t *bytes)
{
    memset(bytes, 0, tg_bitmap_bytes(n));
    for (uint32_t i = 0; i < n; i++)
        bytes[i / 8] = (uint8_t)(bytes[i / 8] | (unsigned)bits[i] << i % 8);
}

bool tg_bitmap_read(tg_cursor *extra, uint32_t n, bool *bits)
{
    const bool all = extra->left == 0;
    const uint8_t *bytes = all ? NULL : tg_cursor_take(extra, tg_bitmap_bytes(n));
    uint32_t set = 0;
    if (!all && (!bytes || extra->left > 0 || (n % 8 != 0 && bytes[n / 8] >> n % 8 != 0)))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        bits[i] = all || (bytes[i / 8] >> i % 8 & 1);
        set += bits[i];
    }
    return all || set < n;
}

void tg_verdict_print(tg_verdict *verdict, const char *text, ...)
{
    va_list arguments;
    va_start(arguments, text);
    (void)vsnprintf(verdict->text, sizeof verdict->text, text, arguments);
    va_end(arguments);
}

uint32_t tg_vote_write(const tg_vote *vote, bool timed, uint8_t *extra)
{
    tg_store32(extra, vote->rank);
    tg_store32(extra + 4, (uint32_t)vote->status);
    if (timed)
        tg_store32(extra + 8, vote->microseconds);
    return timed ? TG_TIMED_BYTES : TG_VOTE_BYTES;
}

/* What a rank may make of a step or a greeting; other statuses are between a caller and its own reducer. */
static bool is_verdict(uint32_t status)
{
    return status == TG_OK || status == TG_SKIPPED || status == TG_NONFINITE || status == TG_LAYOUT_MISMATCH ||
           status == TG_CORRUPT || status == TG_BAD_RESIDUAL;
}

bool tg_vote_is_valid(const tg_vote *vote, uint32_t world)
{
    return is_verdict((uint32_t)vote->status) && (vote->rank == TG_NO_RANK) == (vote->status == TG_OK) &&
           (vote->rank == TG_NO_RANK || vote->rank < world);
}

bool tg_vote_read(tg_cursor extra, bool timed, uint32_t world, tg_vote *vote)
{
    const uint32_t rank = tg_cursor_u32(&extra), status = tg_cursor_u32(&extra),
                   microseconds = timed ? tg_cursor_u32(&extra) : 0;
    const tg_vote read = {rank, (tg_status)status, microseconds};
    if (extra.short_read || extra.left > 0 || !tg_vote_is_valid(&read, world))
        return false;
    *vote = read;
    return true;
}

bool tg_sentence_read(tg_cursor extra, tg_verdict *verdict)
{
    const size_t length = extra.left;
    if (length >= TG_VERDICT_TEXT)
        return false;
    memcpy(verdict->text, tg_cursor_take(&extra, length), length);
    verdict->text[length] = '\0';
    for (size_t i = 0; i < length; i++) /* it goes to a terminal */
        if ((unsigned char)verdict->text[i] < ' ' || verdict->text[i] == 127)
            verdict->text[i] = '?';
    return true;
}
