/* The plan of the entropy layout, made on the card: digits are counted, and one block makes every choice of
 * code/entropy_plan.c, with the same integers. docs/numerics.md has the rules. Of the twenty tables that are compared,
 * each is made by a warp of its own. */
#ifndef TG_DEVICE_CUDA_RANS_PLAN_CUH
#define TG_DEVICE_CUDA_RANS_PLAN_CUH

#include "device/cuda/coding.cuh"
#include "device/cuda/omega.cuh"
#include "device/cuda/sparse.h"

enum {
    RANS_SYMBOLS = 256,
    RANS_STATE = 65536,    /* lowest value of a state, and the value in the end */
    RANS_HEAD = 8,         /* bytes before the frequency table */
    RANS_TABLE = 516,      /* most bytes of that, padded */
    RANS_CHUNK_LEAST = 13, /* log2 of its elements */
    RANS_CHUNK_MOST = 31,
    RANS_TURNS_LOG = 18,       /* of the elements of a lane, where there are several */
    RANS_PAIRS_FROM = 1 << 18, /* elements */
    RANS_KINDS = 4,            /* of tables: mirrored is bit 0, grouped bit 1 */
    RANS_LOGS = 5,
    RANS_PLANNERS = 32 * RANS_KINDS * RANS_LOGS /* threads */
};

/* What a symbol does to a state. */
struct rans_symbol {
    u32 frequency, start;
    u64 reciprocal; /* 2^64 / frequency, rounded up; 0 for a frequency of 1 */
};

/* Memory on the card, all zeros at first. */
struct rans_plan {
    u32 met[RANS_SYMBOLS]; /* digits, or pairs of them where these are counted */
    u32 table_log, tuple, lane_log, chunk_log;
    u32 ticket;
    u32 head;  /* bytes before the directory */
    u64 zeros; /* digits of level zero */
    u32 ready; /* to be written */
    rans_symbol symbol[RANS_SYMBOLS];
};

/* Levels that are not zero, listed (docs/format.md, 4.4). Memory on the card, all zeros at first. */
struct listed_control {
    u32 wanted; /* so few digits are not those of zero that it is tried */
    u32 ticket;
    u32 count;          /* of the listed levels, or POSITIONS_NONE */
    u32 directory;      /* bytes before the layout of their codes */
    control everything; /* `payload` is its size, when it is written */
    tg_coded coded;     /* of the codes */
};

struct rans_job {
    tg_packed_codes codes;
    u32 low, alphabet, zero_digit;
    rans_plan *plan;
    u64 *chain;  /* of chunks of the least size: zeros at first */
    u8 *scratch; /* rans_scratch bytes */
    u8 *out;     /* on 4 bytes */
    u64 before;  /* bytes of the payload before it */
    tg_coded *coded;
    listed_control *listed;
    bool is_list; /* these are the codes of listed levels: only the card knows how many, and where they go */
};

/* Listing is tried where at most so many levels are not zero. */
static __host__ __device__ inline u64 most_listed(u64 count) { return count / 16; }

/* Completes a job; false if there is nothing to do. */
__device__ __forceinline__ bool find_out(rans_job &p)
{
    if (!p.is_list) {
        find_count(p.codes);
        return true;
    }
    p.codes.count = p.listed->count;
    p.out += p.listed->directory;
    return p.listed->count != 0 && p.listed->count != POSITIONS_NONE;
}

static __host__ __device__ inline u64 rans_chunks(u64 count, u32 log) { return (count + (1ull << log) - 1) >> log; }
/* Pairs are counted, though they may not be used. */
static __host__ __device__ inline bool may_pair(u64 count, u32 alphabet)
{
    return count >= RANS_PAIRS_FROM && alphabet <= 16;
}

/* Symbol y of the chunk that starts at element `first` and ends before `end`. */
__device__ __forceinline__ u32 symbol_at(const rans_job &p, u32 tuple, u64 first, u64 end, u64 y)
{
    if (tuple == 1)
        return code_at(p.codes, first + y) >> p.low;
    const u64 a = first + 32 * (y / 16) + y % 16;
    const u32 one = a < end ? code_at(p.codes, a) >> p.low : p.zero_digit;
    return one + p.alphabet * (a + 16 < end ? code_at(p.codes, a + 16) >> p.low : p.zero_digit);
}

static __host__ __device__ inline u64 symbol_count(u32 tuple, u64 elements)
{
    return tuple == 2 ? (elements + 31) / 32 * 16 : elements;
}

__global__ void __launch_bounds__(256) rans_count_kernel(rans_job p)
{
    __shared__ u32 bins[8][RANS_SYMBOLS];
    if (p.coded->done || !find_out(p))
        return;
    for (int i = 0; i < 8; i++)
        bins[i][threadIdx.x] = 0;
    __syncthreads();
    const u32 tuple = may_pair(p.codes.count, p.alphabet) ? 2 : 1;
    const u64 symbols = symbol_count(tuple, p.codes.count);
    for (u64 y = (u64)blockIdx.x * 256 + threadIdx.x; y < symbols; y += (u64)gridDim.x * 256)
        atomicAdd(&bins[threadIdx.x >> 5][symbol_at(p, tuple, 0, p.codes.count, y)], 1u);
    __syncthreads();
    u32 sum = 0;
    for (int i = 0; i < 8; i++)
        sum += bins[i][threadIdx.x];
    if (sum)
        atomicAdd(&p.plan->met[threadIdx.x], sum);
}

/* ---- frequencies, by a warp: symbol s belongs to lane s % 32 ---- */

struct rans_histogram {
    u64 count[RANS_SYMBOLS];
    u64 total;
    u32 symbols;
};

__device__ __forceinline__ u64 warp_sum64(u64 x)
{
    for (int d = 16; d > 0; d /= 2)
        x += __shfl_xor_sync(FULL, x, d);
    return x;
}

/* The symbol with the largest number, the lowest of equals. Numbers are below 2^56. */
__device__ __forceinline__ u32 largest_of(const u64 *count, u32 symbols)
{
    u64 best = 0;
    for (u32 s = lane_id(); s < symbols; s += 32)
        best = max(best, count[s] << 8 | (255 - s));
    for (int d = 16; d > 0; d /= 2)
        best = max(best, __shfl_xor_sync(FULL, best, d));
    return 255 - (u32)(best & 255);
}

__device__ __forceinline__ u32 largest_frequency(const u32 *frequency, u32 symbols)
{
    u32 best = 0;
    for (u32 s = lane_id(); s < symbols; s += 32)
        best = max(best, frequency[s] << 8 | (255 - s));
    return 255 - (warp_max(best) & 255);
}

__device__ __forceinline__ u32 round_shares(const rans_histogram *h, u32 symbols, u64 total, u32 log, u32 *frequency)
{
    u32 sum = 0;
    for (u32 s = lane_id(); s < symbols; s += 32) {
        const u32 share = (u32)(((h->count[s] << log) + total / 2) / total);
        frequency[s] = h->count[s] == 0 ? 0 : max(share, 1u);
        sum += frequency[s];
    }
    return warp_sum(sum);
}

__device__ __forceinline__ bool share_out(const rans_histogram *h, u32 symbols, u64 total, u32 log, u32 *frequency)
{
    const u32 whole = 1u << log;
    u32 sum = round_shares(h, symbols, total, log, frequency);
    const u32 taker = largest_of(h->count, symbols);
    if (sum < whole && lane_id() == taker % 32)
        frequency[taker] += whole - sum;
    for (; sum > whole; sum--) {
        __syncwarp();
        const u32 largest = largest_frequency(frequency, symbols);
        if (lane_id() == largest % 32)
            frequency[largest]--;
    }
    __syncwarp();
    return true;
}

__device__ __forceinline__ bool share_out_mirrored(const rans_histogram *h, u32 log, u32 *frequency)
{
    if (h->symbols % 2 == 0) {
        (void)share_out(h, h->symbols / 2, h->total / 2, log - 1, frequency);
        for (u32 s = lane_id(); s < h->symbols / 2; s += 32)
            frequency[h->symbols - 1 - s] = frequency[s];
        __syncwarp();
        return true;
    }
    const u32 whole = 1u << log, sum = round_shares(h, h->symbols, h->total, log, frequency), middle = h->symbols / 2;
    __syncwarp();
    const bool possible = sum <= whole || frequency[middle] > sum - whole;
    __syncwarp();
    if (lane_id() == 0)
        frequency[middle] += whole - sum; /* wraps when the difference is negative */
    __syncwarp();
    return possible;
}

__device__ __forceinline__ u32 group_of(u32 symbol, u32 symbols)
{
    const u32 half = symbols / 2;
    const bool upper = symbol >= half;
    const u32 distance = upper ? symbol - half + (symbols % 2 == 0) : half - symbol;
    return (upper ? 16 : 0) + binary_digits(distance);
}

__device__ __forceinline__ bool starts_group(u32 symbol, u32 symbols)
{
    return symbol <= 1 || symbol == symbols - 1 || group_of(symbol, symbols) != group_of(symbol - 1, symbols);
}

/* The difference to the whole goes to the middle; false if that would leave too little. By one thread. */
__device__ __forceinline__ bool settle_groups(const rans_histogram *h, u32 log, u32 sum, u32 *frequency)
{
    const u32 whole = 1u << log, upper = h->symbols / 2, lower = (h->symbols - 1) / 2;
    const bool alike = upper != lower && h->count[upper] == h->count[lower];
    const u32 taker = h->count[upper] > h->count[lower] ? upper : lower;
    const u32 excess = sum > whole ? sum - whole : 0, least = h->count[taker] > 0;
    if (excess > 0 && frequency[taker] < least + (alike ? (excess + 1) / 2 : excess))
        return false;
    if (!alike || (whole - sum) % 2 != 0) {
        frequency[taker] += whole - sum;
    } else {
        const int half = (int)(whole - sum) / 2;
        frequency[lower] += (u32)half;
        frequency[upper] += (u32)half;
    }
    return true;
}

__device__ __forceinline__ bool share_out_grouped(const rans_histogram *h, u32 log, u32 *frequency)
{
    u32 sum = 0;
    for (u32 s = lane_id(); s < h->symbols; s += 32) {
        if (!starts_group(s, h->symbols))
            continue;
        u64 count = 0;
        u32 end = s;
        for (; end == s || (end < h->symbols && !starts_group(end, h->symbols)); end++)
            count += h->count[end];
        const u64 share = (count << log) / (h->total * (end - s));
        for (u32 i = s; i < end; i++)
            sum += frequency[i] = count == 0 ? 0 : share == 0 ? 1 : (u32)share;
    }
    sum = warp_sum(sum);
    __syncwarp();
    u32 possible = 0;
    if (lane_id() == 0)
        possible = settle_groups(h, log, sum, frequency);
    __syncwarp();
    return __shfl_sync(FULL, possible, 0);
}

/* Whether the table of a kind lists a symbol's frequency. */
__device__ __forceinline__ bool is_listed(u32 kind, u32 symbol, u32 symbols)
{
    return symbol < (kind & 1 ? (symbols + 1) / 2 : symbols) && (!(kind & 2) || starts_group(symbol, symbols));
}

/* Streams without the table, in units of 2^-16 bits. */
__device__ __forceinline__ u64 stream_cost(const rans_histogram *h, u32 log, const u32 *frequency)
{
    u64 cost = 0;
    for (u32 s = lane_id(); s < h->symbols; s += 32)
        if (h->count[s] > 0)
            cost += h->count[s] * ((log << 16) - log2_fixed(frequency[s]));
    return warp_sum64(cost);
}

__device__ __forceinline__ u32 table_bits(u32 kind, const u32 *frequency, u32 symbols)
{
    u32 bits = 0;
    for (u32 s = lane_id(); s < symbols; s += 32)
        bits += is_listed(kind, s, symbols) ? omega_length(frequency[s] + 1) : 0;
    return warp_sum(bits);
}

/* ---- the choice ---- */

struct rans_planning {
    rans_histogram h, both; /* the second with both sides of the middle added up */
    u32 frequency[RANS_KINDS * RANS_LOGS][RANS_SYMBOLS];
    u64 cost[RANS_KINDS * RANS_LOGS], bits[RANS_KINDS * RANS_LOGS]; /* with the table, and without */
    u32 bytes[RANS_KINDS * RANS_LOGS];                              /* of the table */
    u32 tuple, chosen;
    u32 table[RANS_TABLE / 4 + 2], sums[RANS_SYMBOLS];
};

__device__ __forceinline__ u32 log_choice(u32 i) { return i == 0 ? 12 : i == 1 ? 14 : i == 2 ? 16 : i == 3 ? 10 : 8; }

/* The histogram of symbols, from what was counted. All threads. */
__device__ __forceinline__ void take_histogram(const rans_job &p, rans_planning *m)
{
    const u64 n = p.codes.count;
    const u32 s = threadIdx.x, a = p.alphabet;
    const bool paired = may_pair(n, a);
    u64 *const digits = m->both.count;
    if (s < RANS_SYMBOLS)
        m->sums[s] = p.plan->met[s];
    __syncthreads();
    if (s < a) {
        digits[s] = paired ? 0 : m->sums[s];
        for (u32 i = 0; paired && i < a; i++) /* pairs that have it first, or second */
            digits[s] += (u64)m->sums[s + a * i] + m->sums[s * a + i];
        if (paired && s == p.zero_digit) /* what fills up the last run is none of them */
            digits[s] -= 2 * symbol_count(2, n) - n;
    }
    __syncthreads();
    if (s < 32) {
        const u64 most = digits[largest_of(digits, a)];
        if (s == 0) {
            p.plan->zeros = digits[p.zero_digit];
            m->tuple = paired && most * 8 <= n * 7 ? 2 : 1;
            m->h.symbols = m->tuple == 2 ? a * a : a;
            m->h.total = symbol_count(m->tuple, n);
        }
    }
    __syncthreads();
    if (s < m->h.symbols)
        m->h.count[s] = m->tuple == 2 ? m->sums[s] : digits[s];
    __syncthreads();
}

__device__ __forceinline__ void mirror_histogram(rans_planning *m)
{
    const u32 s = threadIdx.x, symbols = m->h.symbols;
    if (s < symbols)
        m->both.count[s] = m->h.count[s] + m->h.count[symbols - 1 - s];
    if (s == 0) {
        m->both.total = 2 * m->h.total;
        m->both.symbols = symbols;
    }
}

/* One of the tables, by a warp. */
__device__ __forceinline__ void try_table(rans_planning *m, u32 at)
{
    const u32 kind = at / RANS_LOGS, log = log_choice(at % RANS_LOGS);
    const rans_histogram *const shares = kind & 1 ? &m->both : &m->h;
    u32 *const frequency = m->frequency[at];
    bool possible = kind == 0 || m->tuple == 1;
    if (possible)
        possible = kind & 2   ? share_out_grouped(shares, log, frequency)
                   : kind & 1 ? share_out_mirrored(shares, log, frequency)
                              : share_out(shares, shares->symbols, shares->total, log, frequency);
    u64 bits = 0;
    u32 bytes = 0;
    if (possible) {
        bits = stream_cost(&m->h, log, frequency);
        bytes = (table_bits(kind, frequency, m->h.symbols) + 7) / 8;
    }
    if (lane_id() == 0) {
        m->bits[at] = bits >> 16;
        m->bytes[at] = bytes;
        m->cost[at] = possible ? bits + ((u64)bytes * 8 << 16) : ~0ull / 256;
    }
}

/* One thread. */
__device__ __forceinline__ void choose_table(rans_planning *m)
{
    u64 best_of_all = 0;
    for (u32 kind = 0; kind < (m->tuple == 1 ? RANS_KINDS : 1); kind++) {
        const u64 *const cost = m->cost + kind * RANS_LOGS;
        u64 best = ~0ull / 256;
        for (u32 i = 0; i < RANS_LOGS; i++)
            best = min(best, cost[i]);
        u32 i = 0;
        while (i < RANS_LOGS - 1 && cost[i] * 200 > best * 201)
            i++;
        if (kind == 0 || cost[i] < best_of_all) {
            best_of_all = cost[i];
            m->chosen = kind * RANS_LOGS + i;
        }
    }
}

__device__ __forceinline__ u32 choose_chunk(u64 bits, u64 n, u32 lane_log)
{
    const u32 longest = RANS_TURNS_LOG + lane_log, most = n >> longest ? longest : (u32)RANS_CHUNK_MOST;
    for (u32 c = RANS_CHUNK_LEAST; c < most; c++) {
        const u64 needed = c < 16 ? n << (16 - c) : (n + (1ull << (c - 16)) - 1) >> (c - 16);
        if (bits >= needed)
            return c;
    }
    return most;
}

/* The sum of what the threads before bring, of the first 256. All threads. */
__device__ __forceinline__ u32 sum_of_earlier(u32 *sums, u32 own)
{
    const u32 s = threadIdx.x;
    if (s < RANS_SYMBOLS)
        sums[s] = own;
    __syncthreads();
    for (u32 d = 1; d < RANS_SYMBOLS; d *= 2) {
        const u32 other = s >= d && s < RANS_SYMBOLS ? sums[s - d] : 0;
        __syncthreads();
        if (s < RANS_SYMBOLS)
            sums[s] += other;
        __syncthreads();
    }
    return s < RANS_SYMBOLS ? sums[s] - own : 0;
}

/* Symbols and the head, from the table that was chosen. All threads. */
__device__ __forceinline__ void lay_down_plan(const rans_job &p, rans_planning *m)
{
    const u32 s = threadIdx.x, symbols = m->h.symbols, at = m->chosen, kind = at / RANS_LOGS;
    const u32 f = s < symbols ? m->frequency[at][s] : 0;
    const u32 start = sum_of_earlier(m->sums, f);
    if (s < RANS_SYMBOLS)
        p.plan->symbol[s] = rans_symbol{f, start, f > 1 ? ~0ull / f + 1 : 0};
    const bool listed = s < symbols && is_listed(kind, s, symbols);
    u32 length = 0;
    const u64 code = listed ? omega_code(f + 1, &length) : 0;
    const u32 bit = sum_of_earlier(m->sums, length);
    for (u32 i = s; i < RANS_TABLE / 4 + 2; i += RANS_PLANNERS)
        m->table[i] = 0;
    __syncthreads();
    if (listed)
        add_bits(m->table, bit, code);
    __syncthreads();
    const u32 bytes = m->bytes[at], log = log_choice(at % RANS_LOGS);
    for (u32 i = s; i < padded(bytes) / 4; i += RANS_PLANNERS)
        ((u32 *)(p.out + RANS_HEAD))[i] = m->table[i];
    if (s == 0) {
        const u64 bits = m->bits[at];
        rans_plan *const plan = p.plan;
        plan->table_log = log;
        plan->tuple = m->tuple;
        plan->lane_log = bits >= 16384 * 8 ? 5 : bits >= 1024 * 8 ? 2 : 0;
        plan->chunk_log = choose_chunk(bits, p.codes.count, plan->lane_log);
        plan->head = RANS_HEAD + (u32)padded(bytes);
        plan->ready = 1;
        if (!p.is_list && p.codes.count - plan->zeros <= most_listed(p.codes.count))
            p.listed->wanted = 1;
        ((u32 *)p.out)[0] = log | (m->tuple | (kind & 1 ? 0x80 : 0) | (kind & 2 ? 0x40 : 0)) << 8 |
                            plan->lane_log << 16 | plan->chunk_log << 24;
        ((u32 *)p.out)[1] = bytes;
    }
}

__global__ void __launch_bounds__(RANS_PLANNERS) rans_plan_kernel(rans_job p)
{
    __shared__ rans_planning planning;
    rans_planning *const m = &planning;
    if (p.coded->done || !find_out(p))
        return;
    take_histogram(p, m);
    mirror_histogram(m);
    __syncthreads();
    try_table(m, threadIdx.x / 32);
    __syncthreads();
    if (threadIdx.x == 0)
        choose_table(m);
    __syncthreads();
    lay_down_plan(p, m);
}

#endif
