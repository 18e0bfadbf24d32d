// presence.cpp: see api/presence.hpp.
#include "api/presence.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/mutex.hpp"
#include "base/process/forked.hpp"

namespace sennit {
namespace {

// The contexts that this process has made; a forked child begins with none.
struct Made {
  std::weak_ptr<Context> context;
  JobSettings settings;
  Origin origin;
};
struct AllMade {
  AllMade() { hold_across_fork(mutex); }
  Mutex mutex;
  std::vector<Made> contexts SENNIT_GUARDED_BY(mutex);
};
AllMade& all_made() {
  static auto* const all = new AllMade;
  return *all;
}
// Made before there are threads: a child that is forked while one of them makes it would wait for
// that for ever.
[[maybe_unused]] const AllMade& kMadeEarly = all_made();

void remember(const std::shared_ptr<Context>& context, const JobSettings& settings) {
  AllMade& all = all_made();
  const MutexLock lock(all.mutex);
  std::erase_if(all.contexts, [](const Made& one) { return one.context.expired(); });
  all.contexts.push_back({context, settings, {}});
}

// A context that may carry the new job: it stays, and keeps what comes for the communicator. What
// is declared last ends first.
struct Offer {
  std::shared_ptr<Context> context;
  std::unique_ptr<Registry::Making> making;
};

std::vector<Offer> offers(const JobSettings& settings) {
  std::vector<std::shared_ptr<Context>> alive;
  {
    AllMade& all = all_made();
    const MutexLock lock(all.mutex);
    for (const Made& one : all.contexts)
      if (!one.origin.forked() && one.settings == settings)
        if (std::shared_ptr<Context> context = one.context.lock())
          alive.push_back(std::move(context));
  }
  std::vector<Offer> offers;
  for (std::shared_ptr<Context>& context : alive) {
    if (!context->may_be_shared()) continue;
    auto making = std::make_unique<Registry::Making>(context->registry());
    offers.push_back({std::move(context), std::move(making)});
  }
  return offers;
}

Membership membership_of(Context& context, bool rank_0) {
  Control& control = context.control();
  return {control.job(), control.rank(), control.size(), control.secret(),
          rank_0 ? context.draw_communicator_number() : 0};
}

}  // namespace

Result<Presence> join_job(BootstrapOptions bootstrap, const JobSettings& settings) {
  std::vector<Offer> offered;
  // Others cannot know what a job is whose number is drawn at its start.
  if (bootstrap.job != 0 && bootstrap.size > 1) offered = offers(settings);
  for (const Offer& offer : offered)
    bootstrap.memberships.push_back(membership_of(*offer.context, bootstrap.rank == 0));
  const int size = bootstrap.size;
  const auto rank = static_cast<size_t>(bootstrap.rank);
  SharedJob shared;
  Result<std::shared_ptr<Context>> context =
      Context::start(std::move(bootstrap), settings, &shared);
  if (!context) return context.status();
  if (*context) {
    std::vector<int> everyone(static_cast<size_t>(size));
    std::iota(everyone.begin(), everyone.end(), 0);
    remember(*context, settings);
    return Presence{*std::move(context), kWholeJob, std::move(everyone), nullptr};
  }
  for (Offer& offer : offered) {
    const Control& control = offer.context->control();
    if (control.job() == shared.job && control.rank() == shared.members[rank])
      return Presence{std::move(offer.context), shared.number, std::move(shared.members),
                      std::move(offer.making)};
  }
  return Status{SENNIT_INTERNAL, "the job that was to carry this one is gone"};
}

}  // namespace sennit
