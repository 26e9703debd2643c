/* How all ranks come to the same outcome: the verdict of the lowest rank that has something to say. Ranks exchange the
 * lowest that they have heard of, as two numbers: in small worlds with everybody at once, else in rounds, in each of
 * which a rank hears of twice as many others (dissemination); or a back end that can finds the least of all. Only where
 * a rank has something to say, it says it to all. */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "reduce/reducer.h"

enum { ALL_AT_ONCE = 8 }; /* ranks: fewer messages would take more rounds, and be slower */

uint32_t tg_agreement_rounds(uint32_t world)
{
    uint32_t rounds = world > 1;
    if (world > ALL_AT_ONCE)
        while (UINT64_C(1) << rounds < world)
            rounds++;
    return rounds;
}

uint32_t tg_agreement_exchanges(const tg_reducer *r)
{
    return r->options.minimum ? r->world > 1 : tg_agreement_rounds(r->world);
}

uint32_t tg_agreement_peers(uint32_t world) { return world > ALL_AT_ONCE ? 1 : world - 1; }

/* Whether rank `from` sends to rank `to` in a round. */
static bool speaks(uint32_t world, uint32_t round, uint32_t from, uint32_t to)
{
    return world <= ALL_AT_ONCE || (from + (UINT64_C(1) << round)) % world == to;
}

bool tg_agreement_hears(const tg_reducer *r, uint32_t round, uint32_t peer)
{
    return peer != r->rank && speaks(r->world, round, peer, r->rank);
}

bool tg_agreement_tells(const tg_reducer *r, uint32_t round, uint32_t peer)
{
    return peer != r->rank && speaks(r->world, round, r->rank, peer);
}

/* ---- out ---- */

/* Whether ranks tell each other how long reductions take. */
static bool is_timed(const tg_reduction *r, const tg_agreement *a)
{
    return a == &r->agreement && r->reducer->options.bypass == TG_BYPASS_AUTO;
}

/* What a minimum is taken of, each number twice, so that damage shows. What must be the same on all ranks goes with its
 * complement: only then the least of both add up to SAME. */
enum { VOTE, MICROSECONDS, TAG, TAG_COMPLEMENT, NUMBERS };
#define SAME ((UINT64_C(1) << 62) - 1)
#define NOBODY UINT64_C(0x7fffffff) /* in the place of TG_NO_RANK, because numbers are below 2^63 */

static uint64_t number_of(const tg_vote *v)
{
    return (v->rank == TG_NO_RANK ? NOBODY : v->rank) << 32 | (uint32_t)v->status;
}

/* What a verdict is about: the step and the layout. Greetings agree on these themselves. */
static uint64_t tag_of(const tg_reduction *r, const tg_agreement *a)
{
    const bool on_step = a == &r->agreement;
    const uint64_t of = on_step ? (r->step ^ r->reducer->layout) * UINT64_C(0x9e3779b97f4a7c15) : 0;
    return ((of ^ of >> 32) * 2 + on_step) & SAME;
}

static void write_numbers(tg_reduction *r, tg_agreement *a)
{
    tg_transfer *t = &a->rounds[0];
    const uint64_t same = tag_of(r, a), longest = is_timed(r, a) ? a->lowest.microseconds : 0,
                   numbers[NUMBERS] = {number_of(&a->lowest), UINT32_MAX - longest, same, SAME - same};
    memcpy(t->out, numbers, sizeof numbers);
    memcpy(t->out + sizeof numbers, numbers, sizeof numbers);
    t->send[0] = t->out;
    t->send_size[0] = TG_MINIMUM_BYTES;
}

static void write_round(tg_reduction *r, tg_agreement *a)
{
    tg_transfer *t = &a->rounds[a->round];
    if (a->round == 0)
        a->lowest = r->verdict.status == TG_OK ? (tg_vote){TG_NO_RANK, TG_OK, r->microseconds}
                                               : (tg_vote){r->reducer->rank, r->verdict.status, r->microseconds};
    if (r->reducer->options.minimum) {
        write_numbers(r, a);
        return;
    }
    const uint32_t size = tg_vote_write(&a->lowest, is_timed(r, a), t->out + TG_MESSAGE_HEADER);
    tg_transfer_seal(r, t, 0, size, t->out);
    tg_transfer_send_all(r->reducer, t, TG_NO_MESSAGE);
    for (uint32_t peer = 0; peer < r->reducer->world; peer++)
        if (tg_agreement_tells(r->reducer, a->round, peer))
            t->send_size[peer] = TG_MESSAGE_HEADER + size;
}

/* From the rank that is heard to all. */
static void write_sentence(tg_reduction *r, tg_agreement *a)
{
    tg_transfer *t = &a->sentence;
    const uint32_t rank = r->reducer->rank, length = (uint32_t)strlen(r->verdict.text);
    const bool own = a->lowest.rank == rank;
    memcpy(t->out + TG_MESSAGE_HEADER, r->verdict.text, length);
    tg_transfer_seal(r, t, 0, length, t->out);
    tg_transfer_send_all(r->reducer, t, own ? TG_MESSAGE_HEADER + length : TG_NO_MESSAGE);
    for (uint32_t peer = 0; peer < r->reducer->world; peer++)
        t->capacity[peer] = peer == a->lowest.rank && !own ? TG_MESSAGE_HEADER + TG_VERDICT_TEXT : TG_NO_MESSAGE;
    if (!own)
        t->receive[a->lowest.rank] = a->heard;
}

tg_transfer *tg_agreement_next(tg_reduction *r, tg_agreement *a)
{
    tg_transfer *t = a->round < a->round_count ? &a->rounds[a->round] : &a->sentence;
    if (a->settled || t->handed)
        return NULL;
    if (t == &a->sentence)
        write_sentence(r, a);
    else
        write_round(r, a);
    return t;
}

/* ---- in ---- */

/* A verdict that cannot be read means that this rank does not know what the others know. */
static tg_status take_vote(tg_reduction *r, tg_agreement *a, uint32_t peer, tg_error *error)
{
    const tg_reducer *reducer = r->reducer;
    const tg_verdict own = r->verdict;
    tg_message message;
    tg_cursor extra, frames;
    tg_vote theirs;
    r->verdict = (tg_verdict){.status = TG_OK}; /* so that what is wrong with this message is recorded */
    const bool read = tg_transfer_open(r, &a->rounds[a->round], peer, &message, &extra, &frames) && frames.left == 0 &&
                      tg_vote_read(extra, is_timed(r, a), reducer->world, &theirs);
    const tg_verdict wrong = r->verdict;
    r->verdict = own;
    if (!read)
        return tg_fail(error, TG_EXCHANGE,
                       "the verdict of rank %u on step %" PRIu64 " cannot be read (%.100s), so rank %u cannot know "
                       "whether the others applied it",
                       peer, r->step, wrong.text, reducer->rank);
    const uint32_t longest = theirs.microseconds > a->lowest.microseconds ? theirs.microseconds
                                                                          : a->lowest.microseconds;
    if (theirs.rank < a->lowest.rank)
        a->lowest = theirs;
    a->lowest.microseconds = longest;
    return TG_OK;
}

/* The same where a back end has found the least of all. */
static tg_status take_numbers(tg_reduction *r, tg_agreement *a, tg_error *error)
{
    const tg_transfer *t = &a->rounds[0];
    uint64_t found[2][NUMBERS];
    memcpy(found, t->receive[0], sizeof found);
    const uint64_t *numbers = found[0], own = number_of(&a->lowest), rank = numbers[VOTE] >> 32;
    const tg_vote lowest = {rank == NOBODY ? TG_NO_RANK : (uint32_t)rank, (tg_status)(uint32_t)numbers[VOTE],
                            is_timed(r, a) ? UINT32_MAX - (uint32_t)numbers[MICROSECONDS] : r->microseconds};
    if (t->received[0] != sizeof found || memcmp(found[0], found[1], sizeof found[0]) != 0 ||
        !tg_vote_is_valid(&lowest, r->reducer->world) || numbers[VOTE] > own ||
        (lowest.rank == r->reducer->rank && numbers[VOTE] != own))
        return tg_fail(error, TG_EXCHANGE,
                       "the combined verdict of all ranks on step %" PRIu64
                       " cannot be read, so rank %u cannot know whether "
                       "the others applied it",
                       r->step, r->reducer->rank);
    /* Who has something to say has met the difference too, and says it better. */
    if (lowest.rank == TG_NO_RANK && numbers[TAG] + numbers[TAG_COMPLEMENT] != SAME)
        return tg_fail(error, TG_EXCHANGE,
                       "rank %u is at step %" PRIu64
                       ", but another rank is at another step or has other tensors; restart "
                       "all ranks from one checkpoint",
                       r->reducer->rank, r->step);
    a->lowest = lowest;
    a->round++;
    a->settled = lowest.rank == TG_NO_RANK;
    return TG_OK;
}

static tg_status take_round(tg_reduction *r, tg_agreement *a, tg_error *error)
{
    tg_status status = TG_OK;
    for (uint32_t peer = 0; status == TG_OK && peer < r->reducer->world; peer++)
        if (tg_agreement_hears(r->reducer, a->round, peer))
            status = take_vote(r, a, peer, error);
    if (status == TG_OK && ++a->round == a->round_count)
        a->settled = a->lowest.rank == TG_NO_RANK;
    return status;
}

/* What has happened is known already; only the words may be missing. */
static void take_sentence(tg_reduction *r, tg_agreement *a)
{
    tg_message message;
    tg_cursor extra, frames;
    a->settled = true;
    a->outcome.status = a->lowest.status;
    if (a->lowest.rank == r->reducer->rank) {
        a->outcome = r->verdict;
    } else {
        const tg_verdict own = r->verdict;
        r->verdict = (tg_verdict){.status = TG_OK};
        if (!tg_transfer_open(r, &a->sentence, a->lowest.rank, &message, &extra, &frames) || frames.left > 0 ||
            !tg_sentence_read(extra, &a->outcome))
            (void)tg_verdict_print(&a->outcome, "rank %u failed, and rank %u cannot read its error: %.120s",
                                   a->lowest.rank, r->reducer->rank, r->verdict.text);
        r->verdict = own;
    }
}

tg_status tg_agreement_take(tg_reduction *r, tg_agreement *a, tg_transfer *transfer, tg_error *error)
{
    if (transfer != &a->sentence)
        return r->reducer->options.minimum ? take_numbers(r, a, error) : take_round(r, a, error);
    take_sentence(r, a);
    return TG_OK;
}

void tg_agreement_reset(tg_agreement *a)
{
    for (uint32_t i = 0; i < a->round_count; i++)
        a->rounds[i].handed = a->rounds[i].fed = false;
    a->sentence.handed = a->sentence.fed = false;
    a->round = 0;
    a->settled = false;
    a->outcome.status = TG_OK;
    a->outcome.text[0] = '\0';
}
