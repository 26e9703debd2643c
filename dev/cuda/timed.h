/* Times every kernel of the module. Compile all of it with `-include dev/cuda/timed.h`; when the program ends, it
 * prints for each kernel how often it ran, and the least and the mean of its microseconds. Each launch is waited for,
 * so the program as a whole is slower than it is. */
#ifndef DEV_CUDA_TIMED_H
#define DEV_CUDA_TIMED_H

#include <cuda_runtime.h>

#include <algorithm>
#include <stdio.h>
#include <map>
#include <string>

struct kernel_times {
    struct row {
        unsigned long count = 0;
        double sum = 0, least = 1e9;
    };
    std::map<std::string, row> rows;
    cudaEvent_t from = nullptr, to = nullptr;
    void start(cudaStream_t stream)
    {
        if (!from) {
            cudaEventCreate(&from);
            cudaEventCreate(&to);
        }
        cudaEventRecord(from, stream);
    }
    void stop(const char *name, unsigned grid, cudaStream_t stream)
    {
        float ms = 0;
        cudaEventRecord(to, stream);
        cudaEventSynchronize(to);
        cudaEventElapsedTime(&ms, from, to);
        char key[160];
        snprintf(key, sizeof key, "%-60s %8u", name, grid);
        row &r = rows[key];
        r.count++;
        r.sum += 1000 * ms;
        r.least = std::min(r.least, 1000.0 * ms);
    }
    ~kernel_times()
    {
        for (const auto &[name, r] : rows) /* not to stdout, which a program may have closed */
            dprintf(2, "kernel %-70s %6lu  %8.1f %8.1f\n", name.c_str(), r.count, r.least, r.sum / r.count);
    }
};
inline kernel_times timed_kernels;

#define LAUNCH(kernel, grid, block, shared, stream, ...)       \
    do {                                                       \
        timed_kernels.start(stream);                           \
        kernel<<<grid, block, shared, stream>>>(__VA_ARGS__);  \
        timed_kernels.stop(#kernel, (unsigned)(grid), stream); \
    } while (0)
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) char name[]

#endif
