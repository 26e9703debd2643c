/* Any bytes as the file of a probe. What is accepted can be predicted from; it prints to a text that reads back as the
 * same, to the byte; and a judgement that lets it pass leaves it fit to predict from. What is refused says why. */
#include "cli/probe_file.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

static char *printed(const struct probe *probe, size_t *size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    REQUIRE(out, "memory for a text");
    probe_print(probe, out);
    REQUIRE(fclose(out) == 0 && text, "memory for a text");
    return text;
}

static void check_use(struct probe *probe, bool widens)
{
    struct failure failure = {{0}};
    struct probe_doubts doubts;
    const int64_t later = probe->made + (widens ? INT64_C(86400) * 365 : 0);
    REQUIRE(probe_judge(probe, widens ? "another machine" : probe->machine, later, true, &doubts, &failure),
            "refused although insisted on: %s", failure.text);
    REQUIRE(!widens || doubts.age[0], "a year is not old");
    REQUIRE(predict_network_check(&probe->network, &failure), "%s", failure.text);
    for (size_t i = 0; i < probe->coding_count; i++) {
        tg_spec spec;
        tg_feedback_spec feedback;
        REQUIRE(predict_coding_check(&probe->codings[i].coding, &failure), "%s", failure.text);
        REQUIRE(tg_spec_parse(probe->codings[i].coding.spec, &spec, NULL) == TG_OK &&
                    tg_feedback_parse(probe->codings[i].feedback, &feedback, NULL) == TG_OK,
                "coding %zu is of no codec", i);
        REQUIRE(probe_coding_of(probe, &spec, &feedback, probe->codings[i].algorithm) == &probe->codings[i],
                "coding %zu is not found", i);
        struct predict_coding *c = &probe->codings[i].coding;
        if (probe->network.world > 16 || i > 1) /* larger ones take too long for a fuzzer */
            continue;
        REQUIRE(!predict_fit_samples(&probe->network, &spec, &feedback, probe->codings[i].algorithm, c, &failure) ||
                    (c->measured[PREDICT_ONE_LEVEL].fit.count == c->measured[PREDICT_ONE_LEVEL].count &&
                     c->measured[PREDICT_TWO_LEVELS].fit.count == c->measured[PREDICT_TWO_LEVELS].count),
                "not all reductions were fitted");
        for (size_t levels = 0; levels < PREDICT_LEVELS; levels++)
            for (size_t j = 0; j < c->measured[levels].fit.count; j++)
                REQUIRE(isfinite(c->measured[levels].fit.points[j].model) &&
                            c->measured[levels].fit.points[j].model > 0 &&
                            c->measured[levels].fit.points[j].seconds > 0,
                        "a point that says nothing");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct probe probe, again;
    struct failure failure = {{0}};
    char *text = exact_buffer(size, 0);
    memcpy(text, data, size);
    if (!probe_parse(text, size, &probe, &failure)) {
        REQUIRE(failure.text[0] != 0, "refused without a reason");
    } else {
        size_t first_size, second_size;
        char *first = printed(&probe, &first_size);
        REQUIRE(probe_parse(first, first_size, &again, &failure), "what was printed is refused: %s", failure.text);
        char *second = printed(&again, &second_size);
        REQUIRE(first_size == second_size && memcmp(first, second, first_size) == 0, "printed in two ways");
        free(first);
        free(second);
        check_use(&probe, false);
        check_use(&again, true);
    }
    free(text);
    return 0;
}
