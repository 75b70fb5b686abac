/* A convolution with packed weights. The windows of three output pixels are widened to pairs; then
   they are multiplied with two channels at a time. */
struct tl_packed_convolution {
    int32_t images;
    struct tl_image from, to;
    struct tl_window down, across;
    /* Units of four values: of a row of a window, and of a window. */
    int32_t row_units, units;
    /* Whether windows are single pixels, in the order of the output. */
    int32_t is_point;
    /* Added to the input, and to the results. */
    int32_t offset, zero;
    /* Bias, multiplier and shift of each channel. */
    const int32_t *channels;
    /* For two channels, words of two pairs: even bytes are of the first, odd ones of the second. */
    const uint32_t *weights;
};

enum { TL_PIXELS = 3 };

static void tl_clear(uint32_t *wide, int32_t units)
{
    for (; units > 0; units--, wide += 2 * TL_PIXELS)
        wide[0] = wide[TL_PIXELS] = 0;
}

/* Widens the window of an output pixel. `end` is that of the input. */
static void tl_gather(const struct tl_packed_convolution *c, const int8_t *input, const int8_t *end,
                      int32_t row, int32_t column, uint32_t *wide, int8_t *window)
{
    struct tl_taps down = tl_taps_of(&c->down, row, c->from.rows);
    struct tl_taps across = tl_taps_of(&c->across, column, c->from.columns);
    uint32_t offset = (uint32_t)(c->offset & 0xffff) * 0x10001u;
    int32_t channels = c->from.channels, step = c->from.columns * channels;
    int32_t rows = across.count == 0 ? 0 : down.count, unit = 2 * TL_PIXELS, y;
    int32_t above = down.first * c->row_units, length = across.count * channels;
    const int8_t *values = input + (down.start * c->from.columns + across.start) * channels;
    /* Units reach beyond the end of a row, where weights are zero, but not beyond the input. */
    if (rows > 0 && across.count == c->across.kernel
        && (rows - 1) * step + 4 * c->row_units <= end - values) {
        tl_clear(wide, above);
        wide += above * unit;
        for (y = 0; y < rows; y++, values += step, wide += c->row_units * unit)
            tl_widen(values, c->row_units, offset, wide, TL_PIXELS);
        tl_clear(wide, c->units - above - rows * c->row_units);
    } else if (channels % 4 == 0) {
        tl_clear(wide, c->units);
        wide += (above + across.first * channels / 4) * unit;
        for (y = 0; y < rows; y++, values += step, wide += c->row_units * unit)
            tl_widen(values, length / 4, offset, wide, TL_PIXELS);
    } else {
        memset(window, -c->offset, (size_t)(4 * c->units));
        for (y = 0; y < rows; y++, values += step)
            memcpy(window + 4 * (above + y * c->row_units) + across.first * channels, values,
                   (size_t)length);
        tl_widen(window, c->units, offset, wide, TL_PIXELS);
    }
}

/* Adds the products of three pixels and of two channels. */
static TL_APART void tl_six_sums(const uint32_t *values, const uint32_t *weights,
                                 const uint32_t *end, int32_t sums[6])
{
    int32_t a = sums[0], b = sums[1], c = sums[2], d = sums[3], e = sums[4], f = sums[5];
    do {
        int32_t even, odd;
        uint32_t word;
        word = weights[0];
        even = tl_even(word);
        odd = tl_odd(word);
        a = tl_add_pairs((int32_t)values[0], even, a);
        b = tl_add_pairs((int32_t)values[0], odd, b);
        c = tl_add_pairs((int32_t)values[1], even, c);
        d = tl_add_pairs((int32_t)values[1], odd, d);
        e = tl_add_pairs((int32_t)values[2], even, e);
        f = tl_add_pairs((int32_t)values[2], odd, f);
        word = weights[1];
        even = tl_even(word);
        odd = tl_odd(word);
        a = tl_add_pairs((int32_t)values[3], even, a);
        b = tl_add_pairs((int32_t)values[3], odd, b);
        c = tl_add_pairs((int32_t)values[4], even, c);
        d = tl_add_pairs((int32_t)values[4], odd, d);
        e = tl_add_pairs((int32_t)values[5], even, e);
        f = tl_add_pairs((int32_t)values[5], odd, f);
        weights += 2;
        values += 2 * TL_PIXELS;
    } while (weights != end);
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
    sums[4] = e;
    sums[5] = f;
}

/* All channels of up to three pixels. The results of missing pixels are overwritten. */
static void tl_multiply_packed(const struct tl_packed_convolution *c, const uint32_t *wide,
                               int32_t pixels, int8_t *out)
{
    const uint32_t *weights = c->weights;
    const int32_t *channels = c->channels, *end = channels + 3 * c->to.channels;
    int8_t *second = out + (pixels > 1 ? c->to.channels : 0);
    int8_t *third = pixels > 2 ? second + c->to.channels : second;
    for (; channels != end; channels += 6) {
        int32_t sums[6], multiplier = channels[1], shift = channels[2], rounding;
        sums[0] = sums[2] = sums[4] = channels[0];
        sums[1] = sums[3] = sums[5] = channels[3];
        tl_six_sums(wide, weights, weights + 2 * c->units, sums);
        weights += 2 * c->units;
        rounding = tl_rounding(c->zero, shift);
        *third++ = (int8_t)tl_requantized(sums[4], multiplier, shift, rounding);
        *second++ = (int8_t)tl_requantized(sums[2], multiplier, shift, rounding);
        *out++ = (int8_t)tl_requantized(sums[0], multiplier, shift, rounding);
        multiplier = channels[4];
        shift = channels[5];
        rounding = tl_rounding(c->zero, shift);
        *third++ = (int8_t)tl_requantized(sums[5], multiplier, shift, rounding);
        *second++ = (int8_t)tl_requantized(sums[3], multiplier, shift, rounding);
        *out++ = (int8_t)tl_requantized(sums[1], multiplier, shift, rounding);
    }
}

static void tl_convolve_packed(const struct tl_packed_convolution *c, const int8_t *input,
                               int8_t *out, uint32_t *wide)
{
    int32_t size = c->from.rows * c->from.columns * c->from.channels;
    int32_t left = c->images * c->to.rows * c->to.columns, row = 0, column = 0, index;
    const int8_t *end = input + c->images * size;
    uint32_t offset = (uint32_t)(c->offset & 0xffff) * 0x10001u;
    while (left > 0) {
        int32_t pixels = left < TL_PIXELS ? left : TL_PIXELS;
        for (index = 0; index < pixels; index++) {
            if (c->is_point) {
                tl_widen(input, c->units, offset, wide + index, TL_PIXELS);
                input += c->from.channels;
                continue;
            }
            tl_gather(c, input, end, row, column, wide + index,
                      (int8_t *)(wide + 2 * TL_PIXELS * c->units));
            if (++column == c->to.columns) {
                column = 0;
                if (++row == c->to.rows) {
                    row = 0;
                    input += size;
                }
            }
        }
        tl_multiply_packed(c, wide, pixels, out);
        out += pixels * c->to.channels;
        left -= pixels;
    }
}
