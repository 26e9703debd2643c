/* A reducer's residuals and counters as bytes (docs/collectives.md): written by one walk over the reducer, and read by the same walk, first
 * only to check. */
#include <inttypes.h>
#include <string.h>

#include "base/fpenv.h"
#include "base/status.h"
#include "reduce/identity.h"
#include "reduce/reducer.h"

static const uint8_t magic[4] = {'T', 'G', 'S', 'T'};
enum { VERSION = 0, HEAD = 40, DIGEST = 8 };

/* ---- writing: with a NULL `at`, only the size is found ---- */

typedef struct writer {
    const tg_kernels *kernels;
    uint8_t *at;
    uint64_t size;
} writer;

static void put(writer *w, const void *bytes, size_t size)
{
    if (w->at) {
        memcpy(w->at, bytes, size);
        w->at += size;
    }
    w->size += size;
}

static void put32(writer *w, uint32_t v)
{
    uint8_t bytes[4];
    tg_store32(bytes, v);
    put(w, bytes, sizeof bytes);
}

static void put64(writer *w, uint64_t v)
{
    uint8_t bytes[8];
    tg_store64(bytes, v);
    put(w, bytes, sizeof bytes);
}

static void put_double(writer *w, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put64(w, bits);
}

static void put_floats(writer *w, const float *values, uint64_t count)
{
    for (uint64_t first = 0; w->at && first < count; first += TG_BLOCK)
        (void)w->kernels->store(TG_FLOAT32, values + first, tg_block_size(count, first), w->at + 4 * first);
    if (w->at)
        w->at += 4 * count;
    w->size += 4 * count;
}

static void put_stats(writer *w, const tg_stats *s)
{
    put64(w, s->steps);
    put64(w, s->bytes);
    put64(w, s->saturated);
    put64(w, s->dropped);
    put_double(w, s->gradient_norm);
    put_double(w, s->residual_norm);
    put_double(w, s->residual_peak);
    put_double(w, s->residual_growth);
}

static void put_counters(writer *w, const tg_reducer_stats *s)
{
    const uint64_t whole[] = {s->applied,    s->skipped,     s->bytes_sent, s->bytes_received, s->frame_bytes, s->float32_bytes,
                              s->ring_bytes, s->dense_parts, s->saturated,  s->dropped};
    const double real[] = {s->residual_norm,    s->residual_growth, s->encode_seconds,
                           s->exchange_seconds, s->verify_seconds,  s->decode_seconds};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        put64(w, whole[i]);
    for (size_t i = 0; i < sizeof real / sizeof *real; i++)
        put_double(w, real[i]);
}

/* What identifies a tensor, to be compared as bytes: its name follows. */
enum { IDENTITY = 4 + TG_IDENTITY_BYTES + 1 };
static void identity_of(const tg_reducing_tensor *t, uint8_t bytes[IDENTITY])
{
    tg_store32(bytes, (uint32_t)strlen(t->given.name));
    tg_identity_store(bytes + 4, &t->given);
    bytes[IDENTITY - 1] = t->feedback != NULL;
}

static uint64_t border_count(const tg_reducer *r, const tg_reducing_tensor *t)
{
    return t->borders ? r->options.depth * ((uint64_t)r->world + 1) : 0;
}

static void put_tensor(writer *w, const tg_reducer *r, const tg_reducing_tensor *t)
{
    uint8_t identity[IDENTITY];
    identity_of(t, identity);
    put(w, identity, sizeof identity);
    put(w, t->given.name, strlen(t->given.name));
    if (t->feedback) {
        put_stats(w, &t->feedback->stats);
        put_floats(w, t->feedback->residual, t->given.count);
        if (t->feedback->momentum)
            put_floats(w, t->feedback->momentum, t->given.count);
    }
    put64(w, border_count(r, t));
    for (uint64_t i = 0; i < border_count(r, t); i++)
        put32(w, t->borders[i]);
}

static void put_all(writer *w, const tg_reducer *r)
{
    uint32_t seconds = 0;
    for (size_t i = 0; r->second && i < r->coded.piece_count; i++)
        seconds += r->second[i] != NULL;
    const uint8_t version[4] = {VERSION, (uint8_t)r->algorithm, 0, 0};
    put(w, magic, sizeof magic);
    put(w, version, sizeof version);
    put32(w, r->rank);
    put32(w, r->world);
    put64(w, r->begun);
    put64(w, r->options.chunk);
    put32(w, r->options.depth);
    put32(w, (uint32_t)r->tensor_count);
    put_counters(w, &r->stats);
    for (size_t i = 0; i < r->tensor_count; i++)
        put_tensor(w, r, &r->tensors[i]);
    put32(w, seconds);
    for (size_t i = 0; seconds > 0 && i < r->coded.piece_count; i++) {
        const tg_piece *piece = &r->coded.pieces[i];
        if (!r->second[i])
            continue;
        put32(w, piece->tensor);
        put64(w, piece->first);
        put64(w, piece->count);
        put_stats(w, &r->second[i]->stats);
        put_floats(w, r->second[i]->residual, piece->count);
    }
}

tg_status tg_reducer_save(const tg_reducer *reducer, void *buffer, size_t capacity, size_t *size, tg_error *error)
{
    if (!reducer || !size)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_reducer_save needs a reducer and a place for the size");
    for (uint32_t i = 0; i < reducer->options.depth; i++)
        if (reducer->reductions[i].active)
            return tg_fail(error, TG_INVALID_ARGUMENT, "a reduction is under way: save between steps");
    writer w = {.kernels = reducer->kernels};
    put_all(&w, reducer);
    const uint64_t total = w.size + DIGEST;
    if (total > SIZE_MAX || (buffer && capacity < total))
        return tg_fail(error, TG_BUFFER_TOO_SMALL, "the state has %" PRIu64 " bytes and the buffer %zu", total, capacity);
    *size = (size_t)total;
    if (!buffer)
        return tg_succeed(error);
    w = (writer){.kernels = reducer->kernels, .at = buffer};
    put_all(&w, reducer);
    tg_store64(w.at, reducer->kernels->digest(buffer, (size_t)w.size));
    return tg_succeed(error);
}

/* ---- reading: `apply` off, it only checks ---- */

typedef struct reading {
    tg_reducer *reducer;
    tg_cursor c;
    bool apply;
    bool exact;      /* of this very rank, world and plan: everything is taken as it is */
    bool first;      /* the first state replaces what is there, others are added */
    float scale;     /* new world / old world */
    uint32_t rank, world;
    uint64_t begun;
    tg_error *error;
} reading;

static uint64_t get64(tg_cursor *c)
{
    const uint8_t *p = tg_cursor_take(c, 8);
    return p ? tg_load64(p) : 0;
}

static double get_double(tg_cursor *c)
{
    const uint64_t bits = get64(c);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static tg_status short_state(const reading *in) { return tg_fail(in->error, TG_TRUNCATED, "the state of rank %u ends too early", in->rank); }

/* Floats to `values`: in their place, or added; `factor` brings them to the new world. */
static tg_status get_floats(reading *in, uint64_t count, bool replace, float factor, float *values)
{
    const uint8_t *wire = tg_cursor_take(&in->c, 4 * count);
    const tg_kernels *k = in->reducer->kernels;
    float block[TG_BLOCK];
    if (!wire)
        return short_state(in);
    for (uint64_t first = 0; first < count; first += TG_BLOCK) {
        const size_t n = tg_block_size(count, first);
        k->load(TG_FLOAT32, wire + 4 * first, n, block);
        if (k->first_nonfinite(block, n) < n)
            return tg_fail(in->error, TG_CORRUPT, "the state of rank %u has a residual that is not finite", in->rank);
        for (size_t i = 0; in->apply && i < n; i++)
            values[first + i] = replace ? factor * block[i] : factor * block[i] + values[first + i];
    }
    return TG_OK;
}

static void get_stats(reading *in, tg_stats *stats)
{
    tg_stats s = {.steps = get64(&in->c), .bytes = get64(&in->c), .saturated = get64(&in->c), .dropped = get64(&in->c)};
    s.gradient_norm = get_double(&in->c);
    s.residual_norm = get_double(&in->c);
    s.residual_peak = get_double(&in->c);
    s.residual_growth = get_double(&in->c);
    if (in->apply && in->first && stats)
        *stats = s;
}

static void get_counters(reading *in)
{
    tg_reducer_stats s = in->reducer->stats;
    uint64_t *const whole[] = {&s.applied,    &s.skipped,     &s.bytes_sent, &s.bytes_received, &s.frame_bytes, &s.float32_bytes,
                               &s.ring_bytes, &s.dense_parts, &s.saturated,  &s.dropped};
    double *const real[] = {&s.residual_norm,    &s.residual_growth, &s.encode_seconds,
                            &s.exchange_seconds, &s.verify_seconds,  &s.decode_seconds};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        *whole[i] = get64(&in->c);
    for (size_t i = 0; i < sizeof real / sizeof *real; i++)
        *real[i] = get_double(&in->c);
    if (in->apply && in->first)
        in->reducer->stats = s;
}

static tg_status get_head(reading *in)
{
    tg_reducer *r = in->reducer;
    const uint8_t *start = tg_cursor_take(&in->c, 8);
    if (!start || memcmp(start, magic, sizeof magic) != 0)
        return tg_fail(in->error, TG_CORRUPT, "this is not a saved state of a reducer");
    if (start[4] != VERSION)
        return tg_fail(in->error, TG_UNKNOWN_VERSION, "the state has version %u; tersegrad %s reads version %d", start[4], TG_VERSION_TEXT,
                       VERSION);
    in->rank = tg_cursor_u32(&in->c);
    in->world = tg_cursor_u32(&in->c);
    in->begun = get64(&in->c);
    const uint64_t chunk = get64(&in->c);
    const uint32_t depth = tg_cursor_u32(&in->c), tensors = tg_cursor_u32(&in->c);
    if (in->c.short_read || in->world == 0 || in->rank >= in->world)
        return short_state(in);
    if (tensors != r->tensor_count)
        return tg_fail(in->error, TG_LAYOUT_MISMATCH, "the state has %u tensors and the reducer %zu", tensors, r->tensor_count);
    if (in->rank % r->world != r->rank)
        return tg_fail(in->error, TG_LAYOUT_MISMATCH, "rank %u of %u loads the states of ranks %u, %u, ..., and not that of rank %u", r->rank,
                       r->world, r->rank, r->rank + r->world, in->rank);
    in->exact = in->world == r->world && start[5] == (uint8_t)r->algorithm && chunk == r->options.chunk && depth == r->options.depth;
    in->scale = (float)((double)r->world / (double)in->world);
    get_counters(in);
    return in->c.short_read ? short_state(in) : TG_OK;
}

static tg_status get_tensor(reading *in, size_t number)
{
    tg_reducer *r = in->reducer;
    tg_reducing_tensor *t = &r->tensors[number];
    uint8_t ours[IDENTITY];
    identity_of(t, ours);
    const uint8_t *theirs = tg_cursor_take(&in->c, IDENTITY);
    const size_t length = strlen(t->given.name);
    const uint8_t *name = theirs ? tg_cursor_take(&in->c, tg_load32(theirs)) : NULL;
    if (!name)
        return short_state(in);
    if (tg_load32(theirs) != length || memcmp(name, t->given.name, length) != 0)
        return tg_fail(in->error, TG_LAYOUT_MISMATCH, "tensor %zu is '%.60s' in the reducer and '%.*s' in the state", number, t->given.name,
                       (int)(tg_load32(theirs) < 60 ? tg_load32(theirs) : 60), (const char *)name);
    if (memcmp(theirs, ours, IDENTITY) != 0)
        return tg_fail(in->error, TG_LAYOUT_MISMATCH, "tensor '%.60s' has another count, dtype, codec or feedback in the state", t->given.name);
    tg_status status = TG_OK;
    if (t->feedback) {
        get_stats(in, &t->feedback->stats);
        status = get_floats(in, t->given.count, in->first, in->scale, t->feedback->residual);
        if (status == TG_OK && t->feedback->momentum)
            status = get_floats(in, t->given.count, in->first, in->scale, t->feedback->momentum);
    }
    const uint64_t borders = get64(&in->c);
    const uint8_t *wire = borders <= SIZE_MAX / 4 ? tg_cursor_take(&in->c, 4 * borders) : NULL;
    if (status != TG_OK || !wire || in->c.short_read)
        return status == TG_OK ? short_state(in) : status;
    if (!in->exact)
        return TG_OK;
    if (borders != border_count(r, t))
        return tg_fail(in->error, TG_CORRUPT, "the state of tensor '%.60s' has %" PRIu64 " borders", t->given.name, borders);
    for (uint64_t i = 0; i < borders; i++) {
        const uint32_t border = tg_load32(wire + 4 * i), place = (uint32_t)(i % ((uint64_t)r->world + 1));
        if ((place == 0 && border != 0) || (place == r->world && border != t->given.count) || (place > 0 && border < tg_load32(wire + 4 * i - 4)))
            return tg_fail(in->error, TG_CORRUPT, "the state of tensor '%.60s' has impossible borders", t->given.name);
        if (in->apply)
            t->borders[i] = border;
    }
    return TG_OK;
}

/* A residual of second encodings: to its place, or, where parts have other owners now, to the tensor's own residual on this rank. It is of
 * means, and so `world` times as large there. */
static tg_status get_second(reading *in)
{
    tg_reducer *r = in->reducer;
    const uint32_t tensor = tg_cursor_u32(&in->c);
    const uint64_t first = get64(&in->c), count = get64(&in->c);
    if (in->c.short_read)
        return short_state(in);
    if (tensor >= r->tensor_count || first > r->tensors[tensor].given.count || count > r->tensors[tensor].given.count - first)
        return tg_fail(in->error, TG_CORRUPT, "the state has a part of a tensor that does not exist");
    tg_feedback *home = NULL;
    for (size_t i = 0; in->exact && i < r->coded.piece_count; i++)
        if (r->second[i] && r->coded.pieces[i].tensor == tensor && r->coded.pieces[i].first == first && r->coded.pieces[i].count == count)
            home = r->second[i];
    if (in->exact && !home)
        return tg_fail(in->error, TG_CORRUPT, "the state has a part of tensor '%.60s' that this rank does not own", r->names[tensor]);
    get_stats(in, home ? &home->stats : NULL);
    if (home)
        return get_floats(in, count, true, 1, home->residual);
    tg_feedback *feedback = r->tensors[tensor].feedback;
    if (!feedback)
        return tg_fail(in->error, TG_CORRUPT, "the state has a residual of tensor '%.60s', which keeps none", r->names[tensor]);
    return get_floats(in, count, false, in->scale * (float)in->world, feedback->residual + first);
}

static tg_status get_all(reading *in)
{
    tg_status status = get_head(in);
    for (size_t i = 0; status == TG_OK && i < in->reducer->tensor_count; i++)
        status = get_tensor(in, i);
    const uint32_t seconds = tg_cursor_u32(&in->c);
    for (uint32_t i = 0; status == TG_OK && i < seconds; i++)
        status = get_second(in);
    if (status == TG_OK && in->c.short_read)
        return short_state(in);
    if (status == TG_OK && in->c.left > 0)
        return tg_fail(in->error, TG_TRUNCATED, "the state of rank %u has %zu bytes too many", in->rank, in->c.left);
    return status;
}

/* Rank r loads the states of ranks r, r + world, ... of the old world: each once, and in this order, on which sums depend. */
static tg_status check_ranks(const tg_reducer *r, const reading *in, size_t number, size_t count)
{
    const uint64_t due = r->rank + (uint64_t)number * r->world, after = r->rank + (uint64_t)count * r->world;
    if (in->rank != due)
        return tg_fail(in->error, TG_LAYOUT_MISMATCH, "state %zu is that of rank %u, and that of rank %" PRIu64 " is due", number, in->rank, due);
    if (after < in->world)
        return tg_fail(in->error, TG_LAYOUT_MISMATCH, "the state of rank %" PRIu64 " of %u is missing: rank %u of %u loads those of ranks %u, %u, ...",
                       after, in->world, r->rank, r->world, r->rank, r->rank + r->world);
    return TG_OK;
}

static tg_status walk(tg_reducer *r, const tg_state *states, size_t count, bool apply, tg_error *error)
{
    uint32_t world = 0;
    for (size_t i = 0; i < count; i++) {
        if (!states[i].data || states[i].size < HEAD + DIGEST)
            return tg_fail(error, TG_TRUNCATED, "state %zu has too few bytes to be one", i);
        const size_t size = states[i].size - DIGEST;
        if (!apply && r->kernels->digest(states[i].data, size) != tg_load64((const uint8_t *)states[i].data + size))
            return tg_fail(error, TG_CHECKSUM_MISMATCH, "state %zu was damaged", i);
        reading in = {.reducer = r, .c = tg_cursor_over(states[i].data, size), .apply = apply, .first = i == 0, .error = error};
        tg_status status = get_all(&in);
        if (status == TG_OK)
            status = check_ranks(r, &in, i, count);
        if (status != TG_OK)
            return status;
        if (i > 0 && in.world != world)
            return tg_fail(error, TG_LAYOUT_MISMATCH, "the states are of worlds of %u and %u ranks", world, in.world);
        world = in.world;
        if (apply)
            r->begun = in.exact && count == 1 ? in.begun : 0;
    }
    return TG_OK;
}

static void forget(tg_reducer *r)
{
    for (size_t i = 0; i < r->tensor_count; i++)
        tg_feedback_reset(r->tensors[i].feedback);
    for (size_t i = 0; r->second && i < r->coded.piece_count; i++)
        tg_feedback_reset(r->second[i]);
    tg_borders_reset(r);
    const tg_algorithm algorithm = r->stats.algorithm;
    memset(&r->stats, 0, sizeof r->stats);
    r->stats.algorithm = algorithm;
    r->begun = 0;
}

tg_status tg_reducer_load(tg_reducer *reducer, const tg_state *states, size_t count, tg_error *error)
{
    if (!reducer || (!states && count > 0))
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_reducer_load needs a reducer and states");
    for (uint32_t i = 0; i < reducer->options.depth; i++)
        if (reducer->reductions[i].active)
            return tg_fail(error, TG_INVALID_ARGUMENT, "a reduction is under way: load between steps");
    tg_fp_mode before = tg_fp_enter();
    tg_status status = walk(reducer, states, count, false, error);
    if (status == TG_OK) {
        forget(reducer);
        status = walk(reducer, states, count, true, error);
        tg_reducer_greet(reducer);
    }
    tg_fp_leave(before);
    return status == TG_OK ? tg_succeed(error) : status;
}
