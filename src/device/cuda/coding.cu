/* From packed codes to the other layouts, and back: which kernels run, and where they have their memory. Every choice
 * is made on the card. Kernels of a layout that was not chosen return at once. */
#include "device/cuda/coding.h"

#include "device/cuda/elias.cuh"
#include "device/cuda/listed.cuh"
#include "device/cuda/prefix_add.cuh"
#include "device/cuda/sparse.h"

extern "C" {
#include "codec/entropy_codes.h"
#include "codec/positions.h"
}

/* Blocks of a grid that takes its work from a ticket or in steps: enough for any card. */
enum { MOST_BLOCKS = 1056, COUNTING_BLOCKS = 528 };

/* Memory that is handed out piece by piece. */
struct pieces {
    u8 *at;
    u64 used;
    template <class T> T *take(u64 count)
    {
        T *const piece = (T *)(at + used);
        used += (count * sizeof(T) + 255) / 256 * 256;
        return piece;
    }
};

static bool may_use_entropy(const tg_levels_shape *shape)
{
    return shape->coding == TG_CODING_ENTROPY || shape->coding == TG_CODING_AUTO;
}

static bool may_use_elias(const tg_levels_shape *shape)
{
    return shape->coding == TG_CODING_ELIAS || shape->coding == TG_CODING_AUTO;
}

static bool may_use_prefix(const tg_levels_shape *shape)
{
    const u32 width = tg_code_width(shape->levels);
    return may_use_entropy(shape) && shape->count >= PREFIX_FROM && (width == 2 || width == 4 || width == 8);
}

static u64 scale_bytes(const tg_levels_shape *shape)
{
    return tg_bucket_count(shape->count, shape->bucket) * (shape->affine ? 8 : 4);
}

/* Codes of so many values, of which the low bits travel as they are. */
static rans_job rans_of(const tg_packed_codes &codes, u32 values)
{
    const tg_code_split split = tg_code_split_of(values);
    rans_job job = {};
    job.codes = codes;
    job.low = split.low;
    job.alphabet = split.alphabet;
    job.zero_digit = split.zero_digit;
    return job;
}

/* ---- writing ---- */

struct coding {
    prefix_job prefix;
    rans_job rans, rans_of_list;
    listed_job listed;
    positions_job positions;
    void *positions_memory;
    elias_job elias;
    u64 zero_bytes; /* the first bytes of the workspace, which must be zeros */
    u8 *scales;     /* a copy of them, where packed codes may have to come first */
    u64 bytes;      /* of the workspace */
};

/* What listing works in, besides zeros. Everything is made apart, and copied if it is the shortest. */
static void lay_out_list(coding *c, const tg_levels_shape *shape, pieces *memory)
{
    const u64 n = shape->count, most = most_listed(n);
    u8 *const made = memory->take<u8>(tg_positions_bound(n, most) + tg_entropy_codes_bound(most, 2 * shape->levels) +
                                      16);
    listed_control *const control = c->listed.control;
    c->listed.indices = memory->take<u32>(most);
    c->listed.listed = memory->take<u16>(most);
    c->listed.made = made;
    c->rans_of_list.codes.plain = c->listed.listed;
    c->rans_of_list.out = made;
    c->rans_of_list.scratch = c->rans.scratch; /* one is written after the other */
    c->rans_of_list.coded = &control->coded;
    c->positions = {(u32)n,
                    (u32)most,
                    c->listed.indices,
                    &control->count,
                    &control->coded.size,
                    made,
                    &control->everything,
                    c->listed.codes.known};
    c->positions_memory = memory->take<u8>(tg_cuda_positions_workspace(n, most));
}

static coding lay_out(const tg_levels_shape *shape, const u32 *known, const u8 *packed, void *workspace, u8 *payload,
                      tg_coded *coded)
{
    const u32 width = tg_code_width(shape->levels);
    const u64 n = shape->count, size = packed_bytes(n, width), before = known ? 0 : scale_bytes(shape);
    const tg_packed_codes codes = {packed, n, width, NULL, known};
    u8 *const out = payload + before;
    pieces memory = {(u8 *)workspace, 0};
    coding c = {};
    c.prefix = {packed, size,  width, 2 * shape->levels, memory.take<prefix_control>(1), NULL, before,
                out,    coded, known};
    c.elias = {codes, shape->levels, memory.take<elias_control>(1), NULL, out, before, coded};
    c.rans = rans_of(codes, 2 * shape->levels + 1);
    c.rans.plan = memory.take<rans_plan>(1);
    c.rans.out = out;
    c.rans.before = before;
    c.rans.coded = coded;
    c.rans_of_list = rans_of(codes, 2 * shape->levels); /* of which only the card knows how many there are */
    c.rans_of_list.plan = memory.take<rans_plan>(1);
    c.rans_of_list.is_list = true;
    c.listed = {codes, shape->levels, memory.take<listed_control>(1), NULL, NULL, NULL, NULL, out, before, coded};
    c.rans.listed = c.rans_of_list.listed = c.listed.control;
    if (may_use_prefix(shape))
        c.prefix.chain = memory.take<u64>(2 * prefix_chunks(size, PREFIX_LEAST_LOG));
    if (may_use_entropy(shape)) {
        c.rans.chain = memory.take<u64>(rans_chunks(n, RANS_CHUNK_LEAST));
        c.rans_of_list.chain = memory.take<u64>(rans_chunks(most_listed(n), RANS_CHUNK_LEAST));
        c.listed.chain = memory.take<u64>(n / LISTED_TILE + 1);
    }
    if (may_use_elias(shape))
        c.elias.chain = memory.take<u64>(elias_chunks(n));
    c.zero_bytes = memory.used;
    if (may_use_entropy(shape)) {
        c.rans.scratch = memory.take<u8>(rans_scratch(n));
        lay_out_list(&c, shape, &memory);
    }
    c.scales = shape->coding == TG_CODING_AUTO ? memory.take<u8>(before) : NULL;
    c.bytes = memory.used;
    return c;
}

size_t tg_cuda_coding_workspace(const tg_levels_shape *shape)
{
    return (size_t)lay_out(shape, NULL, NULL, NULL, NULL, NULL).bytes;
}

/* Clears what must be zeros, and begins. An empty vector is coded already: as `empty`. */
__global__ void __launch_bounds__(256)
    begin_coding_kernel(u32 *zeros, u64 words, tg_coded *coded, tg_packed_codes codes, tg_coded empty, u32 *listed)
{
    find_count(codes);
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < words; i += (u64)gridDim.x * 256)
        zeros[i] = zeros + i == listed ? POSITIONS_NONE : 0;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *coded = codes.count == 0 ? empty : tg_coded{0, 0, 0};
}

/* When all is written: what the host wants to know. */
__global__ void end_coding_kernel(const tg_coded *coded, control *result)
{
    result->payload = coded->size;
    result->layout = coded->layout;
}

static unsigned blocks_for(u64 work, u64 most) { return (unsigned)(work < 1 ? 1 : work < most ? work : most); }

static void try_prefix(cudaStream_t stream, const prefix_job &p)
{
    const u64 parts = (p.bytes + PREFIX_PART - 1) / PREFIX_PART, chunks = prefix_chunks(p.bytes, PREFIX_LEAST_LOG);
    for (u32 number = p.bytes >= PREFIX_SAMPLED ? 0 : 1; number < 2; number++) {
        LAUNCH(prefix_code_kernel, blocks_for(parts, COUNTING_BLOCKS), PREFIX_THREADS, 0, stream, p, number);
        LAUNCH(prefix_write_kernel, blocks_for(chunks, MOST_BLOCKS), PREFIX_THREADS, 0, stream, p, number);
    }
}

static void plan_rans(cudaStream_t stream, const rans_job &p, u64 most)
{
    LAUNCH(rans_count_kernel, blocks_for(most / 1024, COUNTING_BLOCKS), 256, 0, stream, p);
    LAUNCH(rans_plan_kernel, 1, RANS_PLANNERS, 0, stream, p);
}

static void write_rans(cudaStream_t stream, const rans_job &p, u64 most)
{
    const u64 chunks = rans_chunks(most, RANS_CHUNK_LEAST);
    if (p.low > 0)
        LAUNCH(rans_low_kernel, blocks_for(most / 1024, MOST_BLOCKS), 256, 0, stream, p);
    LAUNCH(rans_write_kernel, blocks_for((chunks + RANS_WARPS - 1) / RANS_WARPS, 2 * MOST_BLOCKS), 32 * RANS_WARPS, 0,
           stream, p);
}

/* Layouts 3 and 4: both are written where the second may be shorter. */
static void write_entropy(cudaStream_t stream, const coding &c)
{
    const u64 n = c.rans.codes.count, most = most_listed(n);
    plan_rans(stream, c.rans, n);
    LAUNCH(list_kernel, blocks_for(n / LISTED_TILE, MOST_BLOCKS), LISTED_THREADS, 0, stream, c.listed);
    plan_rans(stream, c.rans_of_list, most);
    write_rans(stream, c.rans_of_list, most);
    tg_cuda_positions_write(stream, &c.positions, c.positions_memory);
    write_rans(stream, c.rans, n);
    LAUNCH(copy_listed_kernel, blocks_for(most / 1024, MOST_BLOCKS), 256, 0, stream, c.listed);
}

static void write_elias(cudaStream_t stream, const elias_job &p, bool may_be_packed)
{
    const unsigned blocks = blocks_for(elias_chunks(p.codes.count), MOST_BLOCKS);
    LAUNCH(elias_measure_kernel, blocks, ELIAS_THREADS, 0, stream, p);
    LAUNCH(elias_choose_kernel, 1, 1, 0, stream, p, may_be_packed);
    LAUNCH(elias_write_kernel, blocks, ELIAS_THREADS, 0, stream, p);
}

/* Under `auto`: packed codes as they are, if nothing is shorter. They come before the scales, which are saved first.
 */
struct packed_job {
    tg_packed_codes codes;
    u64 scale_bytes;
    u8 *payload, *scales;
    tg_coded *coded;
};

__device__ __forceinline__ bool packed_is_shortest(const packed_job &p)
{
    return p.coded->done == 1 && padded(packed_bytes(p.codes.count, p.codes.width)) + p.scale_bytes <= p.coded->size;
}

__global__ void __launch_bounds__(256) save_scales_kernel(packed_job p)
{
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < p.scale_bytes / 4; i += (u64)gridDim.x * 256)
        ((u32 *)p.scales)[i] = ((const u32 *)p.payload)[i];
}

__global__ void __launch_bounds__(256) write_packed_kernel(packed_job p)
{
    find_count(p.codes);
    if (!packed_is_shortest(p))
        return;
    const u8 *const packed = p.codes.bytes;
    const u64 bytes = packed_bytes(p.codes.count, p.codes.width), words = padded(bytes) / 4;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < words + p.scale_bytes / 4; i += (u64)gridDim.x * 256) {
        u32 word = i < bytes / 4 ? ((const u32 *)packed)[i] : i >= words ? ((const u32 *)p.scales)[i - words] : 0;
        for (u32 b = 0; i < words && 4 * i + 4 > bytes && b < bytes % 4; b++)
            word |= (u32)packed[4 * i + b] << (8 * b);
        ((u32 *)p.payload)[i] = word;
    }
}

__global__ void choose_packed_kernel(packed_job p)
{
    find_count(p.codes);
    if (packed_is_shortest(p))
        *p.coded = tg_coded{padded(packed_bytes(p.codes.count, p.codes.width)) + p.scale_bytes, TG_LAYOUT_PACKED, 1};
}

static void write_packed(cudaStream_t stream, const packed_job &p)
{
    LAUNCH(write_packed_kernel, blocks_for(packed_bytes(p.codes.count, p.codes.width) / 4096, MOST_BLOCKS), 256, 0,
           stream, p);
    LAUNCH(choose_packed_kernel, 1, 1, 0, stream, p);
}

/* choose_listed_kernel and end_coding_kernel in one. */
__global__ void end_listing_kernel(listed_job p, control *result)
{
    choose_listed(p);
    result->payload = p.coded->size;
    result->layout = p.coded->layout;
}

unsigned tg_cuda_empty_layout(tg_coding coding)
{
    return coding == TG_CODING_ELIAS     ? TG_LAYOUT_ELIAS_SPARSE
           : coding == TG_CODING_ENTROPY ? TG_LAYOUT_ENTROPY
                                         : TG_LAYOUT_PACKED;
}

void tg_cuda_code_levels(cudaStream_t stream, const tg_levels_shape *shape, const u32 *known, const u8 *packed,
                         void *workspace, u8 *payload, tg_coded *coded, control *result)
{
    const coding c = lay_out(shape, known, packed, workspace, payload, coded);
    const packed_job as_packed = {c.elias.codes, c.elias.before, payload, c.scales, coded};
    const bool automatic = shape->coding == TG_CODING_AUTO;
    const tg_coded empty = {0, tg_cuda_empty_layout(shape->coding), 1};
    u32 *const zeros = (u32 *)workspace;
    if (shape->count == 0) {
        LAUNCH(begin_coding_kernel, 1, 256, 0, stream, zeros, 0ull, coded, tg_packed_codes{}, empty, (u32 *)NULL);
        LAUNCH(end_coding_kernel, 1, 1, 0, stream, coded, result);
        return;
    }
    LAUNCH(begin_coding_kernel, blocks_for(c.zero_bytes / 4096, 264), 256, 0, stream, zeros, c.zero_bytes / 4, coded,
           c.elias.codes, empty, &c.listed.control->count);
    if (automatic)
        LAUNCH(save_scales_kernel, blocks_for(as_packed.scale_bytes / 1024, MOST_BLOCKS), 256, 0, stream, as_packed);
    if (may_use_prefix(shape))
        try_prefix(stream, c.prefix);
    if (may_use_entropy(shape))
        write_entropy(stream, c);
    if (may_use_entropy(shape) && automatic)
        LAUNCH(choose_listed_kernel, 1, 1, 0, stream, c.listed);
    if (may_use_elias(shape))
        write_elias(stream, c.elias, automatic);
    if (automatic)
        write_packed(stream, as_packed);
    if (shape->coding == TG_CODING_ENTROPY)
        LAUNCH(end_listing_kernel, 1, 1, 0, stream, c.listed, result);
    else
        LAUNCH(end_coding_kernel, 1, 1, 0, stream, coded, result);
}

/* ---- reading ---- */

/* What the host reads of the entropy sparse layout: its head, and the directory's sums. */
struct listed_head {
    bool sound;
    u32 listed, log;
    u64 directory, stream_bytes; /* bytes before the codes, and of the index streams behind them */
};

static listed_head read_listed_head(const tg_levels_shape *shape, const u8 *host, u64 size)
{
    listed_head h = {false, 0, 12, 0, 0};
    if (size < 8)
        return h;
    const u32 listed = tg_load32(host), log = tg_load32(host + 4);
    if (listed > shape->count || log < 12 || log > 30 || listed_directory(shape->count, log) > size)
        return h;
    h = {true, listed, log, listed_directory(shape->count, log), 0};
    for (u64 at = 8; at < h.directory; at += 8)
        h.stream_bytes += tg_load32(host + at + 4) & 0x3fffffffu;
    h.sound = h.stream_bytes <= size - h.directory && (listed > 0 || h.stream_bytes == size - h.directory);
    return h;
}

struct expansion {
    prefix_reading prefix;
    rans_reading rans;
    elias_reading elias;
    listed_head head;
    listed_reading listed;
    positions_frame positions;
    void *positions_memory;
    u64 zero_bytes, bytes;
};

static u32 width_of(u32 values)
{
    u32 width = 1;
    while (1u << width < values)
        width++;
    return width;
}

/* The codes of layout 3, or those of layout 4. */
static rans_reading rans_reading_of(const u8 *in, u64 size, u64 count, u32 values, u8 *packed, pieces *memory, u32 *bad)
{
    const tg_code_split split = tg_code_split_of(values);
    rans_reading r = {in, size, count, width_of(values), split.low, split.alphabet, NULL, NULL, NULL, packed, bad};
    r.tables = memory->take<rans_tables>(1);
    r.chain = memory->take<u64>(rans_chunks(count, RANS_CHUNK_LEAST));
    return r;
}

static void lay_out_listed(expansion *e, const tg_levels_shape *shape, const u8 *in, u64 size, u8 *packed,
                           pieces *memory, u32 *bad)
{
    const listed_head &h = e->head;
    const u32 width = width_of(2 * shape->levels);
    u8 *const listed = memory->take<u8>(packed_bytes(h.listed, width));
    u32 *const positions = memory->take<u32>(h.listed);
    e->positions = {(u32)shape->count, h.listed, h.log, in, in + size - h.stream_bytes, h.stream_bytes, positions};
    e->positions_memory = memory->take<u8>(tg_cuda_positions_read_workspace(&e->positions));
    e->rans.in = in + h.directory;
    e->rans.size = size - h.directory - h.stream_bytes;
    e->rans.packed = listed;
    e->listed = {{listed, h.listed, width, NULL},
                 positions,
                 shape->count,
                 tg_code_width(shape->levels),
                 shape->levels,
                 packed,
                 bad};
}

static expansion lay_out_expansion(const tg_levels_shape *shape, unsigned layout, const u8 *host, const u8 *in,
                                   u64 size, u8 *packed, void *workspace, u32 *bad)
{
    const u32 width = tg_code_width(shape->levels);
    const u64 n = shape->count;
    const bool listed = layout == TG_LAYOUT_ENTROPY_SPARSE;
    pieces memory = {(u8 *)workspace, 0};
    expansion e = {};
    e.prefix = {in, size, n, width, NULL, NULL, bad};
    e.elias = {in, size, n, width, shape->levels, layout, NULL, NULL, packed, bad};
    if (listed)
        e.head = read_listed_head(shape, host, size);
    if (layout == TG_LAYOUT_PREFIX) {
        e.prefix.tables = memory.take<prefix_tables>(1);
        e.prefix.chain = memory.take<u64>(prefix_chunks(packed_bytes(n, width), PREFIX_CHUNK_LEAST) / PREFIX_TOGETHER +
                                          1);
    } else if (layout == TG_LAYOUT_ENTROPY || listed) {
        e.rans = rans_reading_of(in, size, listed ? e.head.listed : n, 2 * shape->levels + !listed, packed, &memory,
                                 bad);
    } else {
        e.elias.ticket = memory.take<u32>(1);
        e.elias.chain = memory.take<u64>(elias_chunks(n));
    }
    e.zero_bytes = memory.used;
    if (layout == TG_LAYOUT_ENTROPY || listed)
        e.rans.slots = memory.take<rans_slot>(1 << RANS_MOST_LOG);
    if (listed)
        lay_out_listed(&e, shape, in, size, packed, &memory, bad);
    e.bytes = memory.used;
    return e;
}

size_t tg_cuda_expand_workspace(const tg_levels_shape *shape, unsigned layout, const u8 *host, u64 size)
{
    return (size_t)lay_out_expansion(shape, layout, host, NULL, size, NULL, NULL, NULL).bytes;
}

__global__ void refuse_kernel(u32 *bad) { atomicOr(bad, 1u); }

static void expand_rans(cudaStream_t stream, const rans_reading &r)
{
    const u64 chunks = rans_chunks(r.count, RANS_CHUNK_LEAST);
    LAUNCH(rans_table_kernel, 1, 256, 0, stream, r);
    LAUNCH(rans_expand_kernel, blocks_for((chunks + RANS_WARPS - 1) / RANS_WARPS, 2 * MOST_BLOCKS), 32 * RANS_WARPS, 0,
           stream, r);
}

static void expand_listed(cudaStream_t stream, const expansion &e, control *result)
{
    const listed_head &h = e.head;
    tg_cuda_positions_read(stream, &e.positions, e.positions_memory, result);
    if (h.listed > 0)
        expand_rans(stream, e.rans);
    LAUNCH(fill_zeros_kernel, blocks_for(e.listed.count / 1024, MOST_BLOCKS), 256, 0, stream, e.listed);
    if (h.listed > 0)
        LAUNCH(put_listed_kernel, blocks_for(h.listed / 256, MOST_BLOCKS), 256, 0, stream, e.listed);
}

template <class SINK> static void read_prefix(cudaStream_t stream, const prefix_reading &p, const SINK &sink)
{
    const u64 chunks = prefix_chunks(packed_bytes(p.count, p.width), PREFIX_LEAST_LOG);
    LAUNCH(prefix_table_kernel, 1, PREFIX_SYMBOLS, 0, stream, p);
    LAUNCH(prefix_read_kernel<SINK>, blocks_for(chunks / (PREFIX_READERS * PREFIX_TOGETHER) + 1, 2 * MOST_BLOCKS),
           32 * PREFIX_READERS, 0, stream, p, sink);
}

template <u32 WIDTH> static void add_prefix(cudaStream_t stream, const prefix_reading &p, const tg_coded_sum *sum)
{
    if (sum->fresh)
        read_prefix(stream, p, prefix_adding<WIDTH, true>{sum->frame, sum->weight, sum->scale, sum->out});
    else
        read_prefix(stream, p, prefix_adding<WIDTH, false>{sum->frame, sum->weight, sum->scale, sum->out});
}

void tg_cuda_add_prefix(cudaStream_t stream, const tg_levels_shape *shape, const u8 *bytes, u64 size,
                        const tg_coded_sum *sum, void *workspace, control *result)
{
    const expansion e = lay_out_expansion(shape, TG_LAYOUT_PREFIX, NULL, bytes, size, NULL, workspace, &result->bad);
    (void)cudaMemsetAsync(workspace, 0, e.zero_bytes, stream);
    if (e.prefix.width == 2)
        add_prefix<2>(stream, e.prefix, sum);
    else if (e.prefix.width == 4)
        add_prefix<4>(stream, e.prefix, sum);
    else
        add_prefix<8>(stream, e.prefix, sum);
}

void tg_cuda_expand_levels(cudaStream_t stream, const tg_levels_shape *shape, unsigned layout, const u8 *host,
                           const u8 *bytes, u64 size, u8 *packed, void *workspace, control *result)
{
    u32 *const bad = &result->bad;
    const expansion e = lay_out_expansion(shape, layout, host, bytes, size, packed, workspace, bad);
    const u32 width = e.prefix.width;
    const bool suits = (layout != TG_LAYOUT_PREFIX || width == 2 || width == 4 || width == 8) &&
                       (layout != TG_LAYOUT_ENTROPY_SPARSE || e.head.sound);
    if (shape->count == 0 ? size > 0 : !suits) {
        LAUNCH(refuse_kernel, 1, 1, 0, stream, bad);
        return;
    }
    if (shape->count == 0)
        return;
    (void)cudaMemsetAsync(workspace, 0, e.zero_bytes, stream);
    switch (layout) {
    case TG_LAYOUT_PREFIX:
        read_prefix(stream, e.prefix, prefix_packing{packed});
        break;
    case TG_LAYOUT_ENTROPY:
        expand_rans(stream, e.rans);
        break;
    case TG_LAYOUT_ENTROPY_SPARSE:
        expand_listed(stream, e, result);
        break;
    default:
        LAUNCH(elias_expand_kernel,
               blocks_for((elias_chunks(shape->count) + ELIAS_READERS - 1) / ELIAS_READERS, 4 * MOST_BLOCKS),
               32 * ELIAS_READERS, 0, stream, e.elias);
    }
}
