/* Laws of a reducer's memory: what it reserves under `shard` hardly grows with the number of ranks. */
#include "ranks.h"
#include "reduce/reducer.h"

/* Bytes that a reducer for one tensor reserves; nothing is touched. */
static uint64_t reserved(const char *codec, uint32_t world)
{
    const uint64_t count = 25600000;
    tg_device *device = open_device("cpu/scalar");
    tg_reducer_tensor tensor = {.name = "x", .count = count};
    const tg_reducer_options options = {.algorithm = TG_SHARD};
    tg_reducer *reducer = NULL;
    tg_error error;
    expect(tg_spec_parse(codec, &tensor.codec, &error) == TG_OK, "%s", error.message);
    expect(tg_reducer_create(device, world / 2, world, &tensor, 1, &options, &reducer, &error) == TG_OK, "%s",
           error.message);
    const uint64_t bytes = reducer ? reducer->arena.bytes : 0;
    tg_reducer_free(reducer);
    tg_device_free(device);
    return bytes;
}

/* Frames go out, come in as parts and come in as results: about three times their bytes, plus the sums in float32
 * and in 16 bits. With the world grow only headers, and room for every rank's greeting (64 KiB each). */
static void hardly_grows(const char *codec, uint32_t world, uint64_t most)
{
    const uint64_t bytes = reserved(codec, world);
    expect(bytes <= most, "%.2f GB are reserved, more than %.2f GB", (double)bytes / 1e9, (double)most / 1e9);
    check_all("shard, world %u, %s: memory does not grow with the square of the world", world, codec);
}

int main(int argc, char **argv)
{
    (void)wants_all(argc, argv);
    hardly_grows("qsgd:levels=7,bucket=512", 4, 100000000);
    hardly_grows("qsgd:levels=7,bucket=512", 256, 100000000);
    hardly_grows("qsgd:levels=7,bucket=512", 1024, 150000000);
    hardly_grows("qsgd:levels=7,bucket=512", 10000, 1000000000);
    return finish();
}
