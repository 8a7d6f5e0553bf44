"""Device memory in use by everybody, asked of NVML: the driver's own word, which no preloaded library adjusts."""

import ctypes
import threading


class _Memory(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong),
                ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


_VERSION_2 = ctypes.sizeof(_Memory) | 2 << 24


class DeviceMemory:
    """The first device. used_mib() is None where NVML is not to be had."""

    def __init__(self):
        self._handle = None
        try:
            self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        handle = ctypes.c_void_p()
        if self._nvml.nvmlInit_v2() == 0 and self._nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0:
            self._handle = handle

    def used_mib(self):
        """Mebibytes that the programs on this device hold, contexts included."""
        if self._handle is None:
            return None
        memory = _Memory(version=_VERSION_2)
        if self._nvml.nvmlDeviceGetMemoryInfo_v2(self._handle, ctypes.byref(memory)) != 0:
            return None
        return memory.used / 2**20


class PeakMemory:
    """Watches the device from outside the watched program while the with block runs; peak_mib is None without NVML."""

    def __init__(self, device, every_s=0.02):
        self._device, self._every, self._over = device, every_s, threading.Event()
        self.peak_mib = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self):
        while not self._over.wait(self._every):
            used = self._device.used_mib()
            if used is not None:
                self.peak_mib = max(used, self.peak_mib or 0)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()
