/* Probes: what is read, what is refused and why, and what makes predictions less certain. The fuzz target has the rest.
 */
#include "cli/probe_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const machine = "x86_64, AMD EPYC, 2 processors";
static const char *const wire = "{\"hidden\": 1e-5, \"burst\": 0.004, \"points\": [[64, 2e-5, 1.9e-5, 2.2e-5], "
                                "[65536, 6.5e-4, 6e-4, 7e-4]]}";
static const char *const text_of =
    "{\"tersegrad_probe\": 2, \"machine\": \"x86_64, AMD EPYC, 2 processors\", \"world\": 4, \"per_node\": 1, "
    "\"sharing\": 2,"
    " \"date\": \"2026-11-18T15:40:00Z\", \"command\": \"tersegrad plan --probe n.json\", \"tersegrad\": \"0.1.0\","
    " \"transport\": \"mpi, openmpi\", \"device\": \"cpu/avx2\","
    " \"network\": {\"all-gather\": WIRE, \"all-to-all\": WIRE, \"ring\": WIRE},"
    " \"coding\": [{\"spec\": \"qsgd\", \"feedback\": \"none\", \"algorithm\": \"shard\", "
    "\"encode\": 1.5e-10, \"check\": "
    "2e-11, \"add\": 1e-10,"
    " \"frame\": 1e-6, \"low\": 0.9, \"high\": 1.2,"
    " \"reductions\": [[1, 1048576, 0.004, 0.0038, 0.0045], [64, 1024, 5e-4, 4e-4, 6e-4]]}], \"kappa\": 2.5}";
static const int64_t made = 1795016400; /* date -u -d 2026-11-18T15:40:00Z +%s */

/* The text with the first `from` replaced by `to`; WIRE stands for `wire`. */
static void make_text(const char *from, const char *to, char *text, size_t capacity)
{
    char whole[4096] = "";
    size_t used = 0;
    for (const char *at = text_of; *at && used < sizeof whole;) {
        const char *next = strstr(at, "WIRE");
        used += (size_t)snprintf(whole + used, sizeof whole - used, "%.*s%s", next ? (int)(next - at) : (int)strlen(at),
                                 at, next ? wire : "");
        at = next ? next + strlen("WIRE") : at + strlen(at);
    }
    const char *place = strstr(whole, from);
    assert_non_null(place);
    snprintf(text, capacity, "%.*s%s%s", (int)(place - whole), whole, to, place + strlen(from));
}

static bool reads(const char *from, const char *to, struct probe *probe, struct failure *failure)
{
    char text[4608];
    make_text(from, to, text, sizeof text);
    return probe_parse(text, strlen(text), probe, failure);
}

static void read_good(struct probe *probe)
{
    struct failure failure = {""};
    if (!reads("kappa", "kappa", probe, &failure))
        fail_msg("%s", failure.text);
}

/* As the file has it: what is between the fields of a struct is nobody's. */
static void assert_alike(const struct probe *one, const struct probe *other)
{
    char texts[2][8192] = {"", ""};
    for (unsigned i = 0; i < 2; i++) {
        FILE *out = fmemopen(texts[i], sizeof texts[i], "w");
        assert_non_null(out);
        probe_print(i == 0 ? one : other, out);
        assert_int_equal(fclose(out), 0);
    }
    assert_string_equal(texts[0], texts[1]);
}

static void test_fields(void **state)
{
    (void)state;
    struct probe probe;
    read_good(&probe);
    assert_string_equal(probe.machine, machine);
    assert_int_equal(probe.made, made);
    assert_int_equal(probe.network.world, 4);
    assert_int_equal(probe.sharing, 2);
    assert_int_equal(probe.network.patterns[PREDICT_RING].count, 2);
    assert_true(probe.network.patterns[PREDICT_ALL_GATHER].points[1].seconds == 6.5e-4);
    assert_true(probe.network.patterns[PREDICT_ALL_TO_ALL].burst == 0.004);
    assert_true(probe.codings[0].coding.add == 1e-10 && probe.kappa == 2.5);
    assert_int_equal(probe.codings[0].coding.measured[PREDICT_ONE_LEVEL].count, 2);
    const struct predict_sample *sample = &probe.codings[0].coding.measured[PREDICT_ONE_LEVEL].samples[1];
    assert_true(sample->tensors == 64 && sample->elements == 1024 && sample->seconds == 5e-4 && sample->high == 6e-4);
    assert_int_equal(probe.codings[0].coding.measured[PREDICT_TWO_LEVELS].count, 0); /* it may have none */
    tg_spec spec;
    tg_feedback_spec feedback;
    assert_int_equal(tg_spec_parse("qsgd:levels=7", &spec, NULL), TG_OK); /* what qsgd is by default */
    assert_int_equal(tg_feedback_parse("ef", &feedback, NULL), TG_OK);
    assert_ptr_equal(probe_coding_of(&probe, &spec, &feedback, TG_SHARD), &probe.codings[0]);
    assert_null(probe_coding_of(&probe, &spec, &feedback, TG_GATHER));
    assert_int_equal(tg_spec_parse("fp16", &spec, NULL), TG_OK);
    assert_null(probe_coding_of(&probe, &spec, &feedback, TG_SHARD));
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } table[] = {
        {"\"tersegrad_probe\": 2", "\"tersegrad_probe\": 1", "version 1, and this tersegrad reads version 2; probe"},
        {"\"tersegrad_probe\": 2", "\"other\": 2", "not the file of a probe"},
        {"\"kappa\": 2.5}", "", "not valid JSON"},
        {"\"world\": 4", "\"world\": 1", "'world' is 1, and not a number of ranks from 2 to 1000000; probe again"},
        {"\"per_node\": 1", "\"per_node\": 5", "'per_node' is 5, and not a number of ranks from 1 to 4"},
        {"\"sharing\": 2", "\"sharing\": 0", "'sharing' is 0, and not a number of ranks from 1 to 4; probe"},
        {"2026-11-18T", "2026-02-30T", "'date' is '2026-02-30T15:40:00Z'"},
        {"2026-11-18T15:40:00Z", "yesterday", "'date' is 'yesterday'"},
        {"[64, 2e-5,", "[65536, 2e-5,", "points of 'all-gather' do not rise at 65536"},
        {"[65536, 6.5e-4, 6e-4", "[65536, 1e-5, 1e-5", "points of 'all-gather' do not rise"},
        {"[65536, 6.5e-4, 6e-4", "[65536, 6.5e-4, 7e-4", "'low' is 0.0007, and not a number"},
        {"[64, 2e-5, 1.9e-5, 2.2e-5]", "[64, 2e-5]", "a point of 'all-gather' is not [bytes, seconds, low, high]"},
        {"\"hidden\": 1e-5", "\"hidden\": 1", "'hidden'"},
        {"\"burst\": 0.004", "\"burst\": -1", "'burst'"},
        {"\"ring\"", "\"rings\"", "'ring' has 0 points, not 2 to"},
        {"\"spec\": \"qsgd\"", "\"spec\": \"qsdg\"", "qsdg"},
        {"\"feedback\": \"none\"", "\"feedback\": \"never\"", "never"},
        {"\"encode\": 1.5e-10", "\"encode\": \"fast\"",
         "'encode' is \"fast\", and not a number from 0 to 86400; probe again"},
        {"\"algorithm\": \"shard\"", "\"algorithm\": \"ring\"", "'algorithm' is 'ring', and not gather or shard"},
        {"\"low\": 0.9", "\"low\": 1.1", "'low'"},
        {"\"reductions\"", "\"reduction\"", "'reductions' are not a list of at most"},
        {"[64, 1024, 5e-4, 4e-4, 6e-4]", "[64, 1024, 5e-4]", "not [tensors, elements, seconds, low, high]"},
        {"[64, 1024, 5e-4", "[64, 1073741824, 5e-4",
         "begins with 64 tensors of 1073741824 elements, and not with 1 to 1024"},
        {"[64, 1024, 5e-4", "[64, 0, 5e-4", "begins with 64 tensors of 0 elements"},
        {"[64, 1024, 5e-4", "[64, 1024, 0", "'seconds' is 0, and not a number"},
        {"\"machine\": \"x86_64, AMD EPYC, 2 processors\"", "\"machine\": [1]", "'machine' is a list, and not a text"},
        {"\"transport\": \"mpi, openmpi\"", "\"transport\": \"a transport whose name is far too long to be kept\"",
         "'transport' is \"a transport whose name is far too long to b..., and not a text of less than 32 bytes"},
        {"\"frame\": 1e-6,", "", "'frame' is missing, and not a number"},
        {"\"reductions\"", "\"two_levels\": 1, \"reductions\"", "'two_levels' are not a list of at most"},
        {"\"reductions\"", "\"two_levels\": [[1, 2, -1, 4, 5]], \"reductions\"", "'seconds' is -1, and not a number"},
        {"\"reductions\"", "\"two_levels\": [[1]], \"reductions\"", "a row of 'two_levels' is not [tensors, elements,"},
        {"\"kappa\": 2.5", "\"kappa\": 0.5", "'kappa' is 0.5, and not a number from 1"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct probe probe;
        struct failure failure = {""};
        if (reads(table[i].from, table[i].to, &probe, &failure))
            fail_msg("%s was accepted", table[i].to);
        if (!strstr(failure.text, table[i].says))
            fail_msg("'%s' does not say '%s'", failure.text, table[i].says);
    }
}

static void test_judgement(void **state)
{
    (void)state;
    static struct probe probe, fresh;
    struct probe_doubts doubts;
    struct failure failure = {""};
    const struct predict_point *point = &probe.network.patterns[PREDICT_RING].points[1];
    read_good(&fresh);
    probe = fresh;
    assert_true(probe_judge(&probe, machine, made + 86400, false, &doubts, &failure));
    assert_true(!doubts.age[0] && !doubts.scatter[0] && !doubts.machine[0]);
    assert_alike(&probe, &fresh);

    assert_true(probe_judge(&probe, machine, made + 40 * 86400, false, &doubts, &failure));
    assert_non_null(strstr(doubts.age, "40 days old"));
    const double once = point->high - point->low;
    assert_true(once > 7e-4 - 6e-4 && point->low < 6e-4 && point->seconds == 6.5e-4);
    assert_true(probe.codings[0].coding.high > 1.2 && probe.codings[0].coding.low < 0.9);

    probe = fresh;
    assert_false(probe_judge(&probe, "s390x, 4 processors", made, false, &doubts, &failure));
    assert_non_null(strstr(failure.text, "s390x, 4 processors"));
    assert_non_null(strstr(failure.text, "--insist"));
    assert_alike(&probe, &fresh);
    assert_true(probe_judge(&probe, "s390x, 4 processors", made + 40 * 86400, true, &doubts, &failure));
    assert_true(doubts.machine[0] && doubts.age[0]);
    assert_true(point->high - point->low > once); /* two doubts widen more than one */

    probe = fresh;
    assert_true(probe_judge(&probe, machine, made - 40 * 86400, false, &doubts, &failure));
    assert_non_null(strstr(doubts.age, "from now"));

    /* Reductions count where there are any, else exchanges; what says nothing is refused. */
    struct predict_measured *measured = &probe.codings[0].coding.measured[PREDICT_ONE_LEVEL];
    probe = fresh;
    for (size_t i = 0; i < measured->count; i++)
        measured->samples[i].high = 1.5 * measured->samples[i].seconds;
    assert_true(probe_judge(&probe, machine, made, false, &doubts, &failure));
    assert_non_null(strstr(doubts.scatter, "vary"));
    assert_true(measured->samples[0].high > 1.6 * measured->samples[0].seconds); /* wider */
    for (size_t i = 0; i < measured->count; i++)
        measured->samples[i].high = 4 * measured->samples[i].seconds;
    assert_false(probe_judge(&probe, machine, made, false, &doubts, &failure));
    assert_non_null(strstr(failure.text, "vary too much"));
    assert_true(probe_judge(&probe, machine, made, true, &doubts, &failure));
    assert_non_null(strstr(doubts.scatter, "vary"));
    probe = fresh;
    measured->count = 0;
    for (size_t i = 0; i < PREDICT_PATTERNS; i++)
        for (size_t j = 0; j < 2; j++)
            probe.network.patterns[i].points[j].high = 2e-3;
    probe.network.patterns[PREDICT_RING].points[0].high = 2.2e-5;
    assert_true(probe_judge(&probe, machine, made, true, &doubts, &failure));
    assert_non_null(strstr(doubts.scatter, "vary"));
}

static void test_file(void **state)
{
    (void)state;
    static struct probe probe, again;
    struct failure failure = {""};
    char folder[] = "/tmp/test-probe-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/p.json", folder);
    read_good(&probe);
    probe.codings[0].coding.measured[PREDICT_TWO_LEVELS] = probe.codings[0].coding.measured[PREDICT_ONE_LEVEL];
    assert_true(probe_save(path, &probe, &failure));
    assert_true(probe_load(path, &again, &failure));
    assert_alike(&probe, &again);
    unlink(path);
    assert_false(probe_load(path, &again, &failure));
    assert_non_null(strstr(failure.text, path));
    rmdir(folder);
    assert_false(probe_save(path, &probe, &failure));
    char one[192], two[192];
    probe_machine(one);
    probe_machine(two);
    assert_string_equal(one, two);
    assert_non_null(strstr(one, "processor"));
}

int main(void)
{
    static struct probe probe;
    struct failure failure = {""};
    if (!probe_parse("", 0, &probe, &failure) && strstr(failure.text, "jansson")) {
        puts("skip: built without jansson\n0 passed, 0 failed, 1 skipped");
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fields), cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_judgement), cmocka_unit_test(test_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
