/* Reset and fault handlers. */

#include "semihosting.h"
#include <stdint.h>

extern uint32_t data_start[], data_end[], data_load[], bss_start[], bss_end[], stack_top[];

int main(void);

void reset(void)
{
    /* Enables the FPU. */
    *(volatile uint32_t *)0xE000ED88 |= 0xF << 20;
    __asm volatile("dsb\n isb");
    for (uint32_t *to = data_start, *from = data_load; to < data_end;)
        *to++ = *from++;
    for (uint32_t *to = bss_start; to < bss_end;)
        *to++ = 0;
    stop(main());
}

static void fault(void)
{
    print("fault\n");
    stop(1);
}

__attribute__((section(".vectors"), used)) static void *const VECTORS[16] = {
    stack_top,     (void *)reset, (void *)fault, (void *)fault,
    (void *)fault, (void *)fault, (void *)fault,
};
