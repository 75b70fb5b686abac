#define TL_TAPS(c, window, at, size) tl_taps_of(window, at, size)
