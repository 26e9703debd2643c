/* main() for a fuzz target without libFuzzer: runs it over the files that are named. */
#include "tests/fuzz/fuzz.h"

int main(int count, char **names)
{
    for (int i = 1; i < count; i++) {
        printf("%s\n", names[i]); /* first, so that a crash leaves the name of its file */
        fflush(stdout);
        FILE *file = fopen(names[i], "rb");
        REQUIRE(file, "cannot open %s", names[i]);
        REQUIRE(fseek(file, 0, SEEK_END) == 0, "cannot seek in %s", names[i]);
        size_t size = (size_t)ftell(file);
        rewind(file);
        uint8_t *bytes = exact_buffer(size, 0);
        REQUIRE(fread(bytes, 1, size, file) == size, "cannot read %s", names[i]);
        fclose(file);
        LLVMFuzzerTestOneInput(bytes, size);
        free(bytes);
    }
    printf("%d passed, 0 failed, 0 skipped\n", count - 1);
    return 0;
}
