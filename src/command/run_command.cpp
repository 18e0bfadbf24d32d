// run_command.cpp: see command/commands.hpp.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>

#include "command/commands.hpp"

namespace sennit {

int run_command(CLI::App& app, const std::vector<const char*>& arguments, const int* exit_code) {
  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "sennit: there is no memory left for this process\n");
    return 3;
  } catch (const std::system_error& error) {  // of threads
    std::fprintf(stderr, "sennit: the system refused: %s\n", error.what());
    return 3;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    std::fprintf(stderr, "sennit: standard output could not be written: %s\n",
                 std::strerror(errno));
    return *exit_code == 0 ? 1 : *exit_code;
  }
  return *exit_code;
}

}  // namespace sennit
