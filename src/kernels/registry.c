/* The kernel sets, fastest first. A set that needs certain instructions is listed only where the processor has them. */
#include "kernels/kernels.h"

static bool always(void) { return true; }

#if defined(__x86_64__)
#include <cpuid.h>

static bool has_f16c(void) /* clang's __builtin_cpu_supports does not know it */
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("popcnt") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi2");
}
#endif

static const struct {
    const tg_kernels *kernels;
    bool (*runs_here)(void);
} tables[] = {
#if defined(__x86_64__)
    {&tg_kernels_avx512, has_avx512},
    {&tg_kernels_avx2, has_avx2},
#elif defined(__AARCH64EL__)
    {&tg_kernels_neon, always},
#endif
    {&tg_kernels_scalar, always},
};

const tg_kernels *tg_kernels_at(size_t index)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (tables[i].runs_here() && index-- == 0)
            return tables[i].kernels;
    return NULL;
}

#define ENTRY(kernel)              \
    {                              \
#kernel, k->kernel != NULL \
    }

const char *tg_kernels_missing(const tg_kernels *k)
{
    const struct {
        const char *name;
        bool present;
    } required[] = {ENTRY(widen),
                    ENTRY(narrow),
                    ENTRY(load),
                    ENTRY(store),
                    ENTRY(first_nonfinite),
                    ENTRY(compensate),
                    ENTRY(subtract),
                    ENTRY(add_scaled),
                    ENTRY(set_scaled),
                    ENTRY(max_magnitude),
                    ENTRY(extremes),
                    ENTRY(block_sum),
                    ENTRY(quantise),
                    ENTRY(dequantise),
                    ENTRY(pack),
                    ENTRY(unpack),
                    ENTRY(magnitude_keys),
                    ENTRY(random_keys),
                    ENTRY(key_histogram),
                    ENTRY(count_at_least),
                    ENTRY(copy_nontemporal),
                    ENTRY(nontemporal_fence),
                    ENTRY(digest)};
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++)
        if (!required[i].present)
            return required[i].name;
    /* Fused kernels that are used together. */
    if (k->pack_signs && !k->decode_levels)
        return "decode_levels";
    if (k->collect && !k->keys_below)
        return "keys_below";
    return k->collect && !k->filter ? "filter" : NULL;
}
