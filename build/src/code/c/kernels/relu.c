static void tl_relu(const float *input, float *out, int32_t count)
{
    int32_t at;
    for (at = 0; at < count; at++)
        out[at] = input[at] < 0 ? 0 : input[at];
}
