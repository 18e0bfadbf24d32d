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

// "out of rack1 carries 47% of its capacity", or that it is slow by nobody knows how much.
std::string what_it_carries(const FoundLink& slow);
// The job's fabric in its text form, as traffic has shown it: what a slow link carries is its
// capacity then, measured when the job last did something. Of links that are not told apart, and of
// one whose rate is not known, there is a note. Errors: the fabric is not recorded.
Result<std::string> fabric_text(const JobRecording& job, const Verdict& verdict, Plans& plans);

}  // namespace sennit::diagnose
