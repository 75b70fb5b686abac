static void tl_average_pool(const struct tl_pooling *p, const int8_t *input, int8_t *out)
{
    int32_t image, row, column, channel, y, x;
    for (image = 0; image < p->images; image++) {
        for (row = 0; row < p->to.rows; row++) {
            struct tl_taps down = tl_taps_of(&p->down, row, p->from.rows);
            for (column = 0; column < p->to.columns; column++) {
                struct tl_taps across = tl_taps_of(&p->across, column, p->from.columns);
                int32_t count = down.count * across.count;
                int32_t from = (down.start * p->from.columns + across.start) * p->from.channels;
                for (channel = 0; channel < p->to.channels; channel++) {
                    int32_t sum = 0, at, half;
                    for (y = 0; y < down.count; y++) {
                        at = from + channel + y * p->from.columns * p->from.channels;
                        for (x = 0; x < across.count; x++, at += p->from.channels)
                            sum += input[at];
                    }
                    /* Rounded to the nearest, ties away from zero. */
                    half = sum > 0 ? count / 2 : -(count / 2);
                    *out++ = (int8_t)(count == 0 ? 0 : tl_bounded((sum + half) / count, -128, 127));
                }
            }
        }
        input += p->from.rows * p->from.columns * p->from.channels;
    }
}
