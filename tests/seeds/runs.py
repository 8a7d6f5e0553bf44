"""Many runs of the torture victim on the simulated driver, several at a time.

A job is a set of features, a seed and perhaps an injected fault; any exit code but 0 is a finding and is told
with the command that repeats it. Runs with one thread repeat exactly, runs with more do so only mostly.
"""

import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import sanitizer
from harness import ALONE, BUILD, EMULATOR, LIBRARY, preloaded, victim

OBSERVER = BUILD / "sim" / "libcupool_observer.so"
WITHOUT = BUILD / "tests" / "seeds" / "without" / "libcupool.so"
HAZARD = 86
ADDED_WAITS = (87, 88)
OPERATIONS = 300

# Where the user's own limit refuses an allocation, the pool waits as it does where the driver refuses one.
AT_THE_LIMIT = {"CUPOOL_SIM_WAITS": "off"}

# Chunks come and go with blocks of many megabytes only.
MAPPED = ["--most", "40000000", "--live", "150000000"]

# Two devices, each with work on the other's memory; where they meet, kernels of one wait for the other's. A capture in
# one thread may stop all others, so there are none then.
TWO = {"CUPOOL_SIM_DEVICES": "2"}
PEERS = ["--with", "peers"]
MEETS = ["--with", "meets", "--without", "graphs"]

# Each set turns something on that others leave alone: environment, arguments.
SETS = {
    "lanes": ({}, []),
    "lanes, one stretch": ({}, ["--without", "destroy,graphs,pooled,waits"]),
    "records beside graphs": ({}, ["--with", "beside"]),
    "fences": ({"CUPOOL_STREAMS": "fences"}, []),
    "exact": ({"CUPOOL_STREAMS": "exact"}, []),
    "exact, no budget": ({"CUPOOL_STREAMS": "exact", "CUPOOL_MANY_BUDGET": "0"}, []),
    "waiting frees": ({"CUPOOL_FREE": "sync"}, []),
    "no budget": ({"CUPOOL_MANY_BUDGET": "0"}, []),
    "small cache": ({"CUPOOL_MAX_CACHED": "1M"}, []),
    "no cache": ({"CUPOOL_MAX_CACHED": "0", "CUPOOL_THREAD_CACHE": "0"}, []),
    "little memory": ({"CUPOOL_SIM_MEMORY": "16M"}, ["--most", "4000000"]),
    "hard limit": ({"CUPOOL_LIMIT": "8M", "CUPOOL_SEGMENT_MIN": "2M", **AT_THE_LIMIT}, ["--most", "4000000"]),
    "fences, little memory": ({"CUPOOL_STREAMS": "fences", "CUPOOL_SIM_MEMORY": "12M",
                               "CUPOOL_MANY_BUDGET": "0"}, []),
    "old driver": ({"CUPOOL_SIM_DRIVER_VERSION": "12040"}, []),
    "old driver, fences": ({"CUPOOL_SIM_DRIVER_VERSION": "12040", "CUPOOL_STREAMS": "fences"}, []),
    "contexts": ({}, ["--with", "contexts"]),
    "resets": ({}, ["--with", "resets"]),
    "phases": ({}, ["--with", "phases"]),
    "contexts and resets, little memory": ({"CUPOOL_SIM_MEMORY": "48M"}, ["--with", "contexts,resets"]),
    "a kernel fails": ({}, ["--with", "crash", "--tolerant"]),
    "a kernel fails, contexts and resets": ({}, ["--with", "crash,contexts,resets", "--tolerant"]),
    "managed": ({}, ["--with", "managed", "--without", "graphs"]),
    "managed, little memory": ({"CUPOOL_SIM_MEMORY": "24M"}, ["--with", "managed", "--without", "graphs"]),
    "idle segments go back": ({"CUPOOL_DECAY_MS": "1", "CUPOOL_SEGMENT_MIN": "2M"}, []),
    "the driver's own pool as a last resort": ({"CUPOOL_FALLBACK": "native", "CUPOOL_LIMIT": "4M",
                                                "CUPOOL_SEGMENT_MIN": "2M", **AT_THE_LIMIT}, []),
    "whole segments": ({"CUPOOL_SPLIT": "no"}, []),
    "whole segments, few kept": ({"CUPOOL_SPLIT": "no", "CUPOOL_MAX_CACHED": "1M", "CUPOOL_DECAY_MS": "1"}, []),
    "whole segments, hard limit": ({"CUPOOL_SPLIT": "no", "CUPOOL_LIMIT": "8M", **AT_THE_LIMIT},
                                   ["--most", "4000000", "--with", "contexts,resets"]),
    "whole and managed segments, few kept": ({"CUPOOL_SPLIT": "no", "CUPOOL_MAX_CACHED": "1M"},
                                             ["--with", "managed,contexts,resets", "--without", "graphs"]),
    "mapped": ({"CUPOOL_SEGMENTS": "mapped"}, MAPPED),
    "mapped, small blocks": ({"CUPOOL_SEGMENTS": "mapped"}, []),
    "mapped, few kept": ({"CUPOOL_SEGMENTS": "mapped", "CUPOOL_MAX_CACHED": "4M"}, MAPPED),
    "mapped, little memory": ({"CUPOOL_SEGMENTS": "mapped", "CUPOOL_SIM_MEMORY": "192M"}, MAPPED),
    "mapped, hard limit": ({"CUPOOL_SEGMENTS": "mapped", "CUPOOL_LIMIT": "128M", **AT_THE_LIMIT}, MAPPED),
    "mapped, contexts and resets": ({"CUPOOL_SEGMENTS": "mapped"}, [*MAPPED, "--with", "contexts,resets"]),
    "mapped, idle memory goes back": ({"CUPOOL_SEGMENTS": "mapped", "CUPOOL_DECAY_MS": "1"}, MAPPED),
    "mapped, fences": ({"CUPOOL_SEGMENTS": "mapped", "CUPOOL_STREAMS": "fences", "CUPOOL_DECAY_MS": "1"}, MAPPED),
    "mapped, exact": ({"CUPOOL_SEGMENTS": "mapped", "CUPOOL_STREAMS": "exact", "CUPOOL_MAX_CACHED": "0"}, MAPPED),
    "mapped, old driver": ({"CUPOOL_SEGMENTS": "mapped", "CUPOOL_SIM_DRIVER_VERSION": "12040"}, MAPPED),
    "mapped, a kernel fails": ({"CUPOOL_SEGMENTS": "mapped"}, ["--with", "crash,contexts,resets", "--tolerant"]),
    "native pool": ({"CUPOOL_BACKEND": "native"}, []),
    "native pool, contexts and resets": ({"CUPOOL_BACKEND": "native"}, ["--with", "contexts,resets"]),
    "native pool, little memory": ({"CUPOOL_BACKEND": "native", "CUPOOL_SIM_MEMORY": "48M"},
                                   ["--most", "4000000"]),
    "small blocks": ({}, ["--most", "3000"]),
    "large blocks": ({"CUPOOL_SEGMENT_MIN": "2M"}, ["--most", "9000000"]),
    "one kind of stream": ({}, ["--without", "streams"]),
    "no own streams": ({}, ["--without", "per-thread"]),
    "words": ({}, ["--with", "words", "--without", "graphs"]),
    "words, rude threads": ({}, ["--with", "words,rude", "--without", "graphs"]),
    # From several threads, one may hold what another needs to answer: only exact reuse has no such hang (docs/order-proofs.md).
    "kernels and functions wait": ({}, ["--with", "awaits", "--without", "graphs", "--threads", "1"]),
    "kernels and functions wait, exact": ({"CUPOOL_STREAMS": "exact"}, ["--with", "awaits", "--without", "graphs"]),
    "words, fences": ({"CUPOOL_STREAMS": "fences"}, ["--with", "words,awaits", "--without", "graphs"]),
    "words, exact": ({"CUPOOL_STREAMS": "exact", "CUPOOL_SIM_WAITS": "exact"},
                     ["--with", "words,awaits,rude", "--without", "graphs"]),
    "words, waiting frees": ({"CUPOOL_FREE": "sync"}, ["--with", "words,awaits", "--without", "graphs"]),
    "words, whole segments": ({"CUPOOL_SPLIT": "no"}, ["--with", "words,awaits", "--without", "graphs"]),
    "words, old driver": ({"CUPOOL_SIM_DRIVER_VERSION": "12040"}, ["--with", "words,awaits", "--without", "graphs"]),
    "words, native pool": ({"CUPOOL_BACKEND": "native"}, ["--with", "words,awaits", "--without", "graphs"]),
    "words, large blocks": ({"CUPOOL_SEGMENT_MIN": "2M"}, ["--with", "words,awaits", "--without", "graphs", "--most", "9000000"]),
    "words, mapped": ({"CUPOOL_SEGMENTS": "mapped", "CUPOOL_DECAY_MS": "1"},
                      [*MAPPED, "--with", "words,awaits", "--without", "graphs"]),
    "bytes written over": ({"CUPOOL_FILL": "alloc:0xA5,free:0x5A"}, []),
    "cleared": ({"CUPOOL_ZERO": "yes"}, []),
    "peers": (TWO, PEERS),
    "peers, fences": ({**TWO, "CUPOOL_STREAMS": "fences"}, PEERS),
    "peers, exact": ({**TWO, "CUPOOL_STREAMS": "exact"}, PEERS),
    "peers, waiting frees": ({**TWO, "CUPOOL_FREE": "sync"}, PEERS),
    "peers, whole segments": ({**TWO, "CUPOOL_SPLIT": "no"}, PEERS),
    "peers, mapped": ({**TWO, "CUPOOL_SEGMENTS": "mapped", "CUPOOL_DECAY_MS": "1"}, [*PEERS, *MAPPED]),
    "peers, old driver": ({**TWO, "CUPOOL_SIM_DRIVER_VERSION": "12040"}, PEERS),
    "peers, little memory": ({**TWO, "CUPOOL_SIM_MEMORY": "16M"}, [*PEERS, "--most", "4000000"]),
    "peers, contexts and resets": (TWO, ["--with", "peers,contexts,resets"]),
    "peers, words": (TWO, ["--with", "peers,words", "--without", "graphs"]),
    "peers meet": (TWO, [*MEETS, "--threads", "2"]),
    "peers meet, more threads": (TWO, [*MEETS, "--threads", "5"]),
    "peers meet, fences": ({**TWO, "CUPOOL_STREAMS": "fences"}, [*MEETS, "--threads", "2"]),
    "peers meet, exact": ({**TWO, "CUPOOL_STREAMS": "exact"}, [*MEETS, "--threads", "4"]),
    "peers meet, waiting frees": ({**TWO, "CUPOOL_FREE": "sync"}, [*MEETS, "--threads", "2"]),
    "peers meet, whole segments": ({**TWO, "CUPOOL_SPLIT": "no"}, [*MEETS, "--threads", "4"]),
    "peers meet, mapped": ({**TWO, "CUPOOL_SEGMENTS": "mapped", "CUPOOL_DECAY_MS": "1"}, [*MEETS, *MAPPED, "--threads", "2"]),
    "peers meet, old driver": ({**TWO, "CUPOOL_SIM_DRIVER_VERSION": "12040"}, [*MEETS, "--threads", "2"]),
    # Other devices cannot access memory of the driver's own pool (docs/native.md). What is freed there during a capture is
    # freed later, if by a thread of another context by the driver's plain free, which waits.
    "peers apart, native pool": ({**TWO, "CUPOOL_BACKEND": "native"}, ["--with", "apart", "--without", "graphs"]),
    "peers apart": (TWO, ["--with", "apart"]),
    "peers meet apart": (TWO, [*MEETS, "--with", "apart", "--threads", "2"]),
    "peers meet apart, native pool": ({**TWO, "CUPOOL_BACKEND": "native"}, [*MEETS, "--with", "apart", "--threads", "4"]),
}
PEER_SETS = [name for name in SETS if name.startswith("peers")]

# What the pool asks of the driver, with answers that a driver may give. The program sees some of them itself.
FAULTS = [("cuMemAlloc_v2", 2), ("cuMemFree_v2", 999), ("cuCtxRecordEvent", 999), ("cuCtxWaitEvent", 999), ("cuStreamWaitEvent", 999),
          ("cuEventQuery", 999), ("cuEventCreate", 2), ("cuEventRecord", 999), ("cuCtxSynchronize", 999), ("cuEventSynchronize", 999),
          ("cuCtxGetCurrent", 999), ("cuMemGetInfo_v2", 999), ("cuMemAllocAsync", 2), ("cuLaunchKernel", 2),
          ("cuMemCreate", 2), ("cuMemMap", 2), ("cuMemSetAccess", 999), ("cuMemUnmap", 999), ("cuMemAddressReserve", 2),
          ("cuStreamDestroy_v2", 999), ("cuStreamBeginCapture_v2", 999), ("cuStreamCreate", 999), ("cuGraphLaunch", 999),
          ("cuMemFreeAsync", 2)]
FAULT_SETS = ["lanes", "fences", "no budget", "little memory", "small cache", "contexts", "old driver", "mapped",
              "mapped, few kept", "mapped, little memory", "mapped, contexts and resets", "peers"]


@dataclass
class Job:
    """One run: what to set, what to say on the command line, what to preload."""

    name: str
    seed: int
    threads: int
    environment: dict = field(default_factory=dict)
    arguments: list = field(default_factory=list)
    preload: list = field(default_factory=lambda: [OBSERVER, LIBRARY])
    scene: str = ""  # of this program, instead of torture
    program: str = "torture_races"

    def command(self):
        """The program's own command line; a set's arguments come last and win."""
        if self.scene:
            return [str(victim(self.program)), self.scene]
        return [str(victim("torture")), "--seed", str(self.seed), "--threads", str(self.threads),
                "--ops", str(OPERATIONS), "--most", "1000000", "--with", "abandon",
                *self.arguments]

    def settings(self):
        """All of the environment that matters."""
        settings = {"CUPOOL_SIM_SEED": str(self.seed), **ALONE, **sanitizer.options(), **self.environment}
        if self.preload:
            settings["LD_PRELOAD"] = preloaded(*self.preload)
        settings["LD_LIBRARY_PATH"] = str(BUILD / "sim")
        return settings

    def repeat_with(self):
        """A line for a shell."""
        words = ["env", *(f"{key}={value}" for key, value in self.settings().items()), *self.command()]
        return " ".join(map(shlex.quote, words))


@dataclass
class Finding:
    """A run that did not end well; exit code None: it did not end."""

    job: Job
    code: int | None
    text: str

    def __str__(self):
        last = "\n    ".join(self.text.strip().splitlines()[-14:])
        how = "did not end" if self.code is None else f"exit code {self.code}"
        what = f"{self.job.name}, seed {self.job.seed}, {self.job.threads} threads"
        return f"{what}: {how}\n    {last}\n  {self.job.repeat_with()}"


def run_job(job, limit=120):
    """The exit code and what was said. A missing library is an error here: the loader would only grumble."""
    for library in job.preload:
        if not library.exists():
            raise FileNotFoundError(library)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUPOOL_", "LD_"))}
    settings = job.settings()
    command = job.command()
    if EMULATOR:
        loader = [word for key in ("LD_PRELOAD", "LD_LIBRARY_PATH") if key in settings
                  for word in ("-E", f"{key}={settings.pop(key)}")]
        command = [*EMULATOR, *loader, *command]
    try:
        done = subprocess.run(command, env={**environment, **settings}, capture_output=True, text=True,
                              errors="replace", timeout=limit, check=False)
    except subprocess.TimeoutExpired as late:
        return None, str(late.stderr or "")
    return done.returncode, done.stdout + done.stderr


def threads_for(seed):
    """Half of the runs repeat exactly."""
    return (1, 2, 1, 4, 1, 3, 1, 8)[seed % 8]


def seeded_jobs(first, count, names=tuple(SETS)):
    """Every set of features in turn, each seed once."""
    for seed in range(first, first + count):
        name = names[seed % len(names)]
        environment, arguments = SETS[name]
        yield Job(name, seed, threads_for(seed // len(names)), dict(environment), list(arguments))


def fault_jobs(first, count):
    """Every call in turn; for each call one count after the other at which it fails, now and then from then on."""
    for number in range(first, first + count):
        call, code = FAULTS[number % len(FAULTS)]
        turn = number // len(FAULTS)
        at = 1 + turn % 67
        when = f"{at}+" if turn % 7 == 6 else str(at)
        name = FAULT_SETS[turn % len(FAULT_SETS)]
        environment, arguments = SETS[name]
        fault = f"{call}@{when}={code}"
        yield Job(f"{name}, {fault}", number, threads_for(turn), {**environment, "CUPOOL_SIM_FAULTS": fault},
                  [*arguments, "--tolerant"])


# What a case needs besides: memory that is not simply new, and a judge who counts a thread's own frees only.
SCENES = {"moved": {"CUPOOL_SEGMENTS": "mapped"},
          "given_back": {"CUPOOL_SIM_MEMORY": "64M"},
          "unused": {"CUPOOL_SIM_MEMORY": "64M"},
          "ordered": {"CUPOOL_SIM_FAULTS": "cuEventRecord@1+=999"},
          "wait": {"CUPOOL_SIM_FAULTS": "cuEventRecord@1+=999"},
          "peers": TWO,
          "others": {"CUPOOL_STREAMS": "exact", "CUPOOL_MANY_BUDGET": "0", "CUPOOL_SIM_WAITS": "exact"}}


def scene_jobs(scene, count, rule, program="torture_races"):
    """The one case a rule is for, with a library from which that rule is taken ('' : none is)."""
    for seed in range(1, 1 + count):
        yield Job(f"{scene} without {rule or 'nothing'}", seed, 2, {"WITHOUT_RULE": rule, **SCENES.get(scene, {})},
                  preload=[OBSERVER, WITHOUT], scene=scene, program=program)


def without(jobs, rule):
    """The same jobs with one rule left out."""
    for job in jobs:
        job.preload = [OBSERVER, WITHOUT]
        job.environment["WITHOUT_RULE"] = rule
        job.name += f", without {rule}"
        yield job


def bare_jobs(first, count, names=tuple(SETS)):
    """Nothing preloaded: shows that the victim is a valid program."""
    for job in seeded_jobs(first, count, names):
        job.environment = {k: v for k, v in job.environment.items() if k.startswith("CUPOOL_SIM_")}
        job.preload = []
        job.name += ", bare"
        yield job


def findings(jobs, workers=None, enough=10):
    """Runs the jobs, several at a time; gives those that did not end with 0, at most `enough` of them."""
    found = []
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        results = [(job, pool.submit(run_job, job)) for job in jobs]
        for job, result in results:
            code, text = result.result()
            if code == 0:
                continue
            found.append(Finding(job, code, text))
            if len(found) == enough:
                pool.shutdown(cancel_futures=True)
                break
    return found
