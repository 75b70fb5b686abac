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

/* All channels of up to three pixels. The results of missing pixels are overwritten. */
static void tl_multiply_packed(const struct tl_packed_convolution *c, const uint32_t *wide,
                               int32_t pixels, int8_t *out)
{
    const uint32_t *weights = c->weights;
    const int32_t *channels = c->channels, *end = channels + 3 * c->to.channels;
    int8_t *second = out + (pixels > 1 ? c->to.channels : 0);
    int8_t *third = pixels > 2 ? second + c->to.channels : second;
    for (; channels != end; channels += 6) {
        int32_t a = channels[0], b = channels[3], d = a, e = b, g = a, h = b;
        const uint32_t *values = wide;
        const uint32_t *last = weights + 2 * c->units;
        int32_t multiplier = channels[1], shift = channels[2];
        int32_t rounding = tl_rounding(c->zero, shift);
        do {
            int32_t even = tl_even(*weights), odd = tl_odd(*weights);
            int32_t one = (int32_t)values[0], two = (int32_t)values[1], three = (int32_t)values[2];
            a = tl_add_pairs(one, even, a);
            b = tl_add_pairs(one, odd, b);
            d = tl_add_pairs(two, even, d);
            e = tl_add_pairs(two, odd, e);
            g = tl_add_pairs(three, even, g);
            h = tl_add_pairs(three, odd, h);
            values += TL_PIXELS;
        } while (++weights != last);
        *third++ = (int8_t)tl_requantized(g, multiplier, shift, rounding);
        *second++ = (int8_t)tl_requantized(d, multiplier, shift, rounding);
        *out++ = (int8_t)tl_requantized(a, multiplier, shift, rounding);
        multiplier = channels[4];
        shift = channels[5];
        rounding = tl_rounding(c->zero, shift);
        *third++ = (int8_t)tl_requantized(h, multiplier, shift, rounding);
        *second++ = (int8_t)tl_requantized(e, multiplier, shift, rounding);
        *out++ = (int8_t)tl_requantized(b, multiplier, shift, rounding);
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
