/* Reset and fault handlers, and SysTick as the clock. */

#include "semihosting.h"

extern uint32_t data_start[], data_end[], data_load[], bss_start[], bss_end[], stack_top[];

int main(void);

#define SYSTICK ((volatile uint32_t *)0xE000E010)
#define PERIOD 0x1000000u

static volatile uint32_t rounds;

uint32_t ticks(void)
{
    uint32_t before, left;
    do {
        before = rounds;
        left = SYSTICK[2];
    } while (before != rounds);
    return before * PERIOD + (PERIOD - 1 - left);
}

void reset(void)
{
    uint32_t *to, *from = data_load;
#ifdef __ARM_FP
    /* Enables the FPU. */
    *(volatile uint32_t *)0xE000ED88 |= 0xF << 20;
    __asm volatile("dsb\n isb");
#endif
    for (to = data_start; to < data_end;)
        *to++ = *from++;
    for (to = bss_start; to < bss_end;)
        *to++ = 0;
    SYSTICK[1] = PERIOD - 1;
    SYSTICK[2] = 0;
    /* The processor's clock, with an interrupt. */
    SYSTICK[0] = 7;
    stop(main());
}

static void fault(void)
{
    print("fault\n");
    stop(1);
}

static void wrap(void)
{
    rounds++;
}

typedef void (*handler)(void);

__attribute__((section(".vectors"), used)) static const handler VECTORS[16] = {
    (handler)stack_top, reset, fault, fault, fault, fault, fault, 0,
    0,                  0,     0,     0,     0,     0,     0,     wrap,
};
