/* What the law tests share: counting, data, and a list of specs made from the codec table, so that a new codec is
 * tested without a line here. */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "staged.h"
#include "state.h"
#include "tersegrad.h"

/* Machines that our checks emulate, some twenty times as slow: they get a part of the cases. */
#if defined(__x86_64__)
#define EMULATED false
#else
#define EMULATED true
#endif

/* ---- counting ---- */

/* One test; `what` names it. Failures are printed, at most ten of them in full. Returns `held`. */
bool check(bool held, const char *format, ...) __attribute__((format(printf, 2, 3)));
void skip(const char *reason);
/* Prints the closing line; returns the exit status. */
int finish(void);
/* A test within a test: the first failure is kept and decides the next `check_all`. */
void expect(bool held, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Turns all `expect` since the last call into one test. */
void check_all(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- numbers ---- */

typedef struct generator {
    uint64_t state;
} generator;
uint64_t next_random(generator *g);
double next_uniform(generator *g); /* in (0, 1) */
/* Of mean 0 and variance 1: a sum of eight uniform numbers, within 4.9. Logarithms and cosines would take longer than
 * what is tested, above all on an emulated machine. */
double next_gaussian(generator *g);

typedef enum shape {
    GAUSSIAN,
    LAYERED, /* runs of very different scale, and runs of zeros */
    SIGNS,   /* +1 and -1 */
    CONSTANT,
    ZEROS,
    TINY,      /* subnormal and barely normal */
    HUGE_ONES, /* near the largest finite number */
    GRID,      /* multiples of 2^-10 below 1 */
    SCATTERED, /* one in forty is not zero */
    PATCHED,   /* every 512 of their own: ordinary, so small or large that squares leave the range, zero, two values */
    SHAPES,    /* so many that laws go through; the following are for laws of long vectors */
    SORTED = SHAPES, /* from the smallest to the largest */
    ONE_LAYER,       /* a run of large values among tiny ones */
    ALL_SHAPES
} shape;
extern const char *const shape_names[ALL_SHAPES];
/* Fills a tensor of any dtype. */
void fill(shape s, uint64_t seed, tg_tensor *tensor);
/* The same, cut from a vector that is made once for each shape and dtype, at a place that depends on the seed: making
 * values anew takes longer than encoding them. */
void cut(shape s, uint64_t seed, tg_tensor *tensor);
/* An element as float. */
float element(const tg_tensor *tensor, uint64_t index);
/* All 65536 elements of a 16-bit dtype as float. */
const float *widened(tg_dtype dtype);

/* Where we are: a failed expectation says it. `device` must live on. */
void now_at(const char *device, shape s, uint64_t count);

/* A tensor whose data starts `offset` elements behind an aligned address, with room for guards; free with drop. */
tg_tensor make_tensor(uint64_t count, tg_dtype dtype, size_t offset);
void drop(tg_tensor *tensor);

/* Equal in all fields; memcmp would compare the bytes between them too, which may be anything. */
bool same_report(const tg_encode_report *a, const tg_encode_report *b);

/* ---- specs ---- */

/* Every codec's default, each parameter varied on its own, and crossings that share code paths. NULL ends. */
const char *const *all_specs(void);

/* From now on, every parts-th of them, from the part-th on. */
void share_specs(unsigned part, unsigned parts);
/* For laws whose cases are no specs: whether the next case belongs to that part; and whether there are several. */
bool my_turn(void);
bool in_parts(void);
/* From now on, those of them that this device has. */
void keep_specs_of(tg_device *device);
bool is_sparsifier(const char *spec);
/* Draws for one spec, which do not depend on the others: a part of the specs has the same cases as the whole. */
generator generator_for(const char *spec, uint64_t seed);

/* The lengths that laws are tried at: 0…1025 and some large odd ones with `all`, else a selection. Ends with
 * UINT64_MAX. */
const uint64_t *lengths(bool all);

/* ---- shorthand that ends the program with a message where the library fails ---- */

/* "queued:NAME" and "guarded:NAME" are devices whose memory is closed to the host (guarded.h), with a queue or without.
 */
tg_device *open_device(const char *name);
/* The name of a device that laws are to be tried on: the kernel sets of this machine, or what --device names; NULL
 * ends. */
const char *device_to_try(size_t index);
/* The same, and then a guarded one with a queue. */
const char *any_device_to_try(size_t index);
/* What --device names, or NULL. */
const char *named_device(void);
/* The same opened, after cpu/scalar; where no device is named, with a guarded one that has a queue. NULL ends. */
tg_device **open_devices(void);
/* Whether the device has this codec. A card may lack some. */
bool has_codec(tg_device *device, const char *spec);
void skip_codec(const char *spec);
void close_devices(tg_device **devices);
tg_codec *make_codec(tg_device *device, const char *spec, uint64_t count);
/* The arguments of a law: --subset, or --all for the full product, which PART/PARTS may follow: 2/8 is the second
 * eighth of the specs, and where a law asks my_turn, of its cases. At the end `--device NAME`: that device, and of the
 * specs those that it has. */
bool wants_all(int argc, char **argv);

#endif
