/* Requantization of sums to int8. */
struct tl_results {
    /* Of each channel if `step` is 1, of all if it is 0. */
    const int32_t *multipliers, *shifts;
    int32_t step;
    /* Of each channel, or null. */
    const int32_t *bias;
    int32_t offset, low, high;
};

static int8_t tl_result(const struct tl_results *results, int32_t channel, uint32_t sum)
{
    int32_t at = channel * results->step;
    int32_t value;
    if (results->bias)
        sum += (uint32_t)results->bias[channel];
    value = tl_scaled((int32_t)sum, results->multipliers[at], results->shifts[at]);
    value = (int32_t)((uint32_t)value + (uint32_t)results->offset);
    return (int8_t)tl_bounded(value, results->low, results->high);
}
