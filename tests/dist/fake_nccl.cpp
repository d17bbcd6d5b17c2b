// A libnccl that joins no ranks: what is refused of one can be tested without a card. FAKE_VERSION: 21801 is 2.18.1; FAKE_MUTE: it does not
// say its version; FAKE_LACKING: it is 2.28.9, and a function is missing that every version has.
#ifdef FAKE_LACKING
#define FAKE_VERSION 22809
#endif

extern "C" {

#ifndef FAKE_MUTE
int ncclGetVersion(int* version) {
  *version = FAKE_VERSION;
  return 0;
}
#endif

#define FUNCTION(name) \
  int name() { return 3; }
FUNCTION(ncclGetUniqueId)
FUNCTION(ncclCommInitRankConfig)
FUNCTION(ncclCommDestroy)
FUNCTION(ncclCommAbort)
FUNCTION(ncclCommGetAsyncError)
FUNCTION(ncclGetErrorString)
FUNCTION(ncclGetLastError)
FUNCTION(ncclAllGather)
FUNCTION(ncclBroadcast)
FUNCTION(ncclSend)
#ifndef FAKE_LACKING
FUNCTION(ncclRecv)
#endif
FUNCTION(ncclGroupStart)
FUNCTION(ncclGroupEnd)
FUNCTION(ncclMemAlloc)
FUNCTION(ncclMemFree)
FUNCTION(ncclCommWindowRegister)
FUNCTION(ncclCommWindowDeregister)
FUNCTION(ncclAlltoAll)
}
