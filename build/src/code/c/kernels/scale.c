/* Shifts to the right and rounds to the nearest, ties away from zero. */
static int32_t tl_rounded_shift(int32_t value, int32_t bits)
{
    int32_t twice;
    if (bits == 0)
        return value;
    twice = (int32_t)((uint32_t)value + (uint32_t)(value >> 31)) >> (bits - 1);
    return (twice >> 1) + (twice & 1);
}

/* Multiplies with a factor of 31 fractional bits, and shifts to the left, or to the right. */
static int32_t tl_scaled(int32_t value, int32_t multiplier, int32_t shift)
{
    int32_t shifted = shift > 0 ? (int32_t)((uint32_t)value << shift) : value;
    int64_t product = (int64_t)shifted * multiplier + ((int64_t)1 << 30);
    return tl_rounded_shift((int32_t)(product >> 31), shift < 0 ? -shift : 0);
}
