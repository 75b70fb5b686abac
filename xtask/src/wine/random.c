/* `bcryptprimitives.dll` for Wine before version 9, which lacks it. Implements the only function
 * that Rust's standard library calls. */
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length)
{
    return RtlGenRandom(data, (ULONG)length);
}
