/* Which instructions this processor and its operating system allow.
 *
 * Asked by CPUID directly: the tool chain's __builtin_cpu_supports() always answers no.
 */
#include "strata.h"

#if defined(__x86_64__)
static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t out[4]) {
    __asm__ volatile("cpuid"
                     : "=a"(out[0]), "=b"(out[1]), "=c"(out[2]), "=d"(out[3])
                     : "a"(leaf), "c"(subleaf));
}

/* Register sets that the operating system saves on a thread switch. */
static uint64_t saved_registers(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static int has_bit(uint32_t word, int bit) { return (int)(word >> bit & 1); }

int32_t strata_detect_level(void) {
    uint32_t top[4], one[4], seven[4];
    cpuid(0, 0, top);
    if (top[0] < 7) return STRATA_GENERIC;
    cpuid(1, 0, one);
    cpuid(7, 0, seven);
    if (!has_bit(one[2], 27)) return STRATA_GENERIC; /* OSXSAVE: xgetbv may be used */
    const uint64_t saved = saved_registers();
    const int has_fma = has_bit(one[2], 12), has_f16c = has_bit(one[2], 29), has_avx2 = has_bit(seven[1], 5);
    if ((saved & 0x06) != 0x06 || !has_fma || !has_f16c || !has_avx2) return STRATA_GENERIC;
    const int has_foundation = has_bit(seven[1], 16) && has_bit(seven[1], 17); /* F, DQ */
    const int has_bytes = has_bit(seven[1], 30) && has_bit(seven[1], 31);      /* BW, VL */
    const int has_vnni = has_bit(seven[2], 11);
    if ((saved & 0xe6) != 0xe6 || !has_foundation || !has_bytes || !has_vnni) return STRATA_AVX2;
    return STRATA_AVX512;
}
#else
int32_t strata_detect_level(void) { return STRATA_GENERIC; }
#endif
