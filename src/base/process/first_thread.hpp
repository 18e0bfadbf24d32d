// first_thread.hpp: whether the process's first thread, which mostly is the one that computes, is
// ready to run. One that waits for a core is, which its processor time does not show until it has
// one, and never shows where another machine's guest took it.
#pragma once

namespace sennit {

// Whether it runs, or would if it had a core. False where it waits for anything else, and where
// that cannot be read. Any thread; some 9 us, and a descriptor meanwhile.
bool first_thread_ready();

}  // namespace sennit
