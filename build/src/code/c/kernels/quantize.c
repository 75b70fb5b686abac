struct tl_quantization {
    /* Reciprocal of the scale, zero point and bounds of the results. */
    float inverse, zero, low, high;
};

static void tl_quantize(const struct tl_quantization *q, const float *input, int8_t *out,
                        int32_t count)
{
    /* Adding it leaves no bits for fractions, so the sum is rounded to an integer, ties to even.
       The low bits of the sum are that integer. */
    const float rounding = 12582912.0f;
    const float low = q->low - q->zero, high = q->high - q->zero;
    int32_t at;
    for (at = 0; at < count; at++) {
        float value = input[at] * q->inverse;
        float rounded = (value < low ? low : value > high ? high : value) + rounding;
        uint32_t bits;
        memcpy(&bits, &rounded, sizeof bits);
        bits += (uint32_t)(int32_t)q->zero;
        /* NaN becomes zero. */
        out[at] = value != value ? 0 : (int8_t)((int32_t)(bits & 0xff) - (int32_t)(bits & 0x80) * 2);
    }
}
