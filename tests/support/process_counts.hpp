// process_counts.hpp: how many descriptors and threads this process has, for tests that nothing of
// them stays.
#pragma once

#include <dirent.h>

namespace sennit_test {

// Of a folder, without itself and the one above.
inline int entries(const char* folder) {
  int count = -2;
  DIR* const directory = opendir(folder);
  while (directory && readdir(directory)) count++;
  if (directory) closedir(directory);
  return count;
}

// The one that looks counts as well.
inline int descriptors() { return entries("/proc/self/fd"); }
inline int threads() { return entries("/proc/self/task"); }

}  // namespace sennit_test
