/* Guarded memory, and a queue of calls. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "guarded.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fpenv.h"

enum { PAGE = 65536, MOST_BLOCKS = 1024, MOST_CALLS = 64, GARBAGE = 0xa5 };
static const size_t room = (size_t)1 << 30; /* of addresses: only what is used takes memory */

/* One allocation: whole pages. */
typedef struct block {
    char *memory;
    size_t size;
    bool is_free;
} block;

typedef struct guarded guarded;
typedef struct call call;
struct call {
    void (*run)(tg_device *inner, const call *c);
    void *a, *b, *c;
    uint64_t n;
    int what;
    float factor;
    bool frames_only; /* needs no device memory: it stays closed */
};

/* A frame that has been encoded, and is on its way to the host. */
typedef struct sent_frame {
    uint8_t *place;
    size_t size;
    uint8_t bytes[];
} sent_frame;

struct guarded {
    tg_device device;
    tg_device *inner;
    bool queues;
    pthread_mutex_t lock, queue_lock;
    unsigned inside; /* operations that are running: the memory is open while there are any */
    char *base;      /* all of its memory, one block after the other */
    size_t used;
    block blocks[MOST_BLOCKS];
    size_t block_count;
    call calls[MOST_CALLS];
    size_t call_count;
    sent_frame **sent;
    size_t sent_count;
    uint64_t waits;
};

static guarded *of(tg_device *device) { return (guarded *)(void *)device; }

static void need(bool fine, const char *what)
{
    if (!fine) {
        printf("FAIL guarded device: %s\n", what);
        abort();
    }
}

/* ---- memory ---- */

static void protect(guarded *g, int how)
{
    if (g->used > 0)
        need(mprotect(g->base, g->used, how) == 0, "mprotect");
}

/* A result of an operation that is queued: whoever reads it without a wait gets this. */
#define SPOIL(result) memset(&(result), GARBAGE, sizeof(result))

static void enter(guarded *g)
{
    (void)pthread_mutex_lock(&g->lock);
    if (g->inside++ == 0)
        protect(g, PROT_READ | PROT_WRITE);
    (void)pthread_mutex_unlock(&g->lock);
}

static void leave(guarded *g)
{
    (void)pthread_mutex_lock(&g->lock);
    if (--g->inside == 0)
        protect(g, PROT_NONE);
    (void)pthread_mutex_unlock(&g->lock);
}

static void *allocate(tg_device *device, size_t bytes, unsigned place)
{
    guarded *g = of(device);
    const size_t size = (bytes + PAGE) / PAGE * PAGE;
    size_t i = 0;
    (void)place;
    (void)pthread_mutex_lock(&g->lock);
    while (i < g->block_count && !(g->blocks[i].is_free && g->blocks[i].size == size))
        i++;
    if (i == g->block_count) {
        need(i < MOST_BLOCKS && size <= room - g->used, "no room for another vector");
        g->blocks[g->block_count++] = (block){.memory = g->base + g->used, .size = size};
        g->used += size;
        if (g->inside > 0)
            protect(g, PROT_READ | PROT_WRITE);
    }
    g->blocks[i].is_free = false;
    (void)pthread_mutex_unlock(&g->lock);
    return g->blocks[i].memory;
}

static void wait_for_all(tg_device *device);

static void release(tg_device *device, void *memory)
{
    guarded *g = of(device);
    if (!memory)
        return;
    wait_for_all(device);
    (void)pthread_mutex_lock(&g->lock);
    size_t i = 0;
    while (i < g->block_count && !(g->blocks[i].memory == memory && !g->blocks[i].is_free))
        i++;
    need(i < g->block_count, "this memory is not the device's");
    g->blocks[i].is_free = true;
    (void)pthread_mutex_unlock(&g->lock);
}

/* ---- calls ---- */

static void run(guarded *g, const call *c)
{
    if (!c->frames_only)
        enter(g);
    tg_fp_mode before = tg_fp_enter();
    c->run(g->inner, c);
    tg_fp_leave(before);
    if (!c->frames_only)
        leave(g);
}

static void run_queue(guarded *g)
{
    for (size_t i = 0; i < g->call_count; i++)
        run(g, &g->calls[i]);
    g->call_count = 0;
}

static void run_encode(tg_device *d, const call *c);

/* Takes the frames away that were encoded to host memory. */
static void send_frames(guarded *g, const tg_encode_job *jobs, size_t count)
{
    for (const tg_encode_job *job = jobs; job < jobs + count; job++) {
        const size_t size = job->report.bytes;
        if (size == 0 || job->options.on_device || job->list)
            continue;
        g->sent = realloc(g->sent, (g->sent_count + 1) * sizeof *g->sent);
        sent_frame *s = malloc(sizeof *s + size);
        need(g->sent && s, "malloc");
        s->place = job->frame;
        s->size = size;
        memcpy(s->bytes, job->frame, size);
        memset(job->frame, GARBAGE, size);
        g->sent[g->sent_count++] = s;
    }
}

static void bring_frames(guarded *g)
{
    for (size_t i = 0; i < g->sent_count; i++) {
        memcpy(g->sent[i]->place, g->sent[i]->bytes, g->sent[i]->size);
        free(g->sent[i]);
    }
    free(g->sent);
    g->sent = NULL;
    g->sent_count = 0;
}

static void wait_for_all(tg_device *device)
{
    guarded *g = of(device);
    (void)pthread_mutex_lock(&g->queue_lock);
    g->waits++;
    run_queue(g);
    bring_frames(g);
    (void)pthread_mutex_unlock(&g->queue_lock);
}

static void wait_for_reports(tg_device *device)
{
    guarded *g = of(device);
    (void)pthread_mutex_lock(&g->queue_lock);
    const size_t count = g->call_count;
    g->waits++;
    run_queue(g);
    for (size_t i = 0; i < count; i++)
        if (g->calls[i].run == run_encode)
            send_frames(g, g->calls[i].a, (size_t)g->calls[i].n);
    (void)pthread_mutex_unlock(&g->queue_lock);
}

static void wait_for_frames(tg_device *device)
{
    guarded *g = of(device);
    (void)pthread_mutex_lock(&g->queue_lock);
    bring_frames(g);
    (void)pthread_mutex_unlock(&g->queue_lock);
}

static void submit(tg_device *device, call c)
{
    guarded *g = of(device);
    if (!g->queues) {
        run(g, &c);
        return;
    }
    (void)pthread_mutex_lock(&g->queue_lock);
    if (g->call_count == MOST_CALLS) /* a stream may do its work at any time */
        run_queue(g);
    g->calls[g->call_count++] = c;
    (void)pthread_mutex_unlock(&g->queue_lock);
}

static void run_copy_in(tg_device *d, const call *c) { d->operations->copy_in(d, c->a, c->b, (size_t)c->n); }
static void copy_in(tg_device *d, void *to, const void *from, size_t bytes)
{
    submit(d, (call){run_copy_in, to, (void *)(uintptr_t)from, .n = bytes});
}

static void run_copy_out(tg_device *d, const call *c) { d->operations->copy_out(d, c->a, c->b, (size_t)c->n); }
static void copy_out(tg_device *d, void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        memset(to, GARBAGE, bytes);
    submit(d, (call){run_copy_out, to, (void *)(uintptr_t)from, .n = bytes});
}

static void run_copy(tg_device *d, const call *c) { d->operations->copy(d, c->a, c->b, (size_t)c->n); }
static void copy(tg_device *d, void *to, const void *from, size_t bytes)
{
    submit(d, (call){run_copy, to, (void *)(uintptr_t)from, .n = bytes});
}

static void run_clear(tg_device *d, const call *c) { d->operations->clear(d, c->a, (size_t)c->n); }
static void clear(tg_device *d, void *memory, size_t bytes) { submit(d, (call){run_clear, memory, .n = bytes}); }

static void run_encode(tg_device *d, const call *c) { d->operations->encode(d, c->a, (size_t)c->n); }
static void encode(tg_device *d, tg_encode_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        SPOIL(jobs[i].report);
        SPOIL(jobs[i].nonfinite);
        if (jobs[i].list)
            SPOIL(jobs[i].list->count);
    }
    submit(d, (call){run_encode, jobs, .n = count});
}

/* Jobs that are done later have been read when the call returns. */
static void run_encode_later(tg_device *d, const call *c)
{
    d->operations->encode_later(d, c->a, (size_t)c->n);
    free(c->a);
}
static void encode_later(tg_device *d, const tg_encode_job *jobs, size_t count)
{
    tg_encode_job *copies = malloc(count * sizeof *copies);
    need(copies != NULL, "malloc");
    memcpy(copies, jobs, count * sizeof *copies);
    for (size_t i = 0; i < count; i++)
        memset(jobs[i].report_to, GARBAGE, sizeof *jobs[i].report_to);
    submit(d, (call){run_encode_later, copies, .n = count});
}

static void run_check(tg_device *d, const call *c) { d->operations->check(d, c->a, (size_t)c->n); }
static void spoil_checks(tg_check_job *jobs, size_t count)
{
    for (size_t i = 0; jobs && i < count; i++) {
        SPOIL(jobs[i].status);
        SPOIL(jobs[i].info);
        SPOIL(jobs[i].peak);
        SPOIL(jobs[i].selected);
    }
}
static void check(tg_device *d, tg_check_job *jobs, size_t count)
{
    spoil_checks(jobs, count);
    submit(d, (call){run_check, jobs, .n = count, .frames_only = count > 0 && !jobs[0].on_device});
}

static void run_add(tg_device *d, const call *c) { d->operations->add(d, c->a, (size_t)c->n); }
static void add(tg_device *d, tg_add_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        SPOIL(jobs[i].status);
        spoil_checks(jobs[i].checks, jobs[i].frame_count);
    }
    submit(d, (call){run_add, jobs, .n = count});
}

/* What the job points to in host memory has been read too, but for what may be on the device. */
typedef struct adding_later {
    tg_add_later_job job;
    tg_frame frames[TG_MAX_LATER_FRAMES];
    tg_frame_info like;
} adding_later;

static void run_add_later(tg_device *d, const call *c)
{
    adding_later *a = c->a;
    a->job.frames = a->frames;
    a->job.like = &a->like;
    d->operations->add_later(d, &a->job, 1);
    free(a);
}
static tg_status can_add_later(const tg_device *d, const tg_add_later_job *job, tg_error *error)
{
    const tg_device *inner = ((const guarded *)d)->inner;
    return inner->operations->can_add_later(inner, job, error);
}
static void add_later(tg_device *d, const tg_add_later_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        adding_later *a = malloc(sizeof *a);
        need(a != NULL, "malloc");
        *a = (adding_later){.job = jobs[i], .like = *jobs[i].like};
        memcpy(a->frames, jobs[i].frames, jobs[i].frame_count * sizeof *a->frames);
        memset(jobs[i].status_to, GARBAGE, sizeof *jobs[i].status_to);
        submit(d, (call){run_add_later, .a = a});
    }
}

static bool reserve(tg_device *d, const tg_spec *spec, uint64_t count, size_t frames)
{
    return of(d)->inner->operations->reserve(of(d)->inner, spec, count, frames);
}

typedef struct measuring {
    tg_frame frame;
    tg_frame_info info;
} measuring;

static void run_measure(tg_device *d, const call *c)
{
    measuring *m = c->a;
    d->operations->measure(d, m->frame, &m->info, c->b);
    free(m);
}
static void measure(tg_device *d, tg_frame frame, const tg_frame_info *info, tg_frame_parts *parts)
{
    measuring *m = malloc(sizeof *m);
    need(m != NULL, "malloc");
    *m = (measuring){frame, *info};
    SPOIL(*parts);
    submit(d, (call){run_measure, .a = m, .b = parts, .frames_only = true});
}

static void run_compensate(tg_device *d, const call *c) { d->operations->compensate(d, c->a, c->b); }
static void compensate(tg_device *d, const tg_source *source, float *u)
{
    submit(d, (call){run_compensate, .a = (void *)(uintptr_t)source, .b = u});
}

static void run_update(tg_device *d, const call *c) { d->operations->update(d, c->a); }
static void update(tg_device *d, tg_settle_job *job)
{
    SPOIL(job->overflow);
    SPOIL(job->limited);
    submit(d, (call){run_update, .a = job});
}

static void run_return_frame(tg_device *d, const call *c) { d->operations->return_frame(d, c->a); }
static void return_frame(tg_device *d, tg_settle_job *job)
{
    SPOIL(job->overflow);
    SPOIL(job->limited);
    submit(d, (call){run_return_frame, .a = job});
}

static void run_first_nonfinite(tg_device *d, const call *c) { d->operations->first_nonfinite(d, c->a, c->b); }
static void first_nonfinite(tg_device *d, const tg_source *source, uint64_t *index)
{
    SPOIL(*index);
    submit(d, (call){run_first_nonfinite, .a = (void *)(uintptr_t)source, .b = index});
}

static void run_peak(tg_device *d, const call *c) { d->operations->peak(d, c->a, c->n, c->b); }
static void peak(tg_device *d, const float *values, uint64_t count, uint32_t *bits)
{
    SPOIL(*bits);
    submit(d, (call){run_peak, .a = (void *)(uintptr_t)values, .b = bits, .n = count});
}

static void run_scale(tg_device *d, const call *c) { d->operations->scale(d, c->a, c->n, c->factor); }
static void scale(tg_device *d, float *values, uint64_t count, float factor)
{
    submit(d, (call){run_scale, .a = values, .n = count, .factor = factor});
}

static void run_add_scaled(tg_device *d, const call *c)
{
    d->operations->add_scaled(d, c->a, c->n, c->factor, c->b, c->c);
}
static void add_scaled(tg_device *d, const float *values, uint64_t count, float factor, float *h, uint64_t *limited)
{
    SPOIL(*limited);
    submit(d, (call){run_add_scaled, (void *)(uintptr_t)values, h, limited, .n = count, .factor = factor});
}

static void run_sum(tg_device *d, const call *c)
{
    d->operations->sum(d, (const float *const *)c->a, (size_t)c->what, c->factor, c->n, c->b);
}
static void sum(tg_device *d, const float *const *values, size_t vectors, float factor, uint64_t count, float *out)
{
    submit(d, (call){run_sum, .a = (void *)(uintptr_t)values, .b = out, .n = count, .factor = factor,
                     .what = (int)vectors});
}

static void run_drop_nonfinite(tg_device *d, const call *c) { d->operations->drop_nonfinite(d, c->a, c->n, c->b); }
static void drop_nonfinite(tg_device *d, float *values, uint64_t count, uint64_t *dropped)
{
    SPOIL(*dropped);
    submit(d, (call){run_drop_nonfinite, .a = values, .b = dropped, .n = count});
}

static void run_narrow(tg_device *d, const call *c) { d->operations->narrow(d, c->a, c->b); }
static void narrow(tg_device *d, const float *values, const tg_tensor *out)
{
    submit(d, (call){run_narrow, .a = (void *)(uintptr_t)values, .b = (void *)(uintptr_t)out});
}

static void run_save(tg_device *d, const call *c) { d->operations->save(d, c->a, c->n, c->b); }
static void save(tg_device *d, const float *values, uint64_t count, uint8_t *bytes)
{
    submit(d, (call){run_save, .a = (void *)(uintptr_t)values, .b = bytes, .n = count});
}

static void run_load(tg_device *d, const call *c) { d->operations->load(d, c->a); }
static void load(tg_device *d, tg_load_job *job)
{
    job->finite = false;
    job->largest = __builtin_nanf(""); /* the bytes of garbage are a number that is finite and small */
    submit(d, (call){run_load, .a = job});
}

static void run_norm(tg_device *d, const call *c)
{
    d->operations->norm(d, c->a, (size_t)c->n, (tg_norm_of)c->what, c->b);
}
static void norm(tg_device *d, const tg_tensor *tensors, size_t count, tg_norm_of what, double *results)
{
    memset(results, GARBAGE, count * sizeof *results);
    submit(d, (call){run_norm, (void *)(uintptr_t)tensors, results, .n = count, .what = (int)what});
}

static void run_add_lists(tg_device *d, const call *c) { d->operations->add_lists(d, c->a, (size_t)c->n); }
static void add_lists(tg_device *d, tg_list_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        SPOIL(jobs[i].overflows);
    submit(d, (call){run_add_lists, .a = jobs, .n = count});
}

static void run_sum_lists(tg_device *d, const call *c) { d->operations->sum_lists(d, c->a, (size_t)c->n); }
static void sum_lists(tg_device *d, tg_sum_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        SPOIL(jobs[i].nonfinite);
        SPOIL(jobs[i].dropped);
        SPOIL(jobs[i].sums->count);
        SPOIL(jobs[i].chosen->count);
    }
    submit(d, (call){run_sum_lists, .a = jobs, .n = count});
}

typedef struct spreading {
    uint64_t first, count;
} spreading;

static void run_spread_list(tg_device *d, const call *c)
{
    spreading *s = c->c;
    d->operations->spread_list(d, c->a, s->first, s->count, c->b);
    free(s);
}
static void spread_list(tg_device *d, const tg_list *list, uint64_t first, uint64_t count, float *out)
{
    spreading *s = malloc(sizeof *s);
    need(s != NULL, "malloc");
    *s = (spreading){first, count};
    submit(d, (call){run_spread_list, .a = (void *)(uintptr_t)list, .b = out, .c = s});
}

static void run_cut_list(tg_device *d, const call *c) { d->operations->cut_list(d, c->a, (uint32_t)c->n, c->b); }
static void cut_list(tg_device *d, const tg_list *list, uint32_t parts, uint32_t *indices)
{
    memset(indices, GARBAGE, parts * sizeof *indices);
    submit(d, (call){run_cut_list, .a = (void *)(uintptr_t)list, .b = indices, .n = parts});
}

/* ---- what is not queued ---- */

static void *allocate_shared(tg_device *d, size_t bytes)
{
    return of(d)->inner->operations->allocate_shared(of(d)->inner, bytes);
}
static void release_shared(tg_device *d, void *memory)
{
    wait_for_all(d);
    of(d)->inner->operations->release_shared(of(d)->inner, memory);
}
static bool is_shared(const tg_device *d, const void *memory)
{
    const guarded *g = (const guarded *)(const void *)d;
    return g->inner->operations->is_shared(g->inner, memory);
}

static tg_status make_encoder(tg_device *d, const tg_spec *spec, uint64_t max_count, tg_encoder **encoder,
                              tg_error *error)
{
    return of(d)->inner->operations->make_encoder(of(d)->inner, spec, max_count, encoder, error);
}

static void free_encoder(tg_device *d, tg_encoder *encoder)
{
    wait_for_all(d);
    of(d)->inner->operations->free_encoder(of(d)->inner, encoder);
}

static tg_list_workspace *make_list_workspace(tg_device *d, uint64_t longest, uint64_t most, uint64_t together)
{
    return of(d)->inner->operations->make_list_workspace(of(d)->inner, longest, most, together);
}

static void free_list_workspace(tg_device *d, tg_list_workspace *workspace)
{
    wait_for_all(d);
    of(d)->inner->operations->free_list_workspace(of(d)->inner, workspace);
}

static bool encoder_fits(const tg_device *d, const tg_encoder *encoder, const tg_spec *spec)
{
    const guarded *g = (const guarded *)(const void *)d;
    return g->inner->operations->encoder_fits(g->inner, encoder, spec);
}

/* Addresses of devices that were closed are used again: an emulator remembers something of every page that it ever
 * mapped, and laws open thousands of devices. */
enum { MOST_SPARE = 64 };
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static char *spare[MOST_SPARE];
static size_t spare_count;

static char *take_addresses(void)
{
    (void)pthread_mutex_lock(&spare_lock);
    char *base = spare_count > 0 ? spare[--spare_count] : NULL;
    (void)pthread_mutex_unlock(&spare_lock);
    if (!base)
        base = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    need(base != MAP_FAILED, "mmap");
    return base;
}

static void give_addresses(char *base, size_t used)
{
    need(used == 0 || madvise(base, used, MADV_DONTNEED) == 0, "madvise");
    (void)pthread_mutex_lock(&spare_lock);
    const bool kept = spare_count < MOST_SPARE;
    if (kept)
        spare[spare_count++] = base;
    (void)pthread_mutex_unlock(&spare_lock);
    if (!kept)
        (void)munmap(base, room);
}

static void close_guarded(tg_device *device)
{
    guarded *g = of(device);
    wait_for_all(device);
    for (size_t i = 0; i < g->block_count; i++)
        need(g->blocks[i].is_free, "memory was not given back");
    give_addresses(g->base, g->used);
    tg_device_free(g->inner);
    (void)pthread_mutex_destroy(&g->lock);
    (void)pthread_mutex_destroy(&g->queue_lock);
    free(g);
}

static const tg_operations operations = {.close = close_guarded,
                                         .wait = wait_for_all,
                                         .wait_for_reports = wait_for_reports,
                                         .wait_for_frames = wait_for_frames,
                                         .finish = wait_for_all,
                                         .allocate = allocate,
                                         .release = release,
                                         .copy_in = copy_in,
                                         .copy_out = copy_out,
                                         .copy = copy,
                                         .clear = clear,
                                         .allocate_shared = allocate_shared,
                                         .release_shared = release_shared,
                                         .is_shared = is_shared,
                                         .make_encoder = make_encoder,
                                         .free_encoder = free_encoder,
                                         .encoder_fits = encoder_fits,
                                         .encode = encode,
                                         .encode_later = encode_later,
                                         .check = check,
                                         .add = add,
                                         .can_add_later = can_add_later,
                                         .add_later = add_later,
                                         .reserve = reserve,
                                         .measure = measure,
                                         .compensate = compensate,
                                         .update = update,
                                         .return_frame = return_frame,
                                         .first_nonfinite = first_nonfinite,
                                         .peak = peak,
                                         .scale = scale,
                                         .add_scaled = add_scaled,
                                         .sum = sum,
                                         .drop_nonfinite = drop_nonfinite,
                                         .narrow = narrow,
                                         .save = save,
                                         .load = load,
                                         .norm = norm,
                                         .make_list_workspace = make_list_workspace,
                                         .free_list_workspace = free_list_workspace,
                                         .add_lists = add_lists,
                                         .sum_lists = sum_lists,
                                         .spread_list = spread_list,
                                         .cut_list = cut_list};

tg_device *open_guarded(const char *name, bool queues)
{
    guarded *g = calloc(1, sizeof *g);
    tg_error error = {""};
    need(g != NULL, "calloc");
    need(tg_device_open(name, NULL, &g->inner, &error) == TG_OK, error.message);
    g->base = take_addresses();
    g->device.operations = &operations;
    g->queues = queues;
    (void)snprintf(g->device.name, sizeof g->device.name, "%s%.36s",
                   queues ? "queued:" : "guarded:", tg_device_name(g->inner));
    need(pthread_mutex_init(&g->lock, NULL) == 0 && pthread_mutex_init(&g->queue_lock, NULL) == 0, "a lock");
    return &g->device;
}

uint64_t guarded_waits(tg_device *device) { return of(device)->waits; }

size_t guarded_calls(tg_device *device) { return of(device)->call_count; }

bool is_guarded(const tg_device *device) { return device->operations == &operations; }

tg_cpu *cpu_of(tg_device *device) { return tg_cpu_of(is_guarded(device) ? of(device)->inner : device); }
