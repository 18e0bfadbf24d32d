// `sennit job --html`: one self-contained page.
#include "command_job.hpp"
#include "markup.hpp"

namespace sennit::job {

std::string page_of(const Problem& problem, const Answer& answer) {
  return "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>" +
         escape(problem.job.model.name) + "</title>\n<pre>" + escape(text_of(problem, answer)) +
         "</pre>\n</html>\n";
}

}  // namespace sennit::job
