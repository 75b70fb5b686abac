/* Requantizes a sum: multiplies with 31 fractional bits, shifts to the right by `shift` and one, and
   rounds to the nearest, ties away from zero. `rounding` is the offset of the results and a half,
   shifted to the left by `shift` and one. The generator checked that nothing overflows. */
static int32_t tl_requantized(int32_t sum, int32_t multiplier, int32_t shift, int32_t rounding)
{
    int64_t start = (int64_t)(rounding + (sum >> 31)) * ((int64_t)1 << 32) + ((int64_t)1 << 31);
    int64_t product = (int64_t)(int32_t)((uint32_t)sum * 2) * multiplier;
    int32_t value = (int32_t)((start + product) >> 32) >> shift >> 1;
#if defined(TL_DSP) && defined(__ARM_FEATURE_SAT)
    return __ssat(value, 8);
#else
    return value < -128 ? -128 : value > 127 ? 127 : value;
#endif
}

static int32_t tl_rounding(int32_t zero, int32_t shift)
{
    return (2 * zero + 1) * ((int32_t)1 << shift);
}
