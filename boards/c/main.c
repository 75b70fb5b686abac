/* Runs a program that `torchlet compile` wrote on one input, prints the ticks of the processor's
   clock, and compares the output, bit by bit. */

#include "semihosting.h"
#include CASE
#include HEADER
#include <string.h>

/* Ticks since start-up (startup.c). */
uint32_t ticks(void);

static float input[sizeof INPUT / sizeof INPUT[0]], output[sizeof EXPECTED / sizeof EXPECTED[0]];

static void print_number(uint32_t number)
{
    char digits[11], *at = digits + sizeof digits - 1;
    *at = 0;
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    print(at);
}

int main(void)
{
    uint32_t start;
    memcpy(input, INPUT, sizeof input);
    start = ticks();
    RUN(input, output);
    start = ticks() - start;
    print("run ticks ");
    print_number(start);
    print("\n");
    return memcmp(output, EXPECTED, sizeof output) != 0;
}
