static void tl_max_pool(const struct tl_pooling *p, const int8_t *input, int8_t *out)
{
    int32_t image, row, column, channel, y, x;
    for (image = 0; image < p->images; image++) {
        for (row = 0; row < p->to.rows; row++) {
            struct tl_taps down = tl_taps_of(&p->down, row, p->from.rows);
            for (column = 0; column < p->to.columns; column++) {
                struct tl_taps across = tl_taps_of(&p->across, column, p->from.columns);
                for (channel = 0; channel < p->to.channels; channel++) {
                    int32_t largest = -128;
                    for (y = 0; y < down.count; y++) {
                        int32_t pixel = (down.start + y * down.move) * p->from.columns;
                        int32_t at = (pixel + across.start) * p->from.channels + channel;
                        for (x = 0; x < across.count; x++) {
                            if (input[at] > largest)
                                largest = input[at];
                            at += across.move * p->from.channels;
                        }
                    }
                    *out++ = (int8_t)tl_bounded(largest, p->low, p->high);
                }
            }
        }
        input += p->from.rows * p->from.columns * p->from.channels;
    }
}
