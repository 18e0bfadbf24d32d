// command_line.cpp: see command/command_line.hpp.
#include "command/command_line.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>

namespace sennit {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 62;
// More than any command line has, and a number that CLI11 takes.
constexpr int kMostWords = 1 << 28;
constexpr int kNoLimit = -1;

// The help of a command under the name of a program.
class ProgramFormatter : public CLI::Formatter {
 public:
  explicit ProgramFormatter(std::string program) : program_(std::move(program)) {}
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: " + program_ + " [OPTIONS]\n";
  }
  std::string make_positionals(const CLI::App*) const override { return ""; }

 private:
  std::string program_;
};

// What is wrong where one of the command's own must be given, and none is.
std::string missing_command_text(const CLI::App& command) {
  std::string names;
  for (const CLI::App* one : command.get_subcommands([](const CLI::App*) { return true; }))
    if (!one->get_group().empty()) names += (names.empty() ? "" : ", ") + one->get_name();
  const std::vector<std::string> words = command.remaining();
  return (words.empty() ? "no command given" : "there is no command '" + words[0] + "'") +
         "; the commands are: " + names;
}

// As the commands themselves speak: sennit plan: --ranks: ...
std::string failure_text(const CLI::App* app, const CLI::Error& error) {
  std::string name = app->get_name();
  const CLI::App* command = app;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().back();
    name += " " + command->get_name();
  }
  const bool lacks_command =
      command->get_require_subcommand_min() > 0 && error.get_name() == "RequiredError";
  return name + ": " + (lacks_command ? missing_command_text(*command) : error.what()) +
         "\nRun with --help for more information.\n";
}

constexpr const char* kNotEmpty = "not empty";

// A variable that is not set is no wish for a default.
std::string is_not_empty(const std::string& text) {
  return text.empty() ? "expected a value and found none: leave it out for the default" : "";
}

// CLI11 alone takes -1 for the largest number there is.
std::string starts_with_digit(const std::string& text) {
  if (text.empty()) return is_not_empty(text);
  return text[0] >= '0' && text[0] <= '9' ? "" : text + ": expected bytes, such as 64M";
}

}  // namespace

Argument Argument::required() const {
  option_->required();
  return *this;
}
Argument Argument::show_default() const {
  option_->capture_default_str();
  return *this;
}
Argument Argument::hide() const {
  option_->group("");
  return *this;
}
Argument Argument::within(int64_t least, int64_t most) const {
  option_->check(CLI::Range(least, most));
  return *this;
}
Argument Argument::share_within(double least, double most) const {
  option_->check(CLI::Range(least, most));
  return *this;
}
Argument Argument::one_of(const std::vector<std::string>& words) const {
  option_->check(CLI::IsMember(words));
  return *this;
}
Argument Argument::existing_folder() const {
  option_->check(CLI::ExistingDirectory);
  return *this;
}
Argument Argument::size(Kilo kilo) const {
  // What is added last is looked at first.
  option_->transform(CLI::AsSizeValue(kilo == Kilo::is_1000))
      ->transform(
          CLI::Validator([](const std::string& text) { return starts_with_digit(text); }, "", ""))
      ->check(CLI::Range(uint64_t{1}, kMostBytes));
  return *this;
}
Argument Argument::may_be_empty() const {
  option_->get_validator(kNotEmpty)->active(false);
  return *this;
}
Argument Argument::separated_by_commas() const {
  option_->delimiter(',');
  return *this;
}
Argument Argument::words(int least, int most) const {
  option_->expected(least, most);
  return *this;
}
Argument Argument::value_name(const std::string& name) const {
  option_->type_name(name);
  return *this;
}
Argument Argument::excludes(const Argument& other) const {
  option_->excludes(other.option_);
  return *this;
}
Argument Argument::needs(const Argument& other) const {
  option_->needs(other.option_);
  return *this;
}
bool Argument::given() const { return option_->count() > 0; }
std::string Argument::name() const { return option_->get_name(); }

template <class Value>
Argument Command::option(const std::string& names, Value& value, const std::string& help) const {
  CLI::Option* const option = app_->add_option(names, value, help);
  if (option->get_positional()) return Argument(option);
  // CLI11 takes the next word, whatever it is, also behind "--json=".
  option->check([app = app_](const std::string& text) {
    const bool is_option = text.starts_with('-') && app->get_option_no_throw(text) != nullptr;
    return is_option ? "expected a value and found the option " + text : std::string();
  });
  option->check(is_not_empty, "", kNotEmpty);
  return Argument(option);
}
Argument Command::flag(const std::string& names, bool& value, const std::string& help) const {
  return Argument(app_->add_flag(names, value, help));
}
Argument Command::rest(const std::string& name, std::vector<std::string>& words,
                       const std::string& help) const {
  CLI::Option* const option = app_->add_option(
      name,
      [&words](const CLI::results_t& given) {
        words = given;
        return true;
      },
      help);
  // CLI11 splits the words of an option that may have more than it must. So this one must have more
  // than there are, and the policy forgives it.
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  option->type_name("TEXT")->expected(kMostWords, kNoLimit);
  // What stands behind the first word is the other program's, be it an option of ours by its name.
  app_->positionals_at_end();
  return Argument(option);
}
Command Command::command(const std::string& name, const std::string& help) const {
  return {app_->add_subcommand(name, help), exit_code_};
}
Command Command::hidden_command(const std::string& name) const {
  return {app_->add_subcommand(name)->group(""), exit_code_};
}
void Command::require_command() const { app_->require_subcommand(1); }
void Command::action(std::function<int()> action) const {
  app_->callback([action = std::move(action), exit_code = exit_code_] { *exit_code = action(); });
}
std::vector<Argument> Command::options() const {
  std::vector<Argument> options;
  for (CLI::Option* option : app_->get_options()) options.emplace_back(option);
  return options;
}

CommandLine::CommandLine(const std::string& about, const std::string& program,
                         const std::string& version)
    : app_(std::make_unique<CLI::App>(about, program)) {
  app_->failure_message(failure_text);
  if (!version.empty()) app_->set_version_flag("--version", version);
}
CommandLine::~CommandLine() = default;

Command CommandLine::command(const std::string& name, const std::string& help) {
  app_->require_subcommand(1);
  return itself().command(name, help);
}
Command CommandLine::itself() { return {app_.get(), &exit_code_}; }

void CommandLine::call_itself(const std::string& program) {
  app_->formatter(std::make_shared<ProgramFormatter>(program));
}

int CommandLine::run(const std::vector<const char*>& arguments) {
  try {
    app_->parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const CLI::ParseError& error) {
    if (app_->exit(error) != 0) return 2;
    // else --help or --version, on standard output
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "sennit: there is no memory left for this process\n");
    return 3;
  } catch (const std::system_error& error) {  // of threads, or of fmt, which could not write
    if (!std::ferror(stdout)) {
      std::fprintf(stderr, "sennit: the system refused: %s\n", error.what());
      return 3;
    }
  }
  // errno is no longer that of an earlier write that failed.
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    std::fprintf(stderr, "sennit: standard output could not be written%s%s\n",
                 errno != 0 ? ": " : "", errno != 0 ? std::strerror(errno) : "");
    return exit_code_ == 0 ? 1 : exit_code_;
  }
  return exit_code_;
}

#define SENNIT_OPTION(...) \
  template Argument Command::option(const std::string&, __VA_ARGS__&, const std::string&) const
SENNIT_OPTION(std::string);
SENNIT_OPTION(int);
SENNIT_OPTION(uint32_t);
SENNIT_OPTION(int64_t);
SENNIT_OPTION(uint64_t);
SENNIT_OPTION(double);
SENNIT_OPTION(std::optional<int>);
SENNIT_OPTION(std::optional<double>);
SENNIT_OPTION(std::vector<int>);
SENNIT_OPTION(std::vector<uint16_t>);
SENNIT_OPTION(std::vector<std::string>);
#undef SENNIT_OPTION

}  // namespace sennit
