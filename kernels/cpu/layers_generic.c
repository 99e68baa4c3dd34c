/* Kernels of layers.h for any processor. */
#define STRATA_FMA(a, b, c) ((a) * (b) + (c))
#include "layers.h"

const strata_layer_kernels strata_layer_kernels_generic = STRATA_LAYER_KERNELS;
