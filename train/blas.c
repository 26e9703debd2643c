/* See blas.h. The library is opened by name rather than linked: other subcommands then start without its 30 MB, and the
 * command runs where it is not installed. Its prototypes are CBLAS's. */
#define _DEFAULT_SOURCE /* setenv */
#include "blas.h"

#include <stdlib.h>
#include <string.h>

#ifdef TRAIN_HAS_DLOPEN
#include <dlfcn.h>

enum { ROW_MAJOR = 101, AS_IT_IS = 111, TURNED = 112 };
typedef void sgemm_function(int order, int turn_a, int turn_b, int m, int n, int k, float alpha, const float *a,
                            int lda, const float *b, int ldb, float beta, float *c, int ldc);
typedef void sgemv_function(int order, int turn, int m, int n, float alpha, const float *a, int lda, const float *x,
                            int step_x, float beta, float *y, int step_y);

static sgemm_function *sgemm;
static sgemv_function *sgemv;

/* dlsym gives an object pointer, which C does not convert to a function pointer, and POSIX does. */
static bool find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

void blas_open(bool plain)
{
    sgemm = NULL;
    if (plain)
        return;
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    /* Before it is loaded, so that it starts no threads that would not be used. */
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    for (size_t i = 0; i < sizeof names / sizeof *names && !sgemm; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        void (*set_threads)(int);
        if (!library || !find(library, "cblas_sgemv", &sgemv) ||
            !find(library, "openblas_set_num_threads", &set_threads) || !find(library, "cblas_sgemm", &sgemm)) {
            sgemm = NULL;
            continue;
        }
        set_threads(1);
    }
}

const char *blas_name(void) { return sgemm ? "openblas" : "plain"; }

static bool multiply_fast(bool turn_a, bool turn_b, size_t m, size_t n, size_t k, const float *a, const float *b,
                          float beta, float *c)
{
    if (!sgemm)
        return false;
    int rows = (int)m, columns = (int)n, inner = (int)k;
    /* A product with a vector is bound by memory, and has a routine of its own. */
    if (columns == 1 && turn_a)
        sgemv(ROW_MAJOR, TURNED, inner, rows, 1, a, rows, b, 1, beta, c, 1);
    else if (columns == 1)
        sgemv(ROW_MAJOR, AS_IT_IS, rows, inner, 1, a, inner, b, 1, beta, c, 1);
    else if (rows == 1 && turn_b)
        sgemv(ROW_MAJOR, AS_IT_IS, columns, inner, 1, b, inner, a, 1, beta, c, 1);
    else if (rows == 1)
        sgemv(ROW_MAJOR, TURNED, inner, columns, 1, b, columns, a, 1, beta, c, 1);
    else
        sgemm(ROW_MAJOR, turn_a ? TURNED : AS_IT_IS, turn_b ? TURNED : AS_IT_IS, rows, columns, inner, 1, a,
              turn_a ? rows : inner, b, turn_b ? inner : columns, beta, c, columns);
    return true;
}

#else

void blas_open(bool plain) { (void)plain; }

const char *blas_name(void) { return "plain"; }

static bool multiply_fast(bool turn_a, bool turn_b, size_t m, size_t n, size_t k, const float *a, const float *b,
                          float beta, float *c)
{
    (void)turn_a, (void)turn_b, (void)m, (void)n, (void)k, (void)a, (void)b, (void)beta, (void)c;
    return false;
}

#endif

void multiply(bool turn_a, bool turn_b, size_t m, size_t n, size_t k, const float *a, const float *b, bool add,
              float *c)
{
    if (m == 0 || n == 0)
        return;
    if (multiply_fast(turn_a, turn_b, m, n, k, a, b, add ? 1 : 0, c))
        return;
    if (!add)
        memset(c, 0, m * n * sizeof *c);
    if (turn_b) { /* rows of A with rows of B */
        for (size_t i = 0; i < m; i++) {
            for (size_t j = 0; j < n; j++) {
                float sums[8] = {0}, sum = 0;
                size_t at = 0;
                if (!turn_a)
                    for (; at + 8 <= k; at += 8)
                        for (size_t lane = 0; lane < 8; lane++)
                            sums[lane] += a[i * k + at + lane] * b[j * k + at + lane];
                for (; at < k; at++)
                    sum += a[turn_a ? at * m + i : i * k + at] * b[j * k + at];
                for (size_t lane = 0; lane < 8; lane++)
                    sum += sums[lane];
                c[i * n + j] += sum;
            }
        }
        return;
    }
    for (size_t i = 0; i < m; i++) { /* multiples of B's rows, which vectorise */
        for (size_t at = 0; at < k; at++) {
            const float factor = a[turn_a ? at * m + i : i * k + at];
            const float *row = b + at * n;
            for (size_t j = 0; j < n; j++)
                c[i * n + j] += factor * row[j];
        }
    }
}
