/* See probe_file.h. */
#include "probe_file.h"

#include "files.h"
#include "json_reader.h"
#include "json_writer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static const char *const pattern_names[PREDICT_PATTERNS] = {"all-gather", "all-to-all", "ring"};

/* ---- the machine ---- */

/* The line "model name : ..." of Linux on x86; elsewhere there is none. */
static void processor_name(char *name, size_t capacity)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    name[0] = '\0';
    while (file && !name[0] && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (colon && strncmp(line, "model name", 10) == 0) {
            colon += 1 + strspn(colon + 1, " \t");
            snprintf(name, capacity, ", %.*s", (int)strcspn(colon, "\n"), colon);
        }
    }
    if (file)
        fclose(file);
}

void probe_machine(char text[192])
{
    struct utsname host;
    char processor[128];
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    processor_name(processor, sizeof processor);
    snprintf(text, 192, "%.24s%s, %ld processor%s", uname(&host) == 0 ? host.machine : "unknown", processor, count,
             count == 1 ? "" : "s");
}

/* ---- dates ---- */

enum { DATE_TEXT = 32 };

static bool date_text(int64_t seconds, char text[DATE_TEXT])
{
    const time_t when = (time_t)seconds;
    struct tm parts;
    return gmtime_r(&when, &parts) && strftime(text, DATE_TEXT, "%Y-%m-%dT%H:%M:%SZ", &parts) > 0;
}

/* ---- writing ---- */

static void print_pattern(struct json_writer *json, const char *name, const struct predict_wire *wire)
{
    json_open_object(json, name);
    json_put_real(json, "hidden", wire->hidden);
    json_put_real(json, "burst", wire->burst);
    json_open_array(json, "points");
    for (size_t i = 0; i < wire->count; i++) {
        const struct predict_point *p = &wire->points[i];
        json_open_row(json, NULL);
        json_put_real(json, NULL, p->bytes);
        json_put_real(json, NULL, p->seconds);
        json_put_real(json, NULL, p->low);
        json_put_real(json, NULL, p->high);
        json_close_array(json);
    }
    json_close_array(json);
    json_close_object(json);
}

/* By PREDICT_ONE_LEVEL and PREDICT_TWO_LEVELS. */
static const char *const reduction_names[PREDICT_LEVELS] = {"reductions", "two_levels"};

static void print_sample(struct json_writer *json, const struct predict_sample *s)
{
    json_open_row(json, NULL);
    json_put_unsigned(json, NULL, s->tensors);
    json_put_unsigned(json, NULL, s->elements);
    json_put_real(json, NULL, s->seconds);
    json_put_real(json, NULL, s->low);
    json_put_real(json, NULL, s->high);
    json_close_array(json);
}

static void print_coding(struct json_writer *json, const struct probe_coding *c)
{
    json_open_object(json, NULL);
    json_put_text(json, "spec", c->coding.spec);
    json_put_text(json, "feedback", c->feedback);
    json_put_text(json, "algorithm", tg_algorithm_text(c->algorithm));
    json_put_real(json, "encode", c->coding.encode);
    json_put_real(json, "check", c->coding.check);
    json_put_real(json, "add", c->coding.add);
    json_put_real(json, "frame", c->coding.frame);
    json_put_real(json, "low", c->coding.low);
    json_put_real(json, "high", c->coding.high);
    for (size_t levels = 0; levels < PREDICT_LEVELS; levels++) {
        const struct predict_measured *measured = &c->coding.measured[levels];
        if (levels == PREDICT_TWO_LEVELS && measured->count == 0)
            continue;
        json_open_array(json, reduction_names[levels]);
        for (size_t i = 0; i < measured->count; i++)
            print_sample(json, &measured->samples[i]);
        json_close_array(json);
    }
    json_close_object(json);
}

void probe_print(const struct probe *probe, FILE *out)
{
    struct json_writer json = json_writer_on(out);
    char date[DATE_TEXT] = "";
    (void)date_text(probe->made, date);
    json_open_object(&json, NULL);
    json_put_unsigned(&json, "tersegrad_probe", PROBE_VERSION);
    json_put_text(&json, "machine", probe->machine);
    json_put_unsigned(&json, "world", probe->network.world);
    json_put_unsigned(&json, "per_node", probe->network.per_node);
    json_put_unsigned(&json, "sharing", probe->sharing);
    json_put_text(&json, "date", date);
    json_put_text(&json, "command", probe->command);
    json_put_text(&json, "tersegrad", probe->library);
    json_put_text(&json, "transport", probe->transport);
    json_put_text(&json, "device", probe->device);
    json_open_object(&json, "network");
    for (size_t i = 0; i < PREDICT_PATTERNS; i++)
        print_pattern(&json, pattern_names[i], &probe->network.patterns[i]);
    json_close_object(&json);
    json_open_array(&json, "coding");
    for (size_t i = 0; i < probe->coding_count; i++)
        print_coding(&json, &probe->codings[i]);
    json_close_array(&json);
    json_put_real(&json, "kappa", probe->kappa);
    json_close_object(&json);
}

bool probe_save(const char *path, const struct probe *probe, struct failure *failure)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    bool is_well = out != NULL;
    if (out) {
        probe_print(probe, out);
        is_well = fclose(out) == 0;
    }
    const struct piece piece = {text, size};
    is_well = is_well ? write_file(path, &piece, 1, failure) : fail(failure, "out of memory for the probe '%s'", path);
    free(text);
    return is_well;
}

/* ---- reading ---- */

#ifdef CLI_HAS_JANSSON

/* Years of four digits; what is no date does not print as it was written. */
static bool parse_date(const char *text, int64_t *seconds)
{
    int part[6];
    char again[DATE_TEXT];
    if (strlen(text) != strlen("2026-01-31T12:00:00Z") ||
        sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2dZ", &part[0], &part[1], &part[2], &part[3], &part[4], &part[5]) != 6)
        return false;
    /* Days since 1970, with years that begin in March so that a leap day is their last. */
    const int64_t year = part[1] > 2 ? part[0] : part[0] - 1, month = (part[1] + 9) % 12;
    const int64_t days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + part[2] - 1 - 719468;
    *seconds = days * 86400 + part[3] * 3600 + part[4] * 60 + part[5];
    return date_text(*seconds, again) && strcmp(text, again) == 0;
}

static bool read_text(const json_t *from, const char *key, char *text, size_t capacity, struct failure *failure)
{
    const json_t *value = json_object_get(from, key);
    char shown[JSON_SHOWN];
    if (!json_is_string(value) || json_string_length(value) >= capacity)
        return fail(failure, "its '%s' is %s, and not a text of less than %zu bytes; probe again", key,
                    json_shown(value, shown), capacity);
    strcpy(text, json_string_value(value)); /* jansson accepts no text with a zero byte in it */
    return true;
}

/* low ... high */
static bool read_number(const json_t *value, const char *what, double low, double high, double *number,
                        struct failure *failure)
{
    *number = json_number_value(value);
    if (json_is_number(value) && *number >= low && *number <= high)
        return true;
    char shown[JSON_SHOWN];
    return fail(failure, "its '%s' is %s, and not a number from %g to %g; probe again", what, json_shown(value, shown),
                low, high);
}

/* No exchange and no element takes longer than a day. */
static const double longest = 86400, largest = 1e15;

static bool read_point(const json_t *from, const char *pattern, const struct predict_point *before,
                       struct predict_point *point, struct failure *failure)
{
    if (json_array_size(from) != 4)
        return fail(failure, "a point of '%s' is not [bytes, seconds, low, high]; probe again", pattern);
    if (!read_number(json_array_get(from, 0), "bytes", 1, largest, &point->bytes, failure) ||
        !read_number(json_array_get(from, 1), "seconds", 0, longest, &point->seconds, failure) ||
        !read_number(json_array_get(from, 2), "low", 0, point->seconds, &point->low, failure) ||
        !read_number(json_array_get(from, 3), "high", point->seconds, longest, &point->high, failure))
        return false;
    if (before && (point->bytes <= before->bytes || point->seconds < before->seconds || point->low < before->low ||
                   point->high < before->high))
        return fail(failure, "the points of '%s' do not rise at %g bytes; probe again", pattern, point->bytes);
    return true;
}

static bool read_pattern(const json_t *from, const char *name, struct predict_wire *wire, struct failure *failure)
{
    const json_t *points = json_object_get(from, "points");
    const size_t count = json_array_size(points);
    if (count < 2 || count > PREDICT_MOST_POINTS)
        return fail(failure, "its '%s' has %zu points, not 2 to %d; probe again, with more --seconds", name, count,
                    PREDICT_MOST_POINTS);
    for (; wire->count < count; wire->count++) {
        struct predict_point *point = &wire->points[wire->count];
        if (!read_point(json_array_get(points, wire->count), name, wire->count > 0 ? point - 1 : NULL, point, failure))
            return false;
    }
    return read_number(json_object_get(from, "hidden"), "hidden", 0, wire->points[0].seconds, &wire->hidden, failure) &&
           read_number(json_object_get(from, "burst"), "burst", 0, longest, &wire->burst, failure);
}

/* Specs and feedbacks are read by the library, and kept as it writes them. */
static bool read_codec(struct probe_coding *c, struct failure *failure)
{
    tg_spec spec;
    tg_feedback_spec feedback;
    tg_error error = {""};
    if (tg_spec_parse(c->coding.spec, &spec, &error) != TG_OK ||
        tg_spec_print(&spec, c->coding.spec, sizeof c->coding.spec, &error) != TG_OK ||
        tg_feedback_parse(c->feedback, &feedback, &error) != TG_OK ||
        tg_feedback_print(&feedback, c->feedback, sizeof c->feedback, &error) != TG_OK)
        return fail(failure, "%s", error.message);
    return true;
}

static bool read_algorithm(const json_t *from, tg_algorithm *algorithm, struct failure *failure)
{
    char text[16];
    if (!read_text(from, "algorithm", text, sizeof text, failure))
        return false;
    for (*algorithm = TG_GATHER; *algorithm <= TG_SHARD; (*algorithm)++)
        if (strcmp(text, tg_algorithm_text(*algorithm)) == 0)
            return true;
    return fail(failure, "its 'algorithm' is '%s', and not gather or shard; probe again", text);
}

static bool read_sample(const json_t *from, const char *name, struct predict_sample *s, struct failure *failure)
{
    static const uint64_t most_tensors = 1 << 10, most_elements = 1 << 26; /* all together */
    if (json_array_size(from) != 5)
        return fail(failure, "a row of '%s' is not [tensors, elements, seconds, low, high]; probe again", name);
    char tensors[JSON_SHOWN], elements[JSON_SHOWN];
    if (!json_is_count(json_array_get(from, 0), &s->tensors) || s->tensors < 1 || s->tensors > most_tensors ||
        !json_is_count(json_array_get(from, 1), &s->elements) || s->elements < 1 ||
        s->elements > most_elements / s->tensors)
        return fail(failure,
                    "a row of '%s' begins with %s tensors of %s elements, and not with 1 to %llu, of at most "
                    "%llu in all; probe again",
                    name, json_shown(json_array_get(from, 0), tensors), json_shown(json_array_get(from, 1), elements),
                    (unsigned long long)most_tensors, (unsigned long long)most_elements);
    return read_number(json_array_get(from, 2), "seconds", 1e-9, longest, &s->seconds, failure) &&
           read_number(json_array_get(from, 3), "low", 0, s->seconds, &s->low, failure) &&
           read_number(json_array_get(from, 4), "high", s->seconds, longest, &s->high, failure);
}

/* Those of two levels may be missing. */
static bool read_samples(const json_t *coding, size_t levels, struct predict_measured *measured,
                         struct failure *failure)
{
    const char *name = reduction_names[levels];
    const json_t *from = json_object_get(coding, name);
    const size_t count = json_array_size(from);
    if (!from && levels == PREDICT_TWO_LEVELS)
        return true;
    if (!json_is_array(from) || count > PREDICT_MOST_SAMPLES)
        return fail(failure, "its '%s' are not a list of at most %d; probe again", name, PREDICT_MOST_SAMPLES);
    for (; measured->count < count; measured->count++)
        if (!read_sample(json_array_get(from, measured->count), name, &measured->samples[measured->count], failure))
            return false;
    return true;
}

static bool read_coding(const json_t *from, struct probe_coding *c, struct failure *failure)
{
    struct predict_coding *p = &c->coding;
    return read_text(from, "spec", p->spec, sizeof p->spec, failure) &&
           read_text(from, "feedback", c->feedback, sizeof c->feedback, failure) && read_codec(c, failure) &&
           read_algorithm(from, &c->algorithm, failure) &&
           read_number(json_object_get(from, "encode"), "encode", 0, longest, &p->encode, failure) &&
           read_number(json_object_get(from, "check"), "check", 0, longest, &p->check, failure) &&
           read_number(json_object_get(from, "add"), "add", 0, longest, &p->add, failure) &&
           read_number(json_object_get(from, "frame"), "frame", 0, longest, &p->frame, failure) &&
           read_number(json_object_get(from, "low"), "low", 0, 1, &p->low, failure) &&
           read_number(json_object_get(from, "high"), "high", 1, 1e6, &p->high, failure) &&
           read_samples(from, PREDICT_ONE_LEVEL, &p->measured[PREDICT_ONE_LEVEL], failure) &&
           read_samples(from, PREDICT_TWO_LEVELS, &p->measured[PREDICT_TWO_LEVELS], failure) &&
           predict_coding_check(p, failure);
}

static bool read_codings(const json_t *from, struct probe *probe, struct failure *failure)
{
    const size_t count = json_array_size(from);
    if (count < 1 || count > PROBE_MOST_CODINGS)
        return fail(failure, "its 'coding' has %zu codecs, and not 1 to %d; probe again", count, PROBE_MOST_CODINGS);
    for (; probe->coding_count < count; probe->coding_count++) {
        struct probe_coding *c = &probe->codings[probe->coding_count];
        if (!read_coding(json_array_get(from, probe->coding_count), c, failure))
            return false;
        for (size_t i = 0; i < probe->coding_count; i++)
            if (probe->codings[i].algorithm == c->algorithm &&
                strcmp(probe->codings[i].coding.spec, c->coding.spec) == 0 &&
                strcmp(probe->codings[i].feedback, c->feedback) == 0)
                return fail(failure, "its 'coding' has %s with feedback %s twice; probe again", c->coding.spec,
                            c->feedback);
    }
    return true;
}

static bool read_ranks(const json_t *from, const char *key, uint32_t low, uint32_t high, uint32_t *ranks,
                       struct failure *failure)
{
    const json_t *value = json_object_get(from, key);
    uint64_t number;
    char shown[JSON_SHOWN];
    if (!json_is_count(value, &number) || number < low || number > high)
        return fail(failure, "its '%s' is %s, and not a number of ranks from %u to %u; probe again", key,
                    json_shown(value, shown), low, high);
    *ranks = (uint32_t)number;
    return true;
}

static bool read_world(const json_t *from, struct probe *probe, struct failure *failure)
{
    struct predict_network *network = &probe->network;
    return read_ranks(from, "world", 2, PREDICT_MOST_RANKS, &network->world, failure) &&
           read_ranks(from, "per_node", 1, network->world, &network->per_node, failure) &&
           read_ranks(from, "sharing", 1, network->world, &probe->sharing, failure);
}

static bool read_probe(const json_t *from, struct probe *probe, struct failure *failure)
{
    uint64_t version;
    char date[DATE_TEXT];
    const json_t *network = json_object_get(from, "network");
    if (!json_is_count(json_object_get(from, "tersegrad_probe"), &version))
        return fail(
            failure,
            "it has no 'tersegrad_probe': it is not the file of a probe; give one that --probe wrote under mpirun");
    if (version != PROBE_VERSION)
        return fail(failure, "it is of version %llu, and this tersegrad reads version %d; probe again",
                    (unsigned long long)version, PROBE_VERSION);
    if (!read_text(from, "machine", probe->machine, sizeof probe->machine, failure) ||
        !read_world(from, probe, failure) || !read_text(from, "date", date, sizeof date, failure) ||
        !read_text(from, "command", probe->command, sizeof probe->command, failure) ||
        !read_text(from, "tersegrad", probe->library, sizeof probe->library, failure) ||
        !read_text(from, "transport", probe->transport, sizeof probe->transport, failure) ||
        !read_text(from, "device", probe->device, sizeof probe->device, failure))
        return false;
    if (!parse_date(date, &probe->made))
        return fail(failure, "its 'date' is '%s', and not like 2026-01-31T12:00:00Z; probe again", date);
    for (size_t i = 0; i < PREDICT_PATTERNS; i++)
        if (!read_pattern(json_object_get(network, pattern_names[i]), pattern_names[i], &probe->network.patterns[i],
                          failure))
            return false;
    return predict_network_check(&probe->network, failure) &&
           read_codings(json_object_get(from, "coding"), probe, failure) &&
           read_number(json_object_get(from, "kappa"), "kappa", 1, 1e6, &probe->kappa, failure);
}

bool probe_parse(const char *text, size_t size, struct probe *probe, struct failure *failure)
{
    *probe = (struct probe){.network.rate = INFINITY};
    json_t *from = json_read(text, size, failure);
    const bool is_read = from && read_probe(from, probe, failure);
    json_decref(from);
    return is_read;
}

#else

bool probe_parse(const char *text, size_t size, struct probe *probe, struct failure *failure)
{
    (void)text;
    (void)size;
    *probe = (struct probe){0};
    return fail(failure, NO_JSON);
}

#endif

bool probe_load(const char *path, struct probe *probe, struct failure *failure)
{
    struct file_bytes file;
    if (!read_file(path, &file, failure))
        return false;
    struct failure reason = {""};
    const bool is_read = probe_parse((const char *)file.bytes, file.size, probe, &reason);
    free(file.bytes);
    return is_read || fail(failure, "cannot use the probe '%s': %s", path, reason.text);
}
