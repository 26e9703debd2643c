/* Selecting elements on a card: what the kernels share. docs/architecture.md, Selection in one pass, has the idea; here
 * the stages are kernels that hand each other what they found in a control block, so that the host waits for nothing:
 *
 *     pilot    a key that is almost certainly exceeded by slightly more than k elements         (select_pilot.cuh)
 *     sift     one pass: feedback, residual, and the candidates of each strip                   (select_sift.cuh)
 *     cut      the threshold among the candidates                                               (select_cut.cuh)
 *     gather   the selected elements in order, and the residual where the sift's guess was wrong  (sparse_gather.cuh);
 *              before, where the pilot misled: passes over the vector find the threshold        (select_again.cuh) */
#ifndef TG_DEVICE_CUDA_SELECT_CUH
#define TG_DEVICE_CUDA_SELECT_CUH

#include "device/cuda/later.cuh"
#include "device/cuda/element.cuh"

/* Elements are sifted by strips, one for each warp. The candidates of strip c go to region c mod `regions`, a power of
 * two, so that few warps wait for the same counter. */
constexpr u32 STRIP = 512, REGIONS_MOST = 256, STRIPS_OF_REGION = 128, COUNTER_STRIDE = 8;
/* What the table has of a strip: where in its region its candidates are, and above that bit how many. */
constexpr u32 COUNT_SHIFT = 22, REGION_MOST = 1 << COUNT_SHIFT;
#define NOT_COMMITTED 0xffffffffu /* the residual of this strip was left as it was: a value is not finite */

constexpr u32 PILOT_RUN = 16, PILOT_RUNS = 16384, PILOT_LEAST = 4096;
/* Bins of the pilot sample's keys: 128 for a factor of two, from 2^-40 to 2^24; the first and the last have the others.
 */
constexpr u32 PILOT_BINS = 8192, PILOT_SHIFT = 16, PILOT_FIRST = (127 - 40) << (23 - PILOT_SHIFT);
constexpr u32 BAND_BINS = 4096, LIST_ROOM = 4096, DIGIT_BINS = 2048, RANKS = 3, GUESSES = 5;
#define KEY_MASK 0x7fffffffu
#define INFINITY_KEY 0x7f800000u
#define EVERY 0xffffffffu

/* What the search for a threshold will probably come to: the threshold, or 0; of the keys that it tries before, the
 * smallest that too few elements have, and the largest that too many have (or bounds of all keys). */
struct foreseen_search {
    u32 key, high, low;
};

struct select_control {
    /* pilot */
    u32 low, high, shift; /* candidates have the key low or a larger one; keys below high are in bins of 2^shift keys */
    u32 clear_from;       /* candidates from this key on leave a 0 in the residual at once */
    foreseen_search foreseen;
    u32 guess[GUESSES], guesses;
    /* sift */
    u32 nonfinite, overflow;
    unsigned long long dropped;
    /* cut */
    u32 at_least[3]; /* candidates that have the keys of the search that was foreseen */
    u32 listed;      /* keys in the threshold's bin that found no room in rows */
    u32 again;       /* NOT_AGAIN, ... */
    u32 passed;      /* passes over all keys that have ended */
    u32 prefix[RANKS], rank[RANKS];
    u32 key, ties; /* selected: larger keys, and of this key the first so many by index */
    u32 selected;
    u32 log, segments; /* of the payload */
    u32 values_at;     /* bytes from the payload's start */
    /* gather, write */
    unsigned long long saturated;
    u32 tickets[12];
};

/* Whether the digits of keys must be counted, and of which. */
enum { NOT_AGAIN, AGAIN_CANDIDATES, AGAIN_ALL };

enum ticket {
    PILOT_TICKET,
    CUT_TICKET,
    AGAIN_TICKET,
    PASS_TICKET,
    GATHER_TICKET,
    STREAMS_TICKET,
    CROWDED_TICKET,
    GUESS_TICKET
};

/* How many elements are wanted. */
struct select_amount {
    u32 target, fewest, most, needed;
    bool exact;         /* never anything but `target` */
    bool exact_if_many; /* dgck */
};

struct selecting {
    tg_source from;
    u32 count;    /* its elements */
    bool commits; /* the rest of an element is u, so the sift may write it at once */
    bool moves;   /* not over the residual but to the undo buffer, whose owner takes that for the residual */
    float *rest;  /* where it is written, if so */
    bool clears;  /* and selected elements leave a 0, as they are sent without loss */
    select_amount amount;
    bool random; /* keys are 31 random bits (randk) */
    tg_hash_key hash;
    const tg_hash_key *drawn; /* not NULL: that key, and the one for sampling, are here */
    u32 random_low;           /* the least key of a candidate, if random */
    u32 value_size; /* of a value in the payload, in bytes: decides g and places only together with the format */
    u32 strips, warp_strips, tiles; /* of a warp in a tile: 32 at most */
    u32 regions, room;              /* and the most candidates of one */
    select_control *control;
    u32 *pilot_bins, *bins, *digits; /* digits: RANKS histograms */
    u32 *sample;                     /* keys of some runs of the pilot sample */
    u32 *counters, *table;
    uint2 *candidates;
    u32 *list;    /* keys of the threshold's bin, and a row of them for each block that looks for some */
    u64 *states;  /* of tiles, for the look-back of gather */
    u32 *indices; /* selected, in order */
};

/* First of all in every kernel that reads the source, or draws. */
__device__ __forceinline__ void begin(selecting &s)
{
    if (s.from.side) {
        take_side(s.from);
        s.rest = s.moves ? s.from.undo : s.from.residual;
    }
    if (s.drawn)
        s.hash = s.drawn[TG_FOR_SELECTION];
}

/* ---- elements ---- */

__device__ __forceinline__ u32 magnitude_key(float x) { return __float_as_uint(x) & KEY_MASK; }

__device__ __forceinline__ u32 key_of(const selecting &s, u32 index, u32 bits)
{
    return s.random ? tg_hash(s.hash, index) >> 1 : bits & KEY_MASK;
}

__device__ __forceinline__ element source_element(const selecting &s, u32 i)
{
    u32 dropped = 0;
    return source_at(s.from, i, residual_at(s.from, i), &dropped);
}

/* u after the sift: a residual that was committed holds it. */
__device__ __forceinline__ float u_again(const selecting &s, u32 i)
{
    return s.commits ? s.rest[i] : source_element(s, i).u;
}

__device__ __forceinline__ u32 strip_size(const selecting &s, u32 strip)
{
    return min(s.count - strip * STRIP, (u32)STRIP);
}

__device__ __forceinline__ uint2 *region_of(const selecting &s, u32 strip)
{
    return s.candidates + (u64)(strip & (s.regions - 1)) * s.room;
}

/* ---- blocks ---- */

/* Which of the blocks that do a job this is: kernels do one, or several that follow each other (sparse_many.cuh). */
struct block_of_job {
    u32 number, all;
};
__device__ __forceinline__ block_of_job only_job() { return {blockIdx.x, gridDim.x}; }

__device__ __forceinline__ u32 warp_scan(u32 v) /* inclusive */
{
    const u32 lane = threadIdx.x & 31;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const u32 y = __shfl_up_sync(FULL, v, d);
        if (lane >= (u32)d)
            v += y;
    }
    return v;
}

/* Exclusive sum over the threads of a block, of 1024 at most; `part` has 33 places. */
__device__ __forceinline__ u32 block_scan(u32 v, u32 *part, u32 *total)
{
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const u32 sum = warp_scan(v);
    if (lane == 31)
        part[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        const u32 own = lane < warps ? part[lane] : 0, scan = warp_scan(own);
        part[lane] = scan - own;
        if (lane == 31)
            part[32] = scan;
    }
    __syncthreads();
    const u32 before = part[warp] + sum - v;
    *total = part[32];
    __syncthreads();
    return before;
}

/* True for the last of `parts` that come here; what the others have written is visible to it. By a block, of which one
 * thread waits for memory in the name of all. */
__device__ __forceinline__ bool is_last_of(u32 *ticket, u32 parts, u32 *shared)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        *shared = atomicAdd(ticket, 1u) == parts - 1;
        if (*shared) {
            *ticket = 0;
            __threadfence();
        }
    }
    __syncthreads();
    return *shared;
}

/* The encoder's g: a segment has 2048 to 4095 of the selected elements on average, or all of them. */
__device__ __host__ __forceinline__ u32 segment_log(u64 count, u64 selected)
{
    u32 g = 12;
    while (g < 30 && (selected == 0 || selected << g < count << 11))
        g++;
    return g;
}

/* Where the values are in a payload that has so many segments. */
__device__ __forceinline__ u32 values_behind(u32 segments) { return 8 + 8 * segments; }

/* What follows from the number of selected elements. By one thread. */
__device__ __forceinline__ void set_selected(const selecting &s, u32 selected)
{
    select_control *c = s.control;
    c->selected = selected;
    c->log = segment_log(s.count, selected);
    c->segments = (u32)(((u64)s.count - 1) >> c->log) + 1;
    c->values_at = values_behind(c->segments);
}

#endif
