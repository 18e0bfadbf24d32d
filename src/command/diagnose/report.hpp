// report.hpp: a verdict as text, as JSON and as a page.
#pragma once

#include <string>

#include "diagnose/plans.hpp"
#include "diagnose/recorded/recordings.hpp"
#include "diagnose/recorded/verdict.hpp"

namespace sennit::diagnose {

// For a terminal: the verdict in the first line, then why.
std::string verdict_text(const JobRecording& job, const Verdict& verdict, const Plans& plans);
// For programs; the keys are those of command/diagnose/README.md.
std::string verdict_json(const JobRecording& job, const Verdict& verdict, Plans& plans);
// One self-contained page: the same, the fabric with what is blamed marked, and how long calls
// took. (command/diagnose/page.cpp)
std::string verdict_page(const JobRecording& job, const Verdict& verdict, Plans& plans);

// The job's fabric in its text form, as traffic has shown it: what a slow link carries is its
// capacity then, measured when the job last did something. Of links that are not told apart there
// is a note. Errors: the fabric is not recorded.
Result<std::string> fabric_text(const JobRecording& job, const Verdict& verdict, Plans& plans);

}  // namespace sennit::diagnose
