/* Which kernel tables there are. A table that needs an instruction set is listed only where the machine has it. */
#include "kernels/kernels.h"

const tg_kernels *tg_kernels_at(size_t index)
{
    static const tg_kernels *const tables[] = {&tg_kernels_scalar};
    return index < sizeof tables / sizeof tables[0] ? tables[index] : NULL;
}
