/* Laws of the log of bypass in saved states: a log that is not that of the run which saved the state is refused before
 * the first step and changes nothing; what was replayed is in the state as well, so that it can be replayed again, or
 * decided from there on. */
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "reduce/reducer.h"

enum { SAVED = 40, LATER = 60, MOST = 8 };

typedef struct history {
    tg_bypass bypass;
    uint64_t changes[MOST]; /* to be replayed; then what has come of it */
    size_t count;
} history;

static const tensor_case tensors[] = {{"x", "topk:density=0.1", "ef", 3000, TG_FLOAT32}, {0}};

static rank_case case_of(const history *h, uint32_t depth)
{
    rank_case what = {.world = 1, .tensors = tensors, .options = {.bypass = h->bypass, .depth = depth}, .shape = GRID};
    if (h->bypass == TG_BYPASS_REPLAY) {
        what.options.bypass_changes = h->changes;
        what.options.bypass_change_count = h->count;
    }
    return what;
}

static void steps(rank_state *s, uint64_t from, uint64_t to)
{
    for (uint64_t step = from; step < to; step++) {
        tg_reduction *reduction;
        fill_gradients(s, step);
        expect(tg_reduce_begin(s->reducer, s->gradients, step, &reduction, &s->error) == TG_OK, "%s", s->error.message);
        while (exchange_by_hand(&reduction, 1)) {}
        expect(tg_reduce_end(reduction, &s->error) == TG_OK, "%s", s->error.message);
    }
}

static tg_state save(const tg_reducer *reducer)
{
    size_t size = 0;
    tg_error error;
    if (tg_reducer_save(reducer, NULL, 0, &size, &error) != TG_OK)
        abort();
    void *data = malloc(size);
    expect(data && tg_reducer_save(reducer, data, size, &size, &error) == TG_OK, "%s", error.message);
    return (tg_state){data, size};
}

static void drop_state(tg_state *state)
{
    free((void *)(uintptr_t)state->data);
    *state = (tg_state){NULL, 0};
}

/* What a run has saved after SAVED steps; its log is in `h` then. */
static tg_state run(history *h, const tg_state *from)
{
    rank_state s;
    const history given = *h;
    const rank_case what = case_of(&given, 1);
    open_rank(&s, &what, 0, NULL);
    expect(s.status == TG_OK, "%s", s.error.message);
    if (from)
        expect(tg_reducer_load(s.reducer, from, 1, &s.error) == TG_OK, "%s", s.error.message);
    steps(&s, from ? SAVED : 0, from ? LATER : SAVED);
    expect(tg_reducer_bypass_log(s.reducer, h->changes, MOST, &h->count, &s.error) == TG_OK, "%s", s.error.message);
    const tg_state state = save(s.reducer);
    close_rank(&s);
    return state;
}

/* Loads a state with this log; refused with these words, or taken where they are NULL. */
static void load(const history *h, const tg_state *state, uint32_t depth, const char *words, const char *name)
{
    rank_state s;
    const rank_case what = case_of(h, depth);
    open_rank(&s, &what, 0, NULL);
    steps(&s, 0, 2); /* so that there is something to be lost */
    tg_state before = save(s.reducer);
    const tg_status status = tg_reducer_load(s.reducer, state, 1, &s.error);
    tg_state after = save(s.reducer);
    if (words) {
        expect(status == TG_LAYOUT_MISMATCH && strcmp(s.error.message, words) == 0, "%s: %s", tg_status_text(status),
               s.error.message);
        expect(after.size == before.size && memcmp(after.data, before.data, after.size) == 0,
               "the reducer has changed");
    } else {
        expect(status == TG_OK, "%s", s.error.message);
    }
    check_all("%s: %s", name, words ? "refused" : "taken");
    drop_state(&before);
    drop_state(&after);
    close_rank(&s);
}

#define OF_STATE " in the state, which was saved after 40 reductions, and "
#define IN_LOG " in the bypass log: replay the log of the run that saved it"

static void logs_of_one_state(void)
{
    history replayed = {TG_BYPASS_REPLAY, {18, 22, 35, 50}, 4}, off = {.bypass = TG_BYPASS_OFF};
    tg_state state = run(&replayed, NULL), plain = run(&off, NULL);
    load(&replayed, &state, 1, NULL, "the log that the state was saved with");
    load(&(history){TG_BYPASS_REPLAY, {18, 22, 35}, 3}, &state, 1, NULL, "a log with another future");
    load(&(history){TG_BYPASS_REPLAY, {18, 22, 35, 40, 41}, 5}, &state, 1, NULL, "a log that changes at once");
    load(&(history){TG_BYPASS_REPLAY, {5}, 1}, &state, 1,
         "change 0 is at reduction 18" OF_STATE "at reduction 5" IN_LOG, "a log that begins elsewhere");
    load(&(history){TG_BYPASS_REPLAY, {18, 22, 36}, 3}, &state, 1,
         "change 2 is at reduction 35" OF_STATE "at reduction 36" IN_LOG, "a log that ends elsewhere");
    load(&(history){TG_BYPASS_REPLAY, {18, 22}, 2}, &state, 1,
         "change 2 is at reduction 35" OF_STATE "later or never" IN_LOG, "a log that lacks the last change");
    load(&(history){TG_BYPASS_REPLAY, {0}, 0}, &state, 1,
         "change 0 is at reduction 18" OF_STATE "later or never" IN_LOG, "an empty log");
    load(&(history){TG_BYPASS_REPLAY, {18, 22, 35, 39}, 4}, &state, 1,
         "change 3 is later or never" OF_STATE "at reduction 39" IN_LOG, "a log with a change too many");
    load(&(history){TG_BYPASS_REPLAY, {5}, 1}, &plain, 1, "change 0 is later or never" OF_STATE "at reduction 5" IN_LOG,
         "a log of changes that were never made");
    load(&(history){TG_BYPASS_REPLAY, {50}, 1}, &plain, 1, NULL, "a log of changes to come");
    load(&(history){TG_BYPASS_REPLAY, {5}, 1}, &state, 2, NULL, "another depth, with which reductions count from 0");
    load(&off, &state, 1, NULL, "no bypass any more");
    drop_state(&state);
    drop_state(&plain);
}

/* By times, from its log, and both in turn: the same log, and each goes on where another has stopped. */
static void logs_go_on(void)
{
    static const tg_bypass ways[] = {TG_BYPASS_AUTO, TG_BYPASS_REPLAY};
    for (unsigned first = 0; first < 2; first++)
        for (unsigned second = 0; second < 2; second++) {
            history h = {ways[first], {7, 11, 30}, first ? 3 : 0};
            tg_state state = run(&h, NULL);
            const history saved = h;
            expect(h.count > 0, "there is no log");
            h.bypass = ways[second];
            tg_state later = run(&h, &state);
            expect(h.count >= saved.count && memcmp(h.changes, saved.changes, saved.count * sizeof *h.changes) == 0,
                   "what was saved is not the beginning of the log");
            h.bypass = TG_BYPASS_REPLAY;
            check_all("%s, then %s: the log goes on", first ? "replayed" : "decided", second ? "replayed" : "decided");
            load(&h, &state, 1, NULL, "the whole log, from the first state");
            drop_state(&state);
            drop_state(&later);
        }
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    logs_of_one_state();
    logs_go_on();
    return finish();
}
