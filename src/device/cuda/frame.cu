/* Where the parts of a frame are. */
#include "device/cuda/frame.cuh"

static u64 buckets_of(const dense_frame *f) { return f->count == 0 ? 0 : (f->count - 1) / f->bucket + 1; }

u64 tg_cuda_scale_words(const dense_frame *f)
{
    return f->kind == PLAIN ? 0 : buckets_of(f) * (f->affine ? 2 : 1);
}

static u64 codes_size(const dense_frame *f) { return (tg_packed_size(f->count, f->width) + 3) / 4 * 4; }

u64 tg_cuda_dense_size(const dense_frame *f)
{
    if (f->kind == PLAIN)
        return f->count * tg_dtype_size(f->wire);
    return codes_size(f) + 4 * tg_cuda_scale_words(f);
}

bool tg_cuda_dense_frame(const tg_spec *spec, tg_dtype dtype, u64 count, u8 *payload, dense_frame *f)
{
    enum { NONE, FP16, BF16, QSGD, TERNGRAD, ONEBIT };
    const u64 whole = count > 0 ? count : 1;
    *f = dense_frame{.kind = PLAIN, .wire = dtype, .count = (u32)count, .width = 0, .codes = payload};
    f->bucket = (u32)(spec->bucket == 0 || spec->bucket > whole ? whole : spec->bucket);
    switch (spec->codec) {
    case NONE:
        break;
    case FP16:
        f->wire = TG_FLOAT16;
        break;
    case BF16:
        f->wire = TG_BFLOAT16;
        break;
    case QSGD:
    case TERNGRAD:
        f->kind = LEVELS;
        f->levels = spec->codec == TERNGRAD ? 1 : spec->levels;
        f->affine = spec->codec == QSGD && spec->choices & TG_CHOICE_MINMAX;
        f->width = tg_code_width(f->levels);
        break;
    case ONEBIT:
        f->kind = SIGNS;
        f->width = 1;
        break;
    default:
        return false;
    }
    f->scales = payload + codes_size(f);
    return true;
}
