/* A sum of tensors whose scales fit the short requantization; the scale of the first is a half. */
struct tl_packed_addition {
    /* Added to the operands. */
    int32_t zeros[2];
    /* Of the second operand, and of the sum. */
    int32_t multiplier, shift, result_multiplier, result_shift;
    int32_t zero;
};

static void tl_add_packed(const struct tl_packed_addition *s, const int8_t *a, const int8_t *b,
                          int8_t *out, int32_t count)
{
    int32_t rounding = tl_rounding(s->zero, s->result_shift), at;
    for (at = 0; at < count; at++) {
        int32_t first = (a[at] + s->zeros[0]) * (1 << 19);
        int32_t second = (b[at] + s->zeros[1]) * (1 << 20);
        int64_t product = (int64_t)(2 * second) * s->multiplier + ((int64_t)1 << 31);
        second = (int32_t)(product >> 32) + (second >> 31) + (1 << s->shift);
        out[at] = (int8_t)tl_requantized(first + (second >> s->shift >> 1), s->result_multiplier,
                                         s->result_shift, rounding);
    }
}
