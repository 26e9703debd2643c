/* The coded layouts of levels on an emulated card: the same bytes as src/codec, and the same verdict on damaged ones.
 */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "device/cuda/coding.h"

extern "C" {
#include "codec/reader.h"
#include "kernels/kernels.h"
}

typedef std::vector<u8> bytes;

static u64 seed = 88172645463325252ull;
static u64 draw()
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}
static double uniform() { return (double)(draw() >> 11) * 0x1p-53; }

/* How levels are spread. */
enum spread { WIDE, NARROW, ZEROS, CHANGING, TWO_VALUES, ALL_EQUAL, EXTREMES, FEW, ENDING, SPREADS };
static const char *const names[] = {"wide",      "narrow",   "zeros", "changing",  "two values",
                                    "all equal", "extremes", "few",   "at the end"};

static int level_of(spread how, int s, double part)
{
    const double normal = sqrt(-2 * log(uniform() + 1e-300)) * cos(6.283185307179586 * uniform());
    const double sigma = how == NARROW ? 0.4 : how == ZEROS ? 0.12 : how == CHANGING && part < 0.5 ? 0.3 : s / 3.0;
    if (how == ALL_EQUAL)
        return -s;
    if (how == TWO_VALUES)
        return (int)(draw() & 1);
    if (how == EXTREMES)
        return draw() & 1 ? s : -s;
    if (how == FEW)
        return draw() % 500 ? 0 : draw() & 1 ? s : -1;
    if (how == ENDING) /* the last segment of those that are listed is short and full, so it is a bitmap */
        return draw() % 1000 < (part > 0.9962 ? 500 : 58) ? (int)(draw() % (u64)s) + 1 : 0;
    const long q = lrint(normal * sigma);
    return (int)(q > s ? s : q < -s ? -s : q);
}

struct example {
    u64 count;
    u32 levels;
    tg_coding coding;
    spread how;
};

static tg_levels_shape shape_of(const example &e)
{
    return tg_levels_shape{.count = e.count,
                           .levels = e.levels,
                           .bucket = 512,
                           .clip = 0,
                           .max_norm = true,
                           .affine = false,
                           .coding = e.coding};
}

static const tg_kernels *scalar()
{
    for (size_t i = 0; tg_kernels_at(i); i++)
        if (strcmp(tg_kernels_at(i)->name, "cpu/scalar") == 0)
            return tg_kernels_at(i);
    abort();
}

/* Scales are such that values are the levels themselves. */
static bytes scales_of(const tg_levels_shape &shape)
{
    bytes scales;
    const float one = (float)shape.levels;
    for (u64 b = tg_bucket_count(shape.count, shape.bucket); b > 0; b--)
        scales.insert(scales.end(), (const u8 *)&one, (const u8 *)&one + 4);
    return scales;
}

static bytes packed_codes(const example &e, const tg_levels_shape &shape)
{
    const u32 width = tg_code_width(e.levels);
    bytes packed(tg_levels_code_workspace(&shape) + 64);
    std::vector<uint16_t> codes(e.count);
    for (u64 i = 0; i < e.count; i++)
        codes[i] = (uint16_t)(level_of(e.how, (int)e.levels, (double)i / (double)e.count) + (int)e.levels);
    scalar()->pack(codes.data(), e.count, width, packed.data());
    return packed;
}

static bytes encode_on_cpu(const tg_levels_shape &shape, bytes packed, unsigned *layout)
{
    bytes payload = scales_of(shape);
    payload.resize(tg_levels_bound(&shape) + 64);
    tg_job job = {};
    job.kernels = scalar();
    job.payload = payload.data();
    const u8 *end = tg_levels_code(&job, &shape, packed.data());
    *layout = job.layout;
    payload.resize((size_t)(end - payload.data()));
    return payload;
}

/* Memory of the card with a copy of host bytes. */
struct on_card {
    u8 *at = NULL;
    explicit on_card(size_t size) { (void)cudaMalloc(&at, size + 256); }
    explicit on_card(const bytes &from) : on_card(from.size())
    {
        (void)cudaMemcpyAsync(at, from.data(), from.size(), cudaMemcpyHostToDevice, NULL);
    }
    on_card(const on_card &) = delete;
    ~on_card() { (void)cudaFree(at); }
    void read(void *to, size_t size) const
    {
        (void)cudaMemcpyAsync(to, at, size, cudaMemcpyDeviceToHost, NULL);
        (void)cudaStreamSynchronize(NULL);
    }
};

/* `more`: the host only knows that there are at most so many levels more, and scales are put to the payload here. */
static bytes encode_on_card(const tg_levels_shape &exact, const bytes &packed_host, u64 more, tg_coded *coded)
{
    tg_levels_shape shape = exact;
    shape.count += more;
    const size_t size = (size_t)tg_packed_size(exact.count, tg_code_width(shape.levels));
    const bytes count((const u8 *)&exact.count, (const u8 *)&exact.count + 4), scales = scales_of(exact);
    const on_card packed(bytes(packed_host.begin(), packed_host.begin() + (long)size)), known(count);
    const on_card workspace(tg_cuda_coding_workspace(&shape)), result(sizeof *coded), told(sizeof(control));
    bytes payload = more ? bytes() : scales;
    payload.resize(tg_levels_bound(&shape) + 64);
    const on_card out(payload);
    tg_cuda_code_levels(NULL, &shape, more ? (const u32 *)(const void *)known.at : NULL, packed.at, workspace.at,
                        out.at, (tg_coded *)(void *)result.at, (control *)(void *)told.at);
    result.read(coded, sizeof *coded);
    payload.resize(coded->size);
    out.read(payload.data(), payload.size());
    if (more)
        payload.insert(coded->layout == TG_LAYOUT_PACKED ? payload.end() : payload.begin(), scales.begin(),
                       scales.end());
    return payload;
}

static bool decode_on_cpu(const tg_levels_shape &shape, unsigned layout, const bytes &payload, std::vector<float> &to)
{
    tg_levels_reader r;
    bool walk;
    if (!tg_levels_open(&r, scalar(), &shape, layout, payload.data(), payload.size(), &walk))
        return false;
    for (u64 at = 0; at < shape.count; at += TG_BLOCK)
        if (!tg_levels_read(&r, tg_block_size(shape.count, at), to.data() + at))
            return false;
    return tg_levels_done(&r);
}

static bool decode_on_card(const tg_levels_shape &shape, unsigned layout, const bytes &payload, std::vector<float> &to)
{
    const u32 width = tg_code_width(shape.levels);
    const size_t scales = 4 * (size_t)tg_bucket_count(shape.count, shape.bucket);
    bytes packed((size_t)tg_packed_size(shape.count, width));
    const on_card in(payload), out(packed.size()),
        workspace(tg_cuda_expand_workspace(&shape, layout, payload.data() + scales, payload.size() - scales));
    const on_card result((bytes(sizeof(control))));
    tg_cuda_expand_levels(NULL, &shape, layout, payload.data() + scales, in.at + scales, payload.size() - scales,
                          out.at, workspace.at, (control *)(void *)result.at);
    control seen;
    result.read(&seen, sizeof seen);
    out.read(packed.data(), packed.size());
    std::vector<uint16_t> codes(shape.count);
    scalar()->unpack(packed.data(), shape.count, width, codes.data());
    for (u64 i = 0; i < shape.count; i++)
        to[i] = (float)((int)(codes[i] < 2 * shape.levels ? codes[i] : 2 * shape.levels) - (int)shape.levels);
    return seen.bad == 0;
}

/* A byte changed, cut off or added, anywhere behind the scales. */
static bytes damaged(const bytes &payload, size_t scales, u64 kind)
{
    bytes other = payload;
    const size_t coded = payload.size() - scales, near = coded < 700 ? coded : 700;
    if (kind == 1)
        other.pop_back();
    else if (kind == 2)
        other.push_back(0);
    else if (kind == 3)
        other.resize(scales + draw() % (near + 1));
    else if (kind > 3)
        other[scales + draw() % (kind % 2 ? near : coded)] ^= (u8)(1u << draw() % 8);
    return other;
}

static bool decodes_alike(const tg_levels_shape &shape, unsigned layout, const bytes &payload, unsigned kind)
{
    const size_t scales = 4 * (size_t)tg_bucket_count(shape.count, shape.bucket);
    std::vector<float> want(shape.count), got(shape.count);
    const bytes other = damaged(payload, scales, kind);
    const bool sound = decode_on_cpu(shape, layout, other, want), on_card = decode_on_card(shape, layout, other, got);
    if (sound == on_card && (!sound || memcmp(want.data(), got.data(), want.size() * sizeof(float)) == 0))
        return true;
    printf("FAIL damage %u: the CPU has %s, the card %s\n", kind, sound ? "accepted" : "refused",
           on_card ? "accepted" : "refused");
    return false;
}

/* Whether an example's bytes are the CPU's, and its damaged ones are read alike. */
static bool holds(const example &e, unsigned tries)
{
    static const char *const codings[] = {"packed", "elias", "entropy", "auto"};
    const tg_levels_shape shape = shape_of(e);
    const bytes packed = packed_codes(e, shape);
    unsigned layout;
    tg_coded coded;
    const bytes want = encode_on_cpu(shape, packed, &layout);
    bool same = true;
    for (u64 more : {0, 1, 3000, 300000}) { /* 0: the host knows how many levels there are */
        if (more > 10 * e.count + 1)
            continue;
        const bytes got = encode_on_card(shape, packed, more, &coded);
        if (want == got && layout == coded.layout)
            continue;
        same = false;
        printf("FAIL layout %u and %zu bytes on the card, which knows %llu, %u and %zu on the CPU\n", coded.layout,
               got.size(), more, layout, want.size());
    }
    for (unsigned kind = 0; layout != TG_LAYOUT_PACKED && e.count > 0 && kind < tries; kind++)
        same = decodes_alike(shape, layout, want, kind) && same;
    if (!same)
        printf("  %llu elements, %u levels, coding=%s, levels %s\n", e.count, e.levels, codings[e.coding],
               names[e.how]);
    return same;
}

int main()
{
    static const u32 levels[] = {1, 2, 4, 7, 12, 15, 64, 127, 128, 300, 32767};
    static const u64 counts[] = {0, 1, 5, 31, 32, 33, 511, 512, 513, 8192, 8193, 20011};
    static const tg_coding codings[] = {TG_CODING_ELIAS, TG_CODING_ENTROPY, TG_CODING_AUTO};
    unsigned passed = 0, failed = 0, at = 0;
    const auto count_up = [&](bool same) { (same ? passed : failed)++; };
    for (u64 count : counts)
        for (u32 s : levels)
            for (tg_coding coding : codings)
                count_up(holds({count, s, coding, (spread)(at++ % SPREADS)}, 8));
    static const example long_ones[] = {
        {262144, 7, TG_CODING_ENTROPY, WIDE},        {262221, 7, TG_CODING_ENTROPY, NARROW},
        {262655, 127, TG_CODING_ENTROPY, WIDE},      {300001, 1, TG_CODING_ENTROPY, NARROW},
        {2097155, 1, TG_CODING_ENTROPY, NARROW},     {1060921, 7, TG_CODING_ENTROPY, WIDE},
        {1060921, 5, TG_CODING_AUTO, WIDE},          {1060921, 7, TG_CODING_ENTROPY, CHANGING},
        {1060921, 127, TG_CODING_ENTROPY, CHANGING}, {1060921, 127, TG_CODING_ENTROPY, TWO_VALUES},
        {274489, 64, TG_CODING_AUTO, TWO_VALUES},    {270011, 3, TG_CODING_ENTROPY, WIDE},
        {270011, 12, TG_CODING_AUTO, CHANGING},      {270011, 300, TG_CODING_ENTROPY, NARROW},
        {150000, 7, TG_CODING_AUTO, EXTREMES},       {150000, 31, TG_CODING_ENTROPY, WIDE},
        {300001, 7, TG_CODING_ENTROPY, ALL_EQUAL},   {600001, 5, TG_CODING_ENTROPY, ALL_EQUAL},
        {131572, 300, TG_CODING_ENTROPY, ENDING},
    };
    for (const example &e : long_ones)
        count_up(holds(e, 10));
    printf("%u passed, %u failed, 0 skipped\n", passed, failed);
    return failed > 0;
}
