/* Sums wrap around, as on the processor: unsigned, because overflow of signed integers is undefined
   in C. Right shifts of negative numbers are arithmetic, as in all compilers for these chips. */

static int32_t tl_bounded(int32_t value, int32_t low, int32_t high)
{
    return value < low ? low : value > high ? high : value;
}
