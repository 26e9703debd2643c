/* The rANS streams of the entropy layout: one chunk written or read with a plan. States are 32 bits wide and move 16
 * bits at a time, so every symbol writes or reads at most one word. */
#include "base/bytes.h"
#include "code/entropy.h"

#define RUN 32u /* elements that pairs are formed in: the first 16 with the last 16 */

static size_t count_symbols(const tg_entropy_plan *plan, size_t elements)
{
    return plan->tuple == 2 ? elements / RUN * (RUN / 2) + (elements % RUN ? RUN / 2 : 0) : elements;
}

size_t tg_entropy_chunk_bound(size_t elements)
{
    /* A word for each element; up to 16 more for the pairs that complete a short run. */
    return sizeof(uint32_t) * TG_ENTROPY_LANES + 2 * elements + 2 * (RUN / 2);
}

static unsigned symbol_at(const tg_entropy_plan *plan, const uint8_t *digits, size_t elements, size_t y)
{
    if (plan->tuple == 1)
        return digits[y];
    const size_t a = RUN * (y / (RUN / 2)) + y % (RUN / 2), b = a + RUN / 2;
    const unsigned first = a < elements ? digits[a] : plan->zero_digit;
    const unsigned second = b < elements ? digits[b] : plan->zero_digit;
    return first + plan->alphabet * second;
}

/* Whether an engine can run this plan: 32 lanes, 12 bits, and no symbol that has all the probability. */
static bool fits_engine(const tg_entropy_plan *plan)
{
    bool fits = plan->lane_log == 5 && plan->table_log == TG_RANS_LOG;
    for (unsigned s = 0; fits && s < plan->symbols; s++)
        fits = plan->frequency[s] < TG_RANS_SLOTS;
    return fits;
}

/* Symbols of whole steps, from `first` on, a multiple of 32. */
static const uint8_t *step_symbols(const tg_entropy_plan *plan, const uint8_t *digits, size_t first, size_t count,
                                   uint8_t *symbols)
{
    if (plan->tuple == 1)
        return digits + first;
    for (size_t row = 0; row < count; row += RUN / 2) {
        const uint8_t *low = digits + 2 * (first + row), *high = low + RUN / 2;
        for (size_t i = 0; i < RUN / 2; i++)
            symbols[row + i] = (uint8_t)(low[i] + plan->alphabet * high[i]);
    }
    return symbols;
}

/* Encodes the symbols before `y`, which must be a multiple of 32 of complete elements, with the engine; returns where
 * their words begin. */
static uint8_t *encode_steps(const tg_entropy_plan *plan, const tg_rans_engine *engine, const uint8_t *digits, size_t y,
                             uint32_t *state, uint8_t *end)
{
    enum { PIECE = 1024 };
    uint32_t model[TG_ENTROPY_SYMBOLS];
    uint8_t symbols[PIECE];
    for (unsigned s = 0; s < plan->symbols; s++)
        model[s] = plan->frequency[s] | plan->start[s] << 16;
    while (y > 0) {
        size_t count = y % PIECE ? y % PIECE : PIECE;
        y -= count;
        end = engine->encode(model, state, step_symbols(plan, digits, y, count, symbols), count / TG_RANS_LANES, end);
    }
    return end;
}

uint8_t *tg_entropy_write(const tg_entropy_plan *plan, const uint8_t *digits, size_t elements, uint8_t *out,
                          size_t capacity, const tg_rans_engine *engine)
{
    const unsigned lanes = 1u << plan->lane_log, table_log = plan->table_log;
    uint32_t state[TG_ENTROPY_LANES];
    size_t left = capacity; /* the stream grows downwards: it is read in the opposite order */
    size_t stepwise = 0;    /* symbols that the engine encodes; it does not check for room */
    if (engine && capacity >= tg_entropy_chunk_bound(elements) && fits_engine(plan))
        stepwise = (plan->tuple == 2 ? elements / RUN * (RUN / 2) : elements) / TG_RANS_LANES * TG_RANS_LANES;
    for (unsigned lane = 0; lane < lanes; lane++)
        state[lane] = TG_ENTROPY_STATE;
    for (size_t y = count_symbols(plan, elements); y-- > stepwise;) {
        const unsigned symbol = symbol_at(plan, digits, elements, y);
        const uint32_t frequency = plan->frequency[symbol];
        uint32_t x = state[y & (lanes - 1)];
        if (x >= (uint64_t)frequency << (32 - table_log)) {
            if (left < 2)
                return NULL;
            left -= 2;
            tg_store16(out + left, (uint16_t)x);
            x >>= 16;
        }
        state[y & (lanes - 1)] = (x / frequency << table_log) + x % frequency + plan->start[symbol];
    }
    if (stepwise > 0)
        left = (size_t)(encode_steps(plan, engine, digits, stepwise, state, out + left) - out);
    if (left < 4 * (size_t)lanes)
        return NULL;
    for (unsigned lane = lanes; lane-- > 0;) {
        left -= 4;
        tg_store32(out + left, state[lane]);
    }
    memmove(out, out + left, capacity - left);
    return out + (capacity - left);
}

bool tg_entropy_slots_make(tg_entropy_slots *slots, const tg_entropy_plan *plan, const tg_rans_engine *engine)
{
    if (!engine || !fits_engine(plan))
        return false;
    slots->engine = engine;
    for (unsigned s = 0; s < plan->symbols; s++) {
        /* Both digits of a pair in a byte: there are no more than 16 of each. */
        const uint32_t symbol = plan->tuple == 2 ? s % plan->alphabet | s / plan->alphabet << 4 : s;
        for (uint32_t i = 0; i < plan->frequency[s]; i++)
            slots->slot[plan->start[s] + i] = plan->frequency[s] | i << 12 | symbol << 24;
    }
    return true;
}

/* Decodes steps with the engine. It does not stop at the end of the stream, but at the end of what can be read. */
static size_t run_engine(tg_entropy_reader *reader, const tg_entropy_slots *slots, size_t steps, uint8_t *symbols)
{
    const size_t before = reader->words + reader->behind;
    size_t after = before;
    const size_t done = slots->engine->decode(slots->slot, reader->state, &reader->word, &after, steps, symbols);
    const size_t used = before - after;
    reader->broken = used > reader->words;
    reader->words -= reader->broken ? reader->words : used;
    return done;
}

/* Decodes as many of `count` digits as the engine can, a multiple of 32; the caller decodes the rest. */
static size_t decode_steps(tg_entropy_reader *reader, const tg_entropy_slots *slots, size_t count, uint8_t *digits)
{
    enum { PIECE = 1024 };
    uint8_t piece[PIECE] = {0};
    const unsigned tuple = reader->plan->tuple;
    size_t y = reader->delivered / tuple, symbols = count / tuple / TG_RANS_LANES * TG_RANS_LANES, done = 0;
    if (y % TG_RANS_LANES != 0)
        return 0;
    while (done < symbols && !reader->broken) {
        size_t here = symbols - done < PIECE ? symbols - done : PIECE;
        uint8_t *to = tuple == 1 ? digits + done : piece;
        size_t steps = run_engine(reader, slots, here / TG_RANS_LANES, to);
        for (size_t row = 0; tuple == 2 && row < steps * TG_RANS_LANES; row += RUN / 2) {
            uint8_t *low = digits + 2 * (done + row), *high = low + RUN / 2;
            for (size_t i = 0; i < RUN / 2; i++) {
                low[i] = piece[row + i] & 15;
                high[i] = piece[row + i] >> 4;
            }
        }
        done += steps * TG_RANS_LANES;
        if (steps < here / TG_RANS_LANES)
            break;
    }
    return done * tuple;
}

bool tg_entropy_open(tg_entropy_reader *reader, const tg_entropy_plan *plan, const uint8_t *in, size_t size,
                     size_t behind, size_t elements)
{
    const unsigned lanes = 1u << plan->lane_log;
    tg_cursor c = tg_cursor_over(in, size);
    *reader = (tg_entropy_reader){.plan = plan, .behind = behind / 2, .elements = elements};
    for (unsigned lane = 0; lane < lanes; lane++) {
        reader->state[lane] = tg_cursor_u32(&c); /* zero, and therefore refused, when there is none */
        if (reader->state[lane] < TG_ENTROPY_STATE)
            reader->broken = true;
    }
    if (c.left % 2 != 0)
        reader->broken = true;
    reader->word = c.at;
    reader->words = c.left / 2;
    return !reader->broken;
}

/* The last symbol that starts at or before the slot. (Of several with the same start only the last is not empty.) */
static unsigned find_symbol(const tg_entropy_plan *plan, uint32_t slot)
{
    const uint32_t place = slot >> (plan->table_log - 8);
    unsigned low = plan->guess[place], high = plan->guess[place + 1];
    while (low < high) {
        unsigned middle = (low + high + 1) / 2;
        if (plan->start[middle] <= slot)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Decodes symbol y. False when it needs a word and there is none. */
static bool next_symbol(tg_entropy_reader *reader, size_t y, unsigned *symbol)
{
    const tg_entropy_plan *plan = reader->plan;
    uint32_t *state = &reader->state[y & ((1u << plan->lane_log) - 1)];
    const uint32_t slot = *state & ((1u << plan->table_log) - 1);
    *symbol = find_symbol(plan, slot);
    /* As states are at least 2^16 >= 2^M, this is never zero, and one word brings it back to 2^16 or more. */
    uint32_t x = plan->frequency[*symbol] * (*state >> plan->table_log) + slot - plan->start[*symbol];
    if (x < TG_ENTROPY_STATE) {
        if (reader->words == 0)
            return false;
        x = x << 16 | tg_load16(reader->word);
        reader->word += 2;
        reader->words--;
    }
    *state = x;
    return true;
}

static bool next_singles(tg_entropy_reader *reader, size_t count, uint8_t *digits)
{
    for (size_t i = 0; i < count; i++) {
        unsigned symbol;
        if (!next_symbol(reader, reader->delivered + i, &symbol))
            return false;
        digits[i] = (uint8_t)symbol;
    }
    return true;
}

static bool next_pairs(tg_entropy_reader *reader, size_t count, uint8_t *digits)
{
    const unsigned alphabet = reader->plan->alphabet;
    size_t y = reader->delivered / 2; /* `delivered` is a multiple of 32 here */
    for (size_t run = 0; run < count; run += RUN) {
        for (size_t a = run; a < run + RUN / 2; a++, y++) {
            unsigned symbol;
            if (!next_symbol(reader, y, &symbol))
                return false;
            if (a < count)
                digits[a] = (uint8_t)(symbol % alphabet);
            if (a + RUN / 2 < count)
                digits[a + RUN / 2] = (uint8_t)(symbol / alphabet);
        }
    }
    return true;
}

bool tg_entropy_next(tg_entropy_reader *reader, size_t count, uint8_t *digits, const tg_entropy_slots *slots)
{
    const size_t left = reader->elements - reader->delivered;
    if (reader->broken || count > left || (count % RUN != 0 && count != left))
        return false;
    if (slots) {
        size_t done = decode_steps(reader, slots, count / RUN * RUN, digits);
        reader->delivered += done;
        digits += done;
        count -= done;
    }
    if (reader->broken)
        return false;
    bool sound = (reader->plan->tuple == 2 ? next_pairs : next_singles)(reader, count, digits);
    reader->broken = !sound;
    reader->delivered += count;
    return sound;
}

bool tg_entropy_done(const tg_entropy_reader *reader)
{
    if (reader->broken || reader->delivered != reader->elements || reader->words != 0)
        return false;
    for (unsigned lane = 0; lane < 1u << reader->plan->lane_log; lane++)
        if (reader->state[lane] != TG_ENTROPY_STATE)
            return false;
    return true;
}
