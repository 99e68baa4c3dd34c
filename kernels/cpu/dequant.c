/* Weights to float32 outside of a tape, and the shape of activation codes for callers. */
#include "internal.h"

int32_t strata_dequantize(int32_t quant, const void *blocks, float *y, int64_t n_values) {
    if (quant < 0 || quant >= STRATA_N_QUANTS || !strata_kernels_generic.dequantize[quant]) return -1;
    strata_kernels_generic.dequantize[quant](blocks, y, n_values);
    return 0;
}

int64_t strata_code_values(int64_t n_cols) { return strata_code_stride(n_cols); }

int64_t strata_code_floats(int64_t n_cols) { return strata_scale_stride(n_cols); }
