/* The code of the prefix layout (docs/format.md, 4.5): bytes of packed codes are counted, and a code is made for them.
 * docs/numerics.md has the rules; everything is decided on the card.
 *
 * There are up to two tries. The first counts a sample, and stands if what is written with its code is as long as the
 * sample let expect; it is left out for short vectors. The second counts everything. Kernels of a try that is not
 * needed return at once. */
#ifndef TG_DEVICE_CUDA_PREFIX_CODE_CUH
#define TG_DEVICE_CUDA_PREFIX_CODE_CUH

#include "device/cuda/coding.cuh"

enum {
    PREFIX_SYMBOLS = 256,
    PREFIX_LONGEST = 12,      /* bits of a code */
    PREFIX_STREAMS = 8,       /* byte y of a chunk is in stream y mod 8 */
    PREFIX_HEAD = 4 + 128,    /* bytes of the chunk's size and of the lengths */
    PREFIX_ENTRY = 16,        /* bytes of a chunk in the directory */
    PREFIX_PART = 4096,       /* bytes that are counted or passed over together */
    PREFIX_EVERY = 4,         /* one of so many parts is in a sample */
    PREFIX_FROM = 1 << 18,    /* codes from which on the layout is tried */
    PREFIX_SAMPLED = 1 << 19, /* bytes from which on a sample is tried */
    PREFIX_CHUNK_LEAST = 12,  /* log2 of a chunk that is read */
    PREFIX_CHUNK_MOST = 17,
    PREFIX_LEAST_LOG = 13, /* of one that is written */
    PREFIX_WORTH = 36,
    PREFIX_AS_EXPECTED = 200,
    PREFIX_THREADS = 256
};

struct prefix_try {
    u32 met[PREFIX_SYMBOLS];
    /* How far the codes reach from the largest possible one down, and from 0 up. */
    u32 down, up;
    u32 is_short; /* the code is short enough */
    u32 chunk_log;
    u32 ticket;
    u32 counted;               /* blocks that have counted */
    u64 expected;              /* bits of it all */
    u16 entry[PREFIX_SYMBOLS]; /* a code, the first bit lowest, and its length above 12 bits */
};

/* Memory on the card, all zeros at first. */
struct prefix_control {
    prefix_try tries[2];
};

struct prefix_job {
    const u8 *packed; /* on 16 bytes */
    u64 bytes;
    u32 width, most; /* of a code, and the largest */
    prefix_control *control;
    u64 *chain; /* of the chunks of each try: zeros at first */
    u64 before; /* bytes of the payload before `out` */
    u8 *out;    /* on 4 bytes */
    tg_coded *coded;
    const u32 *known; /* if not NULL, the number of codes is here, and `bytes` is a bound */
};

/* First of all in every kernel; false if this try is not made for so few codes. */
__device__ __forceinline__ bool find_out(prefix_job &p, u32 number)
{
    if (!p.known)
        return true;
    p.bytes = packed_bytes(*p.known, p.width);
    return *p.known >= PREFIX_FROM && (number == 1 || p.bytes >= PREFIX_SAMPLED);
}

static __host__ __device__ inline u64 prefix_chunks(u64 bytes, u32 log) { return (bytes + (1ull << log) - 1) >> log; }

/* ---- counting ---- */

__device__ __forceinline__ u32 least_bytes(u32 a, u32 b)
{
    u32 least = 0;
    for (int i = 0; i < 32; i += 8)
        least |= min(a >> i & 255, b >> i & 255) << i;
    return least;
}

/* The least and the largest codes met by a thread, in four bytes each. */
struct code_range {
    u32 least, unlargest; /* the second with all bits turned */
};

__device__ __forceinline__ void widen_range(code_range &r, u32 word, u32 width)
{
    const u32 ones = 0x01010101u * ((1u << width) - 1);
    for (u32 shift = 0; shift < 8; shift += width) {
        const u32 codes = word >> shift & ones;
#ifdef __CUDA_ARCH__
        r.least = __vminu4(r.least, codes);
        r.unlargest = __vminu4(r.unlargest, ~codes);
#else
        r.least = least_bytes(r.least, codes);
        r.unlargest = least_bytes(r.unlargest, ~codes);
#endif
    }
}

/* Adds a thread's range to that of a try. */
__device__ __forceinline__ void publish_range(prefix_try *t, const code_range &r, u32 width)
{
    u32 least = r.least, unlargest = r.unlargest;
    for (int d = 8; d <= 16; d += 8) {
        least = least_bytes(least, least >> d | least << (32 - d));
        unlargest = least_bytes(unlargest, unlargest >> d | unlargest << (32 - d));
    }
    const u32 last = (1u << width) - 1;
    const u32 down = last - min(least & 255, last), up = 255 - (unlargest & 255);
    const u32 most_down = warp_max(down), most_up = warp_max(up);
    if (lane_id() == 0 && most_down > *(volatile u32 *)&t->down) /* few widen it, and atomics of all take long */
        atomicMax(&t->down, most_down);
    if (lane_id() == 0 && most_up > *(volatile u32 *)&t->up)
        atomicMax(&t->up, most_up);
}

/* 16 bytes of a part; the last ones are filled up with the byte before, which widens no range. */
__device__ __forceinline__ u32 load_sixteen(const prefix_job &p, u64 at, u32 words[4])
{
    if (at + 16 <= p.bytes) {
        const uint4 v = __ldg((const uint4 *)(p.packed + at));
        words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
        return 16;
    }
    if (at >= p.bytes)
        return 0;
    for (u32 i = 0; i < 16; i++) {
        const u64 from = min(at + i, p.bytes - 1);
        words[i / 4] = (i % 4 ? words[i / 4] : 0) | (u32)p.packed[from] << (8 * (i % 4));
    }
    return (u32)(p.bytes - at);
}

/* Looks at the parts that are not in the sample, until the range cannot get wider. */
__device__ __forceinline__ void look_at_rest(const prefix_job &p, prefix_try *t, code_range &r)
{
    const u64 parts = (p.bytes + PREFIX_PART - 1) / PREFIX_PART;
    for (u64 part = blockIdx.x; part < parts; part += gridDim.x) {
        u32 words[4];
        if (part % PREFIX_EVERY == 0)
            continue;
        if (*(volatile u32 *)&t->down == (1u << p.width) - 1 && *(volatile u32 *)&t->up >= p.most)
            return;
        if (load_sixteen(p, part * PREFIX_PART + 16 * threadIdx.x, words))
            for (int i = 0; i < 4; i++)
                widen_range(r, words[i], p.width);
    }
}

/* What the blocks count together. */
__device__ __forceinline__ void count_bytes(const prefix_job &p, prefix_try *t, u32 number, u32 (*bins)[PREFIX_SYMBOLS])
{
    enum { WARPS = PREFIX_THREADS / 32 };
    const u32 every = number == 0 ? PREFIX_EVERY : 1, tid = threadIdx.x;
    for (int i = 0; i < WARPS; i++)
        bins[i][tid] = 0;
    __syncthreads();
    code_range r = {0xffffffffu, 0xffffffffu};
    const u64 stride = (u64)every * PREFIX_PART;
#pragma unroll 4
    for (u64 at = blockIdx.x * stride; at < p.bytes; at += gridDim.x * stride) {
        u32 words[4];
        const u32 n = load_sixteen(p, at + 16 * tid, words);
        for (u32 i = 0; i < 16; i++)
            if (i < n)
                atomicAdd(&bins[tid >> 5][words[i / 4] >> (8 * (i % 4)) & 255], 1u);
        if (number == 0 && n)
            for (int i = 0; i < 4; i++)
                widen_range(r, words[i], p.width);
    }
    if (number == 0) {
        publish_range(t, r, p.width);
        look_at_rest(p, t, r);
        publish_range(t, r, p.width);
    }
    __syncthreads();
    u32 sum = 0;
    for (int i = 0; i < WARPS; i++)
        sum += bins[i][tid];
    if (sum)
        atomicAdd(&t->met[tid], sum);
}

/* ---- the code: the last block, a thread for each byte ---- */

struct prefix_making {
    u32 coded[PREFIX_SYMBOLS];
    u32 weight[2 * PREFIX_SYMBOLS]; /* of single bytes, the lightest first, and of trees behind PREFIX_SYMBOLS */
    u16 parent[2 * PREFIX_SYMBOLS]; /* a tree */
    u8 ranked[PREFIX_SYMBOLS];      /* the most frequent first */
    u8 length[PREFIX_SYMBOLS];
    u32 of_length[64], next[PREFIX_LONGEST + 1];
    u32 kinds, longest;
    u64 counted, bits, entropy;
    u64 parts[PREFIX_SYMBOLS / 32];
};

/* The sum over a block, the same for all threads: atomics of 64 bits in shared memory take their turns. */
__device__ __forceinline__ u64 sum_of_all(prefix_making *m, u64 x)
{
    for (int d = 16; d > 0; d /= 2)
        x += __shfl_xor_sync(FULL, x, d);
    __syncthreads();
    if (lane_id() == 0)
        m->parts[threadIdx.x / 32] = x;
    __syncthreads();
    u64 sum = 0;
    for (u32 i = 0; i < PREFIX_SYMBOLS / 32; i++)
        sum += m->parts[i];
    return sum;
}

/* Whether all codes of a byte are within the range that a sample has met. */
__device__ __forceinline__ bool is_within(const prefix_try *t, u32 byte, u32 width)
{
    const u32 last = (1u << width) - 1;
    bool within = true;
    for (u32 shift = 0; shift < 8; shift += width) {
        const u32 code = byte >> shift & last;
        within = within && last - code <= __ldcg(&t->down) && code <= __ldcg(&t->up);
    }
    return within;
}

__device__ __forceinline__ void rank_bytes(prefix_making *m)
{
    const u32 s = threadIdx.x, mine = m->coded[s];
    u32 rank = 0;
    for (u32 other = 0; other < PREFIX_SYMBOLS; other++)
        rank += m->coded[other] > mine || (m->coded[other] == mine && other < s);
    if (mine) {
        m->ranked[rank] = (u8)s;
        atomicAdd(&m->kinds, 1u);
    }
}

/* Joins the two lightest trees again and again; of equals, single bytes come before trees. One thread. Weights are
 * below 2^32 - 1, which stands for what is not there. */
__device__ __forceinline__ void join_trees(prefix_making *m)
{
    const u32 none = 0xffffffffu, n = m->kinds;
    u32 leaf = 0, tree = 0;
    u32 first_leaf = m->weight[0], second_leaf = m->weight[1], first_tree = none, second_tree = none;
    for (u32 joined = 0; joined < n - 1; joined++) {
        u32 sum = 0;
        for (int child = 0; child < 2; child++) {
            const bool takes_leaf = first_leaf <= first_tree;
            m->parent[takes_leaf ? leaf : PREFIX_SYMBOLS + tree] = (u16)joined;
            sum += takes_leaf ? first_leaf : first_tree;
            first_leaf = takes_leaf ? second_leaf : first_leaf;
            first_tree = takes_leaf ? first_tree : second_tree;
            leaf += takes_leaf;
            tree += !takes_leaf;
            /* only needed by the second child if the first was of the same kind, and then it is the one after */
            second_leaf = leaf + 1 < n ? m->weight[leaf + 1] : none;
            second_tree = tree + 1 < joined ? m->weight[PREFIX_SYMBOLS + tree + 1] : none;
        }
        m->weight[PREFIX_SYMBOLS + joined] = sum;
        first_tree = tree == joined ? sum : first_tree;
        second_tree = tree + 1 == joined ? sum : second_tree;
    }
}

/* Two of the longest codes become one that is a bit shorter, and the longest that is shorter still is split. As many
 * steps as are alike are taken at once. One thread. */
__device__ __forceinline__ void limit_lengths(prefix_making *m)
{
    for (u32 longest = m->longest; longest > PREFIX_LONGEST; longest--) {
        while (m->of_length[longest] > 0) {
            u32 shorter = longest - 2;
            while (m->of_length[shorter] == 0)
                shorter--;
            const u32 alike = min(m->of_length[longest] / 2, m->of_length[shorter]);
            const u32 steps = shorter == longest - 2 ? alike : 1;
            m->of_length[longest] -= 2 * steps;
            m->of_length[longest - 1] += steps;
            m->of_length[shorter] -= steps;
            m->of_length[shorter + 1] += 2 * steps;
        }
    }
}

/* How many codes Huffman's tree has of each length, none longer than the limit; and the first code of each. */
__device__ __forceinline__ void choose_lengths(prefix_making *m)
{
    const u32 s = threadIdx.x, n = m->kinds;
    if (s < n)
        m->weight[s] = m->coded[m->ranked[n - 1 - s]];
    __syncthreads();
    if (s == 0)
        join_trees(m);
    __syncthreads();
    if (s < n) {
        u32 depth = 1;
        for (u32 at = m->parent[s]; at != n - 2; depth++)
            at = m->parent[PREFIX_SYMBOLS + at];
        atomicAdd(&m->of_length[depth], 1u);
        atomicMax(&m->longest, depth);
    }
    __syncthreads();
    if (s == 0) {
        limit_lengths(m);
        m->next[0] = 0;
        for (u32 l = 1; l <= PREFIX_LONGEST; l++)
            m->next[l] = (m->next[l - 1] + (l > 1 ? m->of_length[l - 1] : 0)) << 1;
    }
    __syncthreads();
    if (s < n) {
        u32 length = 1;
        for (u32 sum = m->of_length[1]; sum <= s; sum += m->of_length[length])
            length++;
        m->length[m->ranked[s]] = (u8)length;
    }
    __syncthreads();
}

/* The canonical code of a byte, its first bit lowest, and the length above. */
__device__ __forceinline__ u32 canonical_entry(const u32 *next, const u8 *length, u32 s)
{
    const u32 own = length[s];
    if (own == 0)
        return 0;
    u32 code = next[own];
    for (u32 other = 0; other < s; other++)
        code += length[other] == own;
    return __brev(code) >> (32 - own) | own << PREFIX_LONGEST;
}

/* What all bytes take, if `counted` of them take so much: rounded down, without overflow. */
__device__ __forceinline__ u64 of_all(u64 spent, u64 bytes, u64 counted)
{
    return spent / counted * bytes + spent % counted * bytes / counted;
}

/* Whether the code is short enough, and what follows from it for all bytes. One thread. */
__device__ __forceinline__ void judge_code(const prefix_job &p, prefix_try *t, const prefix_making *m)
{
    const u32 log = m->bits >= 4 * m->counted ? PREFIX_LEAST_LOG : PREFIX_LEAST_LOG + 1;
    const u64 head = PREFIX_HEAD + PREFIX_ENTRY * prefix_chunks(p.bytes, log);
    const u64 entropy = of_all(m->entropy, p.bytes, m->counted);
    t->chunk_log = log;
    t->expected = of_all(m->bits, p.bytes, m->counted) + 8 * head;
    t->is_short = t->expected << 16 <= entropy + entropy / PREFIX_WORTH;
}

__device__ __forceinline__ void make_code(const prefix_job &p, prefix_try *t, u32 number, prefix_making *m)
{
    const u32 s = threadIdx.x, met = __ldcg(&t->met[s]);
    if (s == 0)
        m->kinds = m->longest = 0;
    if (s < 64)
        m->of_length[s] = 0;
    m->length[s] = 0;
    m->coded[s] = met == 0 && number == 0 && is_within(t, s, p.width) ? 1 : met;
    const u64 counted = sum_of_all(m, met);
    rank_bytes(m);
    __syncthreads();
    if (m->kinds < 2) /* a single byte has no code */
        return;
    choose_lengths(m);
    t->entry[s] = (u16)canonical_entry(m->next, m->length, s);
    const u64 log = met ? log2_fixed(counted) - log2_fixed(met) : 0;
    const u64 bits = sum_of_all(m, (u64)met * m->length[s]), entropy = sum_of_all(m, met * log);
    if (s == 0) {
        m->counted = counted;
        m->bits = bits;
        m->entropy = entropy;
        judge_code(p, t, m);
    }
    __syncthreads();
    if (s < PREFIX_SYMBOLS / 2)
        p.out[4 + s] = (u8)(m->length[2 * s] | m->length[2 * s + 1] << 4);
    if (s < 4)
        p.out[s] = s == 0 ? (u8)t->chunk_log : 0;
}

__global__ void __launch_bounds__(PREFIX_THREADS) prefix_code_kernel(prefix_job p, u32 number)
{
    __shared__ union {
        u32 bins[PREFIX_THREADS / 32][PREFIX_SYMBOLS];
        prefix_making making;
    } here;
    __shared__ u32 last;
    prefix_try *const t = &p.control->tries[number];
    if (p.coded->done || !find_out(p, number))
        return;
    count_bytes(p, t, number, here.bins);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicAdd(&t->counted, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    make_code(p, t, number, &here.making);
}

#endif
