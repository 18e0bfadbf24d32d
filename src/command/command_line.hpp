// command_line.hpp: the arguments of a program: commands, their options, and what each does.
//
// CLI11 reads them, in command_line.cpp alone: its headers take longer to compile than most of what
// uses them. Where an option's value goes must outlive CommandLine::run(). Calls that are off end
// the program with status 2 and a sentence on standard error, before anything is done.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace sennit {

// A handle of one option, flag or positional argument: copies mean the same one.
class Argument {
 public:
  explicit Argument(CLI::Option* option) : option_(option) {}

  Argument required() const;
  // The help shows the value that it has when this is called.
  Argument show_default() const;
  Argument hide() const;
  // Numbers, the bounds included; of a list, each.
  Argument within(int64_t least, int64_t most) const;
  Argument share_within(double least, double most) const;
  Argument one_of(const std::vector<std::string>& words) const;
  Argument existing_folder() const;
  // Bytes above 0: 4096, 64K, 1.5G. KiB is 1,024; K is that as well, or 1,000.
  enum class Kilo { is_1000, is_1024 };
  Argument size(Kilo kilo) const;
  // Of an option "" is refused otherwise: a variable that is not set is no wish for a default.
  Argument may_be_empty() const;
  // Lists: 1,2,3; or how many words it takes.
  Argument separated_by_commas() const;
  Argument words(int least, int most) const;
  // In the help, in place of the value's type.
  Argument value_name(const std::string& name) const;
  Argument excludes(const Argument& other) const;
  Argument needs(const Argument& other) const;

  // After parsing.
  bool given() const;
  std::string name() const;  // the longest: --fabric

 private:
  CLI::Option* option_;
};

// A handle of one command of the program, or of a command's own commands.
class Command {
 public:
  Command(CLI::App* app, int* exit_code) : app_(app), exit_code_(exit_code) {}

  // names: "-b,--bytes", or "collective" for a positional argument. The types that there are stand
  // at the end of command_line.cpp.
  template <class Value>
  Argument option(const std::string& names, Value& value, const std::string& help = "") const;
  Argument flag(const std::string& names, bool& value, const std::string& help) const;
  // The positional argument that takes all remaining words, each as it stands, also --help: another
  // program and its arguments. An option's list of words splits "[1,2]".
  Argument rest(const std::string& name, std::vector<std::string>& words,
                const std::string& help = "") const;
  Command command(const std::string& name, const std::string& help) const;
  Command hidden_command(const std::string& name) const;
  void require_command() const;  // one of its own
  // What it does once all arguments are read. The result becomes the program's exit status: 0 done,
  // 1 done and something is wrong, 2 the call was off, 3 the machine lacks something.
  void action(std::function<int()> action) const;

  std::vector<Argument> options() const;

 private:
  CLI::App* app_;
  int* exit_code_;
};

// A program's arguments, commands and help. Made and run once, by main().
class CommandLine {
 public:
  // With --help, and --version where a version is given. Where commands are, one must be given.
  CommandLine(const std::string& about, const std::string& program,
              const std::string& version = "");
  ~CommandLine();

  Command command(const std::string& name, const std::string& help);
  // All of it, for a program without commands.
  Command itself();
  // The help of a program that is one command under a name of its own, which says its positional
  // arguments already.
  void call_itself(const std::string& program);
  // Parses the arguments (the program's name first), does what they say, gives the exit status.
  int run(const std::vector<const char*>& arguments);

 private:
  std::unique_ptr<CLI::App> app_;
  int exit_code_ = 0;
};

}  // namespace sennit
