/* Where the parts of a frame are. */
#include "device/cuda/frame.cuh"

u64 tg_cuda_scale_words(const dense_frame *f) { return f->kind == PLAIN ? 0 : scale_words(*f); }

u64 tg_cuda_dense_size(const dense_frame *f)
{
    if (f->kind == PLAIN)
        return f->count * tg_dtype_size(f->wire);
    return codes_size(*f) + 4 * tg_cuda_scale_words(f);
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
    case TERNGRAD:
        f->kind = LEVELS;
        f->levels = 1;
        break;
    case ONEBIT:
        f->kind = SIGNS;
        break;
    default: /* and the values of a sparsifier */
        if (spec->codec != QSGD && tg_spec_values(spec) != TG_VALUES_LEVELS)
            return false;
        f->kind = LEVELS;
        f->levels = spec->levels;
        f->affine = spec->choices & TG_CHOICE_MINMAX;
    }
    f->width = f->kind == LEVELS ? tg_code_width(f->levels) : f->kind == SIGNS ? 1 : 0;
    f->scales = payload + codes_size(*f);
    return true;
}
