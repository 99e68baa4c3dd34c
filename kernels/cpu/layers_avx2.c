/* Kernels of layers.h for x86-64 with AVX2, FMA and F16C. */
#if defined(__x86_64__)
#include <immintrin.h>

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)

#define STRATA_FMA(a, b, c) __builtin_elementwise_fma(a, b, c)
#include "layers.h"

const strata_layer_kernels strata_layer_kernels_avx2 = STRATA_LAYER_KERNELS;
#pragma clang attribute pop
#endif
