// Victim: a program without CUDA. Says from inside what a preloaded library may not change: whether libcuda
// is mapped, how many threads there are, which files are open and what libraries dlsym and dlopen find.
#include <dirent.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <thread>

namespace {

int entries(const char* path) {
  DIR* directory = opendir(path);
  if (directory == nullptr) return -1;
  int count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

bool maps(const char* name) {
  std::FILE* file = std::fopen("/proc/self/maps", "r");
  if (file == nullptr) return false;
  char line[4096];
  bool found = false;
  while (std::fgets(line, sizeof(line), file) != nullptr) found = found || std::strstr(line, name) != nullptr;
  std::fclose(file);
  return found;
}

}  // namespace

int main() {
  // Before any thread of our own: one that was joined may still be listed for a moment.
  const int threads = entries("/proc/self/task") - 2;
  std::thread([] {}).join();
  const auto length = reinterpret_cast<std::size_t (*)(const char*)>(dlsym(RTLD_DEFAULT, "strlen"));
  dlerror();
  const bool missing = dlsym(RTLD_DEFAULT, "no_such_function_anywhere") == nullptr && dlerror() != nullptr;
  std::printf("plain: length=%zu missing=%d libcuda=%d threads=%d files=%d\n",
              length == nullptr ? 0 : length("four"), missing, maps("libcuda"), threads,
              entries("/proc/self/fd"));
  return 0;
}
