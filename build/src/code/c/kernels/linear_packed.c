/* A linear layer of one row with packed weights, four features at a time. */
struct tl_packed_linear {
    int32_t depth, features, offset, zero, multiplier, shift;
    const int32_t *bias;
    /* As for convolutions. */
    const uint32_t *weights;
};

/* Adds the products of a row and of the weights of four features. */
static TL_APART void tl_four_features(const uint32_t *wide, const uint32_t *end,
                                      const uint32_t *first, const uint32_t *second,
                                      int32_t sums[4])
{
    int32_t p = sums[0], q = sums[1], r = sums[2], s = sums[3];
    for (; wide != end; wide += 2, first += 2, second += 2) {
        int32_t values = (int32_t)wide[0], more = (int32_t)wide[1];
        uint32_t word = first[0], next = first[1];
        p = tl_add_pairs(values, tl_even(word), p);
        q = tl_add_pairs(values, tl_odd(word), q);
        p = tl_add_pairs(more, tl_even(next), p);
        q = tl_add_pairs(more, tl_odd(next), q);
        word = second[0];
        next = second[1];
        r = tl_add_pairs(values, tl_even(word), r);
        s = tl_add_pairs(values, tl_odd(word), s);
        r = tl_add_pairs(more, tl_even(next), r);
        s = tl_add_pairs(more, tl_odd(next), s);
    }
    sums[0] = p;
    sums[1] = q;
    sums[2] = r;
    sums[3] = s;
}

static void tl_linear_packed(const struct tl_packed_linear *c, const int8_t *input, int8_t *out,
                             uint32_t *wide)
{
    uint32_t offset = (uint32_t)(c->offset & 0xffff) * 0x10001u;
    int32_t whole = c->depth / 4, rest = c->depth % 4, step = 2 * (whole + (rest != 0));
    int32_t rounding = tl_rounding(c->zero, c->shift), feature, at;
    const uint32_t *first = c->weights;
    tl_widen(input, whole, offset, wide, 1);
    if (rest != 0) {
        /* Weights of missing values are zero. */
        int8_t last[4] = {0, 0, 0, 0};
        memcpy(last, input + 4 * whole, (size_t)rest);
        tl_widen(last, 1, offset, wide + 2 * whole, 1);
    }
    for (feature = 0; feature < c->features; feature += 4) {
        int32_t left = c->features - feature, count = left < 4 ? left : 4;
        const uint32_t *second = count > 2 ? first + step : first;
        int32_t sums[4] = {0, 0, 0, 0};
        for (at = 0; at < count; at++)
            sums[at] = c->bias[feature + at];
        tl_four_features(wide, wide + step, first, second, sums);
        for (at = 0; at < count; at++)
            *out++ = (int8_t)tl_requantized(sums[at], c->multiplier, c->shift, rounding);
        first += 2 * step;
    }
}
