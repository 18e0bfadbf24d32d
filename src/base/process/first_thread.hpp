// first_thread.hpp: whether the process's first thread, which mostly is the one that computes, is
// ready to run. One that waits for a core is. Its processor time does not show that until it has
// one, and never where the machine is virtual and its host gave the core to another.
#pragma once

namespace sennit {

// Whether it runs, or would if it had a core. False where it waits for anything else, and where
// that cannot be read. Any thread; some 9 us, and a descriptor meanwhile.
bool first_thread_ready();

}  // namespace sennit
