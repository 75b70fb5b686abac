static struct tl_taps tl_transposed_taps(const struct tl_window *window, int32_t at, int32_t size)
{
    struct tl_taps taps = {0, 1, 0, 0, 0};
    int32_t tap;
    for (tap = 0; tap < window->kernel; tap++) {
        int32_t position = at + window->padding - tap * window->dilation;
        if (position < 0 || position % window->stride != 0 || position / window->stride >= size)
            continue;
        position /= window->stride;
        if (taps.count == 0) {
            taps.first = tap;
            taps.start = position;
        } else if (taps.count == 1) {
            taps.by = tap - taps.first;
            taps.move = position - taps.start;
        }
        taps.count++;
    }
    return taps;
}
