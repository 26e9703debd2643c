/* Lists of selected elements: added to vectors, summed, and chosen from. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "codec/nth.h"
#include "codec/sparse.h"
#include "device/cpu/cpu.h"
#include "device/cpu/walk.h"

enum {
    AHEAD = 24, /* elements that memory is asked for before their turn: they are far apart */
    SLACK = 128 /* elements that a reader of lists may write behind the last */
};

struct tg_list_workspace {
    float *sums; /* of a vector, and zero between uses; with a bit for each element that some frame lists */
    uint64_t *touched;
    uint32_t *indices; /* of one frame */
    float *values;
    uint32_t *keys; /* to choose among the sums */
    size_t key_room;
};

void tg_cpu_free_list_workspace(tg_device *device, tg_list_workspace *workspace)
{
    (void)device;
    if (workspace) {
        free(workspace->sums);
        free(workspace->touched);
        free(workspace->indices);
        free(workspace->values);
        free(workspace->keys);
    }
    free(workspace);
}

tg_list_workspace *tg_cpu_make_list_workspace(tg_device *device, uint64_t longest, uint64_t most, uint64_t together)
{
    tg_list_workspace *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    *made = (tg_list_workspace){.sums = calloc((size_t)longest + 1, sizeof *made->sums),
                                .touched = calloc((size_t)longest / 64 + 1, sizeof *made->touched),
                                .indices = malloc(((size_t)most + SLACK) * sizeof *made->indices),
                                .values = malloc(((size_t)most + SLACK) * sizeof *made->values),
                                .keys = malloc(((size_t)together + 1) * sizeof *made->keys),
                                .key_room = (size_t)together};
    if (made->sums && made->touched && made->indices && made->values && made->keys)
        return made;
    tg_cpu_free_list_workspace(device, made);
    return NULL;
}

size_t tg_cpu_list_place(const tg_list *list, uint64_t limit)
{
    size_t from = 0, to = list->count;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (list->indices[middle] < limit)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* The elements that a checked frame lists, in the workspace, indices counted from `first`; returns how many. */
static size_t read_frame(tg_device *device, tg_list_workspace *w, tg_frame frame, uint64_t first, bool wants_values)
{
    tg_frame_info info;
    tg_reader reader;
    const bool read = tg_frame_read(frame, &info, NULL) == TG_OK &&
                      tg_frame_open(&reader, tg_cpu_of(device)->kernels, frame, &info) && reader.row->sparse &&
                      tg_sparse_list(&reader, (uint32_t)first, w->indices, wants_values ? w->values : NULL);
    return read ? (size_t)reader.sparse.positions.listed : 0; /* cannot fail: the frame was checked */
}

/* ---- adding ---- */

static void add_list(tg_device *device, tg_list_job *job)
{
    const tg_list *list = job->list;
    const size_t end = tg_cpu_list_place(list, job->first + job->count),
                 applied = job->applied.data ? read_frame(device, job->workspace, job->applied, job->first, false) : 0;
    size_t next = 0;
    job->overflows = 0;
    for (size_t j = tg_cpu_list_place(list, job->first); j < end; j++) {
        const uint32_t i = list->indices[j];
        float value = list->values[j];
        __builtin_prefetch(&job->h[list->indices[j + AHEAD < end ? j + AHEAD : j]], 1);
        if (job->sent) {
            list->values[j] = job->sent[j];
            value -= job->sent[j];
        }
        while (next < applied && job->workspace->indices[next] < i)
            next++;
        if (next < applied && job->workspace->indices[next] == i)
            continue;
        const float sum = job->h[i] + job->factor * value;
        if (job->limits)
            job->h[i] = tg_limited(sum, &job->overflows);
        else if (sum - sum == 0)
            job->h[i] = sum;
        else
            job->overflows++;
    }
}

void tg_cpu_add_lists(tg_device *device, tg_list_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        add_list(device, &jobs[i]);
}

/* ---- summing ---- */

static void add_frames(tg_device *device, const tg_sum_job *job)
{
    tg_list_workspace *w = job->workspace;
    for (size_t f = 0; f < job->frame_count; f++) {
        const size_t n = job->frames[f].data ? read_frame(device, w, job->frames[f], 0, true) : 0;
        for (size_t j = 0; j < n; j++) {
            const uint32_t i = w->indices[j];
            __builtin_prefetch(&w->sums[w->indices[j + AHEAD < n ? j + AHEAD : j]], 1);
            w->sums[i] += w->values[j];
            w->touched[i / 64] |= UINT64_C(1) << i % 64;
        }
    }
}

/* What was added up, as a list; afterwards the workspace is as it was. */
static void list_sums(tg_sum_job *job)
{
    tg_list_workspace *w = job->workspace;
    size_t n = 0;
    job->nonfinite = job->first + job->count;
    job->dropped = 0;
    for (uint64_t word = 0; word < (job->count + 63) / 64; word++) {
        for (uint64_t bits = w->touched[word]; bits; bits &= bits - 1) {
            const uint64_t i = 64 * word + (uint64_t)__builtin_ctzll(bits);
            float sum = w->sums[i] * job->factor;
            w->sums[i] = 0;
            if (sum - sum != 0 && job->drops) {
                sum = 0;
                job->dropped++;
            } else if (sum - sum != 0 && job->first + i < job->nonfinite) {
                job->nonfinite = job->first + i;
            }
            job->sums->indices[n] = (uint32_t)(job->first + i);
            job->sums->values[n++] = sum;
        }
        w->touched[word] = 0;
    }
    job->sums->count = n;
}

static void choose(const tg_sum_job *job)
{
    const tg_list *all = job->sums;
    tg_list *chosen = job->chosen;
    tg_threshold threshold = {.above = 0, .ties = UINT64_MAX};
    size_t n = 0;
    if (job->chosen_count < all->count)
        threshold = tg_nth_of_array(all->values, all->count, job->chosen_count, (tg_band){0, UINT32_MAX},
                                    job->workspace->keys, job->workspace->key_room);
    for (size_t j = 0; j < all->count; j++) {
        const uint32_t key = tg_float_bits(all->values[j]) & TG_MAGNITUDE_MASK;
        const bool tie = key == threshold.above && threshold.ties > 0;
        threshold.ties -= tie;
        if (tie || key > threshold.above) {
            chosen->indices[n] = all->indices[j];
            chosen->values[n++] = all->values[j];
        }
    }
    chosen->count = n;
}

void tg_cpu_sum_lists(tg_device *device, tg_sum_job *jobs, size_t count)
{
    for (tg_sum_job *job = jobs; job < jobs + count; job++) {
        add_frames(device, job);
        list_sums(job);
        if (job->nonfinite == job->first + job->count)
            choose(job);
    }
}

/* ---- other forms ---- */

void tg_cpu_spread_list(tg_device *device, const tg_list *list, uint64_t first, uint64_t count, float *out)
{
    (void)device;
    memset(out, 0, (size_t)count * sizeof *out);
    for (size_t j = 0; j < list->count; j++)
        out[list->indices[j] - first] = list->values[j];
}

void tg_cpu_cut_list(tg_device *device, const tg_list *list, uint32_t parts, uint32_t *indices)
{
    (void)device;
    for (uint32_t j = 0; j < parts; j++)
        indices[j] = list->indices[list->count * (uint64_t)j / parts];
}
