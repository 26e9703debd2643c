/* Writes a vector that looks like the gradient of a small network: usage: gradient COUNT OUT.npy
 *
 * Layers differ in scale by orders of magnitude, values within a layer have heavier tails than a Gaussian, and a part,
 * like the rows of an embedding that a batch did not touch, is exactly zero. For tests that
 * need no more than plausible data. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 20260101;

/* splitmix64, as a number in (0, 1). */
static double uniform(void)
{
    uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return ((double)(z >> 11) + 0.5) * 0x1p-53;
}

static double normal(void) { return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()); }

struct layer {
    double share;   /* of all elements */
    double scale;   /* of its values */
    double tail;    /* how much the scale itself varies: 0 is a Gaussian */
    double touched; /* share of its rows of 64 that are not zero */
};

static const struct layer layers[] = {
    {0.02, 3e-2, 0.6, 1.0}, /* first convolution */
    {0.38, 4e-3, 0.8, 1.0}, /* convolutions */
    {0.25, 8e-4, 1.0, 1.0}, /* fully connected */
    {0.30, 2e-3, 0.5, 0.1}, /* embedding */
    {0.05, 2e-2, 0.3, 1.0}, /* last layer, biases */
};

static void put_float(uint8_t *at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(bits >> (8 * i));
}

static void fill(uint8_t *data, size_t count)
{
    size_t at = 0;
    for (size_t l = 0; l < sizeof layers / sizeof *layers; l++) {
        const struct layer *layer = &layers[l];
        const size_t rest = count - at, size = (size_t)(layer->share * (double)count);
        const size_t end = at + (l + 1 == sizeof layers / sizeof *layers || size > rest ? rest : size);
        int is_touched = 1;
        for (; at < end; at++) {
            if (at % 64 == 0)
                is_touched = uniform() < layer->touched;
            const double value = normal() * layer->scale * exp(layer->tail * normal());
            put_float(data + 4 * at, is_touched ? (float)value : 0.0f);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: gradient COUNT OUT.npy\n");
        return 2;
    }
    const size_t count = strtoul(argv[1], NULL, 10);
    char header[128];
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    const int length = snprintf(header + 10, sizeof header - 10,
                                "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu,), }", count);
    memset(header + 10 + length, ' ', sizeof header - 10 - (size_t)length);
    header[sizeof header - 1] = '\n';

    uint8_t *data = malloc(4 * count + 1);
    FILE *file = fopen(argv[2], "wb");
    if (!data || !file) {
        perror(argv[2]);
        return 1;
    }
    fill(data, count);
    const int is_done = fwrite(header, 1, sizeof header, file) == sizeof header &&
                        fwrite(data, 4, count, file) == count;
    free(data);
    return fclose(file) != 0 || !is_done;
}
