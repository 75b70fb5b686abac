/* Adds the products of values, with an offset, and the weights of one channel. */
static uint32_t tl_dot(const int8_t *values, int32_t offset, const int8_t *weights, int32_t count)
{
    uint32_t sum = 0;
    for (; count > 0; count--)
        sum += ((uint32_t)*values++ + (uint32_t)offset) * (uint32_t)*weights++;
    return sum;
}

/* The same for four channels, whose weights are `step` apart. */
static void tl_dot_four(const int8_t *values, int32_t offset, const int8_t *weights, int32_t step,
                        int32_t count, uint32_t sums[4])
{
    const int8_t *second = weights + step, *third = second + step, *fourth = third + step;
    uint32_t a = sums[0], b = sums[1], c = sums[2], d = sums[3];
    int32_t at;
    for (at = 0; at < count; at++) {
        uint32_t value = (uint32_t)values[at] + (uint32_t)offset;
        a += value * (uint32_t)weights[at];
        b += value * (uint32_t)second[at];
        c += value * (uint32_t)third[at];
        d += value * (uint32_t)fourth[at];
    }
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
}
