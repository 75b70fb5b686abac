/* `bcryptprimitives.dll` for Wine before version 9: the one function that Rust's library calls, by one that is there. */
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length) { return RtlGenRandom(data, (ULONG)length); }
