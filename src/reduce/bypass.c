/* Bypass: steps are sent as `none` while that is faster.
 *
 * Every rank tells the others, with its verdict, how long its last reduction took; all of them know the longest of
 * these. The way that is in use is timed in groups of steps, and now and then the other way is tried for one group: it
 * is kept if it is faster by a 64th, and tried again after four times as many steps if it is not. A try ends early
 * where its first two times are more than twice as long, because nothing has paid for the first try. A way that is
 * known to be slower is not tried before the steps since the last try have taken 128 times what the try is expected to
 * lose, so tries cost less than a hundredth, however slow the other way is. With the 64th, steps take in the long run
 * less than three hundredths more than the faster way. What is decided takes effect with the reduction that is begun
 * next, `depth` reductions after the one whose verdict it was; these numbers are the log, from which all decisions can
 * be replayed.
 *
 * Nothing is lost on the way: dense steps send residuals too, all of them (alpha = beta = 1), and what owners have in
 * second residuals joins their first ones before. */
#include "reduce/bypass.h"

#include <string.h>

#include "base/status.h"
#include "reduce/reducer.h"

enum { FIRST_PERIOD = 16, KEPT_PERIOD = 64, LONGEST_PERIOD = 8192, LONGER = 4, GAIN = 64, PAID = 128 };

/* ---- the rule ---- */

void tg_bypass_rule_begin(tg_bypass_rule *rule)
{
    memset(rule, 0, sizeof *rule);
    rule->skipping = 1;
    rule->period = FIRST_PERIOD;
}

bool tg_bypass_rule_check(const tg_bypass_rule *rule, size_t changes)
{
    return rule->dense == changes % 2 && rule->trying <= 1 && rule->skipping <= 1 && rule->count < TG_BYPASS_SAMPLES &&
           rule->period >= FIRST_PERIOD && rule->period <= LONGEST_PERIOD &&
           changes + rule->trying <= TG_BYPASS_MOST_CHANGES; /* what is tried may be taken back */
}

static void change(tg_bypass_rule *rule)
{
    rule->dense = !rule->dense;
    rule->skipping = 1;
    rule->count = rule->waited = 0;
}

static void take_back(tg_bypass_rule *rule)
{
    rule->trying = 0;
    rule->period = rule->period > LONGEST_PERIOD / LONGER ? LONGEST_PERIOD : rule->period * LONGER;
    change(rule);
}

/* The second smallest: what is slow for other reasons does not count, nor one that was fast by chance. */
static uint32_t typical(const uint32_t samples[TG_BYPASS_SAMPLES])
{
    uint32_t least = UINT32_MAX, second = UINT32_MAX;
    for (unsigned i = 0; i < TG_BYPASS_SAMPLES; i++)
        if (samples[i] < least) {
            second = least;
            least = samples[i];
        } else if (samples[i] < second) {
            second = samples[i];
        }
    return second;
}

/* Whether the first two times of a try are more than twice as long as steps take otherwise: more of them would lose
 * much and say nothing new. */
static bool goes_badly(const tg_bypass_rule *rule)
{
    const uint64_t most = UINT64_C(2) * rule->estimates[!rule->dense];
    return rule->trying && rule->count == 2 && rule->samples[0] > most && rule->samples[1] > most;
}

/* Whether a try would lose at most a 128th of the time since the last one. It compares with what steps take now: where
 * these become slower, for instance on a network that others use too, the other way is tried sooner. */
static bool is_affordable(const tg_bypass_rule *rule, uint32_t depth)
{
    const uint64_t now = rule->estimates[rule->dense], other = rule->estimates[!rule->dense],
                   steps = TG_BYPASS_SAMPLES + UINT64_C(2) * depth; /* of a try: see tg_bypass_rule_note in bypass.h */
    return other <= now || rule->waited * now >= PAID * steps * (other - now);
}

void tg_bypass_rule_note(tg_bypass_rule *rule, bool dense, uint32_t microseconds, bool may_change, uint32_t depth)
{
    if (dense != (rule->dense != 0)) /* begun before the last change */
        return;
    if (rule->skipping > 0) {
        rule->skipping--;
        return;
    }
    rule->samples[rule->count++] = microseconds;
    rule->waited++;
    if (goes_badly(rule)) {
        rule->estimates[dense] = rule->samples[0] < rule->samples[1] ? rule->samples[0] : rule->samples[1];
        take_back(rule);
        return;
    }
    if (rule->count < TG_BYPASS_SAMPLES)
        return;
    rule->count = 0;
    rule->estimates[dense] = typical(rule->samples);
    const uint32_t other = rule->estimates[!dense];
    if (!rule->trying) {
        rule->trying = rule->waited >= rule->period && is_affordable(rule, depth) && may_change;
        if (rule->trying)
            change(rule);
        return;
    }
    if (rule->estimates[dense] >= other - other / GAIN) {
        take_back(rule);
        return;
    }
    rule->trying = 0;
    rule->period = KEPT_PERIOD;
}

/* ---- the log ---- */

bool tg_bypass_at(const tg_reducer *r, uint64_t number)
{
    size_t changes = r->bypass_change_count;
    while (changes > 0 && r->bypass_changes[changes - 1] > number)
        changes--;
    return changes % 2 == 1;
}

void tg_bypass_note(tg_reduction *r, uint32_t microseconds)
{
    tg_reducer *reducer = r->reducer;
    tg_bypass_rule *rule = &reducer->bypass_rule;
    if (reducer->options.bypass != TG_BYPASS_AUTO || !r->timed)
        return;
    /* A try that may be taken back needs room for both. */
    const bool may_change = reducer->bypass_change_count + 2 <= TG_BYPASS_MOST_CHANGES;
    tg_bypass_rule_note(rule, r->timed_dense, microseconds, may_change, reducer->options.depth);
    if ((rule->dense != 0) != (reducer->bypass_change_count % 2 == 1))
        reducer->bypass_changes[reducer->bypass_change_count++] = r->number + reducer->options.depth;
}

tg_status tg_reducer_bypass_log(const tg_reducer *reducer, uint64_t *changes, size_t capacity, size_t *count,
                                tg_error *error)
{
    if (!reducer || !count)
        return tg_fail(error, TG_INVALID_ARGUMENT, "tg_reducer_bypass_log: reducer and count must not be NULL");
    if (changes && capacity < reducer->bypass_change_count)
        return tg_fail(error, TG_BUFFER_TOO_SMALL, "the log has %zu changes, and there is room for %zu",
                       reducer->bypass_change_count, capacity);
    if (changes && reducer->bypass_change_count > 0)
        memcpy(changes, reducer->bypass_changes, reducer->bypass_change_count * sizeof *changes);
    *count = reducer->bypass_change_count;
    return tg_succeed(error);
}

/* ---- options ---- */

tg_status tg_bypass_check(const tg_reducer_options *o, tg_error *error)
{
    if ((unsigned)o->bypass > TG_BYPASS_REPLAY)
        return tg_fail(error, TG_INVALID_ARGUMENT, "invalid bypass %d: use TG_BYPASS_OFF, _AUTO or _REPLAY",
                       (int)o->bypass);
    if (o->bypass_change_count > 0 && o->bypass != TG_BYPASS_REPLAY)
        return tg_fail(error, TG_INVALID_ARGUMENT, "bypass_changes are for TG_BYPASS_REPLAY only");
    if (o->bypass_change_count > 0 && !o->bypass_changes)
        return tg_fail(error, TG_INVALID_ARGUMENT, "the bypass log has %zu changes and no list",
                       o->bypass_change_count);
    if (o->bypass_change_count > TG_BYPASS_MOST_CHANGES)
        return tg_fail(error, TG_INVALID_ARGUMENT, "the bypass log has %zu changes: the limit is %d",
                       o->bypass_change_count, TG_BYPASS_MOST_CHANGES);
    for (size_t i = 1; i < o->bypass_change_count; i++)
        if (o->bypass_changes[i] <= o->bypass_changes[i - 1])
            return tg_fail(error, TG_INVALID_ARGUMENT,
                           "the reductions of the bypass log must increase: %llu follows %llu",
                           (unsigned long long)o->bypass_changes[i], (unsigned long long)o->bypass_changes[i - 1]);
    return TG_OK;
}

bool tg_bypass_keep(tg_reducer *r, const tg_reducer_options *options)
{
    r->options.bypass_changes = NULL; /* the caller's memory */
    if (options->bypass == TG_BYPASS_OFF)
        return true;
    r->bypass_changes = tg_arena_take(&r->arena, TG_BYPASS_MOST_CHANGES, sizeof *r->bypass_changes);
    tg_bypass_reset(r);
    for (size_t i = 0; r->bypass_changes && i < options->bypass_change_count; i++)
        r->bypass_changes[i] = options->bypass_changes[i];
    r->bypass_change_count = options->bypass_change_count;
    return r->bypass_changes != NULL;
}

void tg_bypass_reset(tg_reducer *r)
{
    if (r->options.bypass == TG_BYPASS_AUTO) {
        tg_bypass_rule_begin(&r->bypass_rule);
        r->bypass_change_count = 0;
    }
}

void tg_bypass_forget(tg_reducer *r)
{
    tg_bypass_reset(r);
    r->folded = false;
    for (size_t i = 0; i < r->tensor_count; i++)
        r->tensors[i].idle = false;
    for (uint32_t i = 0; i < r->options.depth; i++)
        r->reductions[i].timed = false;
}

/* ---- residuals ---- */

static bool is_on(const tg_reduction *r) { return r->reducer->options.bypass != TG_BYPASS_OFF; }

tg_feedback *tg_feedback_in(const tg_reduction *r, uint32_t tensor)
{
    const tg_reducing_tensor *t = &r->reducer->tensors[tensor];
    return r->dense && t->idle ? NULL : t->feedback;
}

tg_source tg_source_in(const tg_reduction *r, const tg_source *source)
{
    tg_source made = *source;
    if (r->dense && is_on(r) && made.residual)
        made.alpha = made.beta = 1;
    return made;
}

/* What owners have in second residuals is of means, and so as much as `world` times that in one rank's own. */
static void fold(tg_reducer *r)
{
    for (size_t i = 0; r->second && i < r->coded.piece_count; i++) {
        const tg_piece *piece = &r->coded.pieces[i];
        if (r->second[i])
            r->stats.saturated += tg_feedback_fold(r->second[i], r->tensors[piece->tensor].feedback, piece->first,
                                                   (float)r->world);
    }
    r->folded = true;
}

void tg_bypass_begin(tg_reduction *r)
{
    tg_reducer *reducer = r->reducer;
    if (!is_on(r))
        return;
    if (r->dense && !reducer->folded)
        fold(reducer);
    for (size_t i = 0; !r->dense && i < reducer->tensor_count; i++)
        reducer->tensors[i].idle = false;
    if (!r->dense)
        reducer->folded = false;
}

void tg_bypass_end(tg_reduction *r, bool applied)
{
    tg_reducer *reducer = r->reducer;
    if (!is_on(r))
        return;
    /* What a dense step leaves of float32 is nothing; other reductions may be under way unless depth is 1. */
    const bool empties = applied && r->dense && reducer->options.depth == 1;
    for (size_t i = 0; i < reducer->tensor_count; i++) {
        tg_reducing_tensor *t = &reducer->tensors[i];
        if (!applied)
            t->idle = false;
        else if (empties && t->given.dtype == TG_FLOAT32 && r->given[i] == TG_GIVEN)
            t->idle = true;
    }
    /* One that was compressed may have left something in second residuals since a dense one was begun. */
    reducer->folded = reducer->folded && applied && r->dense;
}
