/*
 * nvml_stub.c - a tiny stand-in for libnvidia-ml.so.1, for testing NVML readers on machines
 * that have no GPU. Written from the public ABI facts only; it talks to no driver.
 *
 *   cc -O2 -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 nvml_stub.c -lpthread
 *   NVML_STUB_COUNT=8 NVML_STUB_FILE=gpus.txt LD_LIBRARY_PATH=. python your_reader.py
 *
 * LD_LIBRARY_PATH is read when a process starts. Inside a running Python, load it first instead:
 *   ctypes.CDLL("/full/path/libnvidia-ml.so.1")     # same soname: pynvml.nvmlInit() now finds it
 * The environment is read at every call, so a test may change it (or the file) between calls.
 * Seen to work: nvidia-ml-py 13.615, nvitop 1.7.2, gpustat 1.1.1, nvtop 3.3.2, btop 1.4.5,
 * wandb leet symon 0.31. Never give it to a process that uses a CUDA build of torch: such a torch
 * counts devices through NVML and would report GPUs that are not there.
 *
 * Environment
 *   NVML_STUB_COUNT     number of GPUs (default 1, at most 64)
 *   NVML_STUB_FILE      text file of readings, opened and parsed anew at every device call
 *   NVML_STUB_INIT_ERR  nvmlInit* answers with this code (9 driver not loaded, 18 driver/library
 *                       version mismatch, 4 no permission, 999 unknown ...)
 *   NVML_STUB_DELAY_US  every device call first sleeps this long (slow-driver tests)
 *   NVML_STUB_TRACE     at exit, "count name" of every entry point called is appended here
 *   NVML_STUB_NO_V2     if set, *_v2 memory / *_v3 process calls answer FUNCTION_NOT_FOUND (13)
 *
 * Readings file: one line per GPU, "#" starts a comment, unknown keys are ignored:
 *   INDEX key=value key=value ...
 *     total used reserved       bytes, or with a suffix K M G T (binary); used excludes reserved
 *     util memutil              percent         temp  degrees C
 *     power plimit              milliwatts      sm memclk  MHz
 *     throttle                  clock event bit mask, decimal or 0x..
 *     proc=PID:BYTES[,PID:BYTES...]   compute processes; BYTES "na" reads as not available
 *     acct=PID:BYTES[,...]      accounting mode maxMemoryUsage per process
 *     mem=na                    memory calls answer NOT_SUPPORTED (GB10 / Jetson / iGPU)
 *     mem=zero                  memory calls succeed and answer all zeros (seen on some drivers)
 *     util=na temp=na power=na  that call answers NOT_SUPPORTED
 *     err=N                     every call on this GPU answers N (15 GPU is lost, 4 no permission)
 *     name=TEXT                 "_" reads as a space    uuid=TEXT    bus=HEX
 *     cc=MAJOR.MINOR            compute capability
 *     mig=N                     MIG is on with N instances, alike: the card's memory answers 4 (no permission),
 *                               each instance has its share and a UUID of its own, utilization is not supported
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <pthread.h>

#define API __attribute__((visibility("default")))
typedef int ret_t;
enum { OK = 0, UNINIT = 1, BADARG = 2, NOTSUP = 3, NOTFOUND = 6, SMALL = 7, NOFUNC = 13 };

#define MAXGPU 64
#define MAXPROC 32
#define MAXMIG 7
typedef unsigned long long u64;
typedef struct { unsigned pid; u64 mem; } proc_t;
typedef struct {
  u64 total, used, reserved;
  int util, memutil, temp, power, plimit, sm, memclk, mem_mode, err, ccmaj, ccmin, mig;
  u64 throttle;
  unsigned bus;
  int nproc, nacct;
  proc_t proc[MAXPROC], acct[MAXPROC];
  char name[96], uuid[80];
} gpu_t;

static int inited, ngpu = 1;
static char handles[MAXGPU * (1 + MAXMIG)]; /* a handle is the address of its slot; MIG instances come after the cards */
#define HANDLE(i) ((void *)&handles[i])

/* ---- call counting ------------------------------------------------------------------ */
static struct { const char *name; unsigned long n; } counts[160];
static int ncounts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void count(const char *name) {
  pthread_mutex_lock(&lock);
  int i = 0;
  while (i < ncounts && strcmp(counts[i].name, name)) i++;
  if (i == ncounts && ncounts < 160) counts[ncounts++].name = name;
  if (i < 160) counts[i].n++;
  pthread_mutex_unlock(&lock);
}
__attribute__((destructor)) static void dump(void) {
  const char *p = getenv("NVML_STUB_TRACE");
  FILE *f = p && ncounts ? fopen(p, "a") : NULL;
  if (!f) return;
  for (int i = 0; i < ncounts; i++) fprintf(f, "%lu %s\n", counts[i].n, counts[i].name);
  fclose(f);
}
#define ENTER() count(__func__)

/* ---- readings ----------------------------------------------------------------------- */
static u64 bytes(const char *s) {
  char *e;
  double v = strtod(s, &e);
  switch (*e) {
    case 'T': v *= 1024; /* fallthrough */
    case 'G': v *= 1024; /* fallthrough */
    case 'M': v *= 1024; /* fallthrough */
    case 'K': v *= 1024;
  }
  return (u64)v;
}
static int number(const char *s) { return strcasecmp(s, "na") ? (int)strtol(s, NULL, 0) : -1; }
static int procs(char *s, proc_t *out) {
  int n = 0;
  char *save, *t = strtok_r(s, ",", &save);
  for (; t && n < MAXPROC; t = strtok_r(NULL, ",", &save)) {
    char *c = strchr(t, ':');
    out[n].pid = (unsigned)strtoul(t, NULL, 10);
    out[n].mem = !c ? 0 : strcasecmp(c + 1, "na") ? bytes(c + 1) : ~0ULL;
    n++;
  }
  return n;
}
static void load(int idx, gpu_t *g) {
  memset(g, 0, sizeof *g);
  g->total = 80ULL << 30; g->reserved = 512ULL << 20;
  g->temp = 35; g->power = 70000; g->plimit = 700000; g->sm = 345; g->memclk = 2619;
  g->ccmaj = 9; g->bus = 0x10 + idx;
  snprintf(g->name, sizeof g->name, "Stub GPU");
  snprintf(g->uuid, sizeof g->uuid, "GPU-%08x-0000-4000-8000-%012x", 0x5700 + idx, idx);
  const char *delay = getenv("NVML_STUB_DELAY_US"), *path = getenv("NVML_STUB_FILE");
  if (delay) {
    long us = atol(delay);
    struct timespec ts = { us / 1000000, us % 1000000 * 1000 };
    nanosleep(&ts, NULL);
  }
  FILE *f = path ? fopen(path, "r") : NULL;
  char line[2048];
  while (f && fgets(line, sizeof line, f)) {
    char *save, *t = strtok_r(line, " \t\n", &save);
    if (!t || *t == '#' || atoi(t) != idx) continue;
    while ((t = strtok_r(NULL, " \t\n", &save))) {
      char *v = strchr(t, '=');
      if (!v) continue;
      *v++ = 0;
      if (!strcmp(t, "total")) g->total = bytes(v);
      else if (!strcmp(t, "used")) g->used = bytes(v);
      else if (!strcmp(t, "reserved")) g->reserved = bytes(v);
      else if (!strcmp(t, "util")) g->util = number(v);
      else if (!strcmp(t, "memutil")) g->memutil = number(v);
      else if (!strcmp(t, "temp")) g->temp = number(v);
      else if (!strcmp(t, "power")) g->power = number(v);
      else if (!strcmp(t, "plimit")) g->plimit = number(v);
      else if (!strcmp(t, "sm")) g->sm = number(v);
      else if (!strcmp(t, "memclk")) g->memclk = number(v);
      else if (!strcmp(t, "throttle")) g->throttle = strtoull(v, NULL, 0);
      else if (!strcmp(t, "err")) g->err = number(v);
      else if (!strcmp(t, "mig")) g->mig = number(v);
      else if (!strcmp(t, "mem")) g->mem_mode = !strcmp(v, "na") ? 1 : !strcmp(v, "zero") ? 2 : 0;
      else if (!strcmp(t, "bus")) g->bus = (unsigned)strtoul(v, NULL, 16);
      else if (!strcmp(t, "cc")) sscanf(v, "%d.%d", &g->ccmaj, &g->ccmin);
      else if (!strcmp(t, "proc")) g->nproc = procs(v, g->proc);
      else if (!strcmp(t, "acct")) g->nacct = procs(v, g->acct);
      else if (!strcmp(t, "uuid")) snprintf(g->uuid, sizeof g->uuid, "%s", v);
      else if (!strcmp(t, "name")) {
        snprintf(g->name, sizeof g->name, "%s", v);
        for (char *c = g->name; *c; c++) if (*c == '_') *c = ' ';
      }
    }
  }
  if (f) fclose(f);
}
/* A card, or the MIG instance of one. */
static void load_slot(long slot, gpu_t *g) {
  long card = slot < MAXGPU ? slot : (slot - MAXGPU) / MAXMIG;
  load((int)card, g);
  if (slot < MAXGPU || g->mig < 1) return;
  g->total /= g->mig; g->used /= g->mig; g->reserved /= g->mig;
  g->mig = 0; g->util = -1;
  snprintf(g->uuid, sizeof g->uuid, "MIG-%08lx-0000-4000-8000-%012lx", 0x5700 + card, (slot - MAXGPU) % MAXMIG);
}
/* Opens a device entry point: counts it, finds the GPU, loads its readings. */
#define DEVICE(d)                                                   \
  ENTER();                                                          \
  if (!inited) return UNINIT;                                       \
  long i_ = (char *)(d) - handles;                                  \
  if (i_ < 0 || i_ >= (long)sizeof handles) return BADARG;          \
  gpu_t g; load_slot(i_, &g);                                       \
  if (g.err) return g.err
#define PUT(p, v) do { if (!(p)) return BADARG; if ((v) < 0) return NOTSUP; *(p) = (v); return OK; } while (0)
static ret_t text(char *dst, unsigned len, const char *src) {
  if (!dst) return BADARG;
  if (strlen(src) + 1 > len) return SMALL;
  strcpy(dst, src);
  return OK;
}

/* ---- library ------------------------------------------------------------------------ */
static ret_t init(void) {
  const char *e = getenv("NVML_STUB_INIT_ERR"), *n = getenv("NVML_STUB_COUNT");
  if (e && atoi(e)) return atoi(e);
  ngpu = n ? atoi(n) : 1;
  if (ngpu < 0) ngpu = 0;
  if (ngpu > MAXGPU) ngpu = MAXGPU;
  inited++;
  return OK;
}
API ret_t nvmlInit(void) { ENTER(); return init(); }
API ret_t nvmlInit_v2(void) { ENTER(); return init(); }
API ret_t nvmlInitWithFlags(unsigned flags) { (void)flags; ENTER(); return init(); }
API ret_t nvmlShutdown(void) { ENTER(); if (!inited) return UNINIT; inited--; return OK; }
API const char *nvmlErrorString(ret_t r) {
  switch (r) {
    case OK: return "Success"; case UNINIT: return "Uninitialized"; case BADARG: return "Invalid Argument";
    case NOTSUP: return "Not Supported"; case 4: return "Insufficient Permissions"; case NOTFOUND: return "Not Found";
    case SMALL: return "Insufficient Size"; case 9: return "Driver Not Loaded"; case NOFUNC: return "Function Not Found";
    case 15: return "GPU is lost"; case 16: return "GPU requires reset"; case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
  }
}
API ret_t nvmlSystemGetDriverVersion(char *s, unsigned n) { ENTER(); return text(s, n, "999.00.stub"); }
API ret_t nvmlSystemGetNVMLVersion(char *s, unsigned n) { ENTER(); return text(s, n, "13.999.00.stub"); }
API ret_t nvmlSystemGetCudaDriverVersion(int *v) { ENTER(); PUT(v, 13000); }
API ret_t nvmlSystemGetCudaDriverVersion_v2(int *v) { ENTER(); PUT(v, 13000); }
API ret_t nvmlSystemGetProcessName(unsigned pid, char *s, unsigned n) { (void)pid; ENTER(); return text(s, n, "python"); }

/* ---- enumeration -------------------------------------------------------------------- */
API ret_t nvmlDeviceGetCount_v2(unsigned *n) { ENTER(); if (!inited) return UNINIT; PUT(n, ngpu); }
API ret_t nvmlDeviceGetCount(unsigned *n) { ENTER(); if (!inited) return UNINIT; PUT(n, ngpu); }
static ret_t byindex(unsigned i, void **d) {
  gpu_t g;
  if (!inited) return UNINIT;
  if (!d || i >= (unsigned)ngpu) return BADARG;
  load((int)i, &g);
  if (g.err) return g.err;
  *d = HANDLE(i);
  return OK;
}
API ret_t nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { ENTER(); return byindex(i, d); }
API ret_t nvmlDeviceGetHandleByIndex(unsigned i, void **d) { ENTER(); return byindex(i, d); }
API ret_t nvmlDeviceGetHandleByUUID(const char *u, void **d) {
  ENTER();
  for (int i = 0; i < ngpu; i++) { gpu_t g; load(i, &g); if (u && d && !strcmp(u, g.uuid)) { *d = HANDLE(i); return g.err; } }
  return NOTFOUND;
}
API ret_t nvmlDeviceGetHandleByPciBusId_v2(const char *b, void **d) {
  ENTER();
  for (int i = 0; i < ngpu; i++) {
    gpu_t g; char s[32]; load(i, &g);
    snprintf(s, sizeof s, "%08X:%02X:00.0", 0, g.bus);
    if (b && d && (!strcasecmp(b, s) || !strcasecmp(b, s + 4))) { *d = HANDLE(i); return g.err; }
  }
  return NOTFOUND;
}
API ret_t nvmlDeviceGetIndex(void *d, unsigned *v) { DEVICE(d); PUT(v, (int)i_); }
API ret_t nvmlDeviceGetMinorNumber(void *d, unsigned *v) { DEVICE(d); PUT(v, (int)i_); }
API ret_t nvmlDeviceGetName(void *d, char *s, unsigned n) { DEVICE(d); return text(s, n, g.name); }
API ret_t nvmlDeviceGetUUID(void *d, char *s, unsigned n) { DEVICE(d); return text(s, n, g.uuid); }
API ret_t nvmlDeviceGetSerial(void *d, char *s, unsigned n) { DEVICE(d); return text(s, n, "0"); }
typedef struct { char legacy[16]; unsigned domain, bus, device, devid, subsys; char id[32]; } pci_t;
static ret_t pci(const gpu_t *g, pci_t *p, int full) {
  if (!p) return BADARG;
  snprintf(p->legacy, sizeof p->legacy, "0000:%02X:00.0", g->bus);
  p->domain = 0; p->bus = g->bus; p->device = 0; p->devid = 0x000010de; p->subsys = 0;
  if (full) snprintf(p->id, sizeof p->id, "00000000:%02X:00.0", g->bus);
  return OK;
}
API ret_t nvmlDeviceGetPciInfo_v3(void *d, pci_t *p) { DEVICE(d); return pci(&g, p, 1); }
API ret_t nvmlDeviceGetPciInfo_v2(void *d, pci_t *p) { DEVICE(d); return pci(&g, p, 0); }
API ret_t nvmlDeviceGetPciInfo(void *d, pci_t *p) { DEVICE(d); return pci(&g, p, 0); }

/* ---- memory ------------------------------------------------------------------------- */
typedef struct { u64 total, free, used; } mem1_t;
typedef struct { unsigned version; u64 total, reserved, free, used; } mem2_t;
API ret_t nvmlDeviceGetMemoryInfo(void *d, mem1_t *m) {
  DEVICE(d);
  if (!m) return BADARG;
  if (g.mig) return 4;
  if (g.mem_mode == 1) return NOTSUP;
  memset(m, 0, sizeof *m);
  if (g.mem_mode == 2) return OK;
  m->total = g.total; m->used = g.used + g.reserved; m->free = g.total - m->used;   /* v1: used holds reserved */
  return OK;
}
API ret_t nvmlDeviceGetMemoryInfo_v2(void *d, mem2_t *m) {
  DEVICE(d);
  if (getenv("NVML_STUB_NO_V2")) return NOFUNC;
  if (!m) return BADARG;
  if (m->version != 0x02000028) return 25;
  if (g.mig) return 4;
  if (g.mem_mode == 1) return NOTSUP;
  m->total = m->reserved = m->free = m->used = 0;
  if (g.mem_mode == 2) return OK;
  m->total = g.total; m->reserved = g.reserved; m->used = g.used; m->free = g.total - g.used - g.reserved;
  return OK;
}
typedef struct { u64 total, free, used; } bar1_t;
API ret_t nvmlDeviceGetBAR1MemoryInfo(void *d, bar1_t *m) {
  DEVICE(d);
  if (!m) return BADARG;
  m->total = 128ULL << 30; m->used = 4ULL << 20; m->free = m->total - m->used;
  return OK;
}

/* ---- processes ---------------------------------------------------------------------- */
typedef struct { unsigned pid; u64 mem; } p1_t;
typedef struct { unsigned pid; u64 mem; unsigned gi, ci; } p2_t;
static ret_t plist(const gpu_t *g, unsigned *n, p2_t *out) {
  if (!n) return BADARG;
  if (*n < (unsigned)g->nproc || (g->nproc && !out)) { *n = g->nproc; return SMALL; }
  for (int i = 0; i < g->nproc; i++) out[i] = (p2_t){ g->proc[i].pid, g->proc[i].mem, ~0u, ~0u };
  *n = g->nproc;
  return OK;
}
API ret_t nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, p2_t *o) {
  DEVICE(d);
  return getenv("NVML_STUB_NO_V2") ? NOFUNC : plist(&g, n, o);
}
API ret_t nvmlDeviceGetComputeRunningProcesses_v2(void *d, unsigned *n, p2_t *o) { DEVICE(d); return plist(&g, n, o); }
API ret_t nvmlDeviceGetComputeRunningProcesses(void *d, unsigned *n, p1_t *o) {
  DEVICE(d);
  if (!n) return BADARG;
  if (*n < (unsigned)g.nproc || (g.nproc && !o)) { *n = g.nproc; return SMALL; }
  for (int i = 0; i < g.nproc; i++) o[i] = (p1_t){ g.proc[i].pid, g.proc[i].mem };
  *n = g.nproc;
  return OK;
}
#define NOPROCS(f) API ret_t f(void *d, unsigned *n, void *o) { (void)o; DEVICE(d); PUT(n, 0); }
NOPROCS(nvmlDeviceGetGraphicsRunningProcesses) NOPROCS(nvmlDeviceGetGraphicsRunningProcesses_v2)
NOPROCS(nvmlDeviceGetGraphicsRunningProcesses_v3) NOPROCS(nvmlDeviceGetMPSComputeRunningProcesses)
NOPROCS(nvmlDeviceGetMPSComputeRunningProcesses_v2) NOPROCS(nvmlDeviceGetMPSComputeRunningProcesses_v3)
typedef struct { unsigned pid; u64 ts; unsigned sm, mem, enc, dec; } putil_t;
API ret_t nvmlDeviceGetProcessUtilization(void *d, putil_t *o, unsigned *n, u64 since) {
  DEVICE(d);
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  u64 now = (u64)t.tv_sec * 1000000 + t.tv_nsec / 1000;
  if (!n) return BADARG;
  if (!g.nproc || now <= since) return NOTFOUND;
  if (!o || *n < (unsigned)g.nproc) { *n = g.nproc; return SMALL; }
  for (int i = 0; i < g.nproc; i++)
    o[i] = (putil_t){ g.proc[i].pid, now, g.util > 0 ? g.util : 0, g.memutil > 0 ? g.memutil : 0, 0, 0 };
  *n = g.nproc;
  return OK;
}

/* ---- accounting --------------------------------------------------------------------- */
typedef struct { unsigned gpu, mem; u64 max, time, start; unsigned running, pad[5]; } acct_t;
API ret_t nvmlDeviceGetAccountingMode(void *d, unsigned *m) { DEVICE(d); PUT(m, g.nacct ? 1 : 0); }
API ret_t nvmlDeviceGetAccountingBufferSize(void *d, unsigned *n) { DEVICE(d); PUT(n, 4000); }
API ret_t nvmlDeviceGetAccountingStats(void *d, unsigned pid, acct_t *a) {
  DEVICE(d);
  if (!a) return BADARG;
  if (!g.nacct) return NOTSUP;
  for (int i = 0; i < g.nacct; i++)
    if (g.acct[i].pid == pid) { memset(a, 0, sizeof *a); a->max = g.acct[i].mem; a->running = 1; return OK; }
  return NOTFOUND;
}

/* ---- sensors ------------------------------------------------------------------------ */
typedef struct { unsigned gpu, mem; } util_t;
API ret_t nvmlDeviceGetUtilizationRates(void *d, util_t *u) {
  DEVICE(d);
  if (!u) return BADARG;
  if (g.util < 0) return NOTSUP;
  u->gpu = g.util; u->mem = g.memutil;
  return OK;
}
static ret_t codec(unsigned *u, unsigned *p) { if (!u || !p) return BADARG; *u = 0; *p = 167000; return OK; }
API ret_t nvmlDeviceGetEncoderUtilization(void *d, unsigned *u, unsigned *p) { DEVICE(d); return codec(u, p); }
API ret_t nvmlDeviceGetDecoderUtilization(void *d, unsigned *u, unsigned *p) { DEVICE(d); return codec(u, p); }
API ret_t nvmlDeviceGetTemperature(void *d, int kind, unsigned *t) { (void)kind; DEVICE(d); PUT(t, g.temp); }
typedef struct { unsigned version, kind; int temp; } tempv_t;
API ret_t nvmlDeviceGetTemperatureV(void *d, tempv_t *t) { DEVICE(d); if (!t) return BADARG; PUT(&t->temp, g.temp); }
API ret_t nvmlDeviceGetTemperatureThreshold(void *d, int kind, unsigned *t) { (void)kind; DEVICE(d); PUT(t, 90); }
API ret_t nvmlDeviceGetPowerUsage(void *d, unsigned *p) { DEVICE(d); PUT(p, g.power); }
API ret_t nvmlDeviceGetPowerManagementLimit(void *d, unsigned *p) { DEVICE(d); PUT(p, g.plimit); }
API ret_t nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *p) { DEVICE(d); PUT(p, g.plimit); }
API ret_t nvmlDeviceGetPowerState(void *d, int *p) { DEVICE(d); PUT(p, 0); }
API ret_t nvmlDeviceGetPerformanceState(void *d, int *p) { DEVICE(d); PUT(p, 0); }
API ret_t nvmlDeviceGetFanSpeed(void *d, unsigned *v) { DEVICE(d); (void)v; return NOTSUP; }
API ret_t nvmlDeviceGetClockInfo(void *d, int k, unsigned *v) { DEVICE(d); PUT(v, k == 2 ? g.memclk : g.sm); }
API ret_t nvmlDeviceGetMaxClockInfo(void *d, int k, unsigned *v) { DEVICE(d); PUT(v, k == 2 ? 2619 : 1980); }
API ret_t nvmlDeviceGetCurrentClocksEventReasons(void *d, u64 *v) { DEVICE(d); if (!v) return BADARG; *v = g.throttle; return OK; }
API ret_t nvmlDeviceGetCurrentClocksThrottleReasons(void *d, u64 *v) { DEVICE(d); if (!v) return BADARG; *v = g.throttle; return OK; }
API ret_t nvmlDeviceGetPcieThroughput(void *d, int k, unsigned *v) { (void)k; DEVICE(d); PUT(v, g.util > 0 ? g.util * 1000 : 0); }
API ret_t nvmlDeviceGetMaxPcieLinkGeneration(void *d, unsigned *v) { DEVICE(d); PUT(v, 5); }
API ret_t nvmlDeviceGetMaxPcieLinkWidth(void *d, unsigned *v) { DEVICE(d); PUT(v, 16); }
API ret_t nvmlDeviceGetCurrPcieLinkGeneration(void *d, unsigned *v) { DEVICE(d); PUT(v, 5); }
API ret_t nvmlDeviceGetCurrPcieLinkWidth(void *d, unsigned *v) { DEVICE(d); PUT(v, 16); }
API ret_t nvmlDeviceGetTotalEccErrors(void *d, int t, int c, u64 *v) { (void)t; (void)c; DEVICE(d); if (!v) return BADARG; *v = 0; return OK; }
API ret_t nvmlDeviceGetPersistenceMode(void *d, int *v) { DEVICE(d); PUT(v, 1); }
API ret_t nvmlDeviceGetDisplayMode(void *d, int *v) { DEVICE(d); PUT(v, 0); }
API ret_t nvmlDeviceGetDisplayActive(void *d, int *v) { DEVICE(d); PUT(v, 0); }
API ret_t nvmlDeviceGetComputeMode(void *d, int *v) { DEVICE(d); PUT(v, 0); }
API ret_t nvmlDeviceGetCudaComputeCapability(void *d, int *a, int *b) {
  DEVICE(d);
  if (!a || !b) return BADARG;
  *a = g.ccmaj; *b = g.ccmin;
  return OK;
}
API ret_t nvmlDeviceGetDriverModel(void *d, int *a, int *b) { DEVICE(d); (void)a; (void)b; return NOTSUP; }   /* Windows only */
API ret_t nvmlDeviceGetDriverModel_v2(void *d, int *a, int *b) { DEVICE(d); (void)a; (void)b; return NOTSUP; }
API ret_t nvmlDeviceGetConfComputeMemSizeInfo(void *d, void *m) { DEVICE(d); (void)m; return NOTSUP; }
typedef struct { unsigned id, scope; long long ts, latency; int type, ret; u64 value; } field_t;
API ret_t nvmlDeviceGetFieldValues(void *d, int n, field_t *f) {
  DEVICE(d);
  if (!f) return BADARG;
  for (int i = 0; i < n; i++) f[i].ret = NOTSUP;      /* no NVLink counters here */
  return OK;
}
API ret_t nvmlDeviceGetMigMode(void *d, unsigned *a, unsigned *b) {
  DEVICE(d);
  if (!a || !b) return BADARG;
  if (!g.mig) return NOTSUP;
  *a = *b = 1;
  return OK;
}
API ret_t nvmlDeviceGetMaxMigDeviceCount(void *d, unsigned *n) { DEVICE(d); PUT(n, g.mig ? MAXMIG : 0); }
API ret_t nvmlDeviceGetMigDeviceHandleByIndex(void *d, unsigned i, void **out) {
  DEVICE(d);
  if (!out || i_ >= MAXGPU) return BADARG;
  if (i >= (unsigned)g.mig) return NOTFOUND;
  *out = HANDLE(MAXGPU + i_ * MAXMIG + i);
  return OK;
}
API ret_t nvmlDeviceIsMigDeviceHandle(void *d, unsigned *v) { DEVICE(d); PUT(v, (int)(i_ >= MAXGPU)); }
